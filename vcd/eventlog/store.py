"""The file itself: creating, recognising, migrating and locking it; the settings of every connection."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import quote

import msgspec

from vcd.eventlog.errors import DamagedLog, LogError, NewerSchema, explained, sqlite_name
from vcd.eventlog.packing import Packer, PackError, typical_payloads
from vcd.eventlog.rows import Row, group_rows, logged_of, unpacked
from vcd.eventlog.statements import statements
from vcd.model.version import __version__

APPLICATION_ID = 0x7663646C
"""``vcdl``, at offset 68 of each file."""
GROUP_EVENTS = 3
"""The migration from which on there is ``group_event``."""
BUSY_SECONDS = 5.0
_COMMENT, _BLANKS = re.compile(r"--[^\n]*"), re.compile(r"\s+")
SETTINGS = """
    PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = OFF;
    PRAGMA cache_size = -16384;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA temp_store = MEMORY;
    PRAGMA trusted_schema = OFF;
"""


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Number and text of each migration, in order: from the package (a wheel) or the repository's top level."""
    packaged: Traversable = resources.files("vcd.eventlog") / "migrations"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple((int(f.name.partition("_")[0]), f.read_text(encoding="utf-8")) for f in files)


@contextmanager
def failures_explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into a LogError about ``path``."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise explained(path, error) from error


def uri_of(path: Path, options: str) -> str:
    """A file as SQLite takes it with options such as ``mode=ro``, be its name text or not."""
    return f"file:{quote(bytes(path))}?{options}"


def _opened(path: Path, options: str) -> sqlite3.Connection:
    """A connection with transactions by hand, in which the file's schema cannot call what has effects."""
    connection = sqlite3.connect(
        uri_of(path, options), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """A connection that may write, with the settings of a vcd log."""
    connection = _opened(path, "mode=rw")
    try:
        connection.executescript(SETTINGS)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that only reads. Raises LogError when the file is missing or not a vcd log of this schema."""
    connection, version = _opened_read_only(path)
    if version < migrations()[-1][0]:
        connection.close()
        _expect_written(path, version)
        raise LogError(f"event log {path}: written by an older vcd; run `vcd log compact` to bring it up to date")
    return connection


def migrated_copy(path: Path, folder: Path) -> Path | None:
    """A copy of an older log in ``folder``, brought up to this version's schema; None where the log is of this schema.

    Raises LogError when the file is missing, foreign, damaged or of a newer schema, or cannot be copied.
    """
    connection, version = _opened_read_only(path)
    with closing(connection):
        if version == migrations()[-1][0]:
            return None
        _expect_written(path, version)
        copy = folder / path.name
        with failures_explained(path), closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
    prepare(copy)
    return copy


def _opened_read_only(path: Path) -> tuple[sqlite3.Connection, int]:
    """A connection that only reads, and the schema version."""
    try:
        there = path.is_file()
    except OSError as error:
        raise LogError(f"event log {path} cannot be reached: {error.strerror}") from error
    if not there:
        raise LogError(f"event log {path}: there is no such file")
    with failures_explained(path):
        try:
            return _checked_read_only(path, "mode=ro")
        except sqlite3.OperationalError as error:
            wal = path.with_name(path.name + "-wal")
            unwritable = sqlite_name(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
            if not unwritable or (wal.exists() and wal.stat().st_size):
                raise
            # A file in WAL mode in a directory that may not be written: nobody can be writing it.
            return _checked_read_only(path, "mode=ro&immutable=1")


def _expect_written(path: Path, version: int) -> None:
    if not version:
        raise LogError(f"event log {path}: it is empty; `vcd run` fills it, `vcd sim` writes a new one")


def _checked_read_only(path: Path, options: str) -> tuple[sqlite3.Connection, int]:
    connection = _opened(path, options)
    try:
        connection.execute("BEGIN")  # a writer may be bringing the log up to date
        version = _schema_version(path, connection)
        connection.execute("COMMIT")
        return connection, version
    except BaseException:
        connection.close()
        raise


def _schema_version(path: Path, connection: sqlite3.Connection) -> int:
    """The schema version; 0 for a database with nothing in it. Raises LogError for a foreign or newer file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise DamagedLog(f"event log {path}: it is not a vcd log (another program's database); name another file")
    newest = migrations()[-1][0]
    if version > newest:
        raise NewerSchema(
            f"event log {path}: a newer vcd wrote it (schema {version}; vcd {__version__} knows {newest}); use that"
            f" version, or take the file back with it: vcd log downgrade {path} --for {__version__}"
        )
    scripts = tuple(script for number, script in migrations() if number <= version)
    if odd := sorted(_schema(connection) ^ _schema_made_by(scripts)):
        type_, name, _ = odd[0]
        raise DamagedLog(
            f"event log {path}: its {type_} {name} is not that of a vcd log of schema {version}; restore a copy"
        )
    return int(version)


_SchemaObject = tuple[str, str, str]
"""Type and name of a table, index, view or trigger, and the SQL that made it."""


@cache
def _schema_made_by(scripts: tuple[str, ...]) -> frozenset[_SchemaObject]:
    """Return what a log consists of that these migrations made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in scripts:
            connection.executescript(script)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> frozenset[_SchemaObject]:
    """What a database consists of, without what SQLite makes by itself; the SQL without comments and blanks."""
    by_itself = "sql IS NULL OR (type = 'table' AND name IN ('sqlite_sequence', 'sqlite_stat1', 'sqlite_stat4'))"
    found = connection.execute(f"SELECT type, name, sql FROM sqlite_schema WHERE NOT ({by_itself})")
    return frozenset((type_, name, _bare(sql or "")) for type_, name, sql in found)


@lru_cache(maxsize=512)
def _bare(sql: str) -> str:
    """Return SQL without comments and blanks."""
    return _BLANKS.sub("", _COMMENT.sub("", sql))


def make_file(path: Path) -> None:
    """A new file, for its owner alone."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


@contextmanager
def writer_lock(path: Path, *, create: bool) -> Iterator[int]:
    """Hold the right to write ``path``, made when it is missing if ``create`` says so; gives the file's descriptor.

    Raises LogError when another process or log object has it, by this name or another, and when there is no file. The
    locks are the operating system's, so that they end with their holder: one on a file beside the log, which tells who
    has it, and one on the log itself, which may have several names.
    """
    with failures_explained(path):
        path = path.resolve()
        if create and not path.exists():
            make_file(path)
        if not path.is_file():
            raise LogError(f"event log {path}: there is no such file")
        beside = os.open(path.with_name(path.name + "-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(path, beside, os.pread(beside, 32, 0).decode(errors="replace").strip())
        with failures_explained(path):
            os.ftruncate(beside, 0)
            os.pwrite(beside, f"{os.getpid()}\n".encode(), 0)
        with _file_lock(path) as descriptor:
            yield descriptor
    finally:
        os.close(beside)


_locked_here: set[tuple[int, int]] = set()
"""The files that this process has locked, as device and inode."""


@contextmanager
def _file_lock(path: Path) -> Iterator[int]:
    """Lock the file itself; gives its descriptor.

    Closing any descriptor of a file drops the process's own SQLite locks on it, so it is opened only where nobody here
    writes it, before SQLite opens it, and closed after.
    """
    with failures_explained(path):
        status = path.stat()
    file = (status.st_dev, status.st_ino)
    if file in _locked_here:
        raise _held(path, str(os.getpid()))
    with failures_explained(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _locked_here.add(file)
    try:
        _lock(path, descriptor, "")
        yield descriptor
    finally:
        _locked_here.discard(file)
        os.close(descriptor)


def _lock(path: Path, descriptor: int, holder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _held(path, holder) from error


def _held(path: Path, holder: str) -> LogError:
    who = f"process {holder}" if holder else "a process that knows it by another name"
    return LogError(f"event log {path}: it is locked, {who} writes it; stop that process or name another file")


def in_place(path: Path, descriptor: int) -> os.stat_result:
    """The status of an open file, which ``path`` still names. Raises LogError where it names another one, or none."""
    with failures_explained(path):
        opened = os.fstat(descriptor)
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            found = None
    if found is not None and os.path.samestat(found, opened):
        return opened
    raise LogError(
        f"event log {path}: {'another file' if found else 'no file'} is in its place, without what was logged since;"
        " stop vcd before a log is replaced, moved or deleted. A restart goes on from what is there"
    )


def note_damage(path: Path, reason: str) -> None:
    """Note beside a log that it was found damaged while it was written, for who opens it next."""
    with suppress(OSError):  # the disk that damaged it may take nothing more; the error itself is told in any case
        _damage_note(path).write_text(f"{reason}\n")


def check_noted_damage(path: Path) -> None:
    """Look through a whole log that was found damaged before. Raises LogError where it still is."""
    note = _damage_note(path)
    if not note.exists():
        return
    with failures_explained(path), closing(connect(path)) as connection:
        found = [text for (text,) in connection.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise DamagedLog(
            f"event log {path}: it is damaged, as was found while it was written ({found[0]}); restore a copy, or move "
            "it away and start a new file"
        )
    note.unlink()


def _damage_note(path: Path) -> Path:
    return path.resolve().with_name(path.resolve().name + "-damaged")


def prepare(path: Path) -> None:
    """Make a file a log that can be written: recognise, migrate, clear what a crash left over.

    One that was found damaged while it was written is looked through first.

    To be called with the writer lock held. Raises LogError.
    """
    with failures_explained(path):
        if not os.access(path, os.W_OK):
            raise LogError(f"event log {path}: it may not be written; check owner and mode")
        path.chmod(0o600)
        check_noted_damage(path)
        with closing(connect(path)) as connection:
            _migrate(path, connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(statements("checkpoint")["clear"])


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    version = _schema_version(path, connection)
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for number, script in migrations():
        if number <= version:
            continue
        with transaction(connection):
            for statement in split_script(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
            if number == 1:
                connection.execute(statements("append")["dictionary"], (1, typical_payloads()))
            if number == GROUP_EVENTS:
                _index_groups(path, connection)


def _index_groups(path: Path, connection: sqlite3.Connection) -> None:
    """Fill ``group_event`` for what is in the file. An event that cannot be read is in no index: ``verify`` tells of
    it."""
    packer, cursor = packer_of(path, connection), connection.execute(statements("read")["unindexed"])
    while rows := cursor.fetchmany(1000):
        found: list[Row] = []
        for row in rows:
            with suppress(PackError, msgspec.MsgspecError):
                found += group_rows(logged_of(unpacked(packer, row)))
        connection.executemany(statements("append")["group_event"], found)


def split_script(script: str) -> Iterator[str]:
    """The statements of an SQL script, each complete by SQLite's own rules."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction: all of it, or on any exception none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have rolled back by itself; the first error is the one to tell
            connection.execute("ROLLBACK")
        raise


def packer_of(path: Path, connection: sqlite3.Connection) -> Packer:
    """The packer with the file's own dictionaries. Raises DamagedLog where they are not as they were written, and what
    SQLite raises."""
    dictionaries = dict(connection.execute(statements("read")["dictionaries"]).fetchall())
    if not dictionaries or not all(isinstance(each, bytes) for each in dictionaries.values()):
        raise DamagedLog(f"event log {path}: the dictionary of its payloads is missing; restore a copy")
    return Packer(dictionaries)


@contextmanager
def opened_to_write(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock, prepare and open ``path`` for one synchronous writer; errors come as LogError."""
    with writer_lock(path, create=False):
        prepare(path)
        with failures_explained(path), closing(connect(path)) as connection:
            yield connection
