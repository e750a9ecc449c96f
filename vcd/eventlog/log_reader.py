"""Read a log, also while its writer appends. Synchronous.

Streams read in pages of `PAGE` rows without a transaction between them, so the writer can reuse its WAL. Use ``pinned``
if several reads must be consistent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from vcd.eventlog import chain
from vcd.eventlog.chain import Chain, Content
from vcd.eventlog.log_errors import LogError, SessionNotFound
from vcd.eventlog.log_file import connect_read_only, load_packer, translate_errors
from vcd.eventlog.packing import Packer, PackError, unpack_state
from vcd.eventlog.rows import Logged, Row, state_digest, to_logged, unpack_row
from vcd.eventlog.sql_statements import statements
from vcd.model.events import SessionDecided

PAGE = 500
"""Rows per query of a stream. A read transaction lasts no longer, so that the WAL can be checkpointed."""
LAST = (1 << 63) - 1


class Checkpoint(msgspec.Struct, frozen=True):
    """The encoded state at an event; ``state`` is empty before the first event."""

    sequence: int
    state: bytes


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A checkpoint in the file: sequence, time of its creation (ns), and bytes of its state."""

    sequence: int
    time: int
    size: int


class SessionInfo(msgspec.Struct, frozen=True):
    """A session's index entry: number, sequence and time (ns) of its event, the head, epoch, ``now`` (ns) and policy
    that it was decided with, and its numbers of statements and operations."""

    number: int
    sequence: int
    time: int
    head: int
    epoch: int
    now: int
    policy: str
    statements: int
    operations: int


class OperationInfo(msgspec.Struct, frozen=True):
    """An operation's index entry; ``result`` is the last reported outcome, None if there is none yet."""

    session: int
    sequence: int
    time: int
    statement: int
    operation: int
    group: str
    action: str
    verdict: str
    verb: str
    key: str
    node: str
    result: str | None


class LogReader:
    """A log open for reading; a context manager. Every method raises LogError if the file cannot be read."""

    def __init__(self, path: str | Path) -> None:
        """Open ``path``. Raises LogError if it is missing, foreign, damaged or of another schema."""
        self.path = Path(path)
        self._sql = statements("read")
        self._db: sqlite3.Connection = connect_read_only(self.path)
        try:
            self._packer = self.packer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def head(self) -> int:
        """Return the last sequence number; 0 for an empty log."""
        return int(self._value("head"))

    def first(self) -> int | None:
        """Return the sequence number of the first event in the file; None if there is none."""
        value = self._value("first")
        return None if value is None else int(value)

    def last_time(self) -> int:
        """Return the time of the last event or checkpoint (ns); 0 for none."""
        return int(self._value("last_time"))

    def last_session(self) -> int:
        """Return the highest session number ever written to this file; 0 for none."""
        return int(self._value("last_session") or 0)

    def packer(self) -> Packer:
        """Return a packer with the file's dictionaries."""
        with translate_errors(self.path):
            return load_packer(self.path, self._db)

    def read(self, after: int = 0, until: int | None = None) -> Iterator[Logged]:
        """Yield the events after one sequence number up to another (None: the end), in order.

        ``after`` 0 starts with the first event in the file. Raises LogError if an event in the range is missing or
        cannot be read.
        """
        for row in self._paged("events", after, until=LAST if until is None else until):
            if row[0] != after + 1 and after:
                raise LogError(f"event log {self.path}: the events after {after} and before {row[0]} are missing")
            after = row[0]
            yield self._logged(row)

    def find(
        self,
        *,
        kind: str | None = None,
        key: str | None = None,
        type: str | None = None,
        after: int = 0,
        until: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Logged]:
        """Yield the events of a kind, an object key or a type ("put", "gone", "session" ...), in order."""
        name = "events_where" if key is None else "events_of"
        values = {"kind": kind, "key": key, "type": type, "until": LAST if until is None else until}
        return map(self._logged, self._paged(name, after, limit, **values))

    def policies(self, after: int = 0, until: int | None = None) -> Iterator[Logged]:
        """Yield the events that loaded configurations, in order."""
        return map(self._logged, self._paged("policies_loaded", after, until=LAST if until is None else until))

    def find_concerning(self, kinds: Sequence[str], types: Sequence[str], after: int, until: int) -> Iterator[Logged]:
        """Yield the events about objects of ``kinds`` and the events of ``types``, in order."""
        named, of = (msgspec.json.encode(names).decode() for names in (kinds, types))
        return map(self._logged, self._paged("events_concerning", after, until=until, kinds=named, types=of))

    def last(self, count: int) -> Iterator[Logged]:
        """Yield the last ``count`` events, in order."""
        tail = self.rows("events_last", limit=count)
        return self.read(after=tail[-1][0] - 1) if tail else iter(())

    def object_history(self, kind: str, key: str) -> Iterator[Logged]:
        """Yield the events of one object: puts, deletions and errors, in order."""
        return map(self._logged, self.cursor("object", kind=kind, key=key))

    def pods_of(self, group: str, after: int, until: int) -> list[str]:
        """Return the keys of the pods that named a group in a range of events."""
        return [key for (key,) in self.rows("pods_of", group=group, after=after, until=until)]

    def sessions_of(self, group: str, after: int, until: int | None) -> Iterator[Logged]:
        """Yield the sessions whose plan mentions a group, in order. In an imported log, only those of its history."""
        return map(self._logged, self._paged("sessions_of", after, group=group, until=LAST if until is None else until))

    def decisions_of(self, pod_key: str) -> Iterator[Logged]:
        """Yield the sessions that decided about a pod and the outcomes, in order."""
        for (sequence,) in self.rows("decided_of", key=pod_key):
            yield from self.read(sequence - 1, sequence)

    def sessions(
        self, first: int | None = None, last: int | None = None, limit: int | None = None
    ) -> Iterator[SessionInfo]:
        """Yield the sessions from ``first`` to ``last``, both included (None: no bound), at most ``limit``."""
        rows = self._paged("sessions", (first or 0) - 1, limit, last=LAST if last is None else last)
        return (SessionInfo(*row) for row in rows)

    def session(self, number: int) -> SessionDecided:
        """Return the record of a session. Raises SessionNotFound."""
        for (sequence,) in self.rows("session", number=number):
            for logged in self.read(sequence - 1, sequence):
                if isinstance(logged.event, SessionDecided):
                    return logged.event
        raise self._no_session(number)

    def info(self, number: int) -> SessionInfo:
        """Return the index entry of a session. Raises SessionNotFound."""
        for info in self.sessions(number, number):
            return info
        raise self._no_session(number)

    def _no_session(self, number: int) -> SessionNotFound:
        first = next(self.sessions(limit=1), None)
        extent = "it has no sessions" if first is None else f"it has sessions {first.number} to {self.last_session()}"
        return SessionNotFound(f"event log {self.path}: session {number} is not in it; {extent}")

    def operations_of(self, pod_key: str) -> Iterator[OperationInfo]:
        """Yield the operations on a pod with their outcomes, in order."""
        return (OperationInfo(*row) for row in self.cursor("operations_of", key=pod_key))

    def policy(self, digest: str) -> str:
        for (text,) in self.rows("policy", digest=digest):
            return str(text)
        raise LogError(f"event log {self.path}: configuration {digest} is not in it")

    def link(self, at: int) -> bytes | None:
        """Return the link of an event, or of the checkpoint that the history begins with; None if it has none."""
        link: bytes | None = self._value("link", sequence=at)
        return link

    def chain(self, at: int) -> Chain:
        """Return the chain at an event, or at the checkpoint that the history begins with; at 0, its beginning."""
        found = Chain(self.link(at))
        for after, *fields in self.rows("seals", after=at):
            found.mark(after, chain.seal_mark(*fields))
        return found

    def seals(self) -> dict[int, tuple[int, bytes]]:
        """Return time (ns) and digest of each checkpoint as the chain covers it, by sequence."""
        return {sequence: (time, digest) for _, sequence, time, digest in self.rows("seals", after=0)}

    def checkpoints(self) -> list[CheckpointInfo]:
        return [CheckpointInfo(*row[:3]) for row in self.rows("checkpoints")]

    def latest_checkpoint(self, at_or_before: int | None = None) -> Checkpoint | None:
        """Return the latest checkpoint up to a sequence number, or None. Raises LogError if it is damaged."""
        limit = LAST if at_or_before is None else at_or_before
        rows = [row for row in self.rows("checkpoints") if row[0] <= limit]
        return self._checkpoint(rows[-1]) if rows else None

    def base(self, at: int) -> Checkpoint:
        """Return the state from which to fold the events up to ``at``: the events after its sequence are missing in it.

        Raises LogError if that history is no longer in the file.
        """
        found = self.latest_checkpoint(at)
        if found is not None:
            return found
        if self.first() == 1 or not self.head():
            return Checkpoint(0, b"")
        oldest = self.checkpoints()[:1]
        since = f"the oldest checkpoint is at {oldest[0].sequence}" if oldest else "it has no checkpoint"
        raise LogError(f"event log {self.path}: the state at event {at} cannot be rebuilt from it; {since}")

    def sessions_with_state(self, first: int | None = None, last: int | None = None) -> list[SessionInfo]:
        """Return the sessions whose state can be rebuilt: retention can remove a state and retain its session."""
        oldest = self.oldest()
        return [info for info in self.sessions(first, last) if info.head >= oldest]

    def oldest(self) -> int:
        """Return where the history that can be rebuilt begins: 0, or the oldest checkpoint's sequence number."""
        if self.first() == 1 or not self.head():
            return 0
        for info in self.checkpoints():
            return info.sequence
        raise LogError(f"event log {self.path}: its first events are missing, and it has no checkpoint; restore a copy")

    def rows(self, name: str, **values: Any) -> list[Row]:
        """Return the rows of a statement of ``sql/read.sql``."""
        with translate_errors(self.path):
            return self._db.execute(self._sql[name], values).fetchall()

    def _paged(self, name: str, after: int, limit: int | None = None, **values: Any) -> Iterator[Row]:
        left = LAST if limit is None else limit
        while left:
            count = min(left, PAGE)
            page = self.rows(name, **values, after=after, limit=count)
            yield from page
            if len(page) < count:
                return
            after, left = page[-1][0], left - count

    def cursor(self, name: str, **values: Any) -> Iterator[Row]:
        """Yield the rows of a statement of ``sql/read.sql``, in one read transaction."""
        with translate_errors(self.path):
            # not the cursor itself: an abandoned stream can be finalized after the file was closed
            yield from iter(self._db.execute(self._sql[name], values).fetchone, None)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Let all reads in this context see the file as it is at the first of them. Contexts can be nested.

        The writer cannot reuse its WAL while the context is open.
        """
        if self._db.in_transaction:
            yield
            return
        with translate_errors(self.path):
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.rollback()

    def integrity(self) -> list[str]:
        """Return what SQLite's integrity check reports; empty for a sound file."""
        with translate_errors(self.path):
            found = [str(text) for (text,) in self._db.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    def parse_row(self, row: Row) -> tuple[Content, Logged]:
        """Return the content of an event's row, and the event."""
        try:
            content = unpack_row(self._packer, row)
            return content, to_logged(content)
        except (PackError, msgspec.MsgspecError) as error:
            raise LogError(f"event log {self.path}: event {row[0]} cannot be read: {error}") from error

    def _logged(self, row: Row) -> Logged:
        return self.parse_row(row)[1]

    def _value(self, name: str, **values: Any) -> Any:
        return self.rows(name, **values)[0][0]

    def _checkpoint(self, row: Row) -> Checkpoint:
        sequence, _, size, parts, digest = row
        stored = self.rows("checkpoint_parts", sequence=sequence)
        try:
            state = unpack_state([data for _, data in stored], size)
        except PackError as error:
            raise LogError(f"event log {self.path}: checkpoint {sequence} cannot be read: {error}") from error
        numbers = [number for number, _ in stored]
        if numbers != list(range(parts)) or len(state) != size or state_digest(state) != digest:
            raise LogError(f"event log {self.path}: checkpoint {sequence} is damaged; an older one may be sound")
        return Checkpoint(sequence, state)
