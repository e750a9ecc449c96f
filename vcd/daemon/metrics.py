"""The metrics page: counters that go on, and gauges of the last session that vanish with what they are of.

Everything is noted on the event loop, where ``freeze`` takes a copy; the page is written from that, in any thread.
Gauges are made from the last session when a page is asked for, so there are no series to forget.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client import Metric, ProcessCollector, generate_latest

from vcd.daemon import families as fam
from vcd.daemon.series import Family, LabelValues, SeriesStore
from vcd.daemon.waiting import Labels, WaitingCounts
from vcd.kube.clock import SYSTEM_CLOCK
from vcd.kube.watcher import WatchStatus
from vcd.model.events import OperationDone, Plan, Result, SessionDecided
from vcd.model.quantity import per_unit
from vcd.model.requests import names_in_order
from vcd.model.status import UNSCHEDULABLE, Phase, TaskStatus, phase_of
from vcd.model.version import __version__
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.framework.registry import series
from vcd.scheduling.session.gauges import Gauge, resource_gauges
from vcd.scheduling.session.session import Session
from vcd.state.groups import GroupColumns
from vcd.state.sums import sum_of

_log = structlog.get_logger(__name__)

REMEMBERED_SESSIONS = 64
"""Sessions whose operations are still matched with their outcomes."""
JOB_SERIES = 5000
"""Jobs that have series of their own, unless told otherwise."""
PAUSE_WINDOW = 60.0
"""Seconds; the longest pause shown is of the current and the last window."""
_TICK = 0.02
_TRIED = ("queue", "predicate")
"""Gates at which a pod was looked at and found no place."""
_PREEMPTING = ("preempt", "gangpreempt")
_EVICTING = (*_PREEMPTING, "reclaim", "gangreclaim")
_INQUEUE, _RESERVED = "volcano_queue_inqueue", "vcd_queue_enqueue_reserved"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PENDING = int(TaskStatus.PENDING)
_COMPLETED = Phase.COMPLETED.text
_NANOSECONDS = 1_000_000_000


class _Progress(NamedTuple):
    """What is known of a job beyond one session: its age in ms and the Unix time when tasks of it were last placed,
    and how many sessions found it unschedulable, or ended it."""

    duration: float | None = None
    last: int = 0
    retries: int = 0
    completions: int = 0


_NEW = _Progress()


@dataclass
class _Decided:
    """A session whose outcomes are to come, ``at`` the clock's time when it was noted.

    ``left`` are the places in the plan of its operations without an outcome, with the Unix times when their pods were
    created. Until they are known, outcomes of its binds wait in ``early``, with the clock's times.
    """

    plan: Plan
    now: int
    at: float
    left: dict[tuple[int, int], int] | None = None
    early: list[tuple[OperationDone, float]] = field(default_factory=list)


@dataclass
class _Placed:
    """What a session placed: when the pods, by queue, and the jobs were created, in Unix seconds; ``left`` as above."""

    now: int = 0
    pods: list[int] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)
    by_queue: dict[str, list[int]] = field(default_factory=dict)
    left: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class _View:
    """What the last session says of queues, jobs and who waits."""

    gauges: list[Gauge]
    jobs: GroupColumns
    queue_names: list[str]
    groups: list[list[int]]
    unschedulable: dict[str, int]
    victims: int
    waiting_groups: dict[Labels, int]
    waiting_pods: dict[Labels, int]
    waiting_oldest: dict[tuple[str], int]
    nodes: int
    allocatable: dict[tuple[str], float]
    used: dict[tuple[str], float]


class _Jobs:
    """What is known of single jobs from session to session; only sessions' summaries change it."""

    def __init__(self) -> None:
        self.waiting = WaitingCounts()
        self.progress: dict[str, _Progress] = {}


@dataclass(frozen=True)
class SessionSummary:
    """What a session says of all jobs; ``silent`` are plugins that gave no gauges, with what they raised.

    ``counts`` are how often what happened, ``evicted`` who was evicted for whom.
    """

    jobs: _Jobs
    view: _View
    session: int
    counts: Counter[tuple[str, ...]]
    evicted: Counter[LabelValues]
    placed: _Placed
    silent: list[tuple[str, Exception]]


@dataclass
class _Now:
    """Single values."""

    session: int = 0
    log: tuple[int, int, int, int] | None = None
    leader: bool = False
    epoch: int = 0
    digest: str | None = None
    clock: float = 0.0
    pause: list[float] = field(default_factory=lambda: [0.0, 0.0])


class Metrics:
    """All that the daemon shows of itself. ``clock`` gives monotonic seconds.

    ``job_series`` is how many jobs have series of their own; where there are more, none has. ``watches`` gives each
    kind's counters, ``set_aside`` the kind and key of each object that cannot be read.
    """

    def __init__(self, clock: Callable[[], float] = SYSTEM_CLOCK.monotonic, job_series: int = JOB_SERIES) -> None:
        self.watches: Callable[[], Mapping[str, WatchStatus]] = dict
        self.set_aside: Callable[[], Collection[tuple[str, str]]] = tuple
        self._clock = clock
        self._job_series = job_series
        self._series_left_out = False
        self._store = SeriesStore(fam.COUNTED)
        for verb in ("bind", "evict", "ungate"):  # a series that begins above 0 shows no increase
            for result in get_args(Result):
                self._store.add("vcd_commit_operations_total", verb, result, by=0)
        self._now = _Now()
        self._window = clock()
        self._faulty: set[str] = set()
        self._process = ProcessCollector(registry=None)
        self._forget_sessions()

    def _forget_sessions(self) -> None:
        self._view: _View | None = None
        self._jobs = _Jobs()
        self._by_queue = SeriesStore(fam.BY_QUEUE)
        self._decided: OrderedDict[int, _Decided] = OrderedDict()
        self._misconfigured: Mapping[tuple[str, str], int] = {}

    # --- sessions ---------------------------------------------------------------------------------------------------

    def begin_session(
        self, session: Session, plan: Plan, record: SessionDecided | None, durations: Mapping[str, float]
    ) -> Callable[[], SessionSummary]:
        """Note a session that ended. ``record`` is None for one in which nothing changed, and which was not logged.

        ``durations`` are seconds: "snapshot", "open", each action's name, "close", "verify", "total", and, where they
        were measured, "open/PLUGIN" and "close/PLUGIN". What it returns goes through all jobs, which takes long where
        there are many, and may be called in any thread; what that returns is for ``end_session``. Sessions are noted
        one after the other.
        """
        self._time(durations, framework_of(session).policy.actions)
        for option in (option for tier in framework_of(session).policy.tiers for option in tier):
            self._store.add("vcd_plugin_faults_total", option.name, by=0)
        for fault in plan.faults:
            self.observe_fault(name_in(fault))
        for name, told in session.problems.items():
            if isinstance(told, Exception):
                self._count_silent(name, "problems", told)
        self._by_queue.forget(lambda label, queue: label.endswith("queue") and queue not in session.queues)
        if record is not None:
            self._now.session = record.session
            self._decided[record.session] = _Decided(plan, record.now, self._clock())
            if len(self._decided) > REMEMBERED_SESSIONS:
                self._decided.popitem(last=False)
        return functools.partial(_summary, self._jobs, session, plan, record)

    def end_session(self, summary: SessionSummary) -> None:
        """Show what a session's summary says, unless the lease was lost meanwhile."""
        for name, error in summary.silent:
            self._count_silent(name, "gauges", error)
        for (name, *labels), count in summary.counts.items():
            self._store.add(name, *labels, by=count)
        self._show_ages(summary.placed)
        if summary.jobs is self._jobs:
            for labels_of, count in summary.evicted.items():
                self._by_queue.add("vcd_evictions_total", *labels_of, by=count)
            for queue, created in summary.placed.by_queue.items():
                seconds = _ages(created, summary.placed.now) / 1000
                self._by_queue.distribution("vcd_wait_seconds", queue).observe_many(seconds)
            self._view = summary.view
            self._tell_series(len(summary.view.jobs))
        self._take_early(summary.session, summary.placed.left)

    def _show_ages(self, placed: _Placed) -> None:
        """Ages of the pods and jobs that were placed."""
        self._observe_ages("volcano_task_scheduling_latency_milliseconds", placed.pods, placed.now, "Assumed")
        jobs = [*placed.jobs.values()]
        self._observe_ages("volcano_e2e_job_scheduling_latency_milliseconds", jobs, placed.now)

    def _take_early(self, session: int, left: dict[tuple[int, int], int]) -> None:
        """Now it is known of which pods outcomes are to come; take those that have come already."""
        decided = self._decided.get(session)
        if decided is None:
            return
        decided.left = left
        for done, at in decided.early:
            self._settle(decided, done, at)
        if not decided.left:
            del self._decided[session]

    def _tell_series(self, jobs: int) -> None:
        if (jobs > self._job_series) != self._series_left_out:
            self._series_left_out = jobs > self._job_series
            state = "left out" if self._series_left_out else "shown again"
            _log.warning(f"series of single jobs are {state}", jobs=jobs, limit=self._job_series)

    def _time(self, durations: Mapping[str, float], actions: Collection[str]) -> None:
        store = self._store
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

    def _observe_ages(self, name: str, created: list[int], now: int, *labels: str) -> None:
        """Ages in ms of what was created at these Unix times."""
        self._store.distribution(name, *labels).observe_many(_ages(created, now))

    def _count_silent(self, name: str, what: str, error: Exception) -> None:
        """A plugin that decided well and cannot tell: told once."""
        if name not in self._faulty:
            _log.error(f"plugin gives no {what}", plugin=name, error=repr(error), exc_info=error)
        self._faulty.add(name)
        self.observe_fault(name)

    def observe_fault(self, name: str) -> None:
        """Note that a plugin, or ``action NAME``, failed."""
        self._store.add("vcd_plugin_faults_total", name)

    # --- everything else ----------------------------------------------------------------------------------------------

    def observe_outcome(self, done: OperationDone, verb: str = "") -> None:
        """Note what became of an operation; without ``verb`` it is looked up in its session's plan."""
        decided = self._decided.get(done.session)
        if decided is not None:
            verb = decided.plan.statements[done.statement].operations[done.operation].verb
            if decided.left is None:
                decided.early.append((done, self._clock()))
            else:
                self._settle(decided, done, self._clock())
                if not decided.left:
                    del self._decided[done.session]
        verb = verb or "unknown"  # of a session before this start
        self._store.add("vcd_commit_operations_total", verb, done.result)
        if verb == "bind" and done.result in ("failed", "unknown"):
            self._store.add("volcano_schedule_attempts_total", "error")

    def _settle(self, decided: _Decided, done: OperationDone, at: float) -> None:
        """An operation has its outcome: how long that took, where it is a bind that was made."""
        created = None if decided.left is None else decided.left.pop((done.statement, done.operation), None)
        verb = decided.plan.statements[done.statement].operations[done.operation].verb
        if created is None or verb != "bind" or done.result != "done":
            return
        waited = (at - decided.at) * 1000
        self._store.distribution("volcano_scheduling_stage_duration_milliseconds", "Bind").observe(waited)
        if created:
            age = _age(decided.now, created) + waited
            self._store.distribution("volcano_task_scheduling_latency_milliseconds", "Bound").observe(age)

    def observe_log(self, head: int, size_bytes: int, volume_bytes: int, free_bytes: int) -> None:
        """Note the event log's last sequence number, its size, and its file system's size and room."""
        self._now.log = (head, size_bytes, volume_bytes, free_bytes)

    def observe_append(self, seconds: float) -> None:
        """Note how long it took until appended events were durable."""
        self._store.distribution("vcd_event_log_append_seconds").observe(seconds)

    def observe_policy(self, digest: str, ok: bool) -> None:
        """Note the configuration in force; ``ok`` is False when another one was just refused."""
        self._now.digest = digest
        if not ok:
            self._store.add("vcd_policy_reload_errors_total")

    def observe_misconfigured(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Note how many problems plugins see in which objects, by kind and key, as of the last session."""
        self._misconfigured = counts

    def observe_usage(self, taken: bool) -> None:
        """Note whether a sample of the nodes' usage was taken."""
        self._store.add("vcd_usage_polls_total", "taken" if taken else "failed")

    def observe_leadership(self, leading: bool, epoch: int) -> None:
        """Note a win or a loss. Who does not lead shows nothing of sessions: the leader does."""
        self._now.leader, self._now.epoch = leading, epoch
        if not leading:
            self._forget_sessions()

    def observe_given_back(self) -> None:
        """Note that the Lease was given back because something could not be listed."""
        self._store.add("vcd_lease_given_back_total")

    def observe_clock_jump(self) -> None:
        """Note that the machine's wall clock jumped, or that its new time is believed."""
        self._store.add("vcd_clock_jumps_total")

    def observe_clock(self, ahead: float) -> None:
        """Note how many seconds the machine's wall clock is ahead of the time that decisions and the log have."""
        self._now.clock = ahead

    def observe_mismatch(self) -> None:
        """Note a session whose replay gave another plan."""
        self._store.add("vcd_replay_mismatches_total")

    def observe_pause(self, seconds: float) -> None:
        """Note that the event loop did not turn for so long."""
        windows = int((self._clock() - self._window) / PAUSE_WINDOW)
        if windows:
            self._window += windows * PAUSE_WINDOW
            self._now.pause = [0.0, self._now.pause[0] if windows == 1 else 0.0]
        self._now.pause[0] = max(self._now.pause[0], seconds)

    async def measure_pauses(self) -> None:
        """Watch the event loop that it runs in, until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK)
            self.observe_pause(max(0.0, time.monotonic() - began - _TICK))

    # --- the page -----------------------------------------------------------------------------------------------------

    def freeze(self) -> Callable[[], bytes]:
        """Take what the page shows as it is now; the result writes it in Prometheus' text format, in any thread."""
        page = _Page(
            (self._store.copy(), self._by_queue.copy()),
            self._view,
            dict(self._jobs.progress),
            self._job_series,
            list(self._single_values()),
            list(self._watch_values()),
            self._process,
        )
        return lambda: generate_latest(page)

    def _single_values(self) -> Iterator[Metric]:
        now = self._now
        yield fam.BUILD.values([((__version__,), 1)])
        yield fam.LEADER.values([((), now.leader)])
        yield fam.EPOCH.values([((), now.epoch)])
        yield fam.PAUSE.values([((), max(now.pause))])
        yield fam.CLOCK.values([((), now.clock)])
        yield fam.POLICY.values([((now.digest,), 1)] if now.digest is not None else [])
        if now.session:
            yield fam.SESSION.values([((), now.session)])
        if now.log is not None:
            for family, value in zip(fam.EVENT_LOG, now.log, strict=True):
                yield family.values([((), value)])
        yield fam.MISCONFIGURED.values(self._misconfigured.items())
        kinds = Counter(kind for kind, _ in self.set_aside())
        yield fam.SET_ASIDE.values(((kind,), count) for kind, count in sorted(kinds.items()))

    def _watch_values(self) -> Iterator[Metric]:
        statuses, now = self.watches(), self._clock()
        for name, family in fam.WATCH.items():
            yield family.values(((kind,), float(getattr(status, name))) for kind, status in statuses.items())
        yield fam.WATCH_STALE.values(((kind,), status.stale(now)) for kind, status in statuses.items())
        for name, family in fam.WATCH_AGES.items():
            times = ((kind, getattr(status, name)) for kind, status in statuses.items())
            yield family.values(((kind,), max(0.0, now - since)) for kind, since in times if since)


@dataclass(frozen=True)
class _Page:
    """A collector of frozen values, as prometheus-client asks for one."""

    stores: tuple[SeriesStore, ...]
    view: _View | None
    progress: dict[str, _Progress]
    job_series: int
    single: list[Metric]
    watches: list[Metric]
    process: ProcessCollector

    def collect(self) -> Iterator[Metric]:
        """Every family once; a plugin's gauges cannot take a name of ours."""
        seen: set[str] = set()
        for page in self._pages():
            if page.name not in seen:
                seen.add(page.name)
                yield page

    def _pages(self) -> Iterator[Metric]:
        for store in self.stores:
            yield from store.pages()
        yield from self.single
        yield from self.watches
        yield from self.process.collect()
        view = self.view
        if view is not None:
            shown = len(view.jobs) <= self.job_series
            yield from _job_pages(view, self.progress) if shown else _no_job_pages()
            yield fam.UNSCHEDULED_JOBS.values([((), len(view.unschedulable))])
            yield fam.JOB_SERIES_LEFT_OUT.values([((), 0 if shown else len(view.jobs))])
            yield fam.VICTIMS.values([((), view.victims)])
            yield fam.WAITING_GROUPS.values(sorted(view.waiting_groups.items()))
            yield fam.WAITING_PODS.values(sorted(view.waiting_pods.items()))
            yield fam.WAITING_OLDEST.values(sorted(view.waiting_oldest.items()))
            yield fam.CLUSTER_NODES.values([((), view.nodes)])
            yield fam.CLUSTER_ALLOCATABLE.values(view.allocatable.items())
            yield fam.CLUSTER_USED.values(view.used.items())
            gauges = [gauge for gauge in view.gauges if shown or not _is_of_a_job(gauge)]
            yield from _gauge_pages([*gauges, *_phase_gauges(view)])


def _summary(known: _Jobs, session: Session, plan: Plan, record: SessionDecided | None) -> SessionSummary:
    stale = {} if record is None else dict(record.stale)
    progress = known.progress
    for key in progress.keys() - session.snapshot.groups.keys():
        del progress[key]
    placed = _Placed() if record is None else _placements(session, plan, record.now, stale)
    for key, since in placed.jobs.items():
        age = _age(placed.now, since) if since else None
        progress[key] = progress.get(key, _NEW)._replace(duration=age, last=placed.now // _NANOSECONDS)
    unschedulable, failed = _count_unschedulable(session, progress)
    known.waiting.update(session, plan)
    silent: list[tuple[str, Exception]] = []
    view = _View(
        gauges=[*_plugin_gauges(session, silent), *_guarantees(session)],
        jobs=session.jobs,
        queue_names=[queue.name for queue in session.queue_list],
        groups=_groups_by_phase(session, plan, progress),
        unschedulable=unschedulable,
        victims=_victims(plan, stale),
        waiting_groups=dict(known.waiting.groups),
        waiting_pods=dict(known.waiting.pods),
        waiting_oldest=known.waiting.oldest(session),
        nodes=len(session.nodes),
        allocatable=_in_units(session, session.nodes.total),
        used=_in_units(session, sum_of(session.nodes.usage.used, axis=1)),
    )
    counts = _counts(plan, stale)
    counts["volcano_schedule_attempts_total", "unschedulable"] = failed
    number = 0 if record is None else record.session
    return SessionSummary(known, view, number, counts, _evictions(session, plan, stale), placed, silent)


def _counts(plan: Plan, stale: Mapping[int, str]) -> Counter[tuple[str, ...]]:
    """How often what a session decided happens, by the name of the series and its labels."""
    counts: Counter[tuple[str, ...]] = Counter()
    binds = 0
    for index, statement in enumerate(plan.statements):
        if index in stale:
            continue
        evicts = 0
        for operation in statement.operations:
            binds += operation.verb == "bind"
            evicts += operation.verb == "evict"
        if evicts and statement.action in _EVICTING:
            counts["volcano_eviction_transactions_total", statement.action] += 1
            counts["volcano_total_preemption_attempts",] += statement.action in _PREEMPTING
    counts["volcano_schedule_attempts_total", "scheduled"] = binds
    counts["vcd_session_statements_total", "committed"] = len(plan.statements) - len(stale)
    counts["vcd_session_statements_total", "stale"] = len(stale)
    return counts


def _evictions(session: Session, plan: Plan, stale: Mapping[int, str]) -> Counter[LabelValues]:
    """Who from whom. Statements of groups and pods that are not in the session have no queue to name."""
    evicted: Counter[LabelValues] = Counter()
    statements = [each for number, each in enumerate(plan.statements) if number not in stale]
    pods = {each.key for one in statements for each in one.operations if each.verb == "evict"}
    queue_of = {task.key: task.job.queue.name for task in session.views.moves if task.key in pods} if pods else {}
    for statement in statements:
        index = session.jobs.index(statement.group)
        if index is not None and pods:
            queue = session.job(index).queue.name
            evicted.update(
                (statement.action, queue, queue_of[each.key])
                for each in statement.operations
                if each.verb == "evict" and each.key in queue_of
            )
    return evicted


def _placements(session: Session, plan: Plan, now: int, stale: Mapping[int, str]) -> _Placed:
    """The jobs and pods that were placed, and what outcomes are to come."""
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
                placed.pods.append(created)
                placed.by_queue.setdefault(job.queue.name, []).append(created)
            if operation.verb not in ("evict", "ungate"):
                placed.jobs[statement.group] = job.created
    return placed


def _count_unschedulable(session: Session, progress: dict[str, _Progress]) -> tuple[dict[str, int], int]:
    """Per unschedulable job, the tasks that it lacks of its minimum; and how many tasks found no place."""
    found: dict[str, int] = {}
    failed = 0
    stands_for = dict(session.classes.followers())
    for job in session.views.jobs():
        if session.classes.follows[job.index]:
            continue  # counted with the one that stands for it
        others = stands_for.get(job.index, ())
        refused = sum(waiting.tasks for waiting in job.why if waiting.gate in _TRIED)
        failed += min(refused, job.counts[_PENDING]) * (1 + len(others))
        if session.conditions.get(job.index, ("",))[0] != UNSCHEDULABLE:
            continue
        lacks = max(0, job.min_available - job.ready_count)
        for key in (job.key, *[session.jobs.keys[index] for index in others]):
            found[key] = lacks
            known = progress.get(key, _NEW)
            progress[key] = _Progress(known.duration, known.last, known.retries + 1, known.completions)
    return found, failed


def _groups_by_phase(session: Session, plan: Plan, progress: dict[str, _Progress]) -> list[list[int]]:
    """Groups per queue and phase once the plan's statuses are written."""
    jobs = session.jobs
    phases = jobs.phase.astype(np.int64)
    for status in plan.groups:
        phases[jobs.index(status.key)] = phase_of(status.phase)
        if status.phase == _COMPLETED and status.was != _COMPLETED:
            known = progress.get(status.key, _NEW)
            progress[status.key] = known._replace(completions=known.completions + 1)
    size = len(session.queue_list) * len(Phase)
    counts = np.bincount(jobs.queue.astype(np.int64) * len(Phase) + phases, minlength=size)
    rows: list[list[int]] = counts.reshape(-1, len(Phase)).tolist()
    return rows


def _plugin_gauges(session: Session, silent: list[tuple[str, Exception]]) -> Iterator[Gauge]:
    for plugin in framework_of(session).plugins:
        try:
            taken = session.gauges.get(plugin.name)  # else they would be asked unguarded
            if isinstance(taken, Exception):
                raise taken
            gauges = _checked(plugin.gauges() if taken is None else taken)
        except Exception as error:  # noqa: BLE001 - a plugin's fault must not end the cycle that it is told in
            silent.append((plugin.name, error))
            continue
        for gauge in gauges:
            yield gauge
            if gauge.name.startswith(_INQUEUE):
                yield gauge._replace(name=_RESERVED + gauge.name.removeprefix(_INQUEUE))


def _is_of_a_job(gauge: Gauge) -> bool:
    return any(label in ("job_id", "job_name") for label, _ in gauge.labels)


def _gauge_pages(gauges: Iterable[Gauge]) -> Iterator[Metric]:
    """Gauges by name; of two that give the same series, the later one counts, since a page must not hold both."""
    by_name: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for gauge in gauges:
        by_name.setdefault(gauge.name, {})[tuple(sorted(gauge.labels))] = gauge.value
    meanings = {**series(), **fam.DOCS}
    for name, values in by_name.items():
        page = Metric(name, meanings.get(name, "Given by a plugin."), "gauge")
        for labels, value in values.items():
            page.add_sample(name, dict(labels), value)
        yield page


def _phase_gauges(view: _View) -> Iterator[Gauge]:
    for queue, counts in zip(view.queue_names, view.groups, strict=True):
        for phase in Phase:
            name = f"volcano_queue_pod_group_{phase.text.lower()}_count"
            yield Gauge(name, (("queue_name", queue),), counts[phase])


def _no_job_pages() -> Iterator[Metric]:
    """The families of series by job, without series."""
    for family in (fam.E2E_START, fam.E2E_DURATION, fam.E2E_LAST, fam.RETRIES, fam.COMPLETED, fam.UNSCHEDULED_TASKS):
        yield family.values(())


def _job_pages(view: _View, progress: Mapping[str, _Progress]) -> Iterator[Metric]:
    """Volcano's series by job. Where a label has the name without the namespace, jobs of one name add up."""
    start: dict[LabelValues, float] = {}
    duration: dict[LabelValues, float] = {}
    last: dict[LabelValues, float] = {}
    completed: dict[LabelValues, float] = {}
    retries: Counter[LabelValues] = Counter()
    lacking: Counter[LabelValues] = Counter()
    queues = view.jobs.queue.tolist()
    for key, record, queue, phase in zip(
        view.jobs.keys, view.jobs.records, queues, view.jobs.phase.tolist(), strict=True
    ):
        namespace, _, name = key.partition("/")
        labels = (name, view.queue_names[queue], namespace)
        start[labels] = record.created
        if phase != Phase.COMPLETED:
            lacking[name,] += view.unschedulable.get(key, 0)
        known = progress.get(key)
        if known is None:
            continue
        if known.duration is not None:
            duration[labels] = known.duration
        if known.last:
            last[labels] = known.last
        if known.retries:
            retries[name,] += known.retries
        if known.completions:
            completed[key, labels[1]] = known.completions
    pages: tuple[tuple[Family, Mapping[LabelValues, float]], ...] = (
        (fam.E2E_START, start),
        (fam.E2E_DURATION, duration),
        (fam.E2E_LAST, last),
        (fam.RETRIES, retries),
        (fam.COMPLETED, completed),
        (fam.UNSCHEDULED_TASKS, lacking),
    )
    yield from (family.values(values.items()) for family, values in pages)


def _checked(gauges: Iterable[Gauge]) -> list[Gauge]:
    """The gauges of a plugin. Raises what it raises, and ValueError or TypeError for what is no gauge."""
    result = [Gauge(name, labels, float(value)) for name, labels, value in gauges]
    for name in {gauge.name for gauge in result}:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a metric")
    return result


def _guarantees(session: Session) -> Iterator[Gauge]:
    for queue in session.queue_list:
        guarantee = queue.record.guarantee
        if guarantee:
            names = names_in_order(guarantee)
            amounts = [guarantee[name] for name in names]
            yield from resource_gauges("vcd_queue_guarantee", queue.name, names, amounts)


def _in_units(session: Session, amounts: npt.NDArray[np.int64]) -> dict[tuple[str], float]:
    """Amounts in the order of the session's resources as people write them: cores, bytes, pods, pieces."""
    names = session.snapshot.resources
    return {(name,): amount / per_unit(name) for name, amount in zip(names, amounts.tolist(), strict=True)}


def _victims(plan: Plan, stale: Mapping[int, str]) -> int:
    return sum(
        operation.verb == "evict"
        for index, statement in enumerate(plan.statements)
        if index not in stale and statement.action in _PREEMPTING
        for operation in statement.operations
    )


def _ages(created: list[int], now: int) -> npt.NDArray[np.float64]:
    """Milliseconds from these Unix seconds to ``now`` (Unix nanoseconds); 0 stands for no time, and is left out."""
    times = np.array(created, np.float64)
    return np.maximum(now / 1_000_000 - times[times > 0] * 1000, 0.0)


def _age(now: int, created: int) -> float:
    """Milliseconds from ``created`` (Unix seconds) to ``now`` (Unix nanoseconds)."""
    return max(0.0, now / 1_000_000 - created * 1000)
