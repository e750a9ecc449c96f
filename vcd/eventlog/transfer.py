"""Making files of files: a smaller one that stands alone, one history out of several replicas', a compact one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path

import msgspec
import zstandard

from vcd.eventlog import chain
from vcd.eventlog.chain import Chain
from vcd.eventlog.errors import LogError
from vcd.eventlog.linked import Links, as_logged, not_as_logged
from vcd.eventlog.packing import PART
from vcd.eventlog.reader import LogReader, Segment, SessionInfo, is_decision
from vcd.eventlog.rows import Link, Logged, Row, digest_of, inserts
from vcd.eventlog.statements import statements
from vcd.eventlog.store import (
    connect,
    failures_explained,
    make_file,
    opened_to_write,
    packer_of,
    prepare,
    transaction,
)
from vcd.eventlog.verify import Fold
from vcd.model.events import LeadershipChanged, OperationDone, SessionDecided

BATCH = 2000
"""Events of one transaction while copying."""

Renumber = Callable[[bytes, int, Callable[[int], int]], bytes]
"""A state as that of another event, where sessions have the numbers that the function gives for theirs."""


class Written(msgspec.Struct, frozen=True):
    """What a new file holds: its first and last event, and the number of sessions indexed."""

    first: int
    last: int
    sessions: int


def export(path: str | Path, out: str | Path, fold: Fold, first: int | None = None, last: int | None = None) -> Written:
    """Write the sessions ``first`` to ``last`` into a new file that stands alone, and what their replay needs.

    With ``first`` it begins with a checkpoint made here, of the state that this session was decided from: of what was
    before, it holds what is in that state, and no more. Without (None) it begins with the latest checkpoint at or
    before the head of the first session that is kept, or the log's beginning. It holds every event up to the one before
    the session after ``last`` (None: all), and keeps all numbers and the links of the chain. Raises LogError when there
    is no such session, its history is not kept any more or is not as it was logged, or ``out`` exists or cannot be
    written.
    """
    with LogReader(path) as reader, reader.pinned(), _new_file(Path(out)) as connection:
        sessions = list(reader.sessions(first, last))
        if not sessions:
            raise LogError(f"event log {path}: no session from {first or 1} to {last or 'the end'} is in it")
        head = min(session.head for session in sessions)
        base = reader.base(head)
        begin = base.sequence if first is None else head
        following = list(reader.sessions(sessions[-1].number + 1, limit=1))
        end = following[0].sequence - 1 if following else reader.head()
        segments = reader.segments()
        target = _Target(Path(out), connection)
        for segment in segments:
            if segment.sequence < end and (segment.sequence >= begin or segment.live > begin):
                whole = segment.chained and segment.sequence >= begin
                target.segment(Segment(max(segment.sequence, begin), segment.live, segment.source, whole))
        if begin > base.sequence:
            state = fold(base.state, as_logged(reader, base.sequence, begin))
            (latest,) = reader.read(begin - 1, begin)
            target.checkpoint(begin, latest.time, state, reader.link(begin))
        named = {session.policy for session in sessions}
        target.policies(row for row in reader.rows("policies") if row[0] in named)
        # one of where another replica takes over is of that one's state
        upto = end - 1 if any(segment.sequence == end for segment in segments) else end
        kept = _checkpoints(reader, begin, upto)
        target.checkpoints(reader, kept, link=reader.link(begin) if kept and kept[0][0] == begin else None)
        target.seals(row for row in reader.rows("seals", after=begin) if row[0] <= upto)
        target.events(reader.read(begin, end), Links(reader, begin), lambda sequence: is_decision(segments, sequence))
        return Written(begin + 1, end, target.sessions)


def write_anew(
    out: str | Path,
    base: tuple[int, int, bytes] | None,
    policies: Iterable[tuple[str, str]],
    events: Iterator[Logged],
    checkpoints: Iterable[tuple[int, int, bytes]] = (),
) -> Written:
    """Write a new file of events, which keep their numbers and times and get a chain of their own.

    ``base`` is what it begins with, None for nothing: sequence, time (ns) and state of a checkpoint; ``policies`` are
    digest and text of configurations that were loaded before. ``checkpoints`` are written last. Raises LogError when
    ``out`` exists or cannot be written.
    """
    with _new_file(Path(out)) as connection:
        target = _Target(Path(out), connection)
        if base is not None:
            target.checkpoint(*base, None)
        target.policies((digest, text, 0) for digest, text in policies)
        first = last = 0 if base is None else base[0]

        def counted() -> Iterator[Logged]:
            nonlocal last
            for logged in events:
                last = logged.sequence
                yield logged

        target.events(counted(), target.chain.extend, lambda _: True)
        for sequence, time, state in checkpoints:
            target.checkpoint(sequence, time, state, None)
        return Written(first + 1, last, target.sessions)


def import_logs(paths: Sequence[str | Path], out: str | Path, renumber: Renumber) -> Written:
    """Merge the files of several replicas into one history, in the order of the epochs that they led.

    Each epoch's decisions are taken from the file of the replica that led it, with the events that replica saw;
    where another replica takes over, a segment begins that is folded anew from that replica's own checkpoint (or
    the beginning of its file), so that every session can be replayed. Session numbers, and sequence numbers after
    the first handover, are given anew, and with them the chain; ``renumber`` does so in the states of checkpoints.
    Raises LogError when no file holds a session, two
    hold sessions of one epoch, one is a shadow's, itself an import or not as it was logged, or ``out`` exists.
    """
    with ExitStack() as stack:
        readers = [stack.enter_context(LogReader(path)) for path in paths]
        for reader in readers:
            stack.enter_context(reader.pinned())
        connection = stack.enter_context(_new_file(Path(out)))
        reigns = _reigns(readers)
        merge = _Merge(_Target(Path(out), connection), reigns, renumber)
        for position, reign in enumerate(reigns):
            merge.add(reign, is_first=position == 0, is_last=position == len(reigns) - 1)
        return Written(merge.begin + 1, merge.end, merge.target.sessions)


def compact(path: str | Path) -> tuple[int, int]:
    """Rewrite a log without free room, and bring it to this version's schema; returns its size in bytes before
    and after. No writer may have it open. Raises LogError."""
    path = Path(path)
    with failures_explained(path):
        before = path.stat().st_size
    with opened_to_write(path) as connection:
        connection.execute("PRAGMA temp_store = FILE")  # what stays is written there first: it may not fit into memory
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before, path.stat().st_size


class _Target:
    """A file that is being filled."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._packer = packer_of(path, connection)
        self.chain = Chain()
        """For events that are numbered anew."""
        self.sessions = 0

    def segment(self, segment: Segment) -> None:
        """Begin a segment."""
        row = (segment.sequence, segment.live, segment.source, segment.chained)
        self._connection.execute(statements("append")["segment"], row)
        self.chain.mark(segment.sequence, chain.segment(segment.live, segment.source))

    def policies(self, rows: Iterable[Row]) -> None:
        """Write configurations, as a reader gives them."""
        with transaction(self._connection):
            self._connection.executemany(
                statements("append")["policy"], [(digest, text, 0) for digest, text, _ in rows]
            )

    def checkpoint(self, sequence: int, time: int, state: bytes, link: bytes | None) -> None:
        """Write a checkpoint, with the link of the event that it is the state of."""
        sql, parts = statements("checkpoint"), [state[start : start + PART] for start in range(0, len(state), PART)]
        with transaction(self._connection):
            for number, part in enumerate(parts):
                self._connection.execute(sql["part"], (sequence, number, zstandard.compress(part, 3)))
            self._connection.execute(sql["complete"], (sequence, time, len(state), len(parts), digest_of(state), link))

    def checkpoints(self, reader: LogReader, rows: Iterable[Row], link: bytes | None) -> None:
        """Copy checkpoints; ``link`` is that of the event of the first."""
        sql = statements("checkpoint")
        with transaction(self._connection):
            for sequence, *rest in rows:
                parts = reader.rows("checkpoint_parts", sequence=sequence)
                self._connection.executemany(sql["part"], [(sequence, *part) for part in parts])
                self._connection.execute(sql["complete"], (sequence, *rest, link))
                link = None

    def seals(self, rows: Iterable[Row]) -> None:
        """Write the seals of checkpoints."""
        with transaction(self._connection):
            for after, *kept in rows:
                self._connection.execute(statements("checkpoint")["seal"], (after, *kept))
                self.chain.mark(after, chain.seal(*kept))

    def events(self, logged: Iterator[Logged], link: Link, is_indexed: Callable[[int], bool]) -> None:
        """Write events, and index the sessions and outcomes among them for whose sequence ``is_indexed`` is true."""
        while batch := list(islice(logged, BATCH)):
            with transaction(self._connection):
                for indexed, run in groupby(batch, key=lambda one: is_indexed(one.sequence)):
                    events = list(run)
                    for sql, rows in inserts(self._packer, link, events, indexed=indexed):
                        self._connection.executemany(sql, rows)
                    self.sessions += indexed and sum(isinstance(one.event, SessionDecided) for one in events)


def _checkpoints(reader: LogReader, first: int, last: int) -> list[Row]:
    """The rows of the checkpoints from ``first`` to ``last``. Raises LogError for one that is not as its seal says."""
    seals = reader.seals()
    rows = [row for row in reader.rows("checkpoints") if first <= row[0] <= last]
    for sequence, time, _, _, digest in rows:
        if seals.get(sequence, (time, digest)) != (time, digest):
            raise not_as_logged(reader, f"checkpoint {sequence}")
    return rows


class _Reign(msgspec.Struct, frozen=True):
    """Epochs led by one replica, one after the other, and the first and last session that it decided in them."""

    reader: LogReader
    epochs: frozenset[int]
    first: SessionInfo
    last: SessionInfo


def _reigns(readers: Sequence[LogReader]) -> list[_Reign]:
    """Who led when, in the order of the epochs."""
    led: dict[int, tuple[int, list[SessionInfo]]] = {}
    for index, reader in enumerate(readers):
        if reader.segments():
            raise LogError(f"event log {reader.path}: it is an import itself; name the replicas' own files")
        for session in reader.sessions_with_state():
            if session.epoch < 0:
                raise LogError(f"event log {reader.path}: it is a shadow's: what it decided was not done; leave it out")
            owner, sessions = led.setdefault(session.epoch, (index, []))
            if owner != index:
                raise LogError(
                    f"event logs {readers[owner].path} and {reader.path}: both hold sessions of epoch {session.epoch};"
                    " name each replica's file once, and only files of one cluster"
                )
            sessions.append(session)
    if not led:
        raise LogError(f"event log {readers[0].path if readers else ''}: no session is in any of the files")
    reigns = []
    for index, run in groupby(sorted(led), key=lambda epoch: led[epoch][0]):
        epochs = list(run)
        sessions = [session for epoch in epochs for session in led[epoch][1]]
        reigns.append(_Reign(readers[index], frozenset(epochs), sessions[0], sessions[-1]))
    return reigns


class _Merge:
    """One history, growing by one reign after the other."""

    def __init__(self, target: _Target, reigns: Sequence[_Reign], renumber: Renumber) -> None:
        self.target = target
        self.begin = self.end = 0
        self._renumber = renumber
        firsts = {reign.reader.path: reign.first.number for reign in reversed(reigns)}
        self._last = max(firsts.values()) - 1
        """The number of the last session. Those that a file lost keep their own, before the first of the history."""
        self._more: dict[Path, list[tuple[range, int]]] = {}
        """By file, sessions that are in the history, and how much more their numbers are there."""

    def add(self, reign: _Reign, *, is_first: bool, is_last: bool) -> None:
        """Append what ``reign``'s replica saw and decided, with what its state is rebuilt from before it."""
        reader = reign.reader
        live, end = _span(reign)
        if is_first:
            base = reader.oldest()
            self.begin = self.end = base
            # sessions that retention left without their state only rebuild it
            live = max((each.sequence for each in reader.sessions(last=reign.first.number - 1)), default=base)
        else:
            base = reader.base(min(live, reign.first.head)).sequence
        end = reader.head() if is_last else end
        shift = self.end - base
        sessions = range(reign.first.number, reign.last.number + 1)
        self._more.setdefault(reader.path, []).append((sessions, self._last + 1 - reign.first.number))
        self._last += len(sessions)
        if not is_first or live > base:
            self.target.segment(Segment(self.end, live + shift, reader.path.name))
        self.target.policies(reader.rows("policies"))
        for sequence, time, *_ in _checkpoints(reader, base, end if is_last else end - 1):
            self._checkpoint(reader, sequence, time, shift)
        renumbered = (self._renumbered(reader, logged, shift) for logged in as_logged(reader, base, end))
        self.target.events(renumbered, self.target.chain.extend, lambda sequence: sequence > live + shift)
        self.end = end + shift

    def _checkpoint(self, reader: LogReader, sequence: int, time: int, shift: int) -> None:
        number, there = partial(self._number, reader), sequence + shift
        try:
            state = self._renumber(reader.base(sequence).state, there, number)
        except msgspec.MsgspecError as error:
            where = f"event log {reader.path}: this version cannot read the checkpoint at {sequence}"
            raise LogError(f"{where}: {error}") from error
        self.target.checkpoint(there, time, state, None)
        self.target.seals([(there, there, time, digest_of(state))])

    def _number(self, reader: LogReader, session: int) -> int:
        """The number of a file's session in the history."""
        return session + next((more for sessions, more in self._more[reader.path] if session in sessions), 0)

    def _renumbered(self, reader: LogReader, logged: Logged, shift: int) -> Logged:
        event = logged.event
        if isinstance(event, SessionDecided):
            number = self._number(reader, event.session)
            event = msgspec.structs.replace(event, session=number, head=event.head + shift)
        elif isinstance(event, OperationDone):
            event = msgspec.structs.replace(event, session=self._number(reader, event.session))
        return Logged(logged.sequence + shift, logged.time, event)


def _span(reign: _Reign) -> tuple[int, int]:
    """The last event before a reign and the last event of it: up to the loss of the lease, and the last outcome."""
    reader = reign.reader
    won = reign.first.sequence
    lost = None
    for logged in reader.find(type="leadership"):
        event = logged.event
        assert isinstance(event, LeadershipChanged)
        if event.leading and event.epoch in reign.epochs:
            won, lost = min(won, logged.sequence), None
        elif lost is None and logged.sequence > reign.last.sequence:
            lost = logged.sequence
    if lost is None:
        return won - 1, reader.head()
    end = max(lost, reign.last.sequence)
    for logged in reader.find(type="outcome", after=end):
        event = logged.event
        if isinstance(event, OperationDone) and reign.first.number <= event.session <= reign.last.number:
            end = logged.sequence
    following = list(reader.sessions(reign.last.number + 1, limit=1))
    return won - 1, min(end, following[0].sequence - 1) if following else end


@contextmanager
def _new_file(out: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a new log; it becomes ``out`` when all went well, in one file that needs no other."""
    if out.exists():
        raise LogError(f"event log {out}: it exists already; name a new file")
    partial = out.with_name(out.name + ".partial")
    with failures_explained(out):
        try:
            partial.unlink(missing_ok=True)
            make_file(partial)
            prepare(partial)
            with closing(connect(partial)) as connection:
                yield connection
                connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            partial.rename(out)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with suppress(OSError):  # the first error is the one to tell
                    partial.with_name(partial.name + suffix).unlink(missing_ok=True)
