"""50,000 waiting groups, and 50,000 pods placed in one session: size of the metrics, and pauses of the event loop.

Only the CPU time of this process counts as a pause, not waits for other processes.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
import time
from collections.abc import Awaitable, Iterable, Iterator
from pathlib import Path

from bench.clusters import Manifest, gang, nodes, queues
from bench.table import Row, row, show
from vcd.daemon.concurrency.followup import FollowUp
from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.metrics.metrics_collector import Metrics, SessionSummary
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.process import tune_garbage_collection
from vcd.eventlog import EventLog
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.session.session import Session
from vcd.timetravel.planning import state_of

GROUPS = PODS = 50_000
WAITING_NODES, NODES, GANG = 100, 2000, 20
RUNS = 3
"""Repetitions, of which the shortest pause counts, because the machine's part cannot always be separated."""
_LOOK = 0.005


def run() -> list[Row]:
    """Measure a session that places no group, and one that places all pods."""
    return [*_waiting(), *_placed()]


def _waiting() -> Iterator[Row]:
    measured = [asyncio.run(_measured(_groups())) for _ in range(RUNS)]
    took, deciding, afterwards = (min(run.times[i] for run in measured) for i in range(3))
    page, plan = measured[0].page, measured[0].plan
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    what = f"{len(plan.waiting):,} reasons of {GROUPS:,} waiting groups"
    yield row(f"{what}: decided", took, "s")
    yield row(f"{what}: longest pause meanwhile", deciding, "s", None, 0.1)
    yield row(f"{what}: longest pause afterwards", afterwards, "s", None, 0.1)
    yield row(f"{what}: series", series, "", None, 5000)
    yield row(f"{what}: page", len(page) / 1e6, "MB")
    yield row(f"{what}: peak memory", measured[0].peak, "MiB")


def _placed() -> Iterator[Row]:
    measured = [asyncio.run(_measured(_pods())) for _ in range(RUNS)]
    took, deciding, afterwards = (min(run.times[i] for run in measured) for i in range(3))
    placed = sum(len(statement.operations) for statement in measured[0].plan.statements)
    what = f"{placed:,} pods placed in one session"
    yield row(f"{what}: decided", took, "s")
    yield row(f"{what}: longest pause meanwhile", deciding, "s", None, 0.1)
    yield row(f"{what}: longest pause afterwards", afterwards, "s", None, 0.1)


def _groups() -> Iterator[Manifest]:
    yield from nodes(WAITING_NODES, cpu=8)
    for number in range(GROUPS):
        meta = {"name": f"group-{number:05}", "namespace": "default"}
        spec = {"minMember": 2, "queue": "default", "minResources": {"cpu": "2000"}}
        yield {"kind": "PodGroup", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def _pods() -> Iterator[Manifest]:
    yield from nodes(NODES)
    yield from queues(1)
    for number in range(PODS // GANG):
        yield from gang(number, GANG, "q0")


class _Run:
    """One session. ``times`` are the seconds until it was decided and the longest pauses before and after that;
    ``peak`` is the peak memory (MiB)."""

    def __init__(self) -> None:
        self.times = (0.0, 0.0, 0.0)
        self.plan = ev.Plan()
        self.page = b""
        self.peak = 0.0


async def _measured(objects: Iterable[Manifest]) -> _Run:
    state = await asyncio.to_thread(state_of, objects)
    with tempfile.TemporaryDirectory() as folder:
        async with EventLog.open(Path(folder) / "log.sqlite") as log:
            filler = [ev.KindListed("Pod", "")] * state.sequence  # so that sequence numbers of state and log are equal
            await log.append(filler)
            return await _one_session(StateWriter(log, state))


async def _one_session(state_writer: StateWriter) -> _Run:
    gc.collect()
    gc.freeze()
    tune_garbage_collection()
    found, pauses = _Run(), list[float]()
    metrics, followup = Metrics(), FollowUp()
    tasks = [asyncio.create_task(followup.run()), asyncio.create_task(_watch(pauses))]

    def handed_over(
        record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: dict[str, float]
    ) -> None:
        found.plan, found.times = plan, (time.perf_counter() - began, max(pauses), 0.0)
        pauses.clear()
        followup.add(metrics.begin_session(session, plan, record, durations), shown)

    def shown(summary: SessionSummary) -> Iterator[None]:
        metrics.end_session(summary)
        yield

    policy = read_policy(None)
    cycle = Cycle(state_writer, lambda: policy, lambda: 1, handed_over)
    began = time.perf_counter()
    await _with_news(state_writer, cycle.once(1))
    await followup.idle.wait()
    found.page = await asyncio.to_thread(metrics.freeze())
    found.times = (*found.times[:2], max(pauses))
    found.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    gc.unfreeze()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _with_news(state_writer: StateWriter, session: Awaitable[object]) -> None:
    """Run a session and log an event during it, so that its statements are verified against a newer state."""
    task = asyncio.ensure_future(session)
    await asyncio.sleep(_LOOK)
    await state_writer.put([ev.KindListed("Node", "")])
    await task


async def _watch(pauses: list[float]) -> None:
    while True:
        began, computed = time.perf_counter(), time.process_time()
        await asyncio.sleep(_LOOK)
        pauses.append(min(time.perf_counter() - began - _LOOK, time.process_time() - computed))


if __name__ == "__main__":
    show(run())
