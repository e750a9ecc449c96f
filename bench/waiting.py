"""Fifty thousand groups that wait: what the scheduler shows of them, and how long its event loop stands still."""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.clusters import Manifest
from bench.table import Row, row, show
from vcd.daemon.followup import FollowUp
from vcd.daemon.keeper import Keeper
from vcd.daemon.metrics import Metrics, Summary
from vcd.daemon.service import collect_seldom
from vcd.eventlog import EventLog
from vcd.model import events as ev
from vcd.scheduling.closing import plan_of
from vcd.scheduling.decide import run as decided
from vcd.scheduling.policy import Policy
from vcd.scheduling.registry import read_policy
from vcd.scheduling.session import Session
from vcd.state.cluster import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.planning import state_of

GROUPS = 50_000
NODES = 100
_LOOK = 0.005


def run() -> list[Row]:
    """One session that refuses all of them, logged, folded, summed up and shown."""
    return asyncio.run(_measured())


def _objects() -> Iterator[Manifest]:
    room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    for number in range(NODES):
        meta = {"name": f"node-{number:03}"}
        yield {"kind": "Node", "metadata": meta, "status": {"allocatable": room, "capacity": room}}
    for number in range(GROUPS):
        meta = {"name": f"group-{number:05}", "namespace": "default"}
        spec = {"minMember": 2, "queue": "default", "minResources": {"cpu": "2000"}}
        yield {"kind": "PodGroup", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


async def _measured() -> list[Row]:
    state = await asyncio.to_thread(state_of, _objects())
    with tempfile.TemporaryDirectory() as folder:
        async with EventLog.open(Path(folder) / "log.sqlite") as log:
            filler = [ev.KindListed("Pod", "")] * state.sequence  # the state's numbers are the log's
            await log.append(filler)
            return await _one_session(Keeper(log, state), state)


async def _one_session(keeper: Keeper, state: ClusterState) -> list[Row]:
    gc.collect()
    gc.freeze()
    collect_seldom()
    metrics, followup = Metrics(), FollowUp()
    pauses: list[float] = []
    tasks = [asyncio.create_task(followup.run()), asyncio.create_task(_watch(pauses))]
    snapshot, policy = SnapshotMaker(state).snapshot(), read_policy(None)
    began = time.perf_counter()
    session, plan, data = await asyncio.to_thread(_decide, snapshot, policy)
    took = time.perf_counter() - began
    deciding = max(pauses)
    pauses.clear()
    record = ev.SessionDecided(1, snapshot.sequence, policy.digest, 0, 0, 1, {}, data)
    await keeper.put([record])
    followup.add(metrics.begin_session(session, plan, record, {"total": took}), _shown(metrics))
    await followup.idle()
    page = await asyncio.to_thread(metrics.freeze())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    what = f"{len(plan.waiting):,} reasons of {GROUPS:,} waiting groups"
    return [
        row(f"{what}: decided", took, "s"),
        row(f"{what}: longest pause of the event loop meanwhile", deciding, "s", None, 0.1),
        row(f"{what}: longest pause of the event loop afterwards", max(pauses), "s", None, 0.1),
        row(f"{what}: series", series, "", None, 5000),
        row(f"{what}: page", len(page) / 1e6, "MB"),
        row(f"{what}: peak memory", peak, "MiB"),
    ]


def _decide(snapshot: Snapshot, policy: Policy) -> tuple[Session, ev.Plan, bytes]:
    session = decided(snapshot, policy, 0, 0)
    plan = plan_of(session)
    return session, plan, ev.encode_plan(plan)


def _shown(metrics: Metrics) -> Callable[[Summary], Iterator[None]]:
    def tell(summary: Summary) -> Iterator[None]:
        metrics.end_session(summary)
        yield

    return tell


async def _watch(pauses: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(_LOOK)
        pauses.append(time.perf_counter() - began - _LOOK)


if __name__ == "__main__":
    show(run())
