"""The wait timeline of a log, from its sessions and the events of PodGroups.

In an imported log, events that rebuild a state are not waits. Where the log begins, and where another replica's
history continues, the state at that event replaces what the timeline has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from heapq import merge
from operator import attrgetter

import msgspec

from vcd.diagnosis.waittimeline import MOST_SPANS, Reasons, WaitTimeline
from vcd.eventlog import LogError, Logged, LogReader
from vcd.model import events as ev
from vcd.model.projection_codec import BadObject
from vcd.state.checkpoint import decoded
from vcd.state.cluster_state import ClusterState
from vcd.state.records import readable_group_queue

WaitingAt = Callable[[int], Mapping[str, Reasons]]
"""Returns the groups that wait as of an event, with their reasons."""
_FEW = 8
"""Groups up to which all events of each are read; for more, only deletions."""


def read_timeline(
    reader: LogReader,
    groups: Collection[str],
    waiting_at: WaitingAt,
    until: int | None = None,
    *,
    concerning: Callable[[Reasons], Reasons] = lambda reasons: reasons,
    most_spans: int = MOST_SPANS,
) -> WaitTimeline:
    """Return the timeline of some groups from a log up to an event (None: its end). Raises LogError."""
    first, last = next(reader.sessions(limit=1), None), reader.head() if until is None else until
    timeline = WaitTimeline(frozenset(groups).__contains__, concerning=concerning, most_spans=most_spans)
    if first is not None and groups:
        oldest = reader.oldest()
        timeline.last = first.number - 1
        timeline.known(first.time, waiting_at(oldest) if oldest else {})
        fold(timeline, reader, _concerning(reader, groups, last), oldest, last, waiting_at)
    return timeline


def read_waits(
    reader: LogReader, groups: Collection[str], before: int, until: int | None
) -> tuple[WaitTimeline, dict[str, int]]:
    """Return the timelines of some groups before a session, up to an event (None: the log's end), and which session
    placed each pod since the earliest of their current waits began. Raises LogError."""
    timeline = read_timeline(reader, groups, partial(waiting_at, reader), until)
    begun = [last.first for group in groups for last in timeline.waits(group, 0)[-1:]]
    rows = reader.rows("served_at", first=min(begun), before=before) if begun else []
    return timeline, dict(rows)


def fold(
    timeline: WaitTimeline,
    reader: LogReader,
    events: Iterable[Logged],
    after: int,
    until: int,
    waiting_at: WaitingAt,
    see: Callable[[Logged], None] = lambda _: None,
) -> None:
    """Fold the events of a log after one and up to another into a timeline.

    ``events`` are sessions and events of PodGroups, in order; ``see`` is called with each of them before it is folded.
    Sessions without changes for the timeline's groups may be omitted.
    """
    sessions = _Sessions(reader, until)
    for one in events:
        timeline.last = sessions.before(one.sequence)
        see(one)
        _fold_one(timeline, one)
    timeline.last = sessions.before(until + 1)


class _Sessions:
    """The numbers of a log's sessions up to an event."""

    def __init__(self, reader: LogReader, until: int) -> None:
        rows = reader.rows("session_numbers", until=until)
        self._numbers, self._sequences = [number for number, _ in rows], [sequence for _, sequence in rows]

    def before(self, sequence: int) -> int:
        """Return the number of the last session before an event."""
        place = bisect_left(self._sequences, sequence)
        return self._numbers[place - 1] if place else self._numbers[0] - 1 if self._numbers else 0


def _fold_one(timeline: WaitTimeline, logged: Logged) -> None:
    event, time = logged.event, logged.time
    if isinstance(event, ev.ObjectPut) and event.payload is None:
        return  # an unchanged object
    if isinstance(event, ev.SessionDecided):
        timeline.decided(event.session, event.head, time, ev.waits_by_group(ev.decode_plan(event.plan).waiting))
    elif not isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) or event.kind != "PodGroup":
        return
    elif isinstance(event, ev.ObjectGone):
        timeline.deleted(event.key, time, logged.sequence)
    elif group_queue(event) is None:
        timeline.set_aside(event.key, time, logged.sequence)
    else:
        timeline.observed(event.key)


def group_queue(event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> str | None:
    """Return the queue that an event of a PodGroup states; None if the group is deleted or cannot be read."""
    try:
        return readable_group_queue(event.payload or b"") if isinstance(event, ev.ObjectPut) else None
    except BadObject:
        return None


def _concerning(reader: LogReader, groups: Collection[str], until: int) -> Iterator[Logged]:
    """Return the events up to one that concern some groups. For many groups, the events of PodGroups are only
    deletions: a group that waits after its deletion was created again."""
    found = {number for group in groups for (number,) in reader.rows("session_events_of", group=group, until=until)}
    sessions = (logged for number in sorted(found) for logged in reader.read(number - 1, number))
    if len(groups) > _FEW:
        others = [reader.find(kind="PodGroup", type=one, until=until) for one in ("gone", "bad")]
    else:
        others = [iter(reader.object_history("PodGroup", group)) for group in groups]
    return (one for one in merge(sessions, *others, key=attrgetter("sequence")) if one.sequence <= until)


def waiting_at(reader: LogReader, sequence: int) -> Mapping[str, Reasons]:
    """Return the groups that wait as of an event, with their reasons, from the checkpoint before it. Raises
    LogError."""
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
