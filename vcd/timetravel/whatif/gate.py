"""Judge a new configuration: run a log's workload under the old and the new one, and check conditions on the
outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.resource_requests import names_in_order
from vcd.model.wording import counted, span_in_words
from vcd.scheduling.configuration import read_policy
from vcd.text.outcomes import SENTENCES, assumed_sentence
from vcd.text.time_formats import moment
from vcd.timetravel.log_times import session_at, span_of, time_of
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.fail_conditions import FailCondition, MetricLimit, Unit, metric, read_condition
from vcd.timetravel.whatif.fidelity import Fidelity
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.run_measures import GPU, Waits
from vcd.timetravel.whatif.runs import Run, Variant, allocatable_after, caveats, policy_of
from vcd.timetravel.whatif.runtimes import Accuracy, accuracy
from vcd.timetravel.whatif.simulated_cluster import PERIOD
from vcd.timetravel.whatif.sweep import Stretch, Sweep, sweep
from vcd.timetravel.whatif.wait_shifts import Shift, WaitChanges, effect_of, largest, shifts_of

VERSION = 1
"""Version of the JSON document; additional fields do not change it."""
_RESTING = 0.01
"""The share of the jobs whose starts may depend on assumed run times."""
SEEDS = 3
"""Default number of runs, each with another order of equally good nodes."""

_BY_QUEUE: Mapping[str, Unit] = {
    "wait.mean": "seconds",
    "wait.p50": "seconds",
    "wait.p95": "seconds",
    "wait.max": "seconds",
    "started": "count",
    "never_started": "count",
}
_OVERALL: Mapping[str, Unit] = {
    "evictions": "count",
    "lost_hours": "hours",
    "fairness": "index",
    "last_start": "seconds",
    "makespan": "seconds",
}
_GPUS: Mapping[str, Unit] = {"gpus.free": "cards", "gpus.free_on_empty_nodes": "cards"}


class Spread(msgspec.Struct, frozen=True):
    """A metric over the seeds. None: the wait of a job that never starts."""

    median: float | None
    least: float | None
    most: float | None


class Figure(msgspec.Struct, frozen=True):
    """One metric under both configurations. ``change`` is that of the medians as a part of the old one, None if the
    old one is 0 or a wait is infinite."""

    name: str
    unit: Unit
    old: Spread
    new: Spread
    change: float | None


class Judged(msgspec.Struct, frozen=True):
    """A judged clause with its metric and the limit (None: infinite)."""

    clause: MetricLimit
    figure: Figure
    limit: float | None
    holds: bool


class Judgement(msgspec.Struct, frozen=True):
    """A condition; it failed if all of its clauses hold."""

    text: str
    clauses: list[Judged]
    failed: bool


class GateResult(msgspec.Struct, frozen=True):
    """Both configurations on one workload.

    Times are ns since the epoch; ``jobs`` arrived in that time, ``running`` more ran when it began and are not
    counted. ``fidelity`` is how well the workload is reproduced under the log's own configuration; ``unjudged`` states
    why the runs allow no verdict, and then the gate is not passed. ``effect`` compares the jobs' waits under the new
    configuration; ``estimated`` is how many pods have no run time in the log, and ``accuracy`` how precisely such
    times are estimated (None: nothing ended).
    """

    file: str
    begin: int
    end: int
    jobs: int
    running: int
    pods: int
    seeds: int
    old: str
    new: str
    figures: list[Figure]
    conditions: list[Judgement]
    passed: bool
    fidelity: Fidelity
    unjudged: list[str]
    shifts: list[Shift]
    notes: list[str]
    version: int = VERSION
    effect: WaitChanges | None = None
    estimated: int = 0
    accuracy: Accuracy | None = None


class GateError(ValueError):
    """There is nothing to judge; the message states why."""


def stretch_of(reader: LogReader, begin: str | None, end: str | None, since: str | None) -> Stretch:
    """Return the part of a log between two times as people write them, cut at sessions; ``since`` is the duration
    before the end. Raises BadTime, GateError, LogError."""
    until = None if end is None else time_of(reader, end)
    after = None if begin is None else time_of(reader, begin)
    if since is not None:
        after = (reader.last_time() if until is None else until) - span_of(since)
    if after is not None and until is not None and after >= until:
        raise GateError(f"the interval is empty: it would begin at {moment(after)} and end at {moment(until)}")
    first = None if after is None else _event_at(reader, after)
    last = None if until is None else _event_at(reader, until)
    if until is not None and (last is None or last <= reader.oldest()):
        raise GateError(f"no session of the log is before {moment(until)}, the end of the interval")
    return Stretch(None if first is None or first <= reader.oldest() else first, last)


def _event_at(reader: LogReader, time: int) -> int | None:
    """Return the event of the last session decided by a time; None before the first one."""
    try:
        return reader.info(session_at(reader, time)).sequence
    except NotFound:
        return None


def gate(
    path: str | Path,
    new: tuple[str, str],
    fail_if: Sequence[str],
    *,
    old: tuple[str, str] | None = None,
    seeds: int = SEEDS,
    begin: str | None = None,
    end: str | None = None,
    since: str | None = None,
    jobs: int | None = None,
    period: int = PERIOD,
    gpu: str = GPU,
    called: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> GateResult:
    """Run a log's workload under two configurations, each with ``seeds`` orders of equal nodes, and judge the new one.

    A configuration is its name and text; without ``old`` it is the one in force at the end. ``begin``, ``end`` and
    ``since`` select a part of the log as `stretch_of` reads them. ``called`` names the log if ``path`` is a copy.
    ``jobs``, ``period``, ``gpu`` and ``progress`` are as for `sweep`. All errors in the arguments are raised before
    the first run: LogError, PolicyError, BadTime, ConditionError, GateError.
    """
    with LogReader(path) as reader:
        stretch = stretch_of(reader, begin, end, since)
        work = stretch.workload(reader)
        loaded = [logged.event for logged in reader.policies(stretch.after or reader.oldest(), stretch.until)]
    texts = [event.text for event in loaded if isinstance(event, ev.PolicyLoaded)]
    workload_jobs = _Jobs(work)
    if not workload_jobs.came:
        raise GateError(f"no job came from {moment(work.begin)} to {moment(work.end)}: there is nothing to compare")
    units = _units(work, workload_jobs.queues, gpu)
    conditions = [read_condition(text, units) for text in fail_if]
    name, text = ("as logged", texts[-1] if texts else work.policy) if old is None else old
    both = (Variant(name, text, logged=old is None), Variant(*new))
    policies = [read_policy(work.policy, logged=True), *(policy_of(each, work) for each in both)]
    variants = [
        msgspec.structs.replace(each, name=f"{label} {each.name}, seed {seed}", seed=seed)
        for label, each in zip(("old", "new"), both, strict=True)
        for seed in range(seeds)
    ]
    swept = sweep(path, variants, jobs=jobs, period=period, gpu=gpu, progress=progress, stretch=stretch, explain=True)
    old_runs, new_runs = swept.runs[:seeds], swept.runs[seeds:]
    figures = _figures(
        units, [workload_jobs.measured(run) for run in old_runs], [workload_jobs.measured(run) for run in new_runs]
    )
    by_name = {figure.name: figure for figure in figures}
    judged = [_judge(condition, by_name) for condition in conditions]
    shifts = workload_jobs.shifts(f"new {new[0]}", old_runs, new_runs)
    unjudged = list(_unjudged(swept, by_name["started"], name, new[0]))
    notes = [*_notes(name, new[0], len({work.policy, *texts} - {None}) if old is None else 1, shifts, seeds)]
    estimated, how_well = sum(unit.run is None for unit in work.units), accuracy(work)
    return GateResult(
        file=called or str(path),
        begin=work.begin,
        end=work.end,
        jobs=len(workload_jobs.came),
        running=len(workload_jobs.running),
        pods=len(work.units),
        seeds=seeds,
        old=name,
        new=new[0],
        figures=figures,
        conditions=judged,
        passed=not unjudged and not any(one.failed for one in judged),
        fidelity=swept.fidelity,
        unjudged=unjudged,
        shifts=largest(shifts),
        notes=[*notes, *caveats(estimated, how_well, policies)],
        effect=effect_of(f"new {new[0]}", shifts),
        estimated=estimated,
        accuracy=how_well,
    )


def _unjudged(swept: Sweep, started: Figure, old: str, new: str) -> Iterator[str]:
    """Yield why the runs allow no verdict."""
    if swept.fidelity.far:
        yield SENTENCES["baseline"].format(sentences="; ".join(swept.fidelity.sentences))
    worst = max(swept.runs, key=lambda run: run.resting)
    if worst.resting > _RESTING * len(worst.jobs):
        yield assumed_sentence(worst.resting, len(worst.jobs), worst.invented)
    if not started.old.most and not started.new.most:
        yield SENTENCES["no-start"].format(old=old, new=new)


class _Jobs:
    """The jobs of a workload: those that arrived, and those that ran already when first observed.

    The latter have no wait of their own, and would make any wait look shorter.
    """

    def __init__(self, work: Workload) -> None:
        self.running = work.ran_already()
        queue_of = {work.job_of(unit): work.queue_of(unit.group) for unit in work.units}
        queue_of |= {key: work.queue_of(key) for key in work.groups}
        self.came = {key: queue for key, queue in queue_of.items() if key not in self.running}
        self.queues = sorted(set(self.came.values()))

    def measured(self, run: Run) -> dict[str, float]:
        """Return the metrics of a run by name; an endless wait is infinite."""
        found: dict[str, float] = {
            "evictions": sum(run.evictions.values()),
            "lost_hours": run.lost_hours,
            "fairness": 1.0 if run.fairness is None else run.fairness,
            "last_start": run.busy_seconds,
            "makespan": run.seconds,
            "gpus.free": run.free_gpus,
            "gpus.free_on_empty_nodes": run.free_gpus_on_empty_nodes,
        }
        found |= {f"utilisation.{resource}": part for resource, part in run.utilisation.items()}
        for queue in (None, *self.queues):
            own = [key for key, its_queue in self.came.items() if queue in (None, its_queue)]
            waits = Waits.of([run.jobs.get(key, ("", None))[1] for key in own])
            figures = {
                "wait.mean": waits.mean,
                "wait.p50": waits.median,
                "wait.p95": waits.p95,
                "wait.max": waits.longest,
                "started": waits.jobs - waits.never,
                "never_started": waits.never,
            }
            for name, value in figures.items():
                # between two waits a quantile may be 22.000000000000004, which must not exceed 22
                found[metric(name, queue)] = math.inf if value is None else round(value, 6)
        return found

    def shifts(self, name: str, old: Sequence[Run], new: Sequence[Run]) -> list[Shift]:
        """Return the jobs whose wait changes, by the medians over the seeds."""
        before, after = (
            {key: (queue, _finite(_median_wait(key, runs))) for key, queue in self.came.items()} for runs in (old, new)
        )
        delayed = {key: wait for run in reversed(new) for key, wait in run.delayed.items()}
        return shifts_of(name, before, after, delayed)


def _median_wait(job: str, runs: Sequence[Run]) -> float:
    waits = [run.jobs.get(job, ("", None))[1] for run in runs]
    return median(math.inf if wait is None else wait for wait in waits)


def _units(work: Workload, queues: Sequence[str], gpu: str) -> dict[str, Unit]:
    """Return the metrics of a workload with their units, in the order of the output."""
    events = [*work.base, *(event for _, event in work.changes)]
    nodes = [each for each in events if isinstance(each, ev.ObjectPut) and each.kind == "Node"]
    there = {name for event in nodes for name, amount in allocatable_after(event).items() if amount}
    wanted = {name for unit in work.units for name, amount in unit.requests.items() if amount}
    found = dict(_BY_QUEUE)
    found |= _OVERALL
    if gpu in there:
        found |= _GPUS
    found |= {f"utilisation.{name}": "part" for name in names_in_order(there & wanted) if name != "pods"}
    for queue in queues:
        found |= {metric(name, queue): unit for name, unit in _BY_QUEUE.items()}
    return found


def _figures(
    units: Mapping[str, Unit], old: Sequence[Mapping[str, float]], new: Sequence[Mapping[str, float]]
) -> list[Figure]:
    found = []
    for name, unit in units.items():
        # a resource that no pod got in a run has no metric in it
        before, after = ([run.get(name, 0.0) for run in runs] for runs in (old, new))
        one, other = _spread(before), _spread(after)
        change = None
        if one.median is not None and other.median is not None:
            change = (other.median - one.median) / one.median if one.median else (None if other.median else 0.0)
        found.append(Figure(name, unit, one, other, change))
    return found


def _spread(values: Sequence[float]) -> Spread:
    return Spread(_finite(median(values)), _finite(min(values)), _finite(max(values)))


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _judge(condition: FailCondition, figures: Mapping[str, Figure]) -> Judgement:
    clauses = []
    for clause in condition.clauses:
        figure = figures[clause.metric]
        old, new = (math.inf if one.median is None else one.median for one in (figure.old, figure.new))
        clauses.append(Judged(clause, figure, _finite(clause.limit(old)), clause.holds(old, new)))
    return Judgement(condition.text, clauses, all(one.holds for one in clauses))


# --- text -------------------------------------------------------------------------------------------------------------


def figure_in_words(value: float | None, unit: Unit) -> str:
    """Return a value of a metric as text."""
    match unit:
        case "seconds":
            return span_in_words(value)
        case "part":
            return f"{value or 0:.1%}"
        case "index":
            return f"{value or 0:.3f}"
        case "count":
            return f"{value or 0:,.1f}".removesuffix(".0")
        case "hours" | "cards":
            return f"{value or 0:,.1f}"


def spread_in_words(spread: Spread, unit: Unit) -> str:
    """Return the median, with the minimum and maximum over the seeds if their texts differ."""
    least, middle, most = (figure_in_words(one, unit) for one in (spread.least, spread.median, spread.most))
    return middle if least == most else f"{middle} ({least} to {most})"


def change_in_words(figure: Figure) -> str:
    """Return by how much the medians differ."""
    if figure.old.median == figure.new.median:
        return "="
    if figure.change is None:
        return f"+{figure_in_words(figure.new.median, figure.unit)}" if figure.old.median == 0 else ""
    return f"{figure.change:+.1%}"


def verdict_in_words(judgement: Judgement, *, judged: bool = True) -> str:
    """Return the verdict in one or two words; ``judged``: the runs allow a verdict."""
    return "not judged" if not judged else "FAILED" if judgement.failed else "passed"


def judgement_in_words(judgement: Judgement, *, judged: bool = True) -> str:
    """Return a condition with its metrics, in one line."""
    figures = {clause.figure.name: clause.figure for clause in judgement.clauses}
    texts = "; ".join(
        _figure_in_words(figure, [one for one in judgement.clauses if one.figure.name == name])
        for name, figure in figures.items()
    )
    return f"{verdict_in_words(judgement, judged=judged)} {judgement.text}: {texts}"


def _figure_in_words(figure: Figure, clauses: Sequence[Judged]) -> str:
    """Return a metric under both configurations, with the limits of some clauses."""
    old, new = (spread_in_words(each, figure.unit) for each in (figure.old, figure.new))
    change = change_in_words(figure)
    facts = [change] if change not in ("", "=") else []
    facts += [f"limit {figure_in_words(one.limit, figure.unit)}" for one in clauses if one.clause.relative]
    if _overlap(figure) and any(one.holds for one in clauses):
        facts.append("some seeds give the same result in both configurations")
    return f"{figure.name} {old} -> {new}" + (f" ({', '.join(facts)})" if facts else "")


def _overlap(figure: Figure) -> bool:
    """Return whether the ranges of the seeds' values under the two configurations overlap."""
    lows = [one.least if one.least is not None else math.inf for one in (figure.old, figure.new)]
    highs = [one.most if one.most is not None else math.inf for one in (figure.old, figure.new)]
    return max(lows) <= min(highs) and figure.old != figure.new


def told_figures(gate: GateResult) -> list[Figure]:
    """Return the displayed metrics: the cluster's, those of queues that changed, and those in conditions. With a
    single queue, its metrics equal the cluster's and are left out."""
    in_conditions = {one.figure.name for judgement in gate.conditions for one in judgement.clauses}
    queues = {figure.name.partition("{")[2] for figure in gate.figures} - {""}
    return [
        figure
        for figure in gate.figures
        if "{" not in figure.name or figure.name in in_conditions or (len(queues) > 1 and figure.old != figure.new)
    ]


def summary(gate: GateResult) -> str:
    """Return what was run, in one line."""
    ran = f" ({gate.running:,} more ran already)" if gate.running else ""
    seeds = counted(gate.seeds, "seed")
    return (
        f"{gate.file}: {counted(gate.jobs, 'job')} came from {moment(gate.begin)} to {moment(gate.end)}{ran};"
        f" old: {gate.old}, new: {gate.new}, {seeds} each"
    )


def _notes(old: str, new: str, configurations: int, shifts: Sequence[Shift], seeds: int) -> Iterator[str]:
    for has, lacks, count in (
        (old, new, sum(one.baseline is not None and one.wait is None for one in shifts)),
        (new, old, sum(one.baseline is None and one.wait is not None for one in shifts)),
    ):
        if count:
            start, do = ("starts", "does") if count == 1 else ("start", "do")
            facts = {"jobs": counted(count, "job"), "start": start, "do": do, "has": has, "lacks": lacks}
            yield SENTENCES["started-only"].format_map(facts)
    if configurations > 1:
        yield SENTENCES["configurations"].format(count=configurations)
    if seeds == 1:
        yield SENTENCES["one-seed"]
