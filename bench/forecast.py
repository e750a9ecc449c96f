"""How far forecasts of a start can be trusted: ``python -m bench.forecast [--log FILE]... [--made N] [--count N]``.

Histories are cut at the middle. Of the jobs that wait then, or come later and have to wait, the start is forecast from
what the log shows up to the first session that left them waiting (``vcd.timetravel.whatif.submit.eta``, which is what
``vcd whatif --submit`` does for jobs that are not there yet), and held against when they started. An interval is meant
for four in five: printed are how many of the starts lie within theirs, and how wide these are.

``--log`` takes histories of any origin, such as those that ``python -m bench.whatif --keep FOLDER`` and ``python -m
bench.cardtrace --keep FILE`` leave. Beside them ``--made`` histories are made: work of some families, each with a usual
size and length, comes at random, and now and then in bursts, to a small cluster at several loads; another part of the
program than the forecast knows how long it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from bench.clusters import Manifest, nodes, queues
from bench.table import Row, row, show
from vcd.eventlog import EventLog, LogReader
from vcd.model import events as ev
from vcd.model.codec import encode_payload, from_manifest
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

LOADS = (0.85, 1.0, 1.15)
"""The work that comes, as a part of what the cluster can do."""
MADE = 6
COUNT = 8
"""Forecasts of a history."""
NODES, CPU, JOBS = 8, 16, 300
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


def write_made(path: Path, seed: int, load: float) -> None:
    """Write a log of work that comes at random to a small cluster."""
    drawn = random.Random(seed)
    lengths: dict[str, int] = {}
    work = Workload(_BEGIN, _BEGIN, None, Settings())
    for manifest in (*nodes(NODES, CPU), *queues(2)):
        kind, obj, _ = from_manifest(manifest)
        work.base.append(ev.ObjectPut(kind, obj.key, "", encode_payload(obj)))
    at = 0.0
    usual = statistics.fmean(one.pods * one.cpu * one.run for one in FAMILIES)
    for number in range(JOBS):
        # one time in four a user submits several at once
        at += drawn.choice((0.0, 4 / 3, 4 / 3, 4 / 3)) * drawn.expovariate(1.0) * usual / (load * NODES * CPU)
        _add(work, drawn.choice(FAMILIES), number, _BEGIN + round(at) * SECOND, f"q{drawn.randrange(2)}")
    for unit in work.units:
        if unit.key.endswith("-0"):
            family = next(one for one in FAMILIES if unit.group.startswith(f"default/{one.name}-"))
            lengths[unit.group] = round(family.run * family.spread ** drawn.gauss(0, 1)) * SECOND
    recorded = _Recorded(
        work,
        read_policy(CONF),
        Measure(_BEGIN),
        RunTimes([]),
        length=lambda unit, _: lengths[unit.group],
    )
    recorded.run()
    asyncio.run(_write(path, recorded.told))


def _add(work: Workload, family: Family, number: int, at: int, queue: str) -> None:
    name, created = f"{family.name}-{number}", rfc3339(at)
    meta: Manifest = {"namespace": "default", "creationTimestamp": created}
    group = from_manifest(
        {
            "kind": "PodGroup",
            "metadata": {**meta, "name": name, "uid": name},
            "spec": {
                "minMember": family.pods,
                "queue": queue,
                "minResources": {"cpu": str(family.pods * family.cpu)},
            },
        }
    )[1]
    assert isinstance(group, PodGroup)
    work.groups[group.key] = GroupLife(group.key, group, at, waited=True)
    for index in range(family.pods):
        marks = {"scheduling.k8s.io/group-name": name}
        pod = from_manifest(
            {
                "kind": "Pod",
                "metadata": {**meta, "name": f"{name}-{index}", "uid": f"{name}-{index}", "annotations": marks},
                "spec": {
                    "schedulerName": "volcano",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": str(family.cpu)}}}],
                },
            }
        )[1]
        assert isinstance(pod, Pod)
        work.units.append(Unit(pod.key, pod.metadata.uid, group.key, pod, pod_requests(pod.spec), at))


class _Recorded(SimulatedCluster):
    """Keeps what happens, as a log does."""

    told: list[tuple[int, ev.Event]]

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


def cuts_of(path: Path, count: int) -> tuple[list[int], list[int]]:
    """Sessions at which jobs wait, at most so many of the earlier half of what comes, and of the later."""
    with LogReader(path) as reader:
        work = workload_of(reader)
        sessions = [(info.time, info.number) for info in reader.sessions()]
    starts = _starts(work)
    lives = sorted((work.groups[key].arrived, starts.get(key, work.end)) for key in starts)
    times = [time for time, _ in sessions]
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


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, action="append", default=[], help="a history; may be repeated")
    parser.add_argument("--made", type=int, default=MADE, help="histories that are made")
    parser.add_argument("--count", type=int, default=COUNT, help="forecasts of a history")
    parser.add_argument("--samples", type=int, default=20, help="runs of a forecast")
    parser.add_argument("--told", action="store_true", help="print each forecast: low, median, high; and what came")
    given = parser.parse_args()
    show(run(given.log, given.made, given.count, given.samples, given.told))


if __name__ == "__main__":
    main()
