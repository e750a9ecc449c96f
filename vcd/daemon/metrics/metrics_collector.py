"""Collects the daemon's metrics and renders the page for one scrape.

Components report on the event loop, where ``freeze`` takes a copy; the page is rendered from the copy in any thread.
Gauges are computed from the last session at each scrape, so series of deleted objects need no cleanup. Names are
declared in `families`.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import operator
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client import Metric, ProcessCollector, generate_latest

from vcd.daemon.metrics import metric_families as fam
from vcd.daemon.metrics.metric_series import LabelValues, SeriesStore
from vcd.daemon.metrics.pending_pods import NO_QUEUE, Alignment, WaitingCounts
from vcd.kube.clock import SYSTEM_CLOCK
from vcd.kube.request_info import CompletedRequest
from vcd.kube.watcher import WatchStatus
from vcd.model.events import OperationDone, Plan, Result, SessionDecided, Statement
from vcd.model.quantity import per_unit
from vcd.model.resource_requests import UNOFFERED, names_in_order
from vcd.model.status import UNSCHEDULABLE, Phase, TaskStatus, phase_of
from vcd.model.version import __version__
from vcd.model.wording import SECOND
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.framework.registry import series
from vcd.scheduling.session.gauges import Gauge, JobGauge, resource_gauges
from vcd.scheduling.session.session import Session
from vcd.state.group_columns import GroupColumns
from vcd.state.records import GroupRecord
from vcd.state.sums import Ints, sum_of

_log = structlog.get_logger(__name__)

REMEMBERED_SESSIONS = 64
"""Sessions whose operations are still matched with their outcomes."""
JOB_SERIES = 5000
"""Default of the most jobs that have series of their own."""
PAUSE_WINDOW = 60.0
"""Seconds; the page exposes the longest pause of the current and the last window."""
_TICK = 0.02
_TRIED = ("queue", "predicate")
"""Gates at which a considered pod found no node."""
_PREEMPTING = ("preempt", "gangpreempt")
_EVICTING = (*_PREEMPTING, "reclaim", "gangreclaim")
_INQUEUE, _RESERVED = "volcano_queue_inqueue", "vcd_queue_enqueue_reserved"
_OF_QUEUE_CONTROLLER = "volcano_queue_pod_group_"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PENDING = int(TaskStatus.PENDING)
_NOTHING: Final = -1
"""Marks a job that is not unschedulable. An unschedulable job may lack 0 tasks, so 0 cannot mark it."""
_NO_JOBS: Final = np.zeros(0, np.int64)
"""The jobs represented by a job without equivalent jobs."""
_COMPLETED = Phase.COMPLETED.text


class _Progress(NamedTuple):
    """A job's age in ms, the Unix time when its tasks were last placed, and how many sessions completed it."""

    duration: float | None = None
    last: int = 0
    completions: int = 0


_NEW = _Progress()
_Evicting = tuple[Statement, list[str]]
"""A statement and the keys of its victims."""


@dataclass
class _Decided:
    """A session with operations in flight, observed at the clock's time ``at``.

    ``left`` maps positions in the plan of operations without an outcome to the Unix creation times of their pods. Until
    it is computed, outcomes of binds are queued in ``early`` with the clock's times.
    """

    plan: Plan
    now: int
    at: float
    left: dict[tuple[int, int], int] | None = None
    early: list[tuple[OperationDone, float]] = field(default_factory=list)


@dataclass
class _Placed:
    """Creation times (Unix seconds) of the jobs and, by queue, of the pods that a session placed; ``left`` as above."""

    now: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    by_queue: dict[str, list[int]] = field(default_factory=dict)
    left: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class _View:
    """Queues, jobs and pending pods of the last session.

    ``lacks`` counts the tasks that each job lacks of its minimum, ``retries`` the sessions that found it unschedulable.
    """

    series: SeriesStore
    gauges: list[Gauge | JobGauge]
    jobs: GroupColumns
    queue_names: list[str]
    lacks: Ints
    retries: Ints


@dataclass(eq=False)
class _Jobs:
    """History of single jobs over sessions; only sessions' summaries change it.

    ``retries`` counts, for each of ``records`` (the jobs of the last session), the sessions that found it
    unschedulable; ``away`` has the same for PodGroups that are no jobs any more, because their queue is gone.
    """

    waiting: WaitingCounts = field(default_factory=WaitingCounts)
    progress: dict[str, _Progress] = field(default_factory=dict)
    records: list[GroupRecord] = field(default_factory=list)
    retries: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    away: dict[str, tuple[GroupRecord, int]] = field(default_factory=dict)

    def frozen(self) -> _Jobs:
        """Return a copy of the series of single jobs."""
        return replace(self, progress=self.progress.copy())

    def follow(self, aligned: Alignment, jobs: GroupColumns, groups: Mapping[str, GroupRecord]) -> None:
        """Take over a session's jobs. Drop jobs whose PodGroup was deleted or recreated."""
        self.away |= {key: (self.records[place], self.retries.item(place)) for key, place in aligned.gone.items()}
        self.retries = aligned.carried(self.retries)
        for place, before in self._changed(aligned, jobs.records):
            if _is_recreated(jobs.records[place], before):
                self.retries[place] = 0
                self.progress.pop(jobs.keys[place], None)
        self.records = jobs.records
        for key, (record, retries) in list(self.away.items()):
            if key not in groups or _is_recreated(groups[key], record):
                del self.away[key]
                self.progress.pop(key, None)
            elif (index := jobs.index(key)) is not None:
                self.retries[index] = retries
                del self.away[key]

    def _changed(self, aligned: Alignment, records: list[GroupRecord]) -> Iterator[tuple[int, GroupRecord]]:
        """Yield the index and the earlier record of each known job with a new record.

        Unchanged jobs, of which there can be tens of thousands, cost no Python step.
        """
        known = [*self.records, None]  # NEW is the index of the last one
        before = list(map(known.__getitem__, aligned.places.tolist()))
        for place in itertools.compress(range(len(records)), map(operator.is_not, records, before)):
            if (record := before[place]) is not None:
                yield place, record


def _is_recreated(group: GroupRecord, before: GroupRecord) -> bool:
    """Return whether a PodGroup was recreated under the same name."""
    return (group.group.metadata.uid, group.created) != (before.group.metadata.uid, before.created)


@dataclass(frozen=True)
class SessionSummary:
    """What one session contributes to the metrics.

    ``silent`` are plugins whose gauges failed, with the error; ``counts`` are increments of counters; ``evicted`` are
    increments of evictions by both queues.
    """

    jobs: _Jobs
    view: _View
    session: int
    counts: Counter[tuple[str, ...]]
    evicted: Counter[LabelValues]
    placed: _Placed
    silent: list[tuple[str, Exception]]
    verdicts: dict[LabelValues, int]


class Metrics:
    """All metrics of the daemon. ``clock`` returns monotonic seconds.

    Jobs have series of their own while there are at most ``job_series`` jobs. ``controls_queues`` means that vcd
    exposes the series of Volcano's queue controller. ``watches`` returns each kind's status, ``set_aside`` kind and key
    of each invalid object, ``held_back`` the number of namespaces that the interlock holds back.
    """

    def __init__(
        self,
        clock: Callable[[], float] = SYSTEM_CLOCK.monotonic,
        job_series: int = JOB_SERIES,
        *,
        shadow: bool = False,
        controls_queues: bool = True,
    ) -> None:
        self._clock = clock
        self._job_series = job_series
        self._shadow = shadow
        self._controls_queues = controls_queues
        self.series = SeriesStore(fam.DAEMON)
        """Series that every replica exposes, whether it leads or not."""
        for verb in ("bind", "evict", "ungate"):  # Prometheus sees no increase in a series that begins above 0
            for result in get_args(Result):
                self.series.add("vcd_commit_operations_total", verb, result, by=0)
        for kind in ("Event", "PodGroup", "Queue", "Pod"):
            self.series.add("vcd_writes_dropped_total", kind, by=0)
        self._process = ProcessCollector(registry=None)
        self.begin_service()

    def begin_service(self) -> None:
        """Drop all gauges and continue all counters, for the next service in this process.

        A counter that starts again in the same process would look like a restart to Prometheus, which would lose the
        increase before it.
        """
        self.watches: Callable[[], Mapping[str, WatchStatus]] = dict
        self.set_aside: Callable[[], Collection[tuple[str, str]]] = tuple
        self.held_back: Callable[[], int] = int
        self.series = self.series.counted()
        self.series.show("vcd_build_info", {(__version__,): 1})
        for name in ("vcd_loop_pause_seconds", "vcd_clock_ahead_seconds"):
            self.series.show(name, 0)
        for name in () if self._shadow else ("vcd_leader", "vcd_epoch"):  # a shadow takes no Lease
            self.series.show(name, 0)
        self.series.show("vcd_shadow", self._shadow)
        self._series_left_out = False
        self._window = self._clock()
        self._pauses = [0.0, 0.0]
        """The longest pause of the current window and of the last one."""
        self._faulty: set[str] = set()
        self._exposes = True
        """Whether to expose sessions: not while another replica leads, even if own sessions are still reported."""
        self._decided: OrderedDict[int, _Decided] = OrderedDict()
        """Own sessions. They outlast the loss of the Lease, because outcomes of calls in flight still arrive."""
        self._forget_sessions()

    def _forget_sessions(self) -> None:
        self._view: _View | None = None
        self._jobs = _Jobs()
        self._leader = SeriesStore(fam.LEADER)
        self._verdicts: Mapping[LabelValues, int] = {}
        self._counted_at = self._clock()
        """Time up to which waiting pods were counted (monotonic seconds)."""
        self._queues: Collection[str] = ()
        """Queues of the last session."""

    # --- sessions ---------------------------------------------------------------------------------------------------

    def begin_session(
        self, session: Session, plan: Plan, record: SessionDecided | None, durations: Mapping[str, float]
    ) -> Callable[[], SessionSummary]:
        """Note a session that ended. ``record`` is None if nothing changed in it, so that it was not logged.

        ``durations`` are seconds: "snapshot", "open", each action's name, "close", "verify", "total", and, if they
        were measured, "open/PLUGIN" and "close/PLUGIN". The returned function visits all jobs. The caller calls it in
        any thread, one session after the other, and passes its result to ``end_session``.
        """
        self._time(durations, framework_of(session).policy.actions)
        for option in (option for tier in framework_of(session).policy.tiers for option in tier):
            self.series.add("vcd_plugin_faults_total", option.name, by=0)
        for fault in plan.faults:
            self.series.add("vcd_plugin_faults_total", name_in(fault))
        for name, result in session.problems.items():
            if isinstance(result, Exception):
                self._count_reporting_fault(name, "problems", result)
        self._count_lost()
        self._queues = session.queues.keys() | {NO_QUEUE}
        self._forget_gone_queues()
        if record is not None:
            self.series.show("vcd_session", record.session)
            self._decided[record.session] = _Decided(plan, record.now, self._clock())
            if len(self._decided) > REMEMBERED_SESSIONS:
                self._decided.popitem(last=False)
        return functools.partial(_summary, self._jobs, session, plan, record)

    def end_session(self, summary: SessionSummary) -> None:
        """Add a session's summary to the counters, and expose its gauges unless the Lease was lost."""
        for name, error in summary.silent:
            self._count_reporting_fault(name, "gauges", error)
        for (name, *labels), count in summary.counts.items():
            self.series.add(name, *labels, by=count)
        placed = summary.placed
        ages = _ages([created for pods in placed.by_queue.values() for created in pods], placed.now)
        self.series.distribution("volcano_task_scheduling_latency_milliseconds", "Assumed").observe_many(ages)
        ages = _ages([*placed.jobs.values()], placed.now)
        self.series.distribution("volcano_e2e_job_scheduling_latency_milliseconds").observe_many(ages)
        if summary.jobs is self._jobs and self._exposes:
            for labels_of, count in summary.evicted.items():
                self._leader.add("vcd_evictions_total", *labels_of, by=count)
            for queue, created in placed.by_queue.items():
                self._leader.distribution("vcd_wait_seconds", queue).observe_many(_ages(created, placed.now) / 1000)
            self._view = summary.view
            self.observe_verdicts(summary.verdicts)
            self._note_left_out(len(summary.view.jobs))
        self._take_early(summary.session, placed.left)

    def _take_early(self, session: int, left: dict[tuple[int, int], int]) -> None:
        """Note the operations ``left``, and count the outcomes that arrived before they were known."""
        decided = self._decided.get(session)
        if decided is None:
            return
        decided.left = left
        for done, at in decided.early:
            self._settle(decided, done, at)
        if not decided.left:
            del self._decided[session]

    def _note_left_out(self, jobs: int) -> None:
        if (jobs > self._job_series) != self._series_left_out:
            self._series_left_out = jobs > self._job_series
            event = "series of single jobs omitted" if self._series_left_out else "series of single jobs exposed again"
            _log.warning(event, jobs=jobs, limit=self._job_series)
        self._leader.show("vcd_jobs_without_series", jobs if self._series_left_out else 0)

    def _time(self, durations: Mapping[str, float], actions: Collection[str]) -> None:
        store = self.series
        for name, seconds in durations.items():
            part, _, plugin = name.partition("/")
            if plugin:
                when = {"open": "OnSessionOpen", "close": "OnSessionClose"}.get(part, part)
                series = store.distribution("volcano_plugin_scheduling_latency_milliseconds", plugin, when)
                series.observe(seconds * 1000)
            elif name == "total":
                store.distribution("volcano_e2e_scheduling_latency_milliseconds").observe(seconds * 1000)
            elif name in actions:
                store.distribution("volcano_action_scheduling_latency_milliseconds", name).observe(seconds * 1000)
            else:
                store.distribution("vcd_session_phase_seconds", name).observe(seconds)
        if "open" in durations:
            opened = durations["open"] + durations.get("snapshot", 0.0)
            store.distribution("volcano_open_session_duration_milliseconds").observe(opened * 1000)

    def _count_reporting_fault(self, name: str, what: str, error: Exception) -> None:
        """Count a plugin's fault in reporting; log the first one."""
        if name not in self._faulty:
            _log.error(f"plugin failed to return {what}", plugin=name, error=repr(error), exc_info=error)
        self._faulty.add(name)
        self.series.add("vcd_plugin_faults_total", name)

    # --- everything else ----------------------------------------------------------------------------------------------

    def observe_outcome(self, done: OperationDone) -> None:
        """Count the outcome of an operation. Operations of another replica are counted there."""
        verb = "unknown"  # the operation is of a session before this process
        decided = self._decided.get(done.session)
        if decided is None and not self.watches():  # a follower, which has no watches, does not count
            return
        if decided is not None:
            verb = decided.plan.statements[done.statement].operations[done.operation].verb
            if decided.left is None:
                decided.early.append((done, self._clock()))
            else:
                self._settle(decided, done, self._clock())
                if not decided.left:
                    del self._decided[done.session]
        self.series.add("vcd_commit_operations_total", verb, done.result)
        if verb == "bind" and done.result in ("failed", "unknown"):
            self.series.add("volcano_schedule_attempts_total", "error")

    def _settle(self, decided: _Decided, done: OperationDone, at: float) -> None:
        """Note an outcome; observe the latencies of a bind that succeeded."""
        created = None if decided.left is None else decided.left.pop((done.statement, done.operation), None)
        verb = decided.plan.statements[done.statement].operations[done.operation].verb
        if created is None or verb != "bind" or done.result != "done":
            return
        waited = (at - decided.at) * 1000
        self.series.distribution("volcano_scheduling_stage_duration_milliseconds", "Bind").observe(waited)
        if created:
            age = _age(decided.now, created) + waited
            self.series.distribution("volcano_task_scheduling_latency_milliseconds", "Bound").observe(age)

    def judge(self, causes: Mapping[str, str]) -> Callable[[], dict[LabelValues, int]]:
        """Return a function that notes the causes that held longest, by group.

        The caller calls it in the thread of sessions' summaries, and passes its result to ``observe_verdicts``.
        """
        waiting = self._jobs.waiting

        def count_pods() -> dict[LabelValues, int]:
            waiting.judge(causes)
            return dict(waiting.verdicts.pods)

        return count_pods

    def observe_verdicts(self, verdicts: Mapping[LabelValues, int]) -> None:
        """Note the numbers of waiting pods, by queue and the cause of their group's wait."""
        if not self._exposes:
            return
        self._count_lost()
        self._verdicts = verdicts
        self._leader.show("vcd_verdict_pods", dict(sorted(verdicts.items())))
        self._forget_gone_queues()  # the verdicts may be of an earlier session than the queues

    def _forget_gone_queues(self) -> None:
        queues = self._queues
        self._verdicts = {labels: pods for labels, pods in self._verdicts.items() if labels[0] in queues}
        self._leader.forget(lambda label, queue: label.endswith("queue") and queue not in queues)

    def _count_lost(self) -> None:
        """Count the time that pods waited since the last call."""
        now, before = self._clock(), self._counted_at
        self._counted_at = now
        for labels, pods in self._verdicts.items():
            self._leader.add("vcd_lost_pod_seconds_total", *labels, by=pods * max(0.0, now - before))

    def observe_reporting_fault(self, name: str, what: str, error: Exception) -> None:
        """Count a plugin's fault in reporting ``what``, such as the reasons of a job."""
        self._count_reporting_fault(name, what, error)

    def observe_misconfigured(self, counts: Mapping[LabelValues, int]) -> None:
        """Note the numbers of problems that plugins found in the last session, by kind and key of the object."""
        if self._exposes:
            self._leader.show("vcd_misconfigured", counts)

    def observe_request(self, done: CompletedRequest) -> None:
        """Count a request to the API server."""
        about = done.verb, done.resource
        self.series.add("vcd_apiserver_requests_total", *about, str(done.code) if done.code else "<error>")
        self.series.distribution("vcd_apiserver_request_duration_seconds", *about).observe(done.seconds)

    def observe_leadership(self, leading: bool, epoch: int) -> None:
        """Note that the Lease was won or lost. A follower exposes no sessions."""
        self.series.show("vcd_leader", leading)
        self.series.show("vcd_epoch", epoch)
        self._exposes = leading
        if not leading:
            self._forget_sessions()

    def observe_pause(self, seconds: float) -> None:
        """Note that the event loop was blocked for so many seconds."""
        windows = int((self._clock() - self._window) / PAUSE_WINDOW)
        if windows:
            self._window += windows * PAUSE_WINDOW
            self._pauses = [0.0, self._pauses[0] if windows == 1 else 0.0]
        self._pauses[0] = max(self._pauses[0], seconds)
        self.series.show("vcd_loop_pause_seconds", max(self._pauses))

    async def measure_pauses(self) -> None:
        """Measure pauses of the running event loop until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK)
            self.observe_pause(max(0.0, time.monotonic() - began - _TICK))

    # --- the page -----------------------------------------------------------------------------------------------------

    def freeze(self) -> Callable[[], bytes]:
        """Copy all values. The returned function renders them in Prometheus' text format, in any thread."""
        kinds = Counter(kind for kind, _ in self.set_aside())
        self.series.show("vcd_objects_set_aside", {(kind,): kinds[kind] for kind in sorted(kinds)})
        if not self._shadow:
            self.series.show("vcd_namespaces_held_back", self.held_back())
        self._show_watches(self.watches(), self._clock())
        self._count_lost()
        stores = (self.series.copy(), self._leader.copy())
        jobs = None if self._series_left_out else self._jobs.frozen()
        page = _Page(stores, self._view, jobs, self._controls_queues, self._process)
        return lambda: generate_latest(page)

    def _show_watches(self, statuses: Mapping[str, WatchStatus], now: float) -> None:
        for name, family in fam.WATCH.items():
            self.series.show(family.name, {(kind,): getattr(status, name) for kind, status in statuses.items()})
        self.series.show(
            "vcd_watch_stale_seconds", {(kind,): each.stale_seconds(now) for kind, each in statuses.items()}
        )
        for name, family in fam.WATCH_AGES.items():
            times = {(kind,): getattr(status, name) for kind, status in statuses.items()}
            self.series.show(family.name, {kind: max(0.0, now - since) for kind, since in times.items() if since})


@dataclass(frozen=True)
class _Page:
    """A collector of copied values for prometheus-client. ``jobs`` is None if single jobs have no series."""

    stores: tuple[SeriesStore, ...]
    view: _View | None
    jobs: _Jobs | None
    controls_queues: bool
    process: ProcessCollector

    def collect(self) -> Iterator[Metric]:
        """Yield every family once. A plugin's gauge with the name of a built-in family is left out."""
        seen: set[str] = set()
        for page in self._pages():
            if page.name not in seen:
                seen.add(page.name)
                yield page

    def _pages(self) -> Iterator[Metric]:
        for store in self.stores:
            yield from store.pages()
        yield from self.process.collect()
        view = self.view
        if view is not None:
            yield from view.series.pages()
            yield from _job_series(view, self.jobs).pages()
            gauges = [gauge for gauge in view.gauges if self._exposes(gauge)]
            yield from _gauge_pages(each for gauge in gauges for each in _singly(gauge, view.jobs))

    def _exposes(self, gauge: Gauge | JobGauge) -> bool:
        """Return whether to expose a gauge.

        Series that Volcano's queue controller exposes are left out, because sums over both would double.
        """
        if gauge.name.startswith(_OF_QUEUE_CONTROLLER):
            return self.controls_queues
        return self.jobs is not None or not _is_of_a_job(gauge)


def _summary(known: _Jobs, session: Session, plan: Plan, record: SessionDecided | None) -> SessionSummary:
    stale = {} if record is None else dict(record.stale)
    progress = known.progress
    known.follow(known.waiting.update(session, plan), session.jobs, session.snapshot.groups)
    placed = _Placed() if record is None else _placements(session, plan, record.now, stale)
    for key, since in placed.jobs.items():
        age = _age(placed.now, since) if since else None
        progress[key] = progress.get(key, _NEW)._replace(duration=age, last=placed.now // SECOND)
    lacks, failed = _count_unschedulable(session)
    known.retries = known.retries + (lacks > _NOTHING)
    silent: list[tuple[str, Exception]] = []
    statements = [each for number, each in enumerate(plan.statements) if number not in stale]
    shown = SeriesStore(fam.LAST_SESSION)
    shown.show("volcano_unschedule_job_count", int(np.count_nonzero(lacks > _NOTHING)))
    evicting = [(each, keys) for each in statements if (keys := _evicted_by(each))]
    victims = sum(len(keys) for statement, keys in evicting if statement.action in _PREEMPTING)
    shown.show("volcano_pod_preemption_victims", victims)
    shown.show("vcd_waiting_groups", dict(sorted(known.waiting.reasons.groups.items())))
    shown.show("vcd_waiting_pods", dict(sorted(known.waiting.reasons.pods.items())))
    shown.show("vcd_waiting_oldest_timestamp_seconds", dict(sorted(known.waiting.oldest(session).items())))
    shown.show("vcd_cluster_nodes", len(session.nodes))
    shown.show("vcd_cluster_allocatable", _in_units(session, session.nodes.total))
    shown.show("vcd_cluster_used", _in_units(session, sum_of(session.nodes.usage.used, axis=1)))
    phases = _phase_gauges(session, plan, progress)
    gauges = [*_plugin_gauges(session, silent), *_guarantees(session), *phases]
    queues = [queue.name for queue in session.queue_list]
    view = _View(shown, gauges, session.jobs, queues, np.maximum(lacks, 0), known.retries)
    counts = _counts(statements, evicting)
    counts["volcano_schedule_attempts_total", "unschedulable"] = failed
    counts["vcd_session_statements_total", "stale"] = len(stale)
    number = 0 if record is None else record.session
    verdicts = dict(known.waiting.verdicts.pods)
    return SessionSummary(known, view, number, counts, _evictions(session, evicting), placed, silent, verdicts)


def _evicted_by(statement: Statement) -> list[str]:
    return [operation.key for operation in statement.operations if operation.verb == "evict"]


def _counts(statements: Sequence[Statement], evicting: Iterable[_Evicting]) -> Counter[tuple[str, ...]]:
    """Return increments of counters by series name and labels."""
    counts: Counter[tuple[str, ...]] = Counter()
    binds = [each for statement in statements for each in statement.operations if each.verb == "bind"]
    counts["volcano_schedule_attempts_total", "scheduled"] = len(binds)
    counts["vcd_session_statements_total", "committed"] = len(statements)
    for action in [statement.action for statement, _ in evicting if statement.action in _EVICTING]:
        counts["volcano_eviction_transactions_total", action] += 1
        counts["volcano_total_preemption_attempts",] += action in _PREEMPTING
    return counts


def _evictions(session: Session, evicting: Sequence[_Evicting]) -> Counter[LabelValues]:
    """Return evictions by both queues. Groups and pods that are not in the session have no queue."""
    evicted: Counter[LabelValues] = Counter()
    pods = {key for _, keys in evicting for key in keys}
    queue_of = {task.key: task.job.queue.name for task in session.views.moves if task.key in pods} if pods else {}
    for statement, keys in evicting:
        index = session.jobs.index(statement.group)
        if index is not None:
            queue = session.job(index).queue.name
            evicted.update((statement.action, queue, queue_of[key]) for key in keys if key in queue_of)
    return evicted


def _placements(session: Session, plan: Plan, now: int, stale: Mapping[int, str]) -> _Placed:
    """Return the jobs and pods that a session placed, and its operations without an outcome."""
    placed = _Placed(now)
    for number, statement in enumerate(plan.statements):
        index = session.jobs.index(statement.group)
        if number in stale or index is None:
            continue
        job = session.job(index)
        times = {task.key: task.created for task in job.pending()}
        for place, operation in enumerate(statement.operations):
            created = times.get(operation.key, 0)
            if operation.verb != "pipeline":
                placed.left[number, place] = created
            if operation.verb == "bind":
                placed.by_queue.setdefault(job.queue.name, []).append(created)
            if operation.verb not in ("evict", "ungate"):
                placed.jobs[statement.group] = job.created
    return placed


def _count_unschedulable(session: Session) -> tuple[Ints, int]:
    """Return for each job the tasks that it lacks of its minimum (_NOTHING if it is not unschedulable), and the number
    of tasks that found no node."""
    lacks = np.full(len(session.jobs), _NOTHING, np.int64)
    failed = 0
    followers = dict(session.classes.followers())
    for job in session.views.jobs():
        if session.classes.follows[job.index]:
            continue  # the job is counted with its representative
        others = followers.get(job.index, _NO_JOBS)
        refused = sum([waiting.tasks for waiting in job.why if waiting.gate in _TRIED])
        failed += min(refused, job.counts[_PENDING]) * (1 + len(others))
        if session.conditions.get(job.index, ("",))[0] == UNSCHEDULABLE:
            lacks[job.index] = lacks[others] = max(0, job.min_available - job.ready_count)
    return lacks, failed


def _phase_gauges(session: Session, plan: Plan, progress: dict[str, _Progress]) -> Iterator[Gauge]:
    """Yield the number of groups by queue and phase, with the plan's statuses applied."""
    jobs = session.jobs
    phases = jobs.phase.astype(np.int64)
    for status in plan.groups:
        phases[jobs.index(status.key)] = phase_of(status.phase)
        if status.phase == _COMPLETED and status.was != _COMPLETED:
            known = progress.get(status.key, _NEW)
            progress[status.key] = known._replace(completions=known.completions + 1)
    size = len(session.queue_list) * len(Phase)
    counts = np.bincount(jobs.queue.astype(np.int64) * len(Phase) + phases, minlength=size).reshape(-1, len(Phase))
    for queue, row in zip(session.queue_list, counts.tolist(), strict=True):
        for phase in Phase:
            named, text = ("queue_name", queue.name), phase.text.lower()
            yield Gauge("vcd_queue_pod_groups", (named, ("phase", text)), row[phase])
            yield Gauge(f"{_OF_QUEUE_CONTROLLER}{text}_count", (named,), row[phase])


def _plugin_gauges(session: Session, silent: list[tuple[str, Exception]]) -> Iterator[Gauge | JobGauge]:
    for plugin in framework_of(session).plugins:
        try:
            taken = session.gauges.get(plugin.name)  # computed under the guard of the session, if it is there
            if isinstance(taken, Exception):
                raise taken
            gauges = _checked(plugin.gauges() if taken is None else taken, len(session.jobs))
        except Exception as error:  # noqa: BLE001 - a plugin's fault must not end the cycle
            silent.append((plugin.name, error))
            continue
        for gauge in gauges:
            yield gauge
            if gauge.name.startswith(_INQUEUE):
                yield gauge._replace(name=_RESERVED + gauge.name.removeprefix(_INQUEUE))


def _is_of_a_job(gauge: Gauge | JobGauge) -> bool:
    return isinstance(gauge, JobGauge) or any(label in ("job_id", "job_name") for label, _ in gauge.labels)


def _singly(gauge: Gauge | JobGauge, jobs: GroupColumns) -> Iterator[Gauge]:
    """Yield the gauges of single jobs that a JobGauge holds; a Gauge unchanged."""
    if isinstance(gauge, Gauge):
        yield gauge
        return
    for key, value in zip(jobs.keys, gauge.values.tolist(), strict=True):
        namespace, _, name = key.partition("/")
        yield Gauge(gauge.name, (("job_ns", namespace), ("job_id", name)), value)


def _gauge_pages(gauges: Iterable[Gauge]) -> Iterator[Metric]:
    """Yield gauges by name. If two have the same series, the later one wins, as a page must have each series once."""
    by_name: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for gauge in gauges:
        by_name.setdefault(gauge.name, {})[tuple(sorted(gauge.labels))] = gauge.value
    meanings = {**series(), **fam.DOCS}
    for name, values in by_name.items():
        page = Metric(name, meanings.get(name, "Given by a plugin."), "gauge")
        for labels, value in values.items():
            page.add_sample(name, dict(labels), value)
        yield page


def _job_series(view: _View, jobs: _Jobs | None) -> SeriesStore:
    """Return Volcano's series of single jobs; none if ``jobs`` is None.

    Labels without a namespace are Volcano's; values of jobs with the same name are added.
    """
    store = SeriesStore(fam.JOBS)
    if jobs is None:
        return store
    queues, phases = view.jobs.queue.tolist(), view.jobs.phase.tolist()
    counts = (view.lacks.tolist(), view.retries.tolist())
    columns = zip(view.jobs.keys, view.jobs.records, queues, phases, *counts, strict=True)
    for key, record, queue, phase, lacks, retries in columns:
        namespace, _, name = key.partition("/")
        labels = (name, view.queue_names[queue], namespace)
        store.add("volcano_e2e_job_scheduling_start_time", *labels, by=record.created)
        if phase != Phase.COMPLETED:
            store.add("volcano_unschedule_task_count", name, by=lacks)
        known = jobs.progress.get(key, _NEW)
        if known.duration is not None:
            store.add("volcano_e2e_job_scheduling_duration", *labels, by=known.duration)
        if known.last:
            store.add("volcano_e2e_job_scheduling_last_time", *labels, by=known.last)
        if retries:
            store.add("volcano_job_retry_counts", name, by=retries)
        if known.completions:
            store.add("volcano_job_completed_phase_count", key, labels[1], by=known.completions)
    return store


def _checked(gauges: Iterable[Gauge | JobGauge], jobs: int) -> list[Gauge | JobGauge]:
    """Return the gauges of a plugin. Raises the plugin's errors, and ValueError or TypeError for an invalid gauge."""
    result = [_checked_one(gauge, jobs) for gauge in gauges]
    for name in {gauge.name for gauge in result}:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a metric's name")
    return result


def _checked_one(gauge: Gauge | JobGauge, jobs: int) -> Gauge | JobGauge:
    if isinstance(gauge, JobGauge):
        values = np.asarray(gauge.values, np.float64)
        if values.shape != (jobs,):
            raise ValueError(f"{gauge.name} has values {values.shape} of {jobs} jobs")
        return JobGauge(gauge.name, values)
    name, labels, value, *_ = gauge
    return Gauge(name, labels, float(value))


def _guarantees(session: Session) -> Iterator[Gauge]:
    for queue in session.queue_list:
        guarantee = queue.record.guarantee
        if guarantee:
            names = names_in_order(guarantee)
            amounts = [guarantee[name] for name in names]
            yield from resource_gauges("guarantee", queue.name, names, amounts)


def _in_units(session: Session, amounts: npt.NDArray[np.int64]) -> dict[LabelValues, float]:
    """Return quantities by resource in the units of specs: cores, bytes, pods, pieces."""
    names = session.snapshot.resources
    pairs = zip(names, amounts.tolist(), strict=True)
    return {(name,): amount / per_unit(name) for name, amount in pairs if name != UNOFFERED}


def _ages(created: list[int], now: int) -> npt.NDArray[np.float64]:
    """Return milliseconds from these Unix seconds to ``now`` (Unix nanoseconds). Unknown times (0) are left out."""
    times = np.array(created, np.float64)
    return np.maximum(now / 1_000_000 - times[times > 0] * 1000, 0.0)


def _age(now: int, created: int) -> float:
    """Return milliseconds from ``created`` (Unix seconds) to ``now`` (Unix nanoseconds)."""
    return max(0.0, now / 1_000_000 - created * 1000)
