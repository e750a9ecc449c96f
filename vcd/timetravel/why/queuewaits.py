"""The jobs of a queue, and of those below it: how long they waited there for which reasons, and which pods were
evicted.

Waits are those of the wait timeline; this module only determines in which queue each group was, from sessions, groups
and queues, so that nothing else of a long log is folded.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, zip_longest
from operator import itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from vcd.diagnosis.loggedtimeline import fold, group_queue
from vcd.diagnosis.waittimeline import WaitSpan, WaitTimeline
from vcd.eventlog import Logged, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.model.objects import ROOT_QUEUE, Pod, Queue
from vcd.model.projection_codec import BadObject
from vcd.scheduling.framework.declared_reasons import all_told, keeps_back
from vcd.state.cluster_state import ClusterState
from vcd.state.records import QueueRecord, Settings
from vcd.text.reason_sentences import reasons_text
from vcd.timetravel.history import object_in
from vcd.timetravel.why.session_explanation import EvictedPod, evicted_by, kinds_of

T = TypeVar("T")
StateAt = Callable[[int], ClusterState]
"""Returns the state as of an event; the next call changes it."""
_LONGEST = 5
"""Jobs with the longest waits that are listed."""
_SECOND = 1e9


class WaitedFor(msgspec.Struct):
    """A reason for which jobs of the queue waited: ``seconds`` of all ``jobs`` together, and of ``longest`` alone."""

    reason: str
    seconds: float
    jobs: int
    longest: str
    longest_seconds: float


class WaitingJob(msgspec.Struct, omit_defaults=True):
    """A job that waited, ``seconds`` in total; ``still``: it waits at the end, because of ``waiting``. ``queue`` is
    where it waited last, if that is below the explained queue."""

    group: str
    seconds: float
    still: bool = False
    waiting: str = ""
    queue: str = ""


class JobWait(msgspec.Struct):
    """How long a job waited in the queue or below it, in ns, and by reason; its last queue, and its reasons there at
    the end."""

    queue: str = ""
    total: int = 0
    by_reason: Counter[str] = msgspec.field(default_factory=Counter)
    waits: tuple[ev.Waiting, ...] = ()

    def add(self, span: WaitSpan, length: int, queue: str, *, still: bool) -> None:
        """Add a part of a span that was spent in a queue; ``still``: it lasts at the end."""
        if length:
            self.total += length
            self.by_reason.update(dict.fromkeys(_reasons(span.reasons), length))
        if still:
            self.waits = span.reasons
        if length or still:
            self.queue = queue


def _reasons(waits: Sequence[ev.Waiting]) -> list[str]:
    """Return the reasons that a wait counts for: the gang's minimum only if no other reason explains it."""
    held = list(filter(keeps_back, waits))
    return list((kinds_of(one for one in held if one.gate != "gang") or kinds_of(held)).values())


class _Stay(NamedTuple):
    """A time (ns) in which a group was in a queue; without an end, it still is."""

    queue: str
    start: int
    end: int | None


class QueueHistory:
    """The history of the jobs of a queue, and of those below it, in some sessions of a log.

    A session decides on the cluster as of its head: a group that moves is in its new queue from the first session that
    sees it there.
    """

    def __init__(self, queue: str, reader: LogReader, infos: Sequence[SessionInfo], state: ClusterState) -> None:
        """Create from ``state``, the one before the first event that `follow` reads; it must not change until all are
        read."""
        self.queue = queue
        self.jobs: dict[str, JobWait] = {}
        self.evictions: list[EvictedPod] = []
        """Of pods of its jobs."""
        self.evictions_for: list[EvictedPod] = []
        """Of pods that were evicted for its jobs."""
        self._reader, self._infos, self._heads = reader, infos, [info.head for info in infos]
        self._info_of = {info.sequence: info for info in infos}
        self._timeline = WaitTimeline(most_spans=sys.maxsize)
        self._timeline.last = infos[0].number - 1
        self._timeline.known(infos[0].time, state.waiting)
        self._queues: dict[str, list[tuple[int, str | None]]] = {}
        """By group, the events that changed its queue, and the queue: empty if it states none, None if there is no
        such group."""
        self._insides: list[tuple[int, frozenset[str]]] = []
        """The events that changed the queue's subtree, and the queues in it."""
        self._know(state, state.sequence)

    def _know(self, state: ClusterState, sequence: int) -> None:
        self._state = state
        self._settings: Settings = state.settings
        self._parent_of = {key: record.queue.spec.parent for key, record in state.queues.items()}
        for group in {*self._queues, *state.groups}:
            record = state.groups.get(group)
            self._note_queue(group, sequence, None if record is None else record.group.spec.queue)
        self._insides.append((sequence, self._below()))

    def follow(self, after: int, until: int, end: int, state_at: StateAt) -> None:
        """Read the events after one and up to another, and count the waits up to a time (ns)."""

        def waiting_at(sequence: int) -> Mapping[str, tuple[ev.Waiting, ...]]:
            self._know(state := state_at(sequence), sequence)
            return state.waiting

        events = self._reader.find_concerning(("PodGroup", "Queue"), ("session", "policy"), after, until)
        fold(self._timeline, self._reader, events, after, until, waiting_at, self._see)
        for group in sorted(self._queues):
            self._add_job(group, end)

    # --- events -------------------------------------------------------------------------------------------------------

    def _see(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ev.SessionDecided):
            if (info := self._info_of.get(logged.sequence)) is not None:
                self._note_evictions(event.accepted(), info)
        elif isinstance(event, ev.ObjectPut) and event.payload is None:
            pass  # an unchanged object
        elif isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) and event.kind == "PodGroup":
            self._note_queue(event.key, logged.sequence, group_queue(event))
        else:
            self._note_hierarchy(event)
            self._insides.append((logged.sequence, self._below()))

    def _note_queue(self, group: str, sequence: int, queue: str | None) -> None:
        known = self._queues.setdefault(group, [])
        if not known or known[-1][1] != queue:
            known.append((sequence, queue))

    def _note_hierarchy(self, event: ev.Event) -> None:
        if isinstance(event, ev.PolicyLoaded):
            self._settings = Settings.from_text(event.settings)
        elif isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad):
            self._parent_of.pop(event.key, None)
            with suppress(BadObject):  # it is set aside, like a missing one
                if isinstance(queue := object_in(event), Queue):
                    self._parent_of[event.key] = QueueRecord.of(queue).queue.spec.parent

    def _note_evictions(self, plan: ev.Plan, info: SessionInfo) -> None:
        for statement in plan.statements:
            for one in evicted_by(statement, info, partial(self._name_of, at=info.head), self._group_of):
                if one.queue in self.inside:
                    self.evictions.append(one)
                if one.for_queue in self.inside:
                    self.evictions_for.append(one)

    def _add_job(self, group: str, end: int) -> None:
        """Count the parts of a job's waits that were spent in the queue."""
        job, waits = JobWait(), self._timeline.every_wait(group, end)
        stays = list(self._stays(group, end)) if waits else []
        for span in chain.from_iterable(wait.spans for wait in waits):
            is_last = waits[-1].lasting and span is waits[-1].spans[-1]
            for stay in stays:
                length = min(span.end, end if stay.end is None else stay.end) - max(span.start, stay.start)
                job.add(span, max(length, 0), stay.queue, still=is_last and stay.end is None)
        if job.total or job.waits:
            self.jobs[group] = job

    # --- membership in the queue --------------------------------------------------------------------------------------

    def _stays(self, group: str, end: int) -> Iterator[_Stay]:
        """Yield when a group was in the queue or below it, by the sessions that saw it there."""
        heads = self._heads
        changes = sorted({sequence for sequence, _ in (*self._queues[group], *self._insides)})
        for since, until in zip_longest(changes, changes[1:]):
            queue, first = _as_of(self._queues[group], since), bisect_left(heads, since)
            if first < len(heads) and queue is not None and queue in (_as_of(self._insides, since) or ()):
                last = len(heads) if until is None else bisect_left(heads, until)
                stop = None if until is None else self._infos[last].time if last < len(heads) else end
                yield _Stay(queue or self._settings.default_queue, self._infos[first].time, stop)

    def _below(self) -> frozenset[str]:
        """Return the queue and its descendants; with the empty name if the default queue is one of them."""
        found = {self.queue}
        for name in self._parent_of:
            way = [name]
            while way[-1] in self._parent_of and (parent := self._parent_of[way[-1]] or ROOT_QUEUE) not in way:
                way.append(parent)
            if self.queue in way:
                found.update(way[: way.index(self.queue)])
        return frozenset({*found, ""} if self._settings.default_queue in found else found)

    def _name_of(self, group: str, at: int) -> str:
        """Return the queue of a group as of an event; empty if there is no such group."""
        queue = _as_of(self._queues.get(group, ()), at)
        return "" if queue is None else queue or self._settings.default_queue

    def _group_of(self, pod: str, session: SessionInfo) -> str:
        """Return the group of a pod as of a session's head; empty if it has none."""
        found = self._state.pod(pod)
        for logged in self._reader.object_history("Pod", pod):
            if self._state.sequence < logged.sequence <= session.head and isinstance(
                one := object_in(logged.event), Pod
            ):
                found = one
        return "" if found is None else found.group_key

    @property
    def inside(self) -> frozenset[str]:
        """The queue and those below it."""
        return self._insides[-1][1] - {""}

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def below(self) -> int:
        """The number of queues below it."""
        return len(self.inside) - 1

    @property
    def waiting(self) -> int:
        """The number of jobs that wait at the end."""
        return sum(bool(job.waits) for job in self.jobs.values())

    def by_reason(self) -> list[WaitedFor]:
        """Return the time by reason, the longest first."""
        found: dict[str, dict[str, int]] = {}
        for group, job in sorted(self.jobs.items()):
            for reason, length in job.by_reason.items():
                found.setdefault(reason, {})[group] = length
        totals = []
        for reason, lengths in sorted(found.items()):
            longest = max(lengths, key=lambda group: lengths[group])
            total = sum(lengths.values()) / _SECOND
            totals.append(WaitedFor(reason, total, len(lengths), longest, lengths[longest] / _SECOND))
        return sorted(totals, key=lambda one: -one.seconds)

    def longest(self) -> list[WaitingJob]:
        """Return the jobs that waited longest."""
        jobs = sorted(self.jobs.items(), key=lambda item: (-item[1].total, item[0]))[:_LONGEST]
        return [
            WaitingJob(
                group,
                job.total / _SECOND,
                bool(job.waits),
                reasons_text(all_told(job.waits)),
                "" if job.queue == self.queue else job.queue,
            )
            for group, job in jobs
        ]


def _as_of(changes: Sequence[tuple[int, T]], sequence: int) -> T | None:
    """Return the value after an event; None before the first change."""
    place = bisect_right(changes, sequence, key=itemgetter(0))
    return changes[place - 1][1] if place else None


def first_sessions_after(infos: Sequence[SessionInfo], sequences: Iterable[int]) -> list[SessionInfo]:
    """Return the first session after each of some events, if it is among ``infos``."""
    found = {}
    for sequence in sequences:
        following = next((info for info in infos if info.head >= sequence), None)
        if following is not None and sequence >= infos[0].head:
            found[following.number] = following
    return list(found.values())
