"""If this is submitted now: what happens, and when. The present goes on in simulated time, many times over."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.codec import encode_payload
from vcd.model.requests import pod_requests
from vcd.model.words import counted, rfc3339, some, span_in_words
from vcd.scheduling.closing import plan_of
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.reasons import Told, all_told
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.whatif.cluster import PERIOD, UNKNOWN_RUN, Length, SimulatedCluster
from vcd.timetravel.whatif.measure import JobRun, Measure, quantile
from vcd.timetravel.whatif.present import GoingOn, Present, present
from vcd.timetravel.whatif.runtimes import HIGH, LOW, Estimate, RunTimes
from vcd.timetravel.whatif.submitted import job_name, submitted
from vcd.timetravel.whatif.workload import SECOND, GroupLife, Unit, Workload, workload_of
from vcd.timetravel.why.sentences import waits_in_words
from vcd.timetravel.words import clock
from vcd.timetravel.workloads import Work

LONGER = 60 * SECOND
"""By how much (ns) a job's start must move to be told."""
_PEACEFUL = ("enqueue", "allocate", "backfill")
"""Actions that evict nobody."""
_MOVES = "shuffle"
"""The action that may evict though nobody waits."""
_NAMED = 10


class Span(msgspec.Struct, frozen=True):
    """A time (ns since the epoch) that is not certain: its median, and the bounds of four in five of the runs in which
    it came; it came in ``runs`` of them."""

    median: int
    low: int
    high: int
    runs: int


class Forecast(msgspec.Struct):
    """What becomes of a submitted job (a PodGroup and its pods): ``key`` is the group's, ``name`` what users call it.

    ``placed`` is where its pods go in the first session, ``waits`` why those that do not must wait. ``starts`` is when
    it has its minimum of pods on nodes, ``ends`` when its last pod has ended (None: in no run); ``never`` is what it
    waits for at the end of runs in which it does not start. ``runs_for`` is how long a pod is taken to run; of none
    that ended where nothing is known, and it is assumed.
    """

    key: str
    name: str
    queue: str
    pods: int
    minimum: int
    placed: dict[str, str]
    waits: list[Told]
    runs_for: Estimate
    starts: Span | None
    ends: Span | None
    never: list[Told]


class ForecastVictim(msgspec.Struct, frozen=True):
    """A pod that is evicted in ``runs`` of the runs and is not when nothing is submitted; ``reason`` where the first
    session does it."""

    pod: str
    job: str
    runs: int
    reason: str = ""


class Delay(msgspec.Struct, frozen=True):
    """Another job that starts later because of what is submitted: by so much (ns) in the median, None: not any more."""

    job: str
    queue: str
    by: int | None


class Submission(msgspec.Struct):
    """What becomes of what is submitted at ``now`` (ns), after ``session`` of the log, in ``samples`` runs."""

    now: int
    session: int
    samples: int
    jobs: list[Forecast]
    evicted: list[ForecastVictim]
    delayed: list[Delay]
    notes: list[str]

    def lines(self) -> Iterator[str]:
        """The answer in sentences, with times in UTC."""
        after = f", after session {self.session}" if self.session else ""
        yield f"submitted at {clock(self.now)}{after}; {counted(self.samples, 'run')} of what follows"
        for job in self.jobs:
            yield from _job_lines(job, self.now, self.samples)
        for victim in self.evicted[:_NAMED]:
            reason = f": {victim.reason}" if victim.reason else ""
            yield f"evicted for it in {_of(victim.runs, self.samples)}: {victim.pod} of job {victim.job}{reason}"
        yield from _more(len(self.evicted), "evicted for it")
        for delay in self.delayed[:_NAMED]:
            by = "and does not start any more" if delay.by is None else f"{_span(delay.by)} longer"
            yield f"waits because of it: job {delay.job} in queue {delay.queue}, {by}"
        yield from _more(len(self.delayed), "waiting because of it")
        if not self.evicted and not self.delayed:
            yield f"nobody is evicted for it, and no job starts more than {_span(LONGER)} later"
        for note in self.notes:
            yield f"note: {note}"


def submit(
    path: str | Path,
    manifests: Iterable[Any],
    *,
    conf: str | None = None,
    session: int | None = None,
    samples: int = 20,
    seed: int = 0,
    period: int = PERIOD,
    progress: Callable[[int], None] = lambda _: None,
) -> Submission:
    """What becomes of manifests that are submitted after a session of a log (None: at its end), and when.

    The state of then goes on in simulated time: pods that run end, those that wait are placed as the core decides.
    This is done ``samples`` times, with run times drawn from what the log shows up to then, by ``seed``, and each time
    with and without the manifests. ``conf`` is another configuration's text (None: the one in force). What
    happens within a ``period`` (ns) is decided on together: a longer one is faster, and times are coarser. ``progress``
    is told how many runs are done.

    Raises LogError, PolicyError, BadObject.
    """
    with LogReader(path) as reader:
        here = present(reader, session)
        policy = read_policy(here.conf if conf is None else conf, logged=conf is None)
        new = submitted(manifests, here.state, rfc3339(here.whole_second))
        past = workload_of(reader, until=here.sequence)
        going_on = GoingOn(reader, here, past)
        work = going_on.workload()
    model = RunTimes.of(past)
    plan = _first_plan(here, policy, new, seed)
    trials = _Trials(work, new, policy, model, seed, period)
    trials.run(samples, progress)
    return Submission(
        now=here.whole_second,
        session=here.session,
        samples=samples,
        jobs=[_forecast(key, trials, plan, here.state.waiting.get(key, ()), model) for key in trials.submitted],
        evicted=trials.victims(plan),
        delayed=trials.delays(),
        notes=[*new.notes, *_notes(going_on, trials, model)],
    )


def _first_plan(here: Present, policy: Policy, new: Work, seed: int) -> ev.Plan:
    """What one session would do with what is submitted, on the very state that the log shows."""
    state = here.state
    events: list[ev.Event] = [ev.PolicyLoaded(policy.digest, policy.text, state.settings.as_text())]
    events += [ev.ObjectPut("PodGroup", group.key, "", encode_payload(group)) for group in new.groups]
    events += [ev.ObjectPut("Pod", pod.key, "", encode_payload(pod)) for pod in new.pods]
    for event in events:
        state.apply(state.sequence + 1, event)
    return plan_of(run(SnapshotMaker(state).snapshot(), policy, here.now, seed))


# --- many runs --------------------------------------------------------------------------------------------------------


class _Settling(SimulatedCluster):
    """Decides only while somebody waits: nothing comes any more, so all that is left then is to end."""

    def _decide(self) -> bool:
        if self._waits() or _MOVES in self._policy.actions:
            return super()._decide()
        self._dirty = False
        return False


class _Trials:
    """The present going on with and without what is submitted; a job's run times are the same in both."""

    def __init__(self, work: Workload, new: Work, policy: Policy, model: RunTimes, seed: int, period: int) -> None:
        self._policy = policy
        self._model = model
        self._seed = seed
        self._period = period
        self._without = work
        self.work = _joined(work, new)
        self.submitted = sorted({pod.group_key for pod in new.pods})
        """Keys of the groups that get pods."""
        self._new_pods = {pod.key for pod in new.pods}
        waiting = any(not unit.node for unit in work.units)
        self._compares = waiting or any(action not in _PEACEFUL for action in policy.actions)
        """Whether somebody could fare otherwise without it: one who waits, or may be evicted."""
        self.runs: dict[str, list[JobRun]] = {key: [] for key in self.submitted}
        self.reasons: dict[str, list[ev.Waiting]] = {key: [] for key in self.submitted}
        self._moved: dict[str, list[float]] = {}
        self._victims: Counter[str] = Counter()

    def run(self, samples: int, progress: Callable[[int], None]) -> None:
        """Make the runs; ``progress`` is told how many are done."""
        for sample in range(samples):
            sim = self._simulate(self.work, sample)
            for key in self.submitted:
                self.runs[key].append(sim.measure.jobs[key])
                if sim.measure.jobs[key].started is None and not self.reasons[key]:
                    self.reasons[key] = list(sim.state.waiting.get(key, ()))
            if self._compares:
                self._compare(sim.measure, self._simulate(self._without, sample).measure)
            progress(sample + 1)

    def _simulate(self, work: Workload, sample: int) -> SimulatedCluster:
        sim = _Settling(
            work,
            self._policy,
            Measure(work.begin),
            self._model,
            seed=self._seed,
            period=self._period,
            length=self._lengths(sample),
        )
        sim.run()
        return sim

    def _lengths(self, sample: int) -> Length:
        def length(unit: Unit, elapsed: int) -> int:
            # the pods of a job share their luck: they mostly end together
            drawn = self._model.draw(unit.pod, elapsed, uniform(self._seed, sample, unit.group or unit.key))
            return max(2 * elapsed, UNKNOWN_RUN) if drawn is None else drawn

        return length

    def _compare(self, with_it: Measure, without: Measure) -> None:
        self._victims.update(with_it.victims - without.victims - self._new_pods)
        for key, job in without.jobs.items():
            if key in with_it.jobs and key not in self.runs:
                self._moved.setdefault(key, []).append(_later(job.started, with_it.jobs[key].started))

    def victims(self, plan: ev.Plan) -> list[ForecastVictim]:
        """Who is evicted for it, in most runs first."""
        reasons = {operation.key: operation.reason for operation in plan.operations("evict")}
        jobs = {unit.key: unit.group for unit in self.work.units}
        found = [
            ForecastVictim(pod, self.name_of(jobs[pod]), runs, reasons.get(pod, ""))
            for pod, runs in self._victims.items()
        ]
        return sorted(found, key=lambda victim: (-victim.runs, victim.pod))

    def delays(self) -> list[Delay]:
        """Whose start moves, the longest first."""
        moved = [(key, median(values)) for key, values in self._moved.items()]
        late = sorted(((by, key) for key, by in moved if by > LONGER), key=lambda one: (-one[0], one[1]))
        return [
            Delay(self.name_of(key), self.work.queue_of(key), None if by == float("inf") else round(by))
            for by, key in late
        ]

    def name_of(self, group: str) -> str:
        """What users call a job."""
        return job_name(group, next((unit.pod for unit in self.work.units if unit.group == group), None))


def _joined(work: Workload, new: Work) -> Workload:
    """The present's work and what is submitted."""
    joined = copy(work)
    joined.units = list(work.units)
    joined.groups = dict(work.groups)
    for group in new.groups:
        joined.groups[group.key] = GroupLife(group.key, group, work.begin, waited=True)
    for pod in new.pods:
        requests = pod_requests(pod.spec)
        joined.units.append(Unit(pod.key, pod.metadata.uid, pod.group_key, pod, requests, work.begin))
    return joined


def uniform(seed: int, sample: int, key: str) -> float:
    """A number from 0 to 1, without 1, that looks like chance and is always the same."""
    digest = hashlib.blake2b(f"{seed}/{sample}/{key}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def _later(before: int | None, after: int | None) -> float:
    """By how much a start moved (ns)."""
    if after is None:
        return 0.0 if before is None else float("inf")
    return 0.0 if before is None else float(after - before)


# --- sums -------------------------------------------------------------------------------------------------------------


def _forecast(key: str, trials: _Trials, plan: ev.Plan, known: Sequence[ev.Waiting], model: RunTimes) -> Forecast:
    """One submitted job, over all runs; ``known`` is what it waited for before, where it was there already."""
    runs = trials.runs[key]
    units = [unit for unit in trials.work.units if unit.group == key]
    keys = {unit.key for unit in units}
    placed = {operation.key: operation.node for operation in plan.operations("bind") if operation.key in keys}
    life = trials.work.groups[key]
    return Forecast(
        key=key,
        name=trials.name_of(key),
        queue=trials.work.queue_of(key),
        pods=len(units),
        minimum=max(1, life.group.spec.min_member),
        placed=dict(sorted(placed.items())),
        waits=list(all_told([one for one in plan.waiting if one.group == key and one.gate] or known)),
        runs_for=_run_time(units, model),
        starts=_span_of([run.started for run in runs]),
        ends=_span_of([run.ended for run in runs]),
        never=list(all_told(trials.reasons[key])),
    )


def _run_time(units: Sequence[Unit], model: RunTimes) -> Estimate:
    """Of the pod of a job that is expected to run longest."""
    estimates = [estimate for unit in units if (estimate := model.estimate(unit.pod)) is not None]
    unknown = Estimate(UNKNOWN_RUN, UNKNOWN_RUN, UNKNOWN_RUN, "", 0)
    return max(estimates, key=lambda estimate: estimate.median, default=unknown)


def _span_of(times: Iterable[int | None]) -> Span | None:
    known = [time for time in times if time is not None]
    middle, low, high = (quantile(known, share) for share in (0.5, LOW, HIGH))
    if middle is None or low is None or high is None:
        return None
    return Span(round(middle), round(low), round(high), len(known))


def _notes(going_on: GoingOn, trials: _Trials, model: RunTimes) -> Iterator[str]:
    """What the answer rests on."""
    yield "work that comes later is not counted; it may go before this, or after"
    unknown = sum(model.estimate(unit.pod) is None for unit in trials.work.units)
    if unknown:
        yield (
            f"nothing ended in the log yet: each pod is taken to run {_span(UNKNOWN_RUN)}, or as long again as it ran"
            " already"
        )
    bare = going_on.without_pods
    if bare:
        yield (
            f"{counted(len(bare), 'group')} ({', '.join(bare[:3])}{' ...' if len(bare) > 3 else ''}) without pods yet:"
            " what their minimum asks for is taken for them"
        )


# --- words ------------------------------------------------------------------------------------------------------------


def _job_lines(job: Forecast, now: int, samples: int) -> Iterator[str]:
    yield (
        f"job {job.name} in queue {job.queue}: {counted(job.pods, 'pod')}, at least {job.minimum} together; each"
        f" {_length(job.runs_for)}"
    )
    if job.placed:
        shown = [f"{pod.partition('/')[2]} to {node}" for pod, node in job.placed.items()]
        yield f"  at once: {some(shown, _NAMED)}"
    if job.waits and len(job.placed) < job.pods:
        yield f"  waits at first {waits_in_words(job.waits)}"
    for verb, span in (("starts", job.starts), ("ends", job.ends)):
        if span is not None:
            runs = "" if span.runs == samples else f"; in {_of(span.runs, samples)}"
            after = _between(span.median - now, span.low - now, span.high - now)
            yield f"  {verb} {clock(span.median)}, after {after}{runs}"
    if job.starts is None or job.starts.runs < samples:
        missed = samples - (0 if job.starts is None else job.starts.runs)
        why = f", since it waits {waits_in_words(job.never)}" if job.never else ""
        yield f"  never starts in {_of(missed, samples)}{why}"


def _length(run: Estimate) -> str:
    span = _between(run.median, run.low, run.high)
    return f"runs {span}, as {run.of} ({run.count} ended)" if run.count else f"is taken to run {span}"


def _between(middle: int, low: int, high: int) -> str:
    words = _span(middle)
    return words if low == high else f"{words} ({_span(low)} to {_span(high)} in four of five runs)"


def _of(runs: int, samples: int) -> str:
    return f"{runs} of {counted(samples, 'run')}"


def _more(count: int, what: str) -> Iterator[str]:
    if count > _NAMED:
        yield f"and {count - _NAMED:,} more {what}"


def _span(nanoseconds: int) -> str:
    return span_in_words(nanoseconds / SECOND)
