"""Replay and verification of a long history: ``python -m bench.replay [--limit SESSIONS] [--jobs N] [--keep FILE]``.

The history has 1,000 nodes with 20,000 pods at any time, and 5,000 sessions; before each one a gang ends and another
arrives. It is decided, folded and written by the daemon's code, with checkpoints; this is not measured. Then ``vcd
replay`` and ``vcd log verify`` run on the file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.clusters import Manifest, gang, nodes, queues
from bench.session import DEFAULT
from bench.table import Row, row, show
from vcd.eventlog import EventLog
from vcd.model import events as ev
from vcd.model.objects import PodGroup
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide, versions
from vcd.scheduling.search.candidates import Memory
from vcd.state.checkpoint import events_between
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

NODES, PODS, SESSIONS, QUEUES, CPU = 1000, 20_000, 5000, 4, 24
CHECKPOINT = 100_000
"""The most events between two checkpoints; the daemon's default."""
LARGE = 50
"""Every 50th gang requests more than any node has, and waits until the end."""
SECOND = 1_000_000_000
START = 1_767_225_600 * SECOND


class History:
    """Writes a log session by session, as the daemon of a busy cluster would."""

    def __init__(self, log: EventLog, node_count: int = NODES, pod_count: int = PODS) -> None:
        self._log = log
        self._node_count = node_count
        self._pod_count = pod_count
        self._state = ClusterState()
        self._maker = SnapshotMaker(self._state)
        self._memory = Memory()
        self._policy = read_policy(DEFAULT)
        self._running: deque[tuple[str, list[str]]] = deque()
        self._came = 0
        self._checkpoint = 0
        self.now = START

    async def begin(self) -> None:
        """Write a full cluster: running gangs, distributed over the nodes."""
        policy = self._policy
        await self._append(
            [ev.PolicyLoaded(policy.digest, policy.text), ev.LeadershipChanged(1, "bench", leading=True)]
        )
        await self._append([_put(one) for one in (*nodes(self._node_count, cpu=CPU), *queues(QUEUES))])
        placed = 0
        while placed < self._pod_count:
            first = placed
            placed += await self._come(lambda i, first=first: {"nodeName": self._node(first + i)}, "Running")

    def _node(self, number: int) -> str:
        return f"node-{number % self._node_count:05}"

    async def session(self) -> None:
        """End the oldest gang, create another one, decide a session, and write its outcomes and observations."""
        await self._end(*self._running.popleft())
        large = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(CPU + 1)}}}]}
        is_large = self._came % LARGE == 0
        await self._come(lambda _: large if is_large else {}, "Pending")
        snapshot = self._maker.snapshot()
        plan = decide(snapshot, self._policy, self.now, 1, self._memory)
        number = self._state.session + 1
        await self._append(
            [
                ev.SessionDecided(
                    number, snapshot.sequence, self._policy.digest, self.now, 1, 1, versions(), ev.encode_plan(plan)
                )
            ]
        )
        await self._carry_out(number, plan)
        self.now += SECOND
        if self._state.sequence - self._checkpoint >= events_between(self._state.size, CHECKPOINT):
            self._checkpoint = self._state.sequence
            await self._log.checkpoint(self._checkpoint, self._state.dump())

    async def _append(self, events: Sequence[ev.Event]) -> None:
        last = await self._log.append(events)
        for number, event in enumerate(events, last - len(events) + 1):
            self._state.apply(number, event)

    async def _come(self, spec: Any, phase: str) -> int:
        number, size = self._came, 1 + self._came * 7 % 8
        self._came += 1
        objects = [_put(one) for one in gang(number, size, f"q{number % QUEUES}", phase, spec)]
        await self._append(objects)
        if phase == "Running":
            self._running.append((objects[0].key, [one.key for one in objects[1:]]))
        return size

    async def _end(self, group: str, pods: list[str]) -> None:
        await self._append([self._pod_put(key, phase="Succeeded") for key in pods])
        await self._append([*(ev.ObjectGone("Pod", key) for key in pods), ev.ObjectGone("PodGroup", group)])

    async def _carry_out(self, session: int, plan: ev.Plan) -> None:
        for i, statement in enumerate(plan.statements):
            await self._append([ev.OperationDone(session, i, j, "done") for j in range(len(statement.operations))])
            shown = [self._pod_put(one.key, node=one.node, phase="Running") for one in statement.operations]
            await self._append(shown)
            self._running.append((statement.group, [one.key for one in statement.operations]))
        await self._append([self._group_put(status) for status in plan.groups])

    def _pod_put(self, key: str, phase: str, node: str = "") -> ev.ObjectPut:
        pod = self._state.pod(key)
        assert pod is not None
        spec = msgspec.structs.replace(pod.spec, node_name=node or pod.spec.node_name)
        status = msgspec.structs.replace(pod.status, phase=phase)
        return ev.ObjectPut("Pod", key, "", encode_payload(msgspec.structs.replace(pod, spec=spec, status=status)))

    def _group_put(self, status: ev.GroupStatus) -> ev.ObjectPut:
        group: PodGroup = self._state.groups[status.key].group  # the state already has the intended status
        return ev.ObjectPut("PodGroup", status.key, "", encode_payload(group))


def _put(manifest: Manifest) -> ev.ObjectPut:
    metadata = {"uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": "1", **manifest["metadata"]}
    kind, obj, version = from_manifest({**manifest, "metadata": metadata})
    return ev.ObjectPut(kind, obj.key, version, encode_payload(obj))


async def write(path: Path, sessions: int, node_count: int = NODES, pod_count: int = PODS) -> None:
    """Write a history with this number of sessions, nodes, and pods at any time."""
    async with EventLog.open(path, clock=lambda: history.now) as log:
        history = History(log, node_count, pod_count)
        await history.begin()
        for _ in range(sessions):
            await history.session()


def timed(*arguments: object) -> tuple[Any, float, float]:
    """Run a command of vcd; return its JSON output, and its wall and CPU seconds, including its child processes."""
    command = [sys.executable, "-m", "vcd", *map(str, arguments)]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    # with bytecode, as an installed vcd: the first command compiles it
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=own)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), seconds, cpu


def run(sessions: int = SESSIONS, jobs: int | None = None, keep: Path | None = None) -> list[Row]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "history.sqlite" if keep is None else keep
        if not log.exists():
            asyncio.run(write(log, sessions))
        parallel = () if jobs is None else ("--jobs", jobs)
        found, wall, cpu = timed("replay", "--event-log", log, "-o", "json", *parallel)
        verified, verify_wall, verify_cpu = timed("log", "verify", log, "-o", "json")
        size = log.stat().st_size
    if found["identical"] != found["sessions"] or verified["problems"]:
        raise RuntimeError(f"the history is not what it should be: {found} {verified}")
    goal = 120.0 if sessions == SESSIONS else None
    what = f"{NODES:,} nodes, {PODS:,} pods, {found['sessions']:,} sessions"
    return [
        row(f"replay and verification, {what}", wall + verify_wall, "s", None, goal),
        row("  replay", wall, "s"),
        row("  replay, CPU of all processes", cpu, "s"),
        row("  sessions a minute", 60 * found["sessions"] / wall, ""),
        row("  verification", verify_wall, "s"),
        row("  verification, CPU", verify_cpu, "s"),
        row("  log", size / 2**20, "MiB"),
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=SESSIONS, help="only so many sessions")
    parser.add_argument("--jobs", type=int, help="processes that replay; as many as vcd takes unless given")
    parser.add_argument("--keep", type=Path, help="write the history here, or take the one that is there")
    given = parser.parse_args()
    show(run(given.limit, given.jobs, given.keep))


if __name__ == "__main__":
    main()
