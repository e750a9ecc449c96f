"""tdm: share nodes with another system by time of day (Volcano ``docs/design/tdm-plugin.md``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import TaskStatus
from vcd.model.wording import SECOND
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order import Label, labelled, yes_or_no
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer, victim_rule
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.deletion_time import asked_since
from vcd.state.records import ANY_ZONE, PREEMPTABLE, ZONE, is_preemptable, uses_zones

_CLOSED = ReasonCode(
    "zone-closed-until",
    Cause.NODE_POLICY,
    "node(s) in revocable zone {zone} are closed now, open {window} UTC",
    nodes_help=True,
)
_NO_WINDOW = ReasonCode(
    "zone-without-window",
    Cause.NODE_POLICY,
    "node(s) in revocable zone {zone}, for which the argument tdm.revocable-zone.{zone} is missing",
    nodes_help=True,
)
_NO_AMOUNT = ReasonCode(
    "budget-annotation",
    Cause.INVALID,
    "annotation {key} of the group is no number or percentage, and is passed over",
    remark=True,
)
_NO_ZONE = ReasonCode(
    "zone-annotation",
    Cause.INVALID,
    "annotation volcano.sh/revocable-zone of the pod permits no zone; write * for all of them",
    remark=True,
)

MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
PERIOD = "tdm.evict.period"
WINDOW = "tdm.revocable-zone.<zone>"
MAX_SCORE = 100.0
DEFAULT_BUDGET = 1
"""How many pods of a job without a budget are evicted at a time."""

_DAY = 24 * 3600
_WINDOW = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])-([01]?[0-9]|2[0-3]):([0-5][0-9])")
_AMOUNT = re.compile(r"\+?([0-9]{1,9})(%?)")


class Window(NamedTuple):
    """A part of each day, in seconds since midnight UTC, including both ends."""

    start: int
    end: int

    def holds(self, now: int) -> bool:
        """Return whether a time, in nanoseconds since the epoch, is within the window."""
        second = now // SECOND % _DAY
        if self.start < self.end:
            return self.start <= second <= self.end
        return self.start == self.end or second >= self.start or second <= self.end

    def turns(self, now: int) -> list[int]:
        """Return when the window next begins and ends after ``now`` (ns since the epoch)."""
        if self.start == self.end:
            return []
        midnight = now // SECOND // _DAY * _DAY
        times = [midnight + self.start, midnight + self.end + 1]
        return [(time if time * SECOND > now else time + _DAY) * SECOND for time in times]


def window_of(text: str) -> Window | None:
    """Parse a window such as ``22:00-6:00``; None if it is invalid.

    A window that ends before it begins passes midnight. One with equal ends is the whole day.
    """
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        return None
    hours = [int(part) for part in found.groups()]
    return Window(hours[0] * 3600 + hours[1] * 60, hours[2] * 3600 + hours[3] * 60)


class _Windows(tuple[str, ...]):
    """All texts that are windows, as choices of an argument."""

    __slots__ = ()

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and window_of(text) is not None


class _WindowArgument(Argument, frozen=True):
    """An argument whose values are windows."""

    @property
    def allowed(self) -> str:
        return "a window such as 22:00-6:00: hours from 0 to 23, minutes of two digits"


class _Zones:
    """The revocable nodes of a session: ``revocable`` and ``open`` are masks, ``codes`` index ``names`` (-1: none)."""

    def __init__(self, session: Session, windows: Mapping[str, Window], texts: Mapping[str, str]) -> None:
        self.codes, self.names = session.nodes.facts.label(ZONE)
        is_zone = np.array([bool(name) for name in self.names] + [False], np.bool_)
        is_open = np.array([name in windows and windows[name].holds(session.now) for name in self.names] + [False])
        self.revocable: Mask = is_zone[self.codes]
        self.open: Mask = self.revocable & is_open[self.codes]
        self.closed: frozenset[str] = frozenset(name for name in windows if not windows[name].holds(session.now))
        self._texts = texts

    def zone_of(self, row: int) -> str:
        """Return the zone of a node's row; an empty text for none."""
        code = int(self.codes[row])
        return self.names[code] if code >= 0 else ""

    def why_closed(self, zone: str) -> Reason:
        """Return why nodes of a zone accept no pods now."""
        if zone in self._texts:
            return _CLOSED({"zone": zone, "window": self._texts[zone]})
        return _NO_WINDOW({"zone": zone})


class ZoneIsOpen(Predicate):
    """Accepts nodes in revocable zones only in the zone's window."""

    name = "RevocableZoneOpen"
    reason = ReasonCode(
        "zone-closed", Cause.NODE_POLICY, "node(s) in a revocable zone that is closed now", nodes_help=True
    )()
    reads = Reads.TIME
    keys = ()

    def __init__(self, zones: _Zones) -> None:
        self._zones = zones
        self._passes: Mask = ~zones.revocable | zones.open

    def applies(self, task: Task) -> bool:
        return not self._passes.all()

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(self._passes, usage)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Return one reason for each zone."""
        codes: npt.NDArray[np.int32] = at_rows(self._zones.codes, usage)[failed]
        counts = np.bincount(codes[codes >= 0], minlength=len(self._zones.names)).tolist()
        pairs = zip(self._zones.names, counts, strict=True)
        return {self._zones.why_closed(zone): count for zone, count in pairs if count}


class MayBeRevoked(Predicate):
    """Accepts nodes in revocable zones only for pods that may use such nodes."""

    name = "RevocableZonePermitted"
    reason = ReasonCode(
        "zone-not-permitted",
        Cause.NODE_POLICY,
        "node(s) in a revocable zone, which the pod does not permit (annotation volcano.sh/preemptable)",
        nodes_help=True,
    )()
    reads = Reads.TIME
    keys = (ZONE, PREEMPTABLE)

    def __init__(self, zones: _Zones) -> None:
        self._passes: Mask = ~zones.revocable

    def applies(self, task: Task) -> bool:
        return not uses_zones(task.pod)

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(self._passes, usage)


class PreferZones(Score):
    """100 for nodes of open revocable zones, if the pod may use them."""

    name = "RevocableZone"
    reads = Reads.TIME
    keys = (ZONE, PREEMPTABLE)

    def __init__(self, zones: _Zones) -> None:
        super().__init__(1)
        self._points: Scores = np.where(zones.open, MAX_SCORE, 0.0)

    def applies(self, task: Task) -> bool:
        return uses_zones(task.pod)

    def raw(self, task: Task, usage: Usage) -> Scores:
        return at_rows(self._points, usage)


class TdmPlugin(Plugin):
    """Time division: nodes with the label `volcano.sh/revocable-zone` accept pods only in the window of their zone.

    - A pod may use such nodes if its annotation `volcano.sh/revocable-zone` is `*`, or if it lacks this annotation and
      its annotation `volcano.sh/preemptable` is true. In the window it prefers them (100 points).
    - Outside the window, the action shuffle evicts running pods from the zone's nodes if they are preemptable
      (annotation or label `volcano.sh/preemptable` of the pod, by default true).
    - A pod that is not preemptable and does not use zones may preempt preemptable pods that run on ordinary nodes.
      Other pods preempt none.
    - Jobs that are not preemptable (annotation or label of the group, by default false) come first, and starve while
      any of their pods is pending.

    A job's budget limits the pods evicted at a time: `volcano.sh/jdb-min-available` (running pods that remain), or else
    `volcano.sh/jdb-max-unavailable` (pods that do not run), a number or a percentage of its pods, rounded up. Without a
    budget it is one pod, or all if gang would protect this one for the job's minimum. After an eviction of a job's pod
    by shuffle, or the creation of one, shuffle evicts no more of the job's pods within `tdm.evict.period`. Windows are
    in UTC, including both ends. Source: Volcano ``plugins/tdm``.
    """

    name = "tdm"
    arguments = (
        _WindowArgument(
            WINDOW,
            "str",
            None,
            "The window of a zone, each day, in UTC, for example 10:00-21:00. One that ends before it begins passes "
            "midnight; one with equal ends is the whole day. Zones without a window are closed, and their pods remain.",
            choices=_Windows(),
        ),
        Argument(PERIOD, "duration", 60 * SECOND, "The time between two evictions from a job.", minimum=0),
    )
    keys = (ZONE, PREEMPTABLE, MIN_AVAILABLE, MAX_UNAVAILABLE)
    timed = True

    def open(self, session: Session) -> None:
        """Determine which zones are open."""
        self._session = session
        self._now = session.now
        self._period: int = self.values[PERIOD]
        texts: dict[str, str] = self.values.matching(WINDOW)
        windows = {zone: window for zone, text in texts.items() if (window := window_of(text)) is not None}
        self._windows = windows
        self._pause_ends: list[int] = []
        """When jobs with recent evictions may lose more pods (ns since the epoch)."""
        self._zones = _Zones(session, windows, {zone: text.strip() for zone, text in texts.items()})

    def predicates(self) -> Iterable[Predicate]:
        """Return the filters, if any node is revocable."""
        if self._zones.revocable.any():
            yield ZoneIsOpen(self._zones)
            yield MayBeRevoked(self._zones)

    def node_order(self) -> Iterable[Score]:
        """Return the score, if any zone is open."""
        if self._zones.open.any():
            yield PreferZones(self._zones)

    # --- jobs -------------------------------------------------------------------------------------------------------

    @labelled(Label("preemptable", "not preemptable", "preemptable", yes_or_no))
    def job_order(self, job: Job) -> bool:
        """Order jobs that are not preemptable first."""
        return is_preemptable(job.record.group, unsaid=False)

    def job_pipelined(self, job: Job) -> Vote:
        """Permit if the minimum of tasks, also of each role, is ready or pipelined, else reject."""
        return Vote.PERMIT if job.is_pipelined_whole() else Vote.REJECT

    def job_starving(self, job: Job) -> bool:
        """Return whether a job that is not preemptable has pending tasks, even beyond its minimum."""
        return job.counts[TaskStatus.PENDING] > 0 and not is_preemptable(job.record.group, unsaid=False)

    # --- victims ----------------------------------------------------------------------------------------------------

    @victim_rule("running preemptable tasks outside revocable zones, within the budget of each job")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> VictimsAnswer:
        """Permit running preemptable tasks on ordinary nodes as victims, within each job's budget."""
        if preemptor.preemptable or uses_zones(preemptor.pod):
            return []
        revocable = self._zones.revocable
        return _WithinBudgets(lambda task: _runs(task) and task.preemptable and not revocable[task.node])

    def victim_tasks(self, tasks: list[Task]) -> list[Task]:
        """Return running preemptable tasks on nodes of closed zones, within each job's budget and period.

        A gang without a budget that would fall below its minimum is evicted as a whole.
        """
        closed = self._zones.closed
        if not closed:
            return []
        out = [task for task in tasks if _runs(task) and task.preemptable and self._zones.zone_of(task.node) in closed]
        jobs = {task.job.index: task.job for task in out}
        paused = {index for index, job in jobs.items() if self._evicted_recently(job)}
        named = _WithinBudgets(lambda task: task.job.index not in paused).among(out)
        unprotected = {task.job.index for task in framework_of(self._session).unprotected(named)}
        protected: dict[int, list[Task]] = {task.job.index: [] for task in named if task.job.index not in unprotected}
        for task in tasks if protected else ():
            if task.job.index in protected:
                protected[task.job.index].append(task)
        whole = [task for index, own in protected.items() if self._is_evicted_whole(jobs[index], own) for task in own]
        return [*named, *whole]

    def _is_evicted_whole(self, job: Job, own: list[Task]) -> bool:
        """Return whether a job has no stated budget, and all of its placed tasks may be evicted."""
        return stated_budget(job) is None and len(framework_of(self._session).unprotected(own)) == len(own)

    def _evicted_recently(self, job: Job) -> bool:
        """Return whether a job lost a pod, or got a new one, within the period."""
        since = self._now - self._period
        for task in job.tasks():
            is_releasing = task.status == TaskStatus.RELEASING
            time = asked_since(task.pod, self._now) if is_releasing else task.created * SECOND
            if time > since:
                self._pause_ends.append(time + self._period)
                return True
        return False

    def wakes(self) -> Iterator[int]:
        """Return when zones open or close and when jobs may lose more pods, if pods are pending or in zones."""
        session, tasks = self._session, self._session.snapshot.tasks
        placed = tasks.node[(tasks.status == TaskStatus.RUNNING) & (tasks.node >= 0)]
        waits = session.jobs.counts[:, TaskStatus.PENDING].any()
        if not (waits or self._zones.revocable[placed].any()):
            return
        for name in self._zones.names:
            if name in self._windows:
                yield from self._windows[name].turns(session.now)
        yield from self._pause_ends

    def close(self, session: Session) -> None:
        """Note invalid annotations on pending jobs."""
        for job in session.jobs_with_pending():
            for key in (MIN_AVAILABLE, MAX_UNAVAILABLE):
                text = job.record.group.metadata.annotations.get(key)
                if text is not None and _AMOUNT.fullmatch(text) is None:
                    job.note("invalid", self.name, _NO_AMOUNT({"key": key, "value": text, "write": "2 or 30%"}))
            for task in job.pending():
                text = task.pod.metadata.annotations.get(ZONE)
                if text is not None and text != ANY_ZONE:
                    job.note("invalid", self.name, _NO_ZONE({"value": text}), task=task)


class _WithinBudgets(Allowance):
    """Permits victims that ``may`` be evicted, within each job's budget."""

    def __init__(self, may: Callable[[Task], bool]) -> None:
        self._may = may
        self._left: dict[int, int] = {}

    def permits(self, task: Task) -> bool:
        if not self._may(task):
            return False
        index = task.job.index
        if index not in self._left:
            self._left[index] = budget(task.job)
        return self._left[index] > 0

    def spend(self, task: Task) -> None:
        self._left[task.job.index] -= 1


def budget(job: Job) -> int:
    """Return how many of a job's running tasks may be evicted now."""
    stated = stated_budget(job)
    return DEFAULT_BUDGET if stated is None else stated


def stated_budget(job: Job) -> int | None:
    """Return how many of a job's running tasks its annotations allow to evict now; None if they state nothing."""
    annotations = job.record.group.metadata.annotations
    total, running = job.task_count, job.counts[TaskStatus.RUNNING]
    least = _amount(annotations.get(MIN_AVAILABLE), total)
    if least is not None:
        return max(running - least, 0)
    most = _amount(annotations.get(MAX_UNAVAILABLE), total)
    if most is not None:
        ended = job.counts[TaskStatus.SUCCEEDED] + job.counts[TaskStatus.FAILED]
        return max(most - (total - ended - running), 0)
    return None


def _amount(text: str | None, total: int) -> int | None:
    """Parse a number, or a percentage of ``total``, rounded up; None if it is neither."""
    found = None if text is None else _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number = int(found[1])
    return -(-number * total // 100) if found[2] else number


def _runs(task: Task) -> bool:
    return task.status == TaskStatus.RUNNING and task.node >= 0
