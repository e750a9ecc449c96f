"""Run a log's workload again under other configurations or on another cluster, and compare the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.objects import Node
from vcd.model.projection_codec import BadObject
from vcd.model.resource_requests import names_in_order
from vcd.model.wording import SECOND
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.plugin import CALLS
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import plugins
from vcd.state.records import NodeRecord
from vcd.text.job_names import without_uid
from vcd.text.outcomes import SENTENCES
from vcd.timetravel.history import object_in
from vcd.timetravel.whatif.cluster_edits import Edits, edited
from vcd.timetravel.whatif.delays import Delays
from vcd.timetravel.whatif.fidelity import Fidelity, fidelity
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.run_measures import GPU, Course, JobRun, Measure, Waits
from vcd.timetravel.whatif.runtimes import Accuracy, RunTimes, accuracy
from vcd.timetravel.whatif.simulated_cluster import PERIOD, SimulatedCluster
from vcd.timetravel.whatif.wait_shifts import Shift, WaitChanges, effect_of, largest, shifts_of
from vcd.timetravel.whatif.workloadreader import workload_of

RECORDED = "recorded"
BASELINE = "baseline"

Points = list[tuple[float, float]]
"""Seconds since the beginning, and the average over the span that begins there."""


class Run(msgspec.Struct):
    """The outcome of the workload in one run.

    ``utilisation`` is the average used part of each resource. Averages are taken until the last pod arrived or got a
    node (``busy_seconds``); numbers of GPUs are whole cards. ``lost_hours`` are the pod-hours that evicted pods had
    run for. ``courses`` are time series over the same time: ``waiting`` and ``running`` pods, ``free GPUs``, ``free
    GPUs on empty nodes``, ``fairness`` (Jain's index of the queues' dominant shares by weight while several have
    waiting pods, 1 is even), ``RESOURCE used`` and ``QUEUE: RESOURCE`` as parts of the cluster.
    """

    name: str
    what: str
    waits: Waits
    """Of the jobs that arrived; ``running`` more had pods on nodes already when first observed, and are not counted."""
    running: int
    queues: dict[str, Waits]
    utilisation: dict[str, float]
    evictions: dict[str, int]
    lost_hours: float
    sessions: int
    busy_seconds: float
    seconds: float
    """From the beginning to the end of the last pod."""
    gpus: float
    free_gpus: float
    free_gpus_on_empty_nodes: float
    fairness: float | None
    """None for the recorded run: fairness is measured at simulated sessions."""
    courses: dict[str, Points]
    jobs: dict[str, tuple[str, float | None]]
    """The queue and the wait in seconds (None: it never started) of each job that arrived."""
    invented: list[str] = []
    """The jobs whose pods ran for an assumed time: neither they nor similar pods ended in the log."""
    resting: int = 0
    """Jobs that started at a time that depends on such a run time."""
    delayed: dict[str, DiagnosedWait] = {}
    """Why jobs wait longer than in the baseline, by job: the cause that held longest."""


class Comparison(msgspec.Struct):
    """Runs of one log's workload: as recorded, simulated without a change (the baseline), then each variant.

    ``accuracy`` is how precisely missing run times are estimated (None: nothing ended), ``estimated`` for how many
    pods. ``fidelity`` is how well the baseline reproduces the record. ``notes`` state where the simulation differs
    from the original conditions. ``effects`` compare the jobs of each changed run with the baseline.
    """

    file: str
    begin: int
    end: int
    pods: int
    runs: list[Run]
    shifts: list[Shift]
    accuracy: Accuracy | None
    estimated: int
    fidelity: Fidelity
    notes: list[str]
    effects: list[WaitChanges] = []


class Variant(msgspec.Struct, frozen=True):
    """One way to run a workload: ``conf`` is a configuration's text (None: the log's own ones, each at its time)."""

    name: str
    conf: str | None = None
    edits: Edits = msgspec.field(default_factory=Edits)
    seed: int = 0
    logged: bool = False
    """``conf`` was in force: it is read like a logged one, even if this version would reject it."""

    @property
    def words(self) -> str:
        """The differences from the original workload."""
        parts = [self.edits.words, SENTENCES["other-configuration"] if self.conf is not None else ""]
        parts.append(f"seed {self.seed}" if self.seed else "")
        return ", ".join(filter(None, parts)) or SENTENCES["as-it-was"]


def whatif(
    path: str | Path,
    variants: Sequence[Variant],
    *,
    period: int = PERIOD,
    gpu: str = GPU,
    called: str | None = None,
    progress: Callable[[str, float], None] = lambda _, __: None,
) -> Comparison:
    """Run a log's workload unchanged, and under each variant.

    Events within one ``period`` (ns) are decided together. ``progress`` is called with the name of a run and its
    simulated fraction. ``called`` names the log if ``path`` is a copy. Raises LogError, PolicyError, EditError.
    """
    with LogReader(path) as reader:
        work = workload_of(reader)
    policies = [policy_of(variant, work) for variant in variants]
    works = [edited(work, variant.edits) for variant in variants]  # report all errors before the first long run
    runs = [recorded(work, gpu), simulated(work, Variant(BASELINE), period, gpu, progress)]
    for each, variant in zip(works, variants, strict=True):
        runs.append(simulated(each, variant, period, gpu, progress, explain=True))
    how_well = accuracy(work)
    estimated = sum(unit.run is None for unit in work.units)
    shifts, found = effects(runs)
    return Comparison(
        file=called or str(path),
        begin=work.begin,
        end=work.end,
        pods=len(work.units),
        runs=runs,
        shifts=shifts,
        accuracy=how_well,
        estimated=estimated,
        fidelity=fidelity(work, runs[0].jobs, runs[1].jobs),
        notes=caveats(estimated, how_well, [read_policy(work.policy, logged=True), *policies]),
        effects=found,
    )


def policy_of(variant: Variant, work: Workload) -> Policy:
    """Return the variant's configuration, or the workload's own. Raises PolicyError."""
    return (
        read_policy(work.policy, logged=True)
        if variant.conf is None
        else read_policy(variant.conf, logged=variant.logged)
    )


def simulated(
    work: Workload,
    variant: Variant,
    period: int = PERIOD,
    gpu: str = GPU,
    progress: Callable[[str, float], None] = lambda _, __: None,
    *,
    explain: bool = False,
) -> Run:
    """Run a workload that contains the variant's edits already; with ``explain``, diagnose the jobs that wait."""
    work = work.with_logged_policies() if variant.conf is None else work
    measure = Measure(work.begin, gpu)
    span = max(1, work.end - work.begin)
    delays = Delays() if explain else None
    cluster = SimulatedCluster(
        work,
        policy_of(variant, work),
        measure,
        RunTimes.of(work),
        seed=variant.seed,
        period=period,
        progress=lambda now: progress(variant.name, min(1.0, (now - work.begin) / span)),
        delays=delays,
    )
    cluster.run()
    return run_of(variant.name, variant.words, measure, work, {} if delays is None else delays.found())


def recorded(work: Workload, gpu: str = GPU) -> Run:
    """Return the outcome of the workload in the log itself."""
    measure = Measure(work.begin, gpu)
    for _, do in sorted(_recorded_calls(work, measure), key=lambda one: one[0]):
        do()
    measure.evictions.update(work.evictions)
    measure.lost = sum(end - start for unit in work.units for start, end, _ in unit.earlier)
    measure.close(work.end)
    return run_of(RECORDED, SENTENCES["as-logged"], measure, work)


def _recorded_calls(work: Workload, measure: Measure) -> Iterator[tuple[int, Callable[[], None]]]:
    """Yield the calls of a measure, with their times; calls at one time in this order."""
    for time, event in [*((work.begin, event) for event in work.base), *work.changes]:
        if isinstance(event, ev.ObjectPut | ev.ObjectGone) and event.kind == "Node":
            yield time, partial(measure.node, time, event.key, allocatable_after(event))
    for life in work.groups.values():
        yield life.arrived, partial(measure.group, life.arrived, life, work.queue_of(life.key))
    for unit in work.units:
        yield unit.arrived, partial(measure.unit, unit.arrived, unit, work.job_of(unit), work.queue_of(unit.group))
    for unit in work.units:
        for start, end, node in unit.earlier:
            yield max(start, unit.arrived), partial(measure.starts, max(start, unit.arrived), unit, node)
            yield end, partial(measure.leaves, end, unit, node)
            yield end, partial(measure.unit, end, unit, work.job_of(unit), work.queue_of(unit.group))
        if unit.bound is not None:
            yield (
                max(unit.bound, unit.arrived),
                partial(measure.starts, max(unit.bound, unit.arrived), unit, unit.place),
            )
    for unit in work.units:
        if unit.ended is not None:
            yield unit.ended, partial(measure.ends, unit.ended, unit, unit.place if unit.bound is not None else "")


def allocatable_after(event: ev.ObjectPut | ev.ObjectGone) -> dict[str, int]:
    """Return a node's allocatable resources after an event; empty if the node is deleted or unreadable."""
    node = object_in(event)
    try:
        return NodeRecord.of(node).allocatable if isinstance(node, Node) else {}
    except BadObject:
        return {}


# --- results ----------------------------------------------------------------------------------------------------------


def run_of(
    name: str, what: str, measure: Measure, work: Workload, delayed: Mapping[str, DiagnosedWait] | None = None
) -> Run:
    """Return a measured run of a workload as plain values."""
    ran_already = work.ran_already()
    jobs = [job for key, job in sorted(measure.jobs.items()) if key not in ran_already]
    invented, resting = measure.assumed()
    whole = 1000  # cards are counted in thousandths
    until = measure.busy_until
    courses = {
        "waiting": _points(measure.waiting, until),
        "running": _points(measure.running, until),
        "free GPUs": _points(measure.free_gpus, until, whole),
        "free GPUs on empty nodes": _points(measure.free_on_empty_nodes, until, whole),
        "fairness": _points(measure.fairness, until) if measure.sessions else [],
    }
    for resource in names_in_order(measure.used):
        if resource == "pods" or resource not in measure.capacity:
            continue
        total = measure.capacity[resource]
        courses[f"{resource} used"] = _used_parts(measure.used[resource], total, until)
        for queue, held in sorted(measure.queues.items()):
            if resource in held.used:
                courses[f"{queue or '(no queue)'}: {resource}"] = _used_parts(held.used[resource], total, until)
    return Run(
        name=name,
        what=what,
        waits=_waits(jobs),
        running=len(ran_already),
        queues={
            queue: _waits([job for job in jobs if job.queue == queue]) for queue in sorted({j.queue for j in jobs})
        },
        utilisation=measure.utilisation(),
        evictions=dict(sorted(measure.evictions.items())),
        lost_hours=measure.lost / SECOND / 3600,
        sessions=measure.sessions,
        busy_seconds=(until - measure.begin) / SECOND,
        seconds=(measure.closed - measure.begin) / SECOND,
        gpus=measure.capacity[measure.gpu].mean(until) / whole if measure.gpu in measure.capacity else 0.0,
        free_gpus=measure.free_gpus.mean(until) / whole,
        free_gpus_on_empty_nodes=measure.free_on_empty_nodes.mean(until) / whole,
        fairness=measure.fairness.mean(until) if measure.sessions else None,
        courses=courses,
        jobs={job.key: (job.queue, None if job.wait is None else job.wait / SECOND) for job in jobs},
        invented=[without_uid(job) for job in invented],
        resting=resting,
        delayed=dict(delayed or {}),
    )


def _waits(jobs: Iterable[JobRun]) -> Waits:
    return Waits.of([None if job.wait is None else job.wait / SECOND for job in jobs])


def _points(course: Course, until: int, unit: float = 1.0) -> Points:
    points = course.points(until)
    return [((time - points[0][0]) / SECOND, value / unit) for time, value in points]


def _used_parts(used: Course, total: Course, until: int) -> Points:
    """Return the used part of the capacity at the time, span by span."""
    pairs = zip(_points(used, until), _points(total, until), strict=True)
    return [(time, amount / capacity if capacity else 0.0) for (time, amount), (_, capacity) in pairs]


def effects(runs: Sequence[Run]) -> tuple[list[Shift], list[WaitChanges]]:
    """Return the jobs of each run whose waits differ most from the baseline, and the effect on all of its jobs."""
    baseline = next(run for run in runs if run.name == BASELINE)
    shifts, found = list[Shift](), list[WaitChanges]()
    for run in runs:
        if run.name not in (RECORDED, BASELINE):
            changed = shifts_of(run.name, baseline.jobs, run.jobs, run.delayed)
            longer = {shift.job for shift in changed if shift.is_longer}
            run.delayed = {job: wait for job, wait in run.delayed.items() if job in longer}
            shifts += largest(changed)
            found.append(effect_of(run.name, changed))
    return shifts, found


def caveats(estimated: int, how_well: Accuracy | None, policies: Iterable[Policy]) -> list[str]:
    """Return how reliable the runs are: what is estimated, and what a simulated cluster lacks."""
    names = sorted({option.name for policy in policies for tier in policy.tiers for option in tier})
    on = [plugins()[name] for name in names]
    recorded = sorted({question for one in on for question in one.outside if question != CALLS})
    return [
        *run_time_notes(estimated, how_well),
        *(SENTENCES["calls"].format(plugin=one.name) for one in on if CALLS in one.outside),
        *(SENTENCES["outside"].format(question=one) for one in recorded),
    ]


def run_time_notes(estimated: int, how_well: Accuracy | None) -> list[str]:
    """Return the sources of run times, and the accuracy of estimates."""
    notes = [SENTENCES["run-times"].format(pods=f"{estimated:,}")]
    return notes + ([] if how_well is None else [how_well.words])
