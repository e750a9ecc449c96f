"""Reading a log, also while its writer writes: for replay, explain and the commands. Synchronous."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from vcd.eventlog import chain
from vcd.eventlog.chain import Chain, Content
from vcd.eventlog.errors import LogError, NoSession
from vcd.eventlog.packing import Packer, PackError, unpacked_state
from vcd.eventlog.rows import Logged, Row, digest_of, logged_of, unpacked
from vcd.eventlog.statements import statements
from vcd.eventlog.store import connect_read_only, failures_explained, packer_of
from vcd.model.events import SessionDecided

PAGE = 500
"""Rows of one query while streaming: no read transaction outlives it, so that the WAL can be checkpointed."""
LAST = (1 << 63) - 1


class Checkpoint(msgspec.Struct, frozen=True):
    """The encoded state as of an event; ``state`` is empty for the state before any event."""

    sequence: int
    state: bytes


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A checkpoint in the file: its sequence, the time it was made (ns), the size of its state in bytes."""

    sequence: int
    time: int
    size: int


class Segment(msgspec.Struct, frozen=True):
    """A part of an imported log: the history of the file ``source``, folded anew from the base at ``sequence``.

    The events up to ``live`` only rebuild the state; their sessions are not this history's decisions. ``chained``:
    it is part of the next event's link.
    """

    sequence: int
    live: int
    source: str
    chained: bool = True


class SessionInfo(msgspec.Struct, frozen=True):
    """A session's entry in the index: its number, the sequence and time (ns) of its event, the head, epoch, ``now``
    (ns) and policy it was decided with, and how many statements and operations it holds."""

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
    """An operation's entry in the index: where it was decided, for which group by which action, the statement's
    verdict, what it does to which pod, and the last outcome reported (None: none yet)."""

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


def is_decision(segments: Sequence[Segment], sequence: int) -> bool:
    """Whether a session or outcome with this sequence number belongs to the history, and is indexed."""
    return not any(segment.sequence < sequence <= segment.live for segment in segments)


def with_takeovers(
    segments: Sequence[Segment], events: Iterable[Logged], after: int, until: int
) -> Iterator[Logged | int]:
    """Return those of some events that belong to the history between two events, and in their places the numbers of
    the events after which another replica's history goes on."""
    lives = deque(one.live for one in segments if after < one.live < until)
    for logged in events:
        while lives and lives[0] < logged.sequence:
            yield lives.popleft()
        if is_decision(segments, logged.sequence):
            yield logged
    yield from lives


class LogReader:
    """A log open for reading; a context manager. Every method raises LogError when the file cannot be read."""

    def __init__(self, path: str | Path) -> None:
        """Open ``path``. Raises LogError when it is missing, foreign, damaged or of another schema."""
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
        """Close the file."""
        self._db.close()

    def head(self) -> int:
        """The last sequence number; 0 for an empty log."""
        return int(self._value("head"))

    def first(self) -> int | None:
        """The sequence number of the first event still in the file; None when there is none."""
        value = self._value("first")
        return None if value is None else int(value)

    def last_time(self) -> int:
        """The time of the last event or checkpoint (ns); 0 for none."""
        return int(self._value("last_time"))

    def last_session(self) -> int:
        """The highest session number ever written to this file; 0 for none."""
        return int(self._value("last_session") or 0)

    def packer(self) -> Packer:
        """One that packs and unpacks as what is in the file."""
        with failures_explained(self.path):
            return packer_of(self.path, self._db)

    def read(self, after: int = 0, until: int | None = None) -> Iterator[Logged]:
        """The events after one sequence number and up to another (None: to the end), in order, as a stream.

        ``after`` 0 begins with the first event in the file. Raises LogError when an event of the range is no
        longer there, or cannot be read.
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
        """The events of a kind, an object key or a type (``put``, ``gone``, ``session`` ...), in order."""
        name = "events_where" if key is None else "events_of"
        values = {"kind": kind, "key": key, "type": type, "until": LAST if until is None else until}
        return map(self._logged, self._paged(name, after, limit, **values))

    def policies(self, after: int = 0, until: int | None = None) -> Iterator[Logged]:
        """Where configurations were loaded, after one sequence number and up to another (None: to the end)."""
        return map(self._logged, self._paged("policies_loaded", after, until=LAST if until is None else until))

    def concerning(self, kinds: Sequence[str], types: Sequence[str], after: int, until: int) -> Iterator[Logged]:
        """The events after one and up to another that show objects of some kinds, or are of some types, in order."""
        named, of = (msgspec.json.encode(names).decode() for names in (kinds, types))
        return map(self._logged, self._paged("events_concerning", after, until=until, kinds=named, types=of))

    def last(self, count: int) -> Iterator[Logged]:
        """The last events, in order."""
        tail = self.rows("events_last", limit=count)
        return self.read(after=tail[-1][0] - 1) if tail else iter(())

    def object_history(self, kind: str, key: str) -> Iterator[Logged]:
        """What the log knows of one object: its puts, deletions and errors, in order."""
        return map(self._logged, self.cursor("object", kind=kind, key=key))

    def pods_of(self, group: str, after: int, until: int) -> list[str]:
        """The keys of the pods that named a group in some events."""
        return [key for (key,) in self.rows("pods_of", group=group, after=after, until=until)]

    def sessions_of(self, group: str, after: int, until: int | None) -> Iterator[Logged]:
        """The sessions that say something of a group, in order. In an imported log, only those of its history."""
        return map(self._logged, self._paged("sessions_of", after, group=group, until=LAST if until is None else until))

    def session_records(self, after: int, until: int | None) -> Iterator[Logged]:
        """The sessions after an event and up to another, in order. In an imported log, only those of its history."""
        return map(self._logged, self._paged("session_events", after, until=LAST if until is None else until))

    def decided_of(self, pod_key: str) -> Iterator[Logged]:
        """The sessions that decided on a pod and what became of it, in order."""
        for (sequence,) in self.rows("decided_of", key=pod_key):
            yield from self.read(sequence - 1, sequence)

    def sessions(
        self, first: int | None = None, last: int | None = None, limit: int | None = None
    ) -> Iterator[SessionInfo]:
        """The sessions from one number to another, both included (None: no bound), at most ``limit`` (None: all)."""
        rows = self._paged("sessions", (first or 0) - 1, limit, last=LAST if last is None else last)
        return (SessionInfo(*row) for row in rows)

    def session(self, number: int) -> SessionDecided:
        """The whole record of a session. Raises LogError when it is not in the file."""
        for (sequence,) in self.rows("session", number=number):
            for logged in self.read(sequence - 1, sequence):
                if isinstance(logged.event, SessionDecided):
                    return logged.event
        raise self._no_session(number)

    def info(self, number: int) -> SessionInfo:
        """The entry of a session. Raises NoSession when it is not in the file."""
        for info in self.sessions(number, number):
            return info
        raise self._no_session(number)

    def _no_session(self, number: int) -> NoSession:
        first = next(self.sessions(limit=1), None)
        kept = "it has no sessions" if first is None else f"it has sessions {first.number} to {self.last_session()}"
        return NoSession(f"event log {self.path}: session {number} is not in it; {kept}")

    def operations_of(self, pod_key: str) -> Iterator[OperationInfo]:
        """The operations on a pod, in order, with their outcomes."""
        return (OperationInfo(*row) for row in self.cursor("operations_of", key=pod_key))

    def policy(self, digest: str) -> str:
        """The text of a configuration that was in force. Raises LogError when it is not in the file."""
        for (text,) in self.rows("policy", digest=digest):
            return str(text)
        raise LogError(f"event log {self.path}: configuration {digest} is not in it")

    def segments(self) -> list[Segment]:
        """The places where another replica's history takes over, in order; none but in imported logs."""
        rows = self.rows("segments")
        return [Segment(sequence, live, source, bool(chained)) for sequence, live, source, chained in rows]

    def link(self, at: int) -> bytes | None:
        """The link of an event, or of that of the checkpoint that the history begins with; None where it has none."""
        link: bytes | None = self._value("link", sequence=at)
        return link

    def chain(self, at: int) -> Chain:
        """The chain as of an event, or as of the checkpoint that the history begins with; as of 0, its beginning."""
        found = Chain(self.link(at))
        for after, *kept in self.rows("seals", after=at):
            found.mark(after, chain.seal(*kept))
        for segment in self.segments():
            if segment.chained and segment.sequence >= at:
                found.mark(segment.sequence, chain.segment(segment.live, segment.source))
        return found

    def seals(self) -> dict[int, tuple[int, bytes]]:
        """Time (ns) and digest of each checkpoint as the chain has it, by sequence."""
        return {sequence: (time, digest) for _, sequence, time, digest in self.rows("seals", after=0)}

    def checkpoints(self) -> list[CheckpointInfo]:
        """The checkpoints, in order."""
        return [CheckpointInfo(*row[:3]) for row in self.rows("checkpoints")]

    def latest_checkpoint(self, at_or_before: int | None = None) -> Checkpoint | None:
        """The latest checkpoint, or the latest as of a sequence number; None when there is none.

        In an imported log, only one of the segment that the number lies in. Raises LogError when it is damaged.
        """
        limit = LAST if at_or_before is None else at_or_before
        start = max((s.sequence for s in self.segments() if s.sequence <= limit), default=0)
        rows = [row for row in self.rows("checkpoints") if start <= row[0] <= limit]
        return self._checkpoint(rows[-1]) if rows else None

    def base(self, at: int) -> Checkpoint:
        """Where to begin a fold that goes to ``at``: fold the events after its sequence into its state.

        Raises LogError when that history is no longer in the file.
        """
        found = self.latest_checkpoint(at)
        if found is not None:
            return found
        start = max((s.sequence for s in self.segments() if s.sequence <= at), default=0)
        if start or self.first() == 1 or not self.head():
            return Checkpoint(start, b"")
        kept = self.checkpoints()[:1]
        since = f"the oldest checkpoint is at {kept[0].sequence}" if kept else "it has no checkpoint"
        raise LogError(f"event log {self.path}: the state at event {at} cannot be rebuilt from it; {since}")

    def sessions_with_state(self, first: int | None = None, last: int | None = None) -> list[SessionInfo]:
        """The sessions from one to another whose state can be rebuilt: retention may leave a session, and not the state
        that it was decided from. Raises LogError as ``oldest``."""
        oldest = self.oldest()
        return [info for info in self.sessions(first, last) if info.head >= oldest]

    def oldest(self) -> int:
        """Where the history that can be rebuilt begins: 0, or the oldest checkpoint's sequence number."""
        if self.first() == 1 or not self.head():
            return 0
        for info in self.checkpoints():
            return info.sequence
        raise LogError(f"event log {self.path}: its beginning is gone, and it has no checkpoint; take a copy of it")

    def rows(self, name: str, **values: Any) -> list[Row]:
        """The rows of a statement of ``sql/read.sql``."""
        with failures_explained(self.path):
            return self._db.execute(self._sql[name], values).fetchall()

    def _paged(self, name: str, after: int, limit: int | None = None, **values: Any) -> Iterator[Row]:
        """The rows of a statement whose first column is above ``after``, some at a time."""
        left = LAST if limit is None else limit
        while left:
            asked = min(left, PAGE)
            page = self.rows(name, **values, after=after, limit=asked)
            yield from page
            if len(page) < asked:
                return
            after, left = page[-1][0], left - asked

    def cursor(self, name: str, **values: Any) -> Iterator[Row]:
        """The rows of a statement of ``sql/read.sql``, as a stream."""
        with failures_explained(self.path):
            # fetchone by hand: a stream given up half-way may be collected when the file is closed already
            yield from iter(self._db.execute(self._sql[name], values).fetchone, None)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """See the file as it is at the first read within the context, whatever is written meanwhile: several reads
        agree with each other. The writer cannot reuse its WAL as long as this lasts. Contexts may be nested.
        """
        if self._db.in_transaction:
            yield
            return
        with failures_explained(self.path):
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.rollback()

    def integrity(self) -> list[str]:
        """What SQLite's own check finds wrong with the file; nothing when it is sound."""
        with failures_explained(self.path):
            found = [str(text) for (text,) in self._db.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    def parsed(self, row: Row) -> tuple[Content, Logged]:
        """What the row of an event says, and the event."""
        try:
            content = unpacked(self._packer, row)
            return content, logged_of(content)
        except (PackError, msgspec.MsgspecError) as error:
            raise LogError(f"event log {self.path}: event {row[0]} cannot be read: {error}") from error

    def _logged(self, row: Row) -> Logged:
        return self.parsed(row)[1]

    def _value(self, name: str, **values: Any) -> Any:
        return self.rows(name, **values)[0][0]

    def _checkpoint(self, row: Row) -> Checkpoint:
        sequence, _, size, parts, digest = row
        stored = self.rows("checkpoint_parts", sequence=sequence)
        try:
            state = unpacked_state([data for _, data in stored], size)
        except PackError as error:
            raise LogError(f"event log {self.path}: checkpoint {sequence} cannot be read: {error}") from error
        numbers = [number for number, _ in stored]
        if numbers != list(range(parts)) or len(state) != size or digest_of(state) != digest:
            raise LogError(f"event log {self.path}: checkpoint {sequence} is damaged; an older one may be sound")
        return Checkpoint(sequence, state)
