"""The log's file: create, recognize, migrate and lock it, with the settings of every connection.

A file is accepted only if its schema is exactly what the migrations create, because a schema can contain triggers and
views that run code. Closing any descriptor of a file drops the process's SQLite locks on it: see `_file_lock`.
"""

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

from vcd.eventlog.log_errors import DamagedLog, LogError, NewerSchema, explain_error, sqlite_name
from vcd.eventlog.packing import Packer, PackError, build_dictionary
from vcd.eventlog.rows import Row, group_rows, to_logged, unpack_row
from vcd.eventlog.sql_statements import statements
from vcd.model.version import __version__

APPLICATION_ID = 0x7663646C
"""``vcdl``, at offset 68 of the file."""
GROUP_EVENTS = 3
"""The migration that adds ``group_event``."""
BUSY_SECONDS = 5.0
NOTE_SUFFIX = "-damaged"
"""Of the note next to a log that was found damaged during a write."""
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
    """Return number and text of each migration, in order, from the package or the source tree."""
    packaged: Traversable = resources.files("vcd.eventlog") / "migrations"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple((int(f.name.partition("_")[0]), f.read_text(encoding="utf-8")) for f in files)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and the file system as LogError about ``path``."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise explain_error(path, error) from error


def sqlite_uri(path: Path, options: str) -> str:
    """Return the SQLite URI of a file, which need not have a UTF-8 name."""
    return f"file:{quote(bytes(path))}?{options}"


def _open(path: Path, options: str) -> sqlite3.Connection:
    """Connect in autocommit mode; the file's schema cannot call functions with side effects."""
    connection = sqlite3.connect(
        sqlite_uri(path, options), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def connect(path: Path) -> sqlite3.Connection:
    connection = _open(path, "mode=rw")
    try:
        connection.executescript(SETTINGS)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection for reading. Raises LogError if the file is missing or not a log of this schema."""
    connection, version = _open_read_only(path)
    if version < migrations()[-1][0]:
        connection.close()
        _require_schema(path, version)
        raise LogError(f"event log {path}: written by an older vcd; run `vcd log compact` to bring it up to date")
    return connection


def migrate_copy(path: Path, folder: Path) -> Path | None:
    """Return a copy of an older log in ``folder``, migrated to this schema; None if the log has this schema.

    Raises LogError if the file is missing, foreign, damaged, of a newer schema, or cannot be copied.
    """
    connection, version = _open_read_only(path)
    with closing(connection):
        if version == migrations()[-1][0]:
            return None
        _require_schema(path, version)
        copy = folder / path.name
        with translate_errors(path), closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
    prepare(copy)
    return copy


def _open_read_only(path: Path) -> tuple[sqlite3.Connection, int]:
    try:
        there = path.is_file()
    except OSError as error:
        raise LogError(f"event log {path} cannot be reached: {error.strerror}") from error
    if not there:
        raise LogError(f"event log {path}: there is no such file")
    with translate_errors(path):
        try:
            return _open_and_check(path, "mode=ro")
        except sqlite3.OperationalError as error:
            wal = path.with_name(path.name + "-wal")
            unwritable = sqlite_name(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
            if not unwritable or (wal.exists() and wal.stat().st_size):
                raise
            # in a read-only directory SQLite cannot create WAL files, and no writer can exist
            return _open_and_check(path, "mode=ro&immutable=1")


def _require_schema(path: Path, version: int) -> None:
    if not version:
        raise LogError(f"event log {path}: it is empty; `vcd run` fills it, `vcd sim` writes a new one")


def _open_and_check(path: Path, options: str) -> tuple[sqlite3.Connection, int]:
    connection = _open(path, options)
    try:
        connection.execute("BEGIN")  # consistent even while a writer migrates the log
        version = _schema_version(path, connection)
        connection.execute("COMMIT")
        return connection, version
    except BaseException:
        connection.close()
        raise


def _schema_version(path: Path, connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 for an empty database. Raises LogError for a foreign or newer file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise DamagedLog(f"event log {path}: it is not a vcd log (another program's database); name another file")
    newest = migrations()[-1][0]
    if version > newest:
        raise NewerSchema(
            f"event log {path}: a newer vcd wrote it (schema {version}; vcd {__version__} knows {newest}); use that"
            " version, or name a new file"
        )
    scripts = tuple(script for number, script in migrations() if number <= version)
    if odd := sorted(_schema(connection) ^ _schema_of(scripts)):
        type_, name, _ = odd[0]
        raise DamagedLog(
            f"event log {path}: its {type_} {name} is not that of a vcd log of schema {version}; restore a copy"
        )
    if version and connection.execute("SELECT count(*) FROM segment").fetchone() != (0,):
        raise LogError(
            f"event log {path}: an older vcd merged it from the logs of several replicas, which this version does not"
            " read; name the log of one replica"
        )
    return int(version)


_SchemaObject = tuple[str, str, str]
"""Type and name of a table, index, view or trigger, and its SQL."""


@cache
def _schema_of(scripts: tuple[str, ...]) -> frozenset[_SchemaObject]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in scripts:
            connection.executescript(script)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> frozenset[_SchemaObject]:
    by_itself = "sql IS NULL OR (type = 'table' AND name IN ('sqlite_sequence', 'sqlite_stat1', 'sqlite_stat4'))"
    found = connection.execute(f"SELECT type, name, sql FROM sqlite_schema WHERE NOT ({by_itself})")
    return frozenset((type_, name, _normalize_sql(sql or "")) for type_, name, sql in found)


@lru_cache(maxsize=512)
def _normalize_sql(sql: str) -> str:
    return _BLANKS.sub("", _COMMENT.sub("", sql))


def create_file(path: Path) -> None:
    """Create a file that only its owner can access."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


@contextmanager
def writer_lock(path: Path, *, create: bool) -> Iterator[int]:
    """Hold the exclusive right to write ``path``; yields the file's descriptor.

    Creates a missing file if ``create``. Raises LogError if there is no file, or another process or log object has the
    lock, also by another name of the file. The operating system releases the locks when their holder ends. There are
    two: on a file next to the log, which names the holder, and on the log itself, which can have several names.
    """
    with translate_errors(path):
        path = path.resolve()
        if create and not path.exists():
            create_file(path)
        if not path.is_file():
            raise LogError(f"event log {path}: there is no such file")
        lock_file = os.open(path.with_name(path.name + "-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(path, lock_file, os.pread(lock_file, 32, 0).decode(errors="replace").strip())
        with translate_errors(path):
            os.ftruncate(lock_file, 0)
            os.pwrite(lock_file, f"{os.getpid()}\n".encode(), 0)
        with _file_lock(path) as descriptor:
            yield descriptor
    finally:
        os.close(lock_file)


_locked_files: set[tuple[int, int]] = set()
"""Device and inode of the files that this process has locked."""


@contextmanager
def _file_lock(path: Path) -> Iterator[int]:
    """Lock the file itself; yields its descriptor.

    Closing any descriptor of a file drops the process's SQLite locks on it. So the file is opened before SQLite opens
    it, closed afterwards, and never opened while another log object here writes it.
    """
    with translate_errors(path):
        status = path.stat()
    file = (status.st_dev, status.st_ino)
    if file in _locked_files:
        raise _locked_error(path, str(os.getpid()))
    with translate_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _locked_files.add(file)
    try:
        _lock(path, descriptor, "")
        yield descriptor
    finally:
        _locked_files.discard(file)
        os.close(descriptor)


def _lock(path: Path, descriptor: int, holder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _locked_error(path, holder) from error


def _locked_error(path: Path, holder: str) -> LogError:
    who = f"process {holder}" if holder else "a process that uses another name of it"
    return LogError(f"event log {path}: it is locked, {who} writes it; stop that process or name another file")


def check_in_place(path: Path, descriptor: int) -> os.stat_result:
    """Return the status of an open file. Raises LogError unless ``path`` still names it."""
    with translate_errors(path):
        opened = os.fstat(descriptor)
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            found = None
    if found is not None and os.path.samestat(found, opened):
        return opened
    raise LogError(
        f"event log {path}: {'another file' if found else 'no file'} is in its place, without what was logged since;"
        " stop vcd before a log is replaced, moved or deleted. A restart continues with what is there"
    )


def note_damage(path: Path, reason: str) -> None:
    """Record next to a log that it was found damaged during a write, for the next start."""
    with suppress(OSError):  # the disk may be failing; the caller reports the damage in any case
        _damage_note(path).write_text(f"{reason}\n")


def check_noted_damage(path: Path) -> None:
    """Check a log that was found damaged before. Raises DamagedLog if it still is."""
    note = _damage_note(path)
    if not note.exists():
        return
    with translate_errors(path), closing(connect(path)) as connection:
        found = [text for (text,) in connection.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise DamagedLog(
            f"event log {path}: it is damaged, as was found while it was written ({found[0]}); restore a copy, or move "
            "it away and start a new file"
        )
    note.unlink()


def _damage_note(path: Path) -> Path:
    return path.resolve().with_name(path.resolve().name + NOTE_SUFFIX)


def prepare(path: Path) -> None:
    """Make a file a writable log: check noted damage, migrate, remove unfinished checkpoints.

    The caller holds the writer lock. Raises LogError.
    """
    with translate_errors(path):
        if not os.access(path, os.W_OK):
            raise LogError(f"event log {path}: no permission to write it; check owner and mode")
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
                connection.execute(statements("append")["dictionary"], (1, build_dictionary()))
            if number == GROUP_EVENTS:
                _index_groups(path, connection)


def _index_groups(path: Path, connection: sqlite3.Connection) -> None:
    """Fill ``group_event`` for existing events. Unreadable events are skipped; ``verify`` reports them."""
    packer, cursor = load_packer(path, connection), connection.execute(statements("read")["unindexed"])
    while rows := cursor.fetchmany(1000):
        found: list[Row] = []
        for row in rows:
            with suppress(PackError, msgspec.MsgspecError):
                found += group_rows(to_logged(unpack_row(packer, row)))
        connection.executemany(statements("append")["group_event"], found)


def split_script(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run one transaction, rolled back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have rolled back; report the first error
            connection.execute("ROLLBACK")
        raise


def load_packer(path: Path, connection: sqlite3.Connection) -> Packer:
    """Return a packer with the file's dictionaries. Raises DamagedLog, and SQLite's errors."""
    dictionaries = dict(connection.execute(statements("read")["dictionaries"]).fetchall())
    if not dictionaries or not all(isinstance(each, bytes) for each in dictionaries.values()):
        raise DamagedLog(f"event log {path}: the dictionary of its payloads is missing; restore a copy")
    return Packer(dictionaries)


@contextmanager
def open_for_writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Lock, prepare and open ``path`` for one synchronous writer. Raises LogError."""
    with writer_lock(path, create=False):
        prepare(path)
        with translate_errors(path), closing(connect(path)) as connection:
            yield connection
