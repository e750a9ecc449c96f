"""Forecasts: what happens to submitted manifests, and when; and when jobs that wait already will start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from vcd.eventlog import LogError, LogReader
from vcd.model import events as ev
from vcd.model.objects import Pod, PodGroup
from vcd.model.projection_codec import encode_payload
from vcd.model.resource_requests import pod_requests
from vcd.model.wording import SECOND, counted, rfc3339, some, span_in_words
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run as decide
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker
from vcd.text.forecast_templates import FORECASTS
from vcd.text.time_formats import clock
from vcd.timetravel.whatif.arrivals import Arrivals
from vcd.timetravel.whatif.expectedpods import ExpectedPods
from vcd.timetravel.whatif.forecasts import (
    LONGER,
    Delay,
    Forecast,
    ForecastVictim,
    Span,
    Submission,
    abstention,
    assumed,
    span_of,
    start_in_words,
)
from vcd.timetravel.whatif.logged_workload import GroupLife, Unit, Workload
from vcd.timetravel.whatif.present_workload import Present, PresentWorkload, present
from vcd.timetravel.whatif.runtimes import ENOUGH, Estimate, RunTimes
from vcd.timetravel.whatif.sampledruns import PAIRED, SampledRun, SampledRuns, hopeless
from vcd.timetravel.whatif.simulated_cluster import PERIOD, UNKNOWN_RUN
from vcd.timetravel.whatif.submitted_groups import job_name, submitted
from vcd.timetravel.whatif.workloadreader import workload_of
from vcd.timetravel.workload_expansion import Work

RUNS = 20
"""Simulated runs by default."""


def submit(
    path: str | Path,
    manifests: Iterable[Any],
    *,
    conf: str | None = None,
    session: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    period: int = PERIOD,
    runs_for: int | None = None,
    jobs: int = 1,
    others: bool = True,
    first: Callable[[Submission], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Submission:
    """Return what happens to manifests that are submitted after a session of a log (None: at its end), and when.

    The first session decides which pods are placed at once. If these are not all, or if ``samples`` or ``runs_for`` is
    given, ``first`` is called with that result, and the state is continued in simulated time: running pods end, jobs
    like the recent ones keep arriving, waiting pods are placed as the scheduler decides. There are ``samples`` such
    runs (None: 20), in which unknown values are drawn from the log up to then, by ``seed``; with ``others``, some of
    the runs are repeated without the manifests to see the effect on other jobs. ``conf`` is another configuration's
    text (None: the one in force). ``runs_for`` is how long (ns) the submitted pods run, if the user knows. Events
    within a ``period`` (ns) are decided together. Up to ``jobs`` processes compute the runs, and ``progress`` is
    called with the number of finished ones.

    Raises LogError, PolicyError, BadObject.
    """
    with LogReader(path) as reader:
        here = present(reader, session)
        policy = read_policy(here.conf if conf is None else conf, logged=conf is None)
        new = submitted(manifests, here.state, rfc3339(here.whole_second))
        at_once = _at_once(here, new, _first_plan(here, policy, new, seed))
        whole = all(len(job.placed) == job.pods for job in at_once.jobs)
        if whole and samples is None and runs_for is None:
            return at_once
        first(at_once)
        request = _ForecastRequest.of(reader, here, policy, seed, period)
    request.submit(new, runs_for, others)
    return request.answer(at_once, samples or RUNS, jobs, progress)


def eta(
    path: str | Path,
    group: str,
    *,
    session: int | None = None,
    samples: int = RUNS,
    seed: int = 0,
    period: int = PERIOD,
    jobs: int = 1,
) -> Submission:
    """Return when a group (``namespace/name``) that waits after a session of a log (None: at its end) will start.

    The result is as for ``submit``. If the group does not wait then, the result is when it started, without runs.
    Raises LogError if neither is known.
    """
    with LogReader(path) as reader:
        here = present(reader, session)
        request = _ForecastRequest.of(reader, here, read_policy(here.conf, logged=True), seed, period)
    if group in request.waiting():
        return request.answer(_of_waiting_jobs(here, request, [group]), samples, jobs, lambda _: None)
    # a group placed in this very session has its node in ``work``, but not yet in ``past``
    started = request.past.starts().get(group, request.work.starts().get(group))
    if started is None:
        what = f"no pod of group {group} waits" if group in request.past.groups else f"there is no group {group}"
        raise LogError(f"event log {path}: {what} after session {here.session}, nor is it known when it started")
    pods = [unit.pod for unit in request.past.units if unit.group == group]
    job = _forecast_of(here, request.past.groups[group].group, pods, {}, ())
    return _without_runs(here, [msgspec.structs.replace(job, starts=Span(started, started, started, 0))], [])


def etas(
    path: str | Path,
    groups: Collection[str] | None = None,
    *,
    session: int | None = None,
    samples: int = RUNS,
    seed: int = 0,
    period: int = PERIOD,
    jobs: int = 1,
) -> Submission:
    """Return when each waiting group (of ``groups``, or None: of all) will start after a session of a log (None: at
    its end): ``eta`` of all, from the same runs. Raises LogError."""
    with LogReader(path) as reader:
        here = present(reader, session)
        request = _ForecastRequest.of(reader, here, read_policy(here.conf, logged=True), seed, period)
    waiting = [key for key in request.waiting() if groups is None or key in groups]
    return request.answer(_of_waiting_jobs(here, request, waiting), samples, jobs, lambda _: None)


def eta_in_words(found: Submission) -> list[str]:
    """Return the forecast of a waiting job in a sentence, and its assumptions; for another one, when it started."""
    (job,) = found.jobs
    if job.starts is not None and not found.samples:
        return [FORECASTS.sentence("started", {"time": clock(job.starts.low)})]
    if job.starts is None:
        return [FORECASTS["never alone"]]
    if job.unlike and job.starts.median is None:
        return [abstention(job.unlike)]
    words = [FORECASTS.sentence("probable", {"time": start_in_words(job.starts, found.now)})]
    return words + [FORECASTS.sentence("provided", {"assumptions": "; ".join(found.caveats)})] * bool(found.caveats)


# --- the first session ------------------------------------------------------------------------------------------------


def _first_plan(here: Present, policy: Policy, new: Work, seed: int) -> ev.Plan:
    """Return what one session would do with the submitted objects, on exactly the logged state."""
    state = ClusterState.load(here.state.dump())
    settings = state.settings.as_done().with_all_tried()
    events: list[ev.Event] = [ev.PolicyLoaded(policy.digest, policy.text, settings.as_text())]
    events += new.others
    events += [ev.ObjectPut("PodGroup", group.key, "", encode_payload(group)) for group in new.groups]
    events += [ev.ObjectPut("Pod", pod.key, "", encode_payload(pod)) for pod in new.pods]
    for event in events:
        state.apply(state.sequence + 1, event)
    return plan_of(decide(SnapshotMaker(state).snapshot(), policy, here.now, seed))


def _at_once(here: Present, new: Work, plan: ev.Plan) -> Submission:
    """Return what the first session does with the submitted objects."""
    groups = {key: record.group for key, record in here.state.groups.items()}
    groups |= {group.key: group for group in new.groups}
    places = {operation.key: operation.node for operation in plan.operations("bind")}
    jobs = []
    for key in sorted({pod.group_key for pod in new.pods}):
        pods = [pod for pod in new.pods if pod.group_key == key]
        waits = [one for one in plan.waiting if one.group == key and one.gate] or here.state.waiting.get(key, ())
        jobs.append(_forecast_of(here, groups[key], pods, places, waits))
    reasons = {operation.key: operation.reason for operation in plan.operations("evict")}
    found = _without_runs(here, jobs, new.notes)
    found.unknown, found.refused = new.unknown, new.refused
    found.evicted = [
        ForecastVictim(key, "" if pod is None else job_name(pod.group_key, pod), 0, reason)
        for key, reason in sorted(reasons.items())
        for pod in [here.state.pod(key)]
    ]
    return found


def _of_waiting_jobs(here: Present, request: _ForecastRequest, groups: Iterable[str]) -> Submission:
    """Return what is known without a run about groups that wait already."""
    pods = defaultdict[str, list[Pod]](list)
    for unit in request.work.units:
        pods[unit.group].append(unit.pod)
    waits = here.state.waiting
    jobs = [_forecast_of(here, here.state.groups[key].group, pods[key], {}, waits.get(key, ())) for key in groups]
    return _without_runs(here, jobs, [])


def _without_runs(here: Present, jobs: list[Forecast], notes: Sequence[str]) -> Submission:
    return Submission(here.whole_second, here.session, 0, 0, jobs, [], [], [], list(notes))


def _forecast_of(
    here: Present, group: PodGroup, pods: Sequence[Pod], places: Mapping[str, str], waits: Sequence[ev.Waiting]
) -> Forecast:
    placed = {pod.key: places[pod.key] for pod in pods if pod.key in places}
    minimum, now = max(1, group.spec.min_member), here.whole_second
    return Forecast(
        key=group.key,
        name=job_name(group.key, pods[0]),
        queue=here.state.settings.queue_of(group),
        pods=len(pods),
        minimum=minimum,
        placed=dict(sorted(placed.items())),
        waits=list(all_told(waits)),
        runs_for=None,
        starts=Span(now, now, now, 0) if len(placed) == len(pods) else None,
        ends=None,
        never=[],
    )


# --- simulated runs ---------------------------------------------------------------------------------------------------


class _ForecastRequest(msgspec.Struct):
    """The present, what is known of run times and future arrivals, and the requested forecast."""

    policy: Policy
    seed: int
    period: int
    work: Workload
    past: Workload
    meant: ExpectedPods
    without_pods: list[str]
    without: Workload | None = None
    known: dict[str, int] = msgspec.field(default_factory=dict)
    """The run times (ns) that the user stated, by key of the unit."""
    submitted: frozenset[str] = frozenset()
    """The keys of the submitted pods."""

    @classmethod
    def of(cls, reader: LogReader, here: Present, policy: Policy, seed: int, period: int) -> _ForecastRequest:
        """Create from a log."""
        past = workload_of(reader, until=here.sequence)
        going_on = PresentWorkload(reader, here, past)
        return cls(policy, seed, period, going_on.workload(), past, going_on.meant, going_on.without_pods)

    def waiting(self) -> list[str]:
        """Return the groups with pods that wait."""
        return sorted({unit.group for unit in self.work.units if not unit.node and unit.group in self.work.groups})

    def submit(self, new: Work, runs_for: int | None, others: bool) -> None:
        """Add submitted work."""
        self.without, self.work = self.work if others else None, _with_submitted(self.work, new)
        self.submitted = frozenset(pod.key for pod in new.pods)
        if runs_for is not None:
            self.known = dict.fromkeys(self.submitted, runs_for)

    def answer(self, at_once: Submission, samples: int, processes: int, progress: Callable[[int], None]) -> Submission:
        """Return what is known at once, completed by the outcome of ``samples`` runs."""
        model, watched = RunTimes.of(self.past), tuple(job.key for job in at_once.jobs)
        never = hopeless(self.work, self.policy, self.seed, self.period)
        arrivals = Arrivals.of(self.past, self.meant)
        trials = SampledRuns(
            self.work,
            self.policy,
            model,
            arrivals,
            watched,
            samples,
            self.seed,
            self.period,
            self.known,
            self.submitted,
        )
        trials.hopeless = frozenset(never)
        if self.without is not None and (trials.evicts or any(not unit.node for unit in self.without.units)):
            trials.without = self.without
        outcomes = trials.run(processes, progress)
        unlike = self._unlike(model)
        return msgspec.structs.replace(
            at_once,
            samples=samples,
            compared=0 if trials.without is None else min(PAIRED, samples),
            jobs=[self._forecast(job, outcomes, model, never, unlike) for job in at_once.jobs],
            evicted=self._victims(at_once, outcomes),
            delayed=self._delays(outcomes),
            caveats=list(self._caveats(arrivals, model, unlike)),
            notes=[*at_once.notes, *self._notes(), *self._horizon(trials.horizon, outcomes)],
        )

    def _unlike(self, model: RunTimes) -> list[str]:
        """Return the running jobs without similar jobs that ended, those with the most pods first."""
        running = [unit for unit in self.work.units if unit.node and unit.key not in self.known]
        pods = Counter(self._name(unit.group or unit.key) for unit in running if not model.has_like(unit.pod))
        return sorted(pods, key=lambda name: (-pods[name], name))

    def _forecast(
        self,
        job: Forecast,
        outcomes: list[SampledRun],
        model: RunTimes,
        never: Mapping[str, tuple[ev.Waiting, ...]],
        unlike: list[str],
    ) -> Forecast:
        units = [unit for unit in self.work.units if unit.group == job.key]
        alone = next((never[unit.key] for unit in units if unit.key in never), ())
        waits = next((outcome.reasons[job.key] for outcome in outcomes if outcome.reasons.get(job.key)), alone)
        return msgspec.structs.replace(
            job,
            runs_for=self._runs_for(units, model),
            starts=span_of(
                [outcome.started[job.key] for outcome in outcomes],
                [outcome.grains[job.key] for outcome in outcomes],
                None if any(unit.key in never for unit in units) else self._followed_until(job.key, outcomes),
            ),
            ends=span_of([outcome.ended[job.key] for outcome in outcomes]),
            never=list(all_told(waits)),
            unlike=[name for name in unlike if name != job.name],
        )

    @staticmethod
    def _followed_until(group: str, outcomes: list[SampledRun]) -> int | None:
        """Return until when it had not started in any of the runs in which it does not start; None if it starts in
        all."""
        return min((outcome.until for outcome in outcomes if outcome.started[group] is None), default=None)

    def _runs_for(self, units: Sequence[Unit], model: RunTimes) -> Estimate:
        """Return the run time of the job's pod that is expected to run longest."""
        if units and units[0].key in self.known:
            stated = self.known[units[0].key]
            return Estimate(stated, stated, stated, "", 0)
        estimates = [estimate for unit in units if (estimate := model.estimate(unit.pod)) is not None]
        unknown = Estimate(UNKNOWN_RUN, UNKNOWN_RUN, UNKNOWN_RUN, "", 0)
        return max(estimates, key=lambda estimate: estimate.median, default=unknown)

    def _victims(self, at_once: Submission, outcomes: list[SampledRun]) -> list[ForecastVictim]:
        """Return the evicted pods, those evicted in most runs first."""
        reasons = {victim.pod: victim.reason for victim in at_once.evicted}
        groups = {unit.key: unit.group for unit in self.work.units}
        runs = Counter(pod for outcome in outcomes for pod in outcome.victims)
        found = [
            ForecastVictim(pod, self._name(groups[pod]), count, reasons.get(pod, "")) for pod, count in runs.items()
        ]
        return sorted(found, key=lambda victim: (-victim.runs, victim.pod))

    def _delays(self, outcomes: list[SampledRun]) -> list[Delay]:
        """Return the jobs whose start moves, by the medians of the runs, the longest delay first."""
        moved, causes = defaultdict[str, list[tuple[int, float]]](list), dict[str, str]()
        for outcome in reversed(outcomes):
            causes |= outcome.causes
            for key, (before, after) in outcome.moved.items():
                moved[key].append((before, float("inf") if after is None else after))
        late = [(median(after - before for before, after in starts), key) for key, starts in moved.items()]
        late = sorted(((by, key) for by, key in late if by > LONGER), key=lambda one: (-one[0], one[1]))
        return [self._delay(key, by, moved[key], causes.get(key, "")) for by, key in late]

    def _delay(self, key: str, by: float, starts: Sequence[tuple[int, float]], why: str) -> Delay:
        before = round(median(start for start, _ in starts)) - self.work.begin
        is_endless = by == float("inf")
        after = None if is_endless else round(before + by)
        queue = self.work.queue_of(key)
        return Delay(self._name(key), queue, None if is_endless else round(by), before, after, why)

    def _name(self, group: str) -> str:
        """Return the name of a job that users know."""
        return job_name(group, next((unit.pod for unit in self.work.units if unit.group == group), None))

    def _caveats(self, arrivals: Arrivals, model: RunTimes, unlike: list[str]) -> Iterator[str]:
        if arrivals.came:
            facts = {"count": f"{len(arrivals.came)}", "span": span_in_words(arrivals.span / SECOND)}
            yield FORECASTS.sentence("arrivals", facts)
        else:
            yield FORECASTS["no arrivals"]
        if unlike:
            yield FORECASTS.sentence("endless", {"names": some(unlike, 2)})
        others = [unit for unit in self.work.units if unit.key not in self.known and model.has_like(unit.pod)]
        vague = sum(model.is_vague(unit.pod) for unit in others)
        if vague:
            facts = {"count": f"{vague}", "pods": counted(len(self.work.units), "pod"), "enough": f"{ENOUGH}"}
            yield FORECASTS.sentence("vague", facts)

    def _horizon(self, horizon: int, outcomes: list[SampledRun]) -> Iterator[str]:
        """Yield how far the runs were followed if that was too short for some."""
        if any(None in outcome.started.values() for outcome in outcomes):
            yield FORECASTS.sentence("horizon", {"span": span_in_words((horizon - self.work.begin) / SECOND)})

    def _notes(self) -> Iterator[str]:
        if self.without_pods:
            yield FORECASTS.sentence("without pods", {"groups": assumed(self.without_pods)})


def _with_submitted(work: Workload, new: Work) -> Workload:
    joined = copy(work)
    joined.base = [*work.base, *new.others]
    joined.units = list(work.units)
    joined.groups = dict(work.groups)
    joined.spared = work.spared.copy()
    for group_key in [*(group.key for group in new.groups), *(pod.group_key for pod in new.pods)]:
        joined.spared.record_arrival(group_key)  # unlike what exists already
    for group in new.groups:
        joined.groups[group.key] = GroupLife(group.key, group, work.begin, waited=True)
    for pod in new.pods:
        requests = pod_requests(pod.spec)
        joined.units.append(Unit(pod.key, pod.metadata.uid, pod.group_key, pod, requests, work.begin))
    return joined
