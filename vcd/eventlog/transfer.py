"""Write new log files from existing ones: export, compact.

A new file is written under a temporary name and renamed when it is complete. Events that keep their numbers keep their
links; renumbered events get a new chain.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec
import zstandard

from vcd.eventlog import chain
from vcd.eventlog.chain import Chain
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_file import (
    connect,
    create_file,
    load_packer,
    open_for_writing,
    prepare,
    transaction,
    translate_errors,
)
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.log_verification import Fold
from vcd.eventlog.packing import PART
from vcd.eventlog.rows import LinkFunction, Logged, Row, build_inserts, state_digest
from vcd.eventlog.sql_statements import statements
from vcd.eventlog.verified_reads import LinkChecker, changed_error, read_verified
from vcd.model.events import SessionDecided

BATCH = 2000
"""Events per transaction."""


class Written(msgspec.Struct, frozen=True):
    """The content of a new file: first and last event, and the number of indexed sessions."""

    first: int
    last: int
    sessions: int


def export(path: str | Path, out: str | Path, fold: Fold, first: int | None = None, last: int | None = None) -> Written:
    """Write the sessions ``first`` to ``last``, and what their replay needs, into a new file.

    With ``first``, the file begins with a checkpoint of the state that this session was decided from, and contains
    nothing older. Without it, the file begins with the latest checkpoint at or before the first session's head, or the
    log's beginning. It contains the events until the session after ``last`` (None: all), with their numbers and links.
    Raises LogError if there is no such session, its history is incomplete or was changed, or ``out`` exists or cannot
    be written.
    """
    with LogReader(path) as reader, reader.pinned(), _create_log(Path(out)) as connection:
        sessions = list(reader.sessions(first, last))
        if not sessions:
            raise LogError(f"event log {path}: no session from {first or 1} to {last or 'the end'} is in it")
        head = min(session.head for session in sessions)
        base = reader.base(head)
        begin = base.sequence if first is None else head
        following = list(reader.sessions(sessions[-1].number + 1, limit=1))
        end = following[0].sequence - 1 if following else reader.head()
        target = _LogWriter(Path(out), connection)
        if begin > base.sequence:
            state = fold(base.state, read_verified(reader, base.sequence, begin))
            (latest,) = reader.read(begin - 1, begin)
            target.checkpoint(begin, latest.time, state, reader.link(begin))
        named = {session.policy for session in sessions}
        target.policies(row for row in reader.rows("policies") if row[0] in named)
        checkpoints = _checkpoint_rows(reader, begin, end)
        begins_with_one = bool(checkpoints) and checkpoints[0][0] == begin
        target.checkpoints(reader, checkpoints, link=reader.link(begin) if begins_with_one else None)
        target.seals(row for row in reader.rows("seals", after=begin) if row[0] <= end)
        links = LinkChecker(reader, begin)
        target.events(reader.read(begin, end), links)
        return Written(begin + 1, end, target.sessions)


def write_new_log(
    out: str | Path,
    base: tuple[int, int, bytes] | None,
    policies: Iterable[tuple[str, str]],
    events: Iterator[Logged],
    checkpoints: Iterable[tuple[int, int, bytes]] = (),
) -> Written:
    """Write events to a new file. They keep their numbers and times and get a new chain.

    Args:
        base: Sequence, time (ns) and state of the checkpoint that the file begins with; None for none.
        policies: Digest and text of configurations loaded before.
        checkpoints: Written last; sequence, time (ns) and state.

    Raises LogError if ``out`` exists or cannot be written.
    """
    with _create_log(Path(out)) as connection:
        target = _LogWriter(Path(out), connection)
        if base is not None:
            target.checkpoint(*base, None)
        target.policies((digest, text, 0) for digest, text in policies)
        begin = 0 if base is None else base[0]
        target.events(events, target.chain.extend)
        for sequence, time, state in checkpoints:
            target.checkpoint(sequence, time, state, None)
        return Written(begin + 1, target.last or begin, target.sessions)


def compact(path: str | Path) -> tuple[int, int]:
    """Rewrite a log without free pages, in this version's schema; return its size in bytes before and after.

    No writer may have it open. Raises LogError.
    """
    path = Path(path)
    with translate_errors(path):
        before = path.stat().st_size
    with open_for_writing(path) as connection:
        connection.execute("PRAGMA temp_store = FILE")  # VACUUM copies the whole log, which may not fit into memory
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before, path.stat().st_size


class _LogWriter:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._packer = load_packer(path, connection)
        self.chain = Chain()
        """The chain for renumbered events."""
        self.last = self.sessions = 0

    def policies(self, rows: Iterable[Row]) -> None:
        with transaction(self._connection):
            self._connection.executemany(
                statements("append")["policy"], [(digest, text, 0) for digest, text, _ in rows]
            )

    def checkpoint(self, sequence: int, time: int, state: bytes, link: bytes | None) -> None:
        """Write a checkpoint, with the link of its event."""
        sql, parts = statements("checkpoint"), [state[start : start + PART] for start in range(0, len(state), PART)]
        with transaction(self._connection):
            for number, part in enumerate(parts):
                self._connection.execute(sql["part"], (sequence, number, zstandard.compress(part, 3)))
            complete = (sequence, time, len(state), len(parts), state_digest(state), link)
            self._connection.execute(sql["complete"], complete)

    def checkpoints(self, reader: LogReader, rows: Iterable[Row], link: bytes | None) -> None:
        """Copy checkpoints; ``link`` is that of the first one's event."""
        sql = statements("checkpoint")
        with transaction(self._connection):
            for sequence, *rest in rows:
                parts = reader.rows("checkpoint_parts", sequence=sequence)
                self._connection.executemany(sql["part"], [(sequence, *part) for part in parts])
                self._connection.execute(sql["complete"], (sequence, *rest, link))
                link = None

    def seals(self, rows: Iterable[Row]) -> None:
        with transaction(self._connection):
            for after, *fields in rows:
                self._connection.execute(statements("checkpoint")["seal"], (after, *fields))
                self.chain.mark(after, chain.seal_mark(*fields))

    def events(self, logged: Iterator[Logged], link: LinkFunction) -> None:
        while batch := list(islice(logged, BATCH)):
            self.last = batch[-1].sequence
            with transaction(self._connection):
                for sql, rows in build_inserts(self._packer, link, batch):
                    self._connection.executemany(sql, rows)
            self.sessions += sum(isinstance(one.event, SessionDecided) for one in batch)


def _checkpoint_rows(reader: LogReader, first: int, last: int) -> list[Row]:
    seals = reader.seals()
    rows = [row for row in reader.rows("checkpoints") if first <= row[0] <= last]
    for sequence, time, _, _, digest in rows:
        if seals.get(sequence, (time, digest)) != (time, digest):
            raise changed_error(reader, f"checkpoint {sequence}")
    return rows


@contextmanager
def _create_log(out: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a new log, which becomes the single file ``out`` on success."""
    if out.exists():
        raise LogError(f"event log {out}: it exists already; name a new file")
    partial = out.with_name(out.name + ".partial")
    with translate_errors(out):
        try:
            partial.unlink(missing_ok=True)
            create_file(partial)
            prepare(partial)
            with closing(connect(partial)) as connection:
                yield connection
                connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            partial.rename(out)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with suppress(OSError):  # report the first error
                    partial.with_name(partial.name + suffix).unlink(missing_ok=True)
