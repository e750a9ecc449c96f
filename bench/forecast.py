"""The accuracy of start forecasts: ``python -m bench.forecast [--log FILE]... [--made N] [--count N]``.

A history is cut at sessions in its third quarter of arrivals, just after the arrival of a job that has to wait. The
start of waiting jobs is forecast from the log up to the cut (``whatif.submission_forecast.etas``, as in ``vcd explain
job --eta``) and compared with the real start. Future jobs are forecast, too, as ``vcd whatif --submit`` would just
before their arrival; jobs that it predicts to start at once are counted separately. Forecasts use nothing after the
cut, and no parameter is fitted. The last quarter of the history shows the real starts. A job that has not started by
its end is counted as late if the upper bound has passed, else as unknown.

An interval should contain 80 % of the starts. Forecasts at the same moment are correlated, so the standard error treats
them as one cluster (Cochran, Sampling Techniques, 3rd edition, section 9A: a proportion over clusters).

Histories are slices of the published GPU trace (one task in 16, on a part of the nodes, with and without card quotas;
the trace is next to the project or in ``--trace``), and generated ones: families of jobs with typical sizes and run
times that arrive at random, some in bursts, on a small cluster at several loads. The forecast does not know the
generated run times. ``--log`` adds other histories, such as those of ``python -m bench.cardtrace --keep FILE``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import random
import resource
import statistics
import tempfile
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from bench import cardtrace, gputrace
from bench.clusters import Manifest, nodes, queues
from bench.table import Row, row, show
from bench.trace import TRACE
from vcd.embedded.kubelet import RUN_SECONDS
from vcd.embedded.workload_generator import gang, pod, pod_spec
from vcd.eventlog import EventLog, LogReader
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod, PodGroup
from vcd.model.projection_codec import as_plain, encode_payload, from_manifest
from vcd.model.resource_requests import pod_requests
from vcd.model.wording import SECOND, rfc3339
from vcd.scheduling.configuration import read_policy
from vcd.state.records import Settings
from vcd.timetravel.process_pool import Part, in_order, processors
from vcd.timetravel.whatif.forecasts import Span, Submission
from vcd.timetravel.whatif.logged_workload import GroupLife, Unit, Workload
from vcd.timetravel.whatif.run_measures import Measure
from vcd.timetravel.whatif.runtimes import RunTimes
from vcd.timetravel.whatif.simulated_cluster import SimulatedCluster
from vcd.timetravel.whatif.submission_forecast import etas, submit
from vcd.timetravel.whatif.workloadreader import workload_of

KINDS = {"nodes": "Node", "queues": "Queue", "podgroups": "PodGroup", "pods": "Pod"}
LOADS = (0.7, 0.9, 1.1)
"""Arriving work as a share of the cluster's capacity."""
MADE = 9
COUNT = 3
"""Cuts per history, and future jobs per history."""
ASKED = 6
"""The most waiting jobs that are forecast per cut."""
NODES, CPU, JOBS = 8, 16, 300
AFTER = 600 * SECOND
"""Time (ns) between the last job of the trace and the end of its history."""
COMPRESSION, TASKS_OF, NODES_OF = cardtrace.COMPRESSION, 16, 56
"""Of the trace: compression of arrivals, and the inverse shares of tasks and nodes that a history has."""
DENSE = 400
"""The first tasks of the trace, which are left out: they are spread over three quarters of its time."""
SLICES = (0, 4, 8, 12)
"""The first task of each slice."""
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

# --- generated histories ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """Similar jobs: pods per job, cpu per pod, median run time (seconds), and its geometric standard deviation."""

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
    """The input of a simulated log: initial objects, arrivals with times (ns), and run times of pods (ns) by key."""

    conf: str
    base: list[Manifest]
    coming: list[tuple[int, list[Manifest]]]
    lengths: dict[str, int]
    until: int | None = None
    """End of the history (ns); None: when all jobs have ended."""

    def write(self, path: Path) -> None:
        """Schedule the history in simulated time, and write the log."""
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
    """Return random work for a small cluster."""
    drawn, at = random.Random(seed), 0.0
    found = History(CONF, [*nodes(NODES, CPU), *queues(2)], [], {})
    usual = statistics.fmean(one.pods * one.cpu * one.run for one in FAMILIES)
    for number in range(JOBS):
        # one job in four is submitted together with the one before it
        at += drawn.choice((0.0, 4 / 3, 4 / 3, 4 / 3)) * drawn.expovariate(1.0) * usual / (load * NODES * CPU)
        family, queue = drawn.choice(FAMILIES), f"q{drawn.randrange(2)}"
        name = f"{family.name}-{number}"
        pods = [pod(f"{name}-{index}", pod_spec({"cpu": str(family.cpu)}), {}) for index in range(family.pods)]
        found.coming.append((_BEGIN + round(at) * SECOND, [_named(*one) for one in gang(name, queue, pods)]))
        length = round(family.run * family.spread ** drawn.gauss(0, 1)) * SECOND
        found.lengths |= {f"default/{one['metadata']['name']}": length for one in pods}
    return found


def of_trace(files: Path, cards: bool, first: int) -> History:
    """Return a slice of the published trace's tasks on some of its nodes; with ``cards``, with card quotas."""
    tasks = gputrace.read_tasks(files / "pods.csv")[DENSE + first :: TASKS_OF]
    machines = cardtrace.nodes_of(files / "nodes.csv")[::NODES_OF]
    where = gputrace.queues_of(tasks)
    if cards:
        where = cardtrace.queues_of(cardtrace.shares(tasks, machines, COMPRESSION, cardtrace.SHARE))
    base = [*(_named("nodes", one) for one in machines), *(_named("queues", one) for one in where)]
    found = History(cardtrace.CONF if cards else CONF, [*cardtrace.classes(), *base], [], {})
    classes = {task.name: cardtrace.class_of(task) for task in tasks} if cards else {}
    for arrival in gputrace.arrivals(tasks, compression=COMPRESSION):
        at = _BEGIN + int(arrival.at) * SECOND
        found.coming.append((at, [_of_class(_named(*one), classes) for one in arrival.objects]))
    found.until = found.coming[-1][0] + AFTER
    found.lengths = {f"default/{task.name}": (task.deletion - task.creation) * SECOND for task in tasks}
    return found


def _named(resource: str, manifest: Manifest) -> Manifest:
    return {**manifest, "kind": KINDS[resource.partition(".")[0]]}


def _of_class(manifest: Manifest, classes: Mapping[str, str]) -> Manifest:
    """Return an object of the trace with the priority class of its gang's first task, and without its run time."""
    marks = {key: value for key, value in manifest["metadata"].get("annotations", {}).items() if key != RUN_SECONDS}
    name = classes.get(marks.get(GROUP_NAME, manifest["metadata"]["name"]))
    spec = manifest["spec"] if name is None else {**manifest["spec"], "priorityClassName": name}
    if name is not None and manifest["kind"] == "Pod":
        spec["priority"] = cardtrace.CLASSES[name]
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": marks}, "spec": spec}


class _Recorded(SimulatedCluster):
    """Records all events, as a log does."""

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
class Question:
    """A forecast to make as of a session: the start of waiting ``groups``, or of one that arrives at ``comes`` (ns)."""

    kind: str
    path: Path
    session: int
    groups: tuple[str, ...]
    comes: int | None = None


@dataclass(frozen=True)
class Scored:
    """A forecast for a group at ``now`` (ns), and its real start, or the end of the history if it did not start
    (``came`` is False). ``at_once``: the first session placed it, so no sample was simulated. ``abstained``: it depends
    on work for which no similar job has ended."""

    question: Question
    group: str
    now: int
    starts: Span | None
    started: int
    came: bool
    at_once: bool = False
    abstained: bool = False

    @property
    def side(self) -> int | None:
        """Return 0 if the start lies in the interval, -1 if it was earlier, 1 if later, None if it is unknown."""
        assert self.starts is not None
        low, high = self.starts.low, self.starts.high
        if high is not None and self.started > high:
            return 1
        if not self.came and (high is not None or self.started < low):
            return None
        return -1 if self.started < low else 0


def questions_of(kind: str, path: Path, count: int) -> list[Question]:
    """Return the forecasts to make for a history: of waiting jobs at ``count`` cuts, and of as many future jobs."""
    with LogReader(path) as reader:
        work = workload_of(reader)
        sessions = [(info.time, info.number) for info in reader.sessions()]
    starts, times = work.starts(), [at for at, _ in sessions]
    lives = sorted((life.arrived, key) for key, life in work.groups.items() if life.arrived > work.begin)
    lives = lives[len(lives) // 2 : len(lives) * 3 // 4]
    # just after the arrival of a job that waits for more than 2 s
    places = {
        bisect_right(times, arrived) for arrived, key in lives if starts.get(key, work.end) > arrived + 2 * SECOND
    }
    asked = [
        Question(kind, path, number, tuple(sorted(random.Random(number).sample(waiting, min(ASKED, len(waiting))))))
        for place in sorted(places)
        if place < len(times)
        for now, number in [sessions[place]]
        if (waiting := _waiting(work, starts, now))
    ]
    coming = [
        Question(kind, path, sessions[place][1], (key,), arrived)
        for arrived, key in lives
        if (place := bisect_left(times, arrived) - 1) >= 0
    ]
    return [*_spread(asked, count), *_spread(coming, count)]


def _waiting(work: Workload, starts: Mapping[str, int], now: int) -> list[str]:
    """Return the groups that wait for more than a second after ``now``."""
    there = [key for key, life in work.groups.items() if work.begin < life.arrived <= now]
    return sorted(key for key in there if starts.get(key, work.end) > now + SECOND)


def _spread(asked: list[Question], count: int) -> list[Question]:
    """Return ``count`` of them, evenly distributed over time."""
    step = max(1.0, len(asked) / count)
    return [asked[int((turn + 0.5) * step)] for turn in range(min(count, len(asked)))]


def scored(part: Part, asked: list[Question]) -> Iterator[list[Scored]]:
    """Yield the forecasts for a part of these questions."""
    for question in asked[part[0] : part[1] + 1]:
        with LogReader(question.path) as reader:
            work = workload_of(reader)
        starts, found = work.starts(), _forecast(question, work)
        # nothing happens between the session and the arrival, so the forecast treats it as arriving at the session
        later = 0 if question.comes is None else question.comes - found.now
        yield [
            Scored(
                question,
                job.key,
                found.now,
                job.starts,
                starts.get(job.key, work.end) - later,
                job.key in starts,
                not found.samples,
                bool(job.unlike) and job.starts is not None and job.starts.median is None,
            )
            for job in found.jobs
        ]


def _forecast(question: Question, work: Workload) -> Submission:
    path, session = question.path, question.session
    if question.comes is None:
        return etas(path, question.groups, session=session)
    manifests = [{"kind": "PodGroup", **as_plain(work.groups[key].group)} for key in question.groups]
    manifests += [{"kind": "Pod", **as_plain(unit.pod)} for unit in work.units if unit.group in question.groups]
    return submit(path, manifests, session=session, others=False)


# --- results ----------------------------------------------------------------------------------------------------------


def rows_of(name: str, found: list[Scored]) -> list[Row]:
    """Return the results of forecasts: with an interval, then without."""
    abstained = [one for one in found if one.abstained]
    spans = [one for one in found if one.starts is not None and not one.at_once and not one.abstained]
    told = [one for one in spans if one.side is not None]
    closed = [one.starts for one in told if one.starts and one.starts.high is not None]
    widths = [(span.high - span.low) / SECOND for span in closed if span.high is not None]
    never, at_once = [one for one in found if one.starts is None], [one for one in found if one.at_once]
    return [
        row(f"forecast, {name}: jobs", len(told), ""),
        row("  started within the interval, 75 to 85 meant", _percent(one.side == 0 for one in told), "%"),
        row("  its standard error", _error(told), "points"),
        row("  moments at which they were asked about", len({_moment(one) for one in told}), ""),
        row("  earlier", sum(one.side == -1 for one in told), ""),
        row("  later", sum(one.side == 1 for one in told), ""),
        row("  intervals without an end", len(told) - len(closed), ""),
        row("  wait, median", _median((one.started - one.now) / SECOND for one in told), "s"),
        row("  width of the interval, median", _median(widths), "s"),
        row("  not known, the history ended before", len(spans) - len(told), ""),
        row("  cannot be told: nothing like what runs has ended", len(abstained), ""),
        row("  said never to start", len(never), ""),
        row("  of those, started", sum(one.came for one in never), ""),
        *_rows_at_once(at_once),
    ]


def _rows_at_once(found: list[Scored]) -> list[Row]:
    if not found:
        return []
    soon = [one.came and one.started <= one.now + 2 * SECOND for one in found]
    return [
        row("  forecast to start at once (not counted above)", len(found), ""),
        row("  of those, started within 2 s", sum(soon), ""),
    ]


def _moment(one: Scored) -> tuple[Path, int]:
    return one.question.path, one.question.session


def _percent(found: Iterable[bool]) -> float | None:
    values = list(found)
    return 100 * sum(values) / len(values) if values else None


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


def _error(told: list[Scored]) -> float | None:
    """Return the standard error of the share within the interval, in percentage points."""
    share = (_percent(one.side == 0 for one in told) or 0.0) / 100
    off: dict[tuple[Path, int], float] = defaultdict(float)
    for one in told:
        off[_moment(one)] += (one.side == 0) - share
    if len(off) < 2:
        return None
    return 100 * math.sqrt(len(off) / (len(off) - 1) * sum(value**2 for value in off.values())) / len(told)


def histories(made_count: int, files: Path, shift: int = 0) -> Iterator[tuple[str, Callable[[], History]]]:
    """Yield the name of each kind of history, and a function that generates it; ``shift`` selects other instances."""
    if (files / "pods.csv").is_file():
        for cards, name in ((False, "openb"), (True, "openb under card quotas")):
            yield from ((name, partial(of_trace, files, cards, first + shift)) for first in SLICES)
    for number in range(made_count):
        load = LOADS[number % len(LOADS)]
        yield f"made at {100 * load:.0f} % load", partial(made, number // len(LOADS) + 100 * shift, load)


def written(part: Part, found: list[tuple[str, Callable[[], History]]], folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the logs of a part of the histories; yield their names and paths."""
    for number in range(part[0], part[1] + 1):
        name, history = found[number]
        path = folder / f"{number}.sqlite"
        history().write(path)
        yield name, path


def run(
    logs: Iterable[Path] = (), made_count: int = MADE, count: int = COUNT, files: Path = TRACE, shift: int = 0
) -> list[Row]:
    """Generate histories, make forecasts and return the rows."""
    found: dict[str, list[Scored]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        here = list(histories(made_count, files, shift))
        paths = [(path.stem, path) for path in logs]
        paths += in_order(partial(written, found=here, folder=Path(folder)), _each(here), processors())
        asked = [one for name, path in paths for one in questions_of(name, path, count)]
        for number, answers in enumerate(in_order(partial(scored, asked=asked), _each(asked), processors()), 1):
            for one in answers:
                found[_heading(one)].append(one)
            told = [one for one in answers if one.starts is not None and one.side is not None]
            within = sum(one.side == 0 for one in told)
            name = asked[number - 1].kind
            click.echo(f"{number} of {len(asked)}, {name}: {within} of {len(told)} started within theirs", err=True)
    rows = [one for name in sorted(found) for one in rows_of(name, found[name])]
    rows += _of_made(found)
    largest = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return [*rows, row("forecast: the largest process had", largest / 1024, "MiB")]


def _each(found: Sequence[object]) -> list[Part]:
    return [(number, number) for number in range(len(found))]


def _heading(one: Scored) -> str:
    return one.question.kind + (", jobs to come" if one.question.comes is not None else "")


def _of_made(found: Mapping[str, list[Scored]]) -> Iterator[Row]:
    """Yield the rows of the generated histories of all loads together."""
    for coming in ("", ", jobs to come"):
        names = [name for name in found if name.startswith("made at") and name.endswith(f"load{coming}")]
        if names:
            yield from rows_of(f"made at all loads{coming}", [one for name in names for one in found[name]])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, action="append", default=[], help="a history; may be repeated")
    parser.add_argument("--made", type=int, default=MADE, help="histories that are made")
    parser.add_argument("--count", type=int, default=COUNT, help="cuts of a history, and jobs to come")
    parser.add_argument("--trace", type=Path, default=TRACE, help="where the published trace's files are")
    parser.add_argument("--shift", type=int, default=0, help="take other histories: 1 to 3 other slices of the trace")
    given = parser.parse_args()
    show(run(given.log, given.made, given.count, given.trace, given.shift))


if __name__ == "__main__":
    main()
