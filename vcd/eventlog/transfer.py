"""Write new log files from existing ones: export, import, compact.

A new file is written under a temporary name and renamed when it is complete. Events that keep their numbers keep their
links; renumbered events get a new chain.
"""

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
from vcd.eventlog.log_file import (
    connect,
    create_file,
    load_packer,
    open_for_writing,
    prepare,
    transaction,
    translate_errors,
)
from vcd.eventlog.packing import PART
from vcd.eventlog.reader import LogReader, Segment, SessionInfo, is_in_history
from vcd.eventlog.rows import LinkFunction, Logged, Row, build_inserts, state_digest
from vcd.eventlog.statements import statements
from vcd.eventlog.verified_reads import LinkChecker, changed_error, read_verified
from vcd.eventlog.verify import Fold
from vcd.model.events import LeadershipChanged, OperationDone, SessionDecided

BATCH = 2000
"""Events per transaction."""

Renumber = Callable[[bytes, int, Callable[[int], int]], bytes]
"""Returns a state for another sequence number, with its sessions renumbered by the function."""


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
        segments = reader.segments()
        target = _LogWriter(Path(out), connection)
        for segment in segments:
            if segment.sequence < end and (segment.sequence >= begin or segment.live > begin):
                whole = segment.chained and segment.sequence >= begin
                target.segment(Segment(max(segment.sequence, begin), segment.live, segment.source, whole))
        if begin > base.sequence:
            state = fold(base.state, read_verified(reader, base.sequence, begin))
            (latest,) = reader.read(begin - 1, begin)
            target.checkpoint(begin, latest.time, state, reader.link(begin))
        named = {session.policy for session in sessions}
        target.policies(row for row in reader.rows("policies") if row[0] in named)
        # a checkpoint at the start of a segment is of that segment's state
        upto = end - 1 if any(segment.sequence == end for segment in segments) else end
        checkpoints = _checkpoint_rows(reader, begin, upto)
        begins_with_one = bool(checkpoints) and checkpoints[0][0] == begin
        target.checkpoints(reader, checkpoints, link=reader.link(begin) if begins_with_one else None)
        target.seals(row for row in reader.rows("seals", after=begin) if row[0] <= upto)
        links = LinkChecker(reader, begin)
        target.events(reader.read(begin, end), links, lambda sequence: is_in_history(segments, sequence))
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
        target.events(events, target.chain.extend, lambda _: True)
        for sequence, time, state in checkpoints:
            target.checkpoint(sequence, time, state, None)
        return Written(begin + 1, target.last or begin, target.sessions)


def import_logs(paths: Sequence[str | Path], out: str | Path, renumber: Renumber) -> Written:
    """Merge the logs of several replicas into one history, ordered by the epochs that they led.

    Each epoch's decisions come from the log of the replica that led it, with the events that it observed. Where another
    replica takes over, a segment begins, which is folded from that replica's own checkpoint or beginning, so that every
    session can be replayed. Sessions, and events after the first takeover, are renumbered and get a new chain;
    ``renumber`` adapts the states of checkpoints. Raises LogError if no log has a session, two have sessions of one
    epoch, one is a shadow's, an import or was changed, or ``out`` exists.
    """
    with ExitStack() as stack:
        readers = [stack.enter_context(LogReader(path)) for path in paths]
        for reader in readers:
            stack.enter_context(reader.pinned())
        connection = stack.enter_context(_create_log(Path(out)))
        leaderships = _find_leaderships(readers)
        merge = _Merge(_LogWriter(Path(out), connection), leaderships, renumber)
        for position, leadership in enumerate(leaderships):
            merge.add(leadership, is_first=position == 0, is_last=position == len(leaderships) - 1)
        return Written(merge.begin + 1, merge.end, merge.target.sessions)


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

    def segment(self, segment: Segment) -> None:
        row = (segment.sequence, segment.live, segment.source, segment.chained)
        self._connection.execute(statements("append")["segment"], row)
        self.chain.mark(segment.sequence, chain.segment_mark(segment.live, segment.source))

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

    def events(self, logged: Iterator[Logged], link: LinkFunction, is_indexed: Callable[[int], bool]) -> None:
        """Write events; index the sessions and outcomes whose sequence number ``is_indexed`` accepts."""
        while batch := list(islice(logged, BATCH)):
            self.last = batch[-1].sequence
            with transaction(self._connection):
                for indexed, run in groupby(batch, key=lambda one: is_indexed(one.sequence)):
                    events = list(run)
                    for sql, rows in build_inserts(self._packer, link, events, indexed=indexed):
                        self._connection.executemany(sql, rows)
                    self.sessions += indexed and sum(isinstance(one.event, SessionDecided) for one in events)


def _checkpoint_rows(reader: LogReader, first: int, last: int) -> list[Row]:
    seals = reader.seals()
    rows = [row for row in reader.rows("checkpoints") if first <= row[0] <= last]
    for sequence, time, _, _, digest in rows:
        if seals.get(sequence, (time, digest)) != (time, digest):
            raise changed_error(reader, f"checkpoint {sequence}")
    return rows


class _Leadership(msgspec.Struct, frozen=True):
    """Consecutive epochs led by one replica, and the first and last session decided in them."""

    reader: LogReader
    epochs: frozenset[int]
    first: SessionInfo
    last: SessionInfo


def _find_leaderships(readers: Sequence[LogReader]) -> list[_Leadership]:
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
    leaderships = []
    for index, run in groupby(sorted(led), key=lambda epoch: led[epoch][0]):
        epochs = list(run)
        sessions = [session for epoch in epochs for session in led[epoch][1]]
        leaderships.append(_Leadership(readers[index], frozenset(epochs), sessions[0], sessions[-1]))
    return leaderships


class _Merge:
    """A history to which one leadership after the other is added."""

    def __init__(self, target: _LogWriter, leaderships: Sequence[_Leadership], renumber: Renumber) -> None:
        self.target = target
        self.begin = self.end = 0
        self._renumber = renumber
        firsts = {leadership.reader.path: leadership.first.number for leadership in reversed(leaderships)}
        self._last = max(firsts.values()) - 1
        """Number of the last session. Sessions that only rebuild the first state keep their numbers, before this
        history's first."""
        self._offsets: dict[Path, list[tuple[range, int]]] = {}
        """By file: ranges of sessions that are in the history, and how much higher their numbers are in it."""

    def add(self, leadership: _Leadership, *, is_first: bool, is_last: bool) -> None:
        """Append a leadership's events, preceded by those from which its first state is rebuilt."""
        reader = leadership.reader
        live, end = _event_range(leadership)
        if is_first:
            base = reader.oldest()
            self.begin = self.end = base
            # sessions whose own state retention has removed only rebuild the state
            live = max((each.sequence for each in reader.sessions(last=leadership.first.number - 1)), default=base)
        else:
            base = reader.base(min(live, leadership.first.head)).sequence
        end = reader.head() if is_last else end
        shift = self.end - base
        sessions = range(leadership.first.number, leadership.last.number + 1)
        self._offsets.setdefault(reader.path, []).append((sessions, self._last + 1 - leadership.first.number))
        self._last += len(sessions)
        if not is_first or live > base:
            self.target.segment(Segment(self.end, live + shift, reader.path.name))
        self.target.policies(reader.rows("policies"))
        for sequence, time, *_ in _checkpoint_rows(reader, base, end if is_last else end - 1):
            self._checkpoint(reader, sequence, time, shift)
        renumbered = (self._renumber_event(reader, logged, shift) for logged in read_verified(reader, base, end))
        self.target.events(renumbered, self.target.chain.extend, lambda sequence: sequence > live + shift)
        self.end = end + shift

    def _checkpoint(self, reader: LogReader, sequence: int, time: int, shift: int) -> None:
        number, there = partial(self._merged_number, reader), sequence + shift
        try:
            state = self._renumber(reader.base(sequence).state, there, number)
        except msgspec.MsgspecError as error:
            where = f"event log {reader.path}: this version cannot read the checkpoint at {sequence}"
            raise LogError(f"{where}: {error}") from error
        self.target.checkpoint(there, time, state, None)
        self.target.seals([(there, there, time, state_digest(state))])

    def _merged_number(self, reader: LogReader, session: int) -> int:
        return session + next((offset for sessions, offset in self._offsets[reader.path] if session in sessions), 0)

    def _renumber_event(self, reader: LogReader, logged: Logged, shift: int) -> Logged:
        event = logged.event
        if isinstance(event, SessionDecided):
            number = self._merged_number(reader, event.session)
            event = msgspec.structs.replace(event, session=number, head=event.head + shift)
        elif isinstance(event, OperationDone):
            event = msgspec.structs.replace(event, session=self._merged_number(reader, event.session))
        return Logged(logged.sequence + shift, logged.time, event)


def _event_range(leadership: _Leadership) -> tuple[int, int]:
    """Return the event before a leadership and its last one: the loss of the Lease, or the last outcome after it."""
    reader = leadership.reader
    won = leadership.first.sequence
    lost = None
    for logged in reader.find(type="leadership"):
        event = logged.event
        assert isinstance(event, LeadershipChanged)
        if event.leading and event.epoch in leadership.epochs:
            won, lost = min(won, logged.sequence), None
        elif lost is None and logged.sequence > leadership.last.sequence:
            lost = logged.sequence
    if lost is None:
        return won - 1, reader.head()
    end = max(lost, leadership.last.sequence)
    for logged in reader.find(type="outcome", after=end):
        event = logged.event
        if isinstance(event, OperationDone) and leadership.first.number <= event.session <= leadership.last.number:
            end = logged.sequence
    following = list(reader.sessions(leadership.last.number + 1, limit=1))
    return won - 1, min(end, following[0].sequence - 1) if following else end


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
