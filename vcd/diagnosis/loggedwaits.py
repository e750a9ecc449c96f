"""Who waited how long for what, by a log: its sessions, the groups that came and went, and the replicas that led."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import merge
from typing import NamedTuple

import msgspec

from vcd.diagnosis.spans import Reasons, WaitFold
from vcd.eventlog import LogError, Logged, LogReader
from vcd.eventlog.reader import LAST, is_decision
from vcd.model import events as ev
from vcd.model.codec import BadObject
from vcd.state.checkpoint import decoded
from vcd.state.cluster import ClusterState
from vcd.state.records import readable_group_queue

WaitingAt = Callable[[int], Mapping[str, Reasons]]
"""Who waits for what as of an event."""
_FEW = 8
"""Up to so many groups are looked up by themselves; of more, all there is is read."""


class SessionTold(NamedTuple):
    """A session, and what it says of who waits from now on."""

    number: int
    changes: dict[str, Reasons]


class Happened(NamedTuple):
    """What waits are told of: a session, or a group that is shown or gone; its event's number and time (ns)."""

    sequence: int
    time: int
    what: SessionTold | ev.Event


def waits_in(
    reader: LogReader, groups: Collection[str], waiting_at: WaitingAt, until: int | None = None, since: int = 0
) -> WaitFold:
    """How groups waited by a log up to an event (None: its end), and after a time (ns). Raises LogError."""
    first, last = next(reader.sessions(limit=1), None), LAST if until is None else until
    if first is None or not groups:
        return WaitFold()
    waits, oldest = WaitFold(groups.__contains__, last=first.number - 1, since=since), reader.oldest()
    waits.known(first.time, waiting_at(oldest) if oldest else {})
    if len(groups) <= _FEW:
        happened = _told_of_few(reader, groups, last)
    else:
        happened = merge(sessions_told(reader, 0, last), groups_shown(reader, groups, last))
    follow(waits, reader, happened, oldest, waiting_at)
    return waits


def follow(
    waits: WaitFold,
    reader: LogReader,
    happened: Iterable[Happened],
    after: int,
    waiting_at: WaitingAt,
    see: Callable[[ev.Event], None] = lambda _: None,
) -> None:
    """Tell waits what happened in a log after an event, in order, and where another replica takes over; ``see`` is told
    what becomes of groups."""
    takeovers = [one.live for one in reader.segments() if one.live > after]
    for sequence, time, what in happened:
        while takeovers and takeovers[0] < sequence:
            waits.known(time, waiting_at(takeovers.pop(0)))
        if isinstance(what, SessionTold):
            waits.decided(what.number, time, what.changes)
            continue
        see(what)
        if isinstance(what, ev.ObjectGone):
            waits.gone(what.key, time)
        elif isinstance(what, ev.ObjectBad) or (isinstance(what, ev.ObjectPut) and not _is_readable(what)):
            waits.set_aside(what.key, time)
        elif isinstance(what, ev.ObjectPut):
            waits.came(what.key)


def _is_readable(shown: ev.ObjectPut) -> bool:
    """Whether a state takes a PodGroup as it is shown; one that is not shown anew is as it was."""
    try:
        return shown.payload is None or readable_group_queue(shown.payload) is not None
    except BadObject:
        return False


def sessions_told(reader: LogReader, after: int, until: int) -> Iterator[Happened]:
    """The sessions after an event and up to another, with what they say."""
    numbers = {sequence: number for number, sequence in reader.rows("session_numbers", until=until)}
    return (_told(record, numbers) for record in reader.session_records(after, until))


def _told(record: Logged, numbers: Mapping[int, int]) -> Happened:
    assert isinstance(record.event, ev.SessionDecided)
    changes = ev.waits_by_group(ev.decode_plan(record.event.plan).waiting)
    return Happened(record.sequence, record.time, SessionTold(numbers[record.sequence], changes))


def _told_of_few(reader: LogReader, groups: Collection[str], until: int) -> Iterator[Happened]:
    """The sessions up to an event that say something of groups, and where these come and go. Of the sessions between,
    which are many and say nothing of them, only the last before each of these and of another replica's history, and the
    first of that, are there."""
    sessions = reader.rows("session_numbers", until=until)
    numbers = {sequence: number for number, sequence in sessions}
    records = ChainMap(*({one.sequence: one for one in reader.sessions_of(group, 0, until)} for group in groups))
    said = [_told(one, numbers) for _, one in sorted(records.items())]
    shown = list(groups_shown(reader, groups, until))
    takeovers, sequences = [one.live for one in reader.segments()], list(numbers)
    places = {bisect_left(sequences, at) - 1 for at in (*takeovers, *(one.sequence for one in (*said, *shown)), LAST)}
    places.update(bisect_right(sequences, at) for at in takeovers)
    between = [sequences[place] for place in sorted(places) if 0 <= place < len(sequences)]
    silent = msgspec.json.encode([sequence for sequence in between if sequence not in records]).decode()
    quiet = [
        Happened(sequence, time, SessionTold(numbers[sequence], {}))
        for sequence, time in reader.rows("times_of", sequences=silent)
    ]
    return merge(said, quiet, shown)


def groups_shown(reader: LogReader, groups: Collection[str], until: int) -> Iterator[Happened]:
    """Where groups come and go; of many, only where they go: who waits again then has come again."""
    if len(groups) > _FEW:
        kinds = [reader.find(kind="PodGroup", type=one, until=until) for one in ("gone", "bad")]
        events = merge(*kinds, key=lambda one: one.sequence)
    else:
        events = merge(*(reader.object_history("PodGroup", group) for group in groups), key=lambda one: one.sequence)
    return happened_to(reader, events, until)


def happened_to(reader: LogReader, events: Iterable[Logged], until: int) -> Iterator[Happened]:
    """What events up to one tell of groups, less those by which an imported log rebuilds a state."""
    segments = reader.segments()
    return (
        Happened(one.sequence, one.time, one.event)
        for one in events
        if one.sequence <= until and is_decision(segments, one.sequence)
    )


def waiting_at(reader: LogReader, sequence: int) -> Mapping[str, Reasons]:
    """Who waits for what as of an event, from the checkpoint before it on. Raises LogError."""
    base = reader.base(sequence)
    try:
        if base.sequence == sequence:
            return decoded(base.state).waiting
        state = ClusterState.load(base.state) if base.state else ClusterState()
        for logged in reader.read(base.sequence, sequence):
            state.apply(logged.sequence, logged.event)
    except (msgspec.MsgspecError, ValueError) as error:
        where = f"event log {reader.path}"
        raise LogError(f"{where}: this version cannot read its state at event {sequence}: {error}") from error
    return state.waiting
