"""Who waited in a queue or below it, and who had to go for whom: followed through what sessions, groups and queues
show, so that nothing else of a long log is folded."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from vcd.eventlog import Logged, LogReader, SessionInfo
from vcd.eventlog.reader import is_decision
from vcd.model import events as ev
from vcd.model.codec import BadObject
from vcd.model.objects import Pod, Queue
from vcd.scheduling.framework.reasons import all_told
from vcd.scheduling.session.session import ROOT_QUEUE
from vcd.state.cluster import ClusterState
from vcd.state.records import QueueRecord, Settings, readable_group_queue
from vcd.timetravel.history import shown
from vcd.timetravel.why.sentences import waits_in_words
from vcd.timetravel.why.sessions import EvictedPod, evicted_by, kinds_of

StateAt = Callable[[int], ClusterState]
"""The state as of an event, which changes with the next call."""
_LONGEST = 5
"""How many jobs are listed that waited longest."""
_SECOND = 1e9


class WaitedFor(msgspec.Struct):
    """A reason for which jobs of the queue waited: ``seconds`` of all ``jobs`` together, and of ``longest`` alone."""

    reason: str
    seconds: float
    jobs: int
    longest: str
    longest_seconds: float


class WaitingJob(msgspec.Struct, omit_defaults=True):
    """A job that waited, ``seconds`` in all; ``still`` at the end for what ``waiting`` says. ``queue`` is where it
    waited last, if that is below the one that is asked about."""

    group: str
    seconds: float
    still: bool = False
    waiting: str = ""
    queue: str = ""


class JobWait(msgspec.Struct):
    """How long a job waited, in ns, and by reason, and in which queue last; while it waits, since when and for
    what."""

    queue: str = ""
    total: int = 0
    by_reason: Counter[str] = msgspec.field(default_factory=Counter)
    since: int = 0
    waits: tuple[ev.Waiting, ...] = ()

    def set(self, time: int, waits: tuple[ev.Waiting, ...]) -> None:
        """From now on it waits for this, or for nothing."""
        if self.waits and time > self.since:
            self.total += time - self.since
            self.by_reason.update(dict.fromkeys(_reasons(self.waits), time - self.since))
        self.since, self.waits = time, waits


def _reasons(waits: Sequence[ev.Waiting]) -> list[str]:
    """What a wait is counted for: the gang's minimum only where nothing else says why it is missing."""
    return list((kinds_of(one for one in waits if one.gate != "gang") or kinds_of(waits)).values())


class QueueCourse:
    """What happened to a queue's jobs, and to those of queues below it, told in the order of the log's events."""

    def __init__(self, queue: str, reader: LogReader, state: ClusterState) -> None:
        """``state`` is that of before the first event that is told; it must not change until the last is."""
        self.queue = queue
        self.jobs: dict[str, JobWait] = {}
        self.evictions: list[EvictedPod] = []
        """Of pods of its jobs."""
        self.evictions_for: list[EvictedPod] = []
        """Of pods that made room for its jobs."""
        self._reader = reader
        self._open: set[str] = set()
        self._moved: set[str] = set()
        """Groups that may be in another queue since the last session."""
        self._know(state)

    def _know(self, state: ClusterState) -> None:
        self._state = state
        self._settings: Settings = state.settings
        self._queue_of = {key: record.group.spec.queue for key, record in state.groups.items()}
        self._parent_of = {key: record.queue.spec.parent for key, record in state.queues.items()}
        self._waiting = dict(state.waiting)
        self._inside, self._all_moved = self._below(), True

    def follow(self, infos: Sequence[SessionInfo], after: int, until: int, state_at: StateAt) -> None:
        """Go through the events after one and up to another, and count what happened from the first of some sessions
        on."""
        info_of, segments = {info.sequence: info for info in infos}, self._reader.segments()
        takeovers = [one.live for one in segments if after < one.live < until]
        later = deque[Logged]()
        for logged in self._reader.concerning(("PodGroup", "Queue"), ("session", "policy"), after, until):
            while takeovers and takeovers[0] < logged.sequence:
                later.clear()
                self._know(state_at(takeovers.pop(0)))
            if not isinstance(logged.event, ev.SessionDecided):
                later.append(logged)
            elif is_decision(segments, logged.sequence):
                while later and later[0].sequence <= logged.event.head:  # what came while it was decided is new to it
                    self._see(later.popleft())
                self._decided(logged.event, info_of.get(logged.sequence), logged.time)
        for logged in later:
            self._see(logged)

    def finish(self, time: int) -> None:
        """Count what is still waited for up to a time, without an end to it; forget who did not wait for any time."""
        self._settle(time, coming=False)
        for group in sorted(self._open):
            self.jobs[group].set(time, self.jobs[group].waits)
        self.jobs = {group: job for group, job in self.jobs.items() if job.total or job.waits}

    # --- what happens -------------------------------------------------------------------------------------------------

    def _see(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ev.PolicyLoaded):
            self._settings, self._all_moved = Settings.from_text(event.settings), True
        elif isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad):
            if event.kind == "Queue":
                self._queue_changed(event)
            elif isinstance(event, ev.ObjectPut):
                self._shown(event, logged.time)
            else:
                self._gone(event.key, logged.time)

    def _queue_changed(self, event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> None:
        if isinstance(event, ev.ObjectPut) and event.payload is None:
            return
        self._parent_of.pop(event.key, None)
        with suppress(BadObject):  # it is set aside, as one that is not there
            if isinstance(queue := shown(event), Queue):
                self._parent_of[event.key] = QueueRecord.of(queue).queue.spec.parent
        self._inside, self._all_moved = self._below(), True

    def _shown(self, event: ev.ObjectPut, time: int) -> None:
        if event.payload is None:
            return
        try:
            queue = readable_group_queue(event.payload)
        except BadObject:  # it is set aside: nobody places its pods until it can be read
            self._gone(event.key, time)
        else:
            if self._queue_of.get(event.key) != queue:
                self._moved.add(event.key)
            self._queue_of[event.key] = queue

    def _gone(self, group: str, time: int) -> None:
        self._queue_of.pop(group, None)
        self._waiting.pop(group, None)
        if group in self._open:
            self._set(group, time, ())

    def _decided(self, record: ev.SessionDecided, info: SessionInfo | None, time: int) -> None:
        """A session: who came or left before it, and what it says of whom; counted where its entry is given."""
        plan = record.accepted()
        if info is not None:
            self._settle(time)
        for group, reasons in ev.waits_by_group(plan.waiting).items():
            if group not in self._queue_of:
                continue
            if reasons:
                self._waiting[group] = reasons
            else:
                self._waiting.pop(group, None)
            if info is not None and self._is_inside(group):
                self._set(group, time, reasons)
        if info is None:
            return
        for statement in plan.statements:
            for one in evicted_by(statement, info, self._name_of, self._group_of):
                if one.queue in self._inside:
                    self.evictions.append(one)
                if one.for_queue in self._inside:
                    self.evictions_for.append(one)

    def _settle(self, time: int, *, coming: bool = True) -> None:
        """Who is in another queue by now waits here no longer, and who came in waits here (not where none are
        ``coming``); so do those of whom another replica says so that took over."""
        moved = self._waiting.keys() | self._open if self._all_moved else self._moved
        for group in sorted(moved):
            waits = self._waiting.get(group, ()) if self._is_inside(group) else ()
            if bool(waits) != (group in self._open) and (coming or not waits):
                self._set(group, time, waits)
        self._moved, self._all_moved = set(), False

    def _set(self, group: str, time: int, waits: tuple[ev.Waiting, ...]) -> None:
        if waits:
            self._open.add(group)
        elif group in self._open:
            self._open.discard(group)
        else:
            return
        job = self.jobs.setdefault(group, JobWait())
        if waits:
            job.queue = self._name_of(group)
        job.set(time, waits)

    # --- what is where ------------------------------------------------------------------------------------------------

    def _below(self) -> frozenset[str]:
        """The queue, and those whose way up leads to it."""
        found = {self.queue}
        for name in self._parent_of:
            way = [name]
            while way[-1] in self._parent_of and (parent := self._parent_of[way[-1]] or ROOT_QUEUE) not in way:
                way.append(parent)
            if self.queue in way:
                found.update(way[: way.index(self.queue)])
        return frozenset(found)

    def _is_inside(self, group: str) -> bool:
        return self._name_of(group) in self._inside

    def _name_of(self, group: str) -> str:
        """The queue of a group; empty where there is no such group."""
        queue = self._queue_of.get(group)
        return "" if queue is None else queue or self._settings.default_queue

    def _group_of(self, pod: str, session: SessionInfo) -> str:
        """The group of a pod as of a session's head; empty where it names none."""
        found = self._state.pod(pod)
        for logged in self._reader.object_history("Pod", pod):
            if self._state.sequence < logged.sequence <= session.head and isinstance(one := shown(logged.event), Pod):
                found = one
        return "" if found is None else found.group_key

    @property
    def inside(self) -> frozenset[str]:
        """The queue and those below it."""
        return self._inside

    # --- what it comes to ---------------------------------------------------------------------------------------------

    @property
    def below(self) -> int:
        """How many queues are below it."""
        return len(self._inside) - 1

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._open)

    def by_reason(self) -> list[WaitedFor]:
        """Time by reason, the longest first."""
        found: dict[str, dict[str, int]] = {}
        for group, job in sorted(self.jobs.items()):
            for reason, length in job.by_reason.items():
                found.setdefault(reason, {})[group] = length
        told = []
        for reason, lengths in sorted(found.items()):
            longest = max(lengths, key=lambda group: lengths[group])
            total = sum(lengths.values()) / _SECOND
            told.append(WaitedFor(reason, total, len(lengths), longest, lengths[longest] / _SECOND))
        return sorted(told, key=lambda one: -one.seconds)

    def longest(self) -> list[WaitingJob]:
        """The jobs that waited longest."""
        jobs = sorted(self.jobs.items(), key=lambda item: (-item[1].total, item[0]))[:_LONGEST]
        return [
            WaitingJob(
                group,
                job.total / _SECOND,
                bool(job.waits),
                waits_in_words(all_told(job.waits)),
                "" if job.queue == self.queue else job.queue,
            )
            for group, job in jobs
        ]


def first_sessions_after(infos: Sequence[SessionInfo], sequences: Iterable[int]) -> list[SessionInfo]:
    """The first session after each of some events, of those that have one here."""
    found = {}
    for sequence in sequences:
        following = next((info for info in infos if info.head >= sequence), None)
        if following is not None and sequence >= infos[0].head:
            found[following.number] = following
    return list(found.values())
