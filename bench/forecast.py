"""How far forecasts of a start can be trusted: ``python -m bench.forecast [--log FILE]... [--made N] [--count N]``.

Histories are cut at some sessions after which somebody waits. Of all jobs that wait then the start is forecast from
what the log shows up to there (``vcd.timetravel.whatif.submit.etas``, which is what ``vcd whatif --submit`` does for
jobs that are not there yet), and held against when they started; of those that never did, the end of the history
counts. An interval is meant for four in five: printed is, for the later halves alone, how many of the starts lie within
theirs, and how wide these are. By the earlier halves alone it is told whether the runs' spread has to be widened: to
which power the factors between the median and the bounds would have to be taken (1: they are right).

Histories are: one in eight of the published GPU trace's tasks, on a part of its nodes, plainly and under card quotas
(where the trace stands beside the project, or in ``--trace``); and work of some families, each with a usual size and
length, which comes at random and now and then several at once to a small cluster, at several loads; another part of the
program than the forecast knows how long it runs. ``--log`` takes histories of any origin, such as those that ``python
-m bench.cardtrace --keep FILE`` leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import random
import statistics
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from bench import cardtrace
from bench.clusters import Manifest, nodes, queues
from bench.table import Row, row, show
from bench.trace import TRACE
from vcd.embedded import trace
from vcd.embedded.kubelet import RUN_SECONDS
from vcd.embedded.workload import gang, pod, pod_spec
from vcd.eventlog import EventLog, LogReader
from vcd.model import events as ev
from vcd.model.codec import encode_payload, from_manifest
from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod, PodGroup
from vcd.model.requests import pod_requests
from vcd.model.words import rfc3339
from vcd.scheduling.configuration import read_policy
from vcd.state.records import Settings
from vcd.timetravel.parallel import Part, in_order, processors
from vcd.timetravel.whatif.cluster import SimulatedCluster
from vcd.timetravel.whatif.forecasts import Span
from vcd.timetravel.whatif.measure import Measure
from vcd.timetravel.whatif.runtimes import RunTimes
from vcd.timetravel.whatif.submit import etas
from vcd.timetravel.whatif.workload import SECOND, GroupLife, Unit, Workload, workload_of

KINDS = {"nodes": "Node", "queues": "Queue", "podgroups": "PodGroup", "pods": "Pod"}
LOADS = (0.7, 0.9, 1.1)
"""The work that comes, as a part of what the cluster can do."""
MADE = 9
COUNT = 2
"""Cuts of each half of a history."""
NODES, CPU, JOBS = 8, 16, 200
AFTER = 600 * SECOND
"""So long (ns) after the last job of the trace its history ends."""
COMPRESSION, TASKS_OF, NODES_OF = cardtrace.COMPRESSION, 8, 14
"""Of the trace: by what its arrivals are compressed; one in so many of its tasks, and of its nodes."""
_BEGIN = 1_767_225_600 * SECOND
CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

# --- histories that are made ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """Work that is alike: pods of a job, cpu of a pod, how long it usually runs (s), by which factor that varies."""

    name: str
    pods: int
    cpu: int
    run: float
    spread: float


FAMILIES = (
    Family("eval", 1, 2, 120, 1.3),
    Family("tune", 2, 4, 600, 1.6),
    Family("train", 8, 4, 1800, 1.5),
    Family("sweep", 4, 1, 300, 2.5),
    Family("notebook", 1, 1, 900, 3.0),
)


@dataclass
class History:
    """What a log is made of: what is there at the beginning, what comes when (ns), how long pods run (ns) by key."""

    conf: str
    base: list[Manifest]
    coming: list[tuple[int, list[Manifest]]]
    lengths: dict[str, int]
    until: int | None = None
    """When it ends (ns), if before all is done."""

    def write(self, path: Path) -> None:
        """Let it be scheduled in simulated time, and write the log of that."""
        work = Workload(_BEGIN, _BEGIN, None, Settings())
        for manifest in self.base:
            kind, obj, _ = from_manifest(manifest)
            work.base.append(ev.ObjectPut(kind, obj.key, "", encode_payload(obj)))
        for at, manifests in self.coming:
            for obj in (from_manifest(_created(manifest, at))[1] for manifest in manifests):
                if isinstance(obj, PodGroup):
                    work.groups[obj.key] = GroupLife(obj.key, obj, at, waited=True)
                elif isinstance(obj, Pod):
                    unit = Unit(obj.key, obj.metadata.uid, obj.group_key, obj, pod_requests(obj.spec), at)
                    work.units.append(unit)
        policy, measure = read_policy(self.conf), Measure(_BEGIN)
        recorded = _Recorded(work, policy, measure, RunTimes([]), length=lambda unit, _: self.lengths[unit.key])
        recorded.until = self.until
        recorded.run()
        asyncio.run(_write(path, recorded.told))


def _created(manifest: Manifest, at: int) -> Manifest:
    meta = manifest["metadata"]
    named = {"namespace": "default", **meta, "uid": meta["name"], "creationTimestamp": rfc3339(at)}
    return {**manifest, "metadata": named}


def made(seed: int, load: float) -> History:
    """Work that comes at random to a small cluster."""
    drawn, at = random.Random(seed), 0.0
    found = History(CONF, [*nodes(NODES, CPU), *queues(2)], [], {})
    usual = statistics.fmean(one.pods * one.cpu * one.run for one in FAMILIES)
    for number in range(JOBS):
        # one time in four a user submits several at once
        at += drawn.choice((0.0, 4 / 3, 4 / 3, 4 / 3)) * drawn.expovariate(1.0) * usual / (load * NODES * CPU)
        family, queue = drawn.choice(FAMILIES), f"q{drawn.randrange(2)}"
        name = f"{family.name}-{number}"
        pods = [pod(f"{name}-{index}", pod_spec({"cpu": str(family.cpu)}), {}) for index in range(family.pods)]
        found.coming.append((_BEGIN + round(at) * SECOND, [_named(*one) for one in gang(name, queue, pods)]))
        length = round(family.run * family.spread ** drawn.gauss(0, 1)) * SECOND
        found.lengths |= {f"default/{one['metadata']['name']}": length for one in pods}
    return found


def of_trace(files: Path, cards: bool) -> History:
    """One in eight of the published trace's tasks on one in ten of its nodes; with ``cards``, under card quotas."""
    tasks = trace.read_tasks(files / "pods.csv")[::TASKS_OF]
    machines = cardtrace.nodes_of(files / "nodes.csv")[::NODES_OF]
    where = trace.queues_of(tasks)
    if cards:
        where = cardtrace.queues_of(cardtrace.shares(tasks, machines, COMPRESSION, cardtrace.SHARE))
    base = [*(_named("nodes", one) for one in machines), *(_named("queues", one) for one in where)]
    found = History(cardtrace.CONF if cards else CONF, [*cardtrace.classes(), *base], [], {})
    classes = {task.name: cardtrace.class_of(task) for task in tasks} if cards else {}
    for arrival in trace.arrivals(tasks, compression=COMPRESSION):
        at = _BEGIN + int(arrival.at) * SECOND
        found.coming.append((at, [_of_class(_named(*one), classes) for one in arrival.objects]))
    found.until = found.coming[-1][0] + AFTER
    found.lengths = {f"default/{task.name}": (task.deletion - task.creation) * SECOND for task in tasks}
    return found


def _named(resource: str, manifest: Manifest) -> Manifest:
    return {**manifest, "kind": KINDS[resource.partition(".")[0]]}


def _of_class(manifest: Manifest, classes: Mapping[str, str]) -> Manifest:
    """An object of the trace with the priority class of its gang's first task; how long it runs is not told."""
    marks = {key: value for key, value in manifest["metadata"].get("annotations", {}).items() if key != RUN_SECONDS}
    name = classes.get(marks.get(GROUP_NAME, manifest["metadata"]["name"]))
    spec = manifest["spec"] if name is None else {**manifest["spec"], "priorityClassName": name}
    if name is not None and manifest["kind"] == "Pod":
        spec["priority"] = cardtrace.CLASSES[name]
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": marks}, "spec": spec}


class _Recorded(SimulatedCluster):
    """Keeps what happens, as a log does."""

    told: list[tuple[int, ev.Event]]
    until: int | None

    def _settled(self) -> bool:
        return self.until is not None and self.now > self.until

    def _begin(self) -> None:
        self.told = []
        super()._begin()

    def _fold(self, event: ev.Event) -> None:
        super()._fold(event)
        self.told.append((self.now, event))


async def _write(path: Path, told: list[tuple[int, ev.Event]]) -> None:
    now = _BEGIN
    async with EventLog.open(path, clock=lambda: now) as log:
        for now, events in itertools.groupby(told, key=lambda one: one[0]):  # noqa: B007
            await log.append([event for _, event in events])


# --- forecasts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """A forecast: for which group, made after which session, when (ns), for when, and when it started: where the
    history ended before, its end, and not ``came``."""

    group: str
    session: int
    now: int
    starts: Span | None
    started: int
    came: bool

    @property
    def side(self) -> int:
        """0: the start lies within the interval; -1: it was earlier, 1: later."""
        if self.starts is None or (self.came and self.started < self.starts.low):
            return 1 if self.starts is None else -1
        return int(self.starts.high is not None and self.started > self.starts.high)

    @property
    def off(self) -> float:
        """How far the start is from the median, in logarithms of the wait, as a part of the interval's width on that
        side: 1 is its bound."""
        if self.starts is None:
            return 0.0 if not self.came else math.inf
        if self.starts.median is None or (not self.came and self.started < self.starts.median):
            return 0.0
        begin = self.now - SECOND  # a wait is at least the second that times are counted in
        wait, middle = self.started - begin, self.starts.median - begin
        bound = self.starts.low if wait < middle else self.starts.high
        if bound is None or wait == middle:
            return 0.0
        width = abs(math.log((bound - begin) / middle))
        return abs(math.log(wait / middle)) / width if width else math.inf


def cuts_of(path: Path, count: int) -> tuple[list[int], list[int]]:
    """Sessions at which jobs wait, at most so many of the earlier half of what comes, and of the later."""
    with LogReader(path) as reader:
        work = workload_of(reader)
        sessions = [(info.time, info.number) for info in reader.sessions()]
    starts = _starts(work)
    lives = sorted((work.groups[key].arrived, starts.get(key, work.end)) for key in starts)
    times = [at for at, _ in sessions]
    halves = lives[: len(lives) // 2], lives[len(lives) // 2 :]
    found: tuple[list[int], list[int]] = [], []
    for half, cuts in zip(halves, found, strict=True):
        # just after somebody came who has to wait for more than a moment
        waits = [
            place
            for arrived, started in half
            if started > arrived + 2 * SECOND
            for place in [bisect_right(times, arrived)]
            if place < len(times) and started > times[place] + SECOND
        ]
        places = sorted(set(waits))
        step = max(1.0, len(places) / count)
        cuts += [sessions[places[int((turn + 0.5) * step)]][1] for turn in range(min(count, len(places)))]
    return found


def _starts(work: Workload) -> dict[str, int]:
    """When groups had their minimum on nodes, of those that came after the log began."""
    bound: dict[str, list[int]] = {}
    for unit in work.units:
        first = unit.earlier[0][0] if unit.earlier else unit.bound
        if first is not None:
            bound.setdefault(unit.group, []).append(first)
    found = {}
    for key, life in work.groups.items():
        times, minimum = sorted(bound.get(key, ())), max(1, life.group.spec.min_member)
        if len(times) >= minimum and life.arrived > work.begin:
            found[key] = times[minimum - 1]
    return found


def scored(part: Part, path: Path, cuts: list[int], samples: int) -> Iterator[list[Scored]]:
    """Forecasts of all that waits at the cuts with these numbers."""
    with LogReader(path) as reader:
        work = workload_of(reader)
    starts = _starts(work)
    for session in cuts[part[0] : part[1] + 1]:
        found = etas(path, session=session, samples=samples)
        yield [
            Scored(job.key, session, found.now, job.starts, starts.get(job.key, work.end), job.key in starts)
            for job in found.jobs
            # a pod at least of these had no node yet, but their minimum may have had one
            if starts.get(job.key, work.end) > found.now
        ]


def score(path: Path, cuts: list[int], samples: int) -> list[Scored]:
    """Forecasts at the cuts of a history."""
    if not cuts:
        return []
    parts = [(number, number) for number in range(len(cuts))]
    found = in_order(partial(scored, path=path, cuts=cuts, samples=samples), parts, processors())
    return list(itertools.chain.from_iterable(found))


def rows_of(name: str, found: list[Scored]) -> list[Row]:
    """What forecasts came to."""
    if not found:
        return [row(f"forecast, {name}: nothing waited", None, "")]
    within = sum(one.side == 0 for one in found)
    closed = [one for one in found if one.starts and one.starts.high is not None]
    widths = [(one.starts.high - one.starts.low) / SECOND for one in closed if one.starts and one.starts.high]
    return [
        row(f"forecast, {name}: jobs that waited", len(found), ""),
        row("  started within the interval, 75 to 85 meant", 100 * within / len(found), "%"),
        row("  of those whose interval has an end", 100 * sum(one.side == 0 for one in closed) / len(closed), "%")
        if closed
        else row("  of those whose interval has an end", None, "%"),
        row("  intervals without an end", len(found) - len(closed), ""),
        row("  earlier", sum(one.side < 0 for one in found), ""),
        row("  later", sum(one.side > 0 for one in found), ""),
        row("  wait, median", statistics.median((one.started - one.now) / SECOND for one in found), "s"),
        row("  width of the interval, median", statistics.median(widths) if widths else None, "s"),
    ]


def histories(made_count: int, files: Path) -> Iterator[tuple[str, History]]:
    """Those that are made here, and what each is an instance of."""
    if (files / "pods.csv").is_file():
        yield "openb", of_trace(files, cards=False)
        yield "openb under card quotas", of_trace(files, cards=True)
    for number in range(made_count):
        load = LOADS[number % len(LOADS)]
        yield f"made at {100 * load:.0f} % load", made(number // len(LOADS), load)


def run(
    logs: Iterable[Path] = (), made_count: int = MADE, count: int = COUNT, samples: int = 20, files: Path = TRACE
) -> list[Row]:
    """The rows."""
    earlier: list[Scored] = []
    later: dict[str, list[Scored]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in itertools.chain(
            ((path.stem, path) for path in logs), _written(histories(made_count, files), Path(folder))
        ):
            for cuts, half in zip(cuts_of(path, count), (earlier, later.setdefault(name, [])), strict=True):
                half += score(path, cuts, samples)
            click.echo(f"{path.stem}: {len(later[name])} forecasts of {name}", err=True)
    rows = [one for name, found in later.items() for one in rows_of(name, found)]
    rows += rows_of("all", list(itertools.chain.from_iterable(later.values())))
    asked = sorted(one.off for one in earlier)
    needed = asked[min(len(asked), math.ceil(0.8 * (len(asked) + 1))) - 1] if asked else None
    rows.append(row(f"  widening that {len(earlier)} forecasts of the earlier halves ask for, a power", needed, ""))
    return rows


def _written(found: Iterable[tuple[str, History]], folder: Path) -> Iterator[tuple[str, Path]]:
    for number, (name, history) in enumerate(found):
        path = folder / f"{number}.sqlite"
        history.write(path)
        yield name, path


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, action="append", default=[], help="a history; may be repeated")
    parser.add_argument("--made", type=int, default=MADE, help="histories that are made")
    parser.add_argument("--count", type=int, default=COUNT, help="cuts of each half of a history")
    parser.add_argument("--samples", type=int, default=20, help="runs of a forecast")
    parser.add_argument("--trace", type=Path, default=TRACE, help="where the published trace's files are")
    given = parser.parse_args()
    show(run(given.log, given.made, given.count, given.samples, given.trace))


if __name__ == "__main__":
    main()
