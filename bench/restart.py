"""Restart: from a log's checkpoint and tail, and lists as recorded bytes, to the first decision.

``python -m bench.restart`` prepares a cluster of 5,000 nodes and 140,000 running pods in one process, starts a second
process, and prints the time and the peak memory of the latter. Volcano needs minutes (volcano-sh/volcano#5819).
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.clusters import Manifest, gang, nodes, queues, running_in_turn
from bench.session import DEFAULT
from bench.table import Row, row, show
from vcd.daemon.persistence.state_writer import restore
from vcd.eventlog.log_writer import EventLog
from vcd.kube.client import Page
from vcd.kube.watcher import Watcher
from vcd.model.events import Event, ObjectPut, PolicyLoaded
from vcd.model.kinds import KINDS
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

NODES, GANGS, TAIL, PAGE = 5000, 1400, 20_000, 500
_WEIGHT = {
    "containers": [
        {
            "name": "main",
            "image": "registry.example/training:1.2.3",
            "command": ["/bin/sh", "-c", "exec train --epochs 90 --batch 256 " + "--option value " * 20],
            "env": [{"name": f"VARIABLE_{i}", "value": f"value-{i}" * 3} for i in range(24)],
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        }
    ],
}


def cluster() -> Iterator[Manifest]:
    """Yield the objects that the API server lists; a pod has about 3 KB."""
    yield from nodes(NODES, cpu=64)
    yield from queues(4)
    for number in range(GANGS):
        for obj in gang(
            number,
            100,
            f"q{number % 4}",
            phase="Running",
            spec=running_in_turn(number * 100, NODES, **_WEIGHT),
        ):
            obj["metadata"]["uid"] = f"uid-{obj['metadata']['name']}"
            obj["metadata"]["resourceVersion"] = "1"
            yield obj


async def prepare(folder: Path) -> None:
    """Write the lists as pages of bytes, and a log with a checkpoint and a tail."""
    state = ClusterState()
    pages: dict[str, list[bytes]] = {}
    async with EventLog.open(folder / "log.sqlite") as log:
        policy = read_policy(DEFAULT)
        await _put(log, state, [PolicyLoaded(policy.digest, policy.text)])
        batch: list[Event] = []
        for manifest in cluster():
            kind, obj, version = from_manifest(manifest)
            batch.append(ObjectPut(kind, obj.key, version, encode_payload(obj)))
            pages.setdefault(kind, []).append(msgspec.json.encode(manifest))
            if len(batch) == 1000:
                await _put(log, state, batch)
                batch = []
        await _put(log, state, batch)
        await log.checkpoint(state.sequence, state.dump())
        keys = sorted(state.tasks.row_of)
        for start in range(0, TAIL, 1000):
            await _put(log, state, [ObjectPut("Pod", key, "2", None) for key in keys[start : start + 1000]])
    for kind, items in pages.items():
        with (folder / f"{kind}.pages").open("wb") as out:
            for start in range(0, len(items), PAGE):
                page = msgspec.msgpack.encode(items[start : start + PAGE])
                out.write(len(page).to_bytes(8, "big") + page)


async def _put(log: EventLog, state: ClusterState, events: Sequence[Event]) -> None:
    last = await log.append(events)
    for offset, event in enumerate(events):
        state.apply(last - len(events) + 1 + offset, event)


class _Recorded:
    """The list operation of a client, with recorded pages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def list_pages(self, path: str, *, at: str = "") -> AsyncIterator[Page]:
        """Yield the pages of a kind's list; ``at`` is ignored."""
        kind = next(kind.name for kind in KINDS.values() if kind.path == path)
        file = self._folder / f"{kind}.pages"
        first = True
        if not file.exists():
            yield Page([], "2", True)
            return
        with file.open("rb") as source:
            while header := source.read(8):
                items = msgspec.msgpack.decode(source.read(int.from_bytes(header, "big")), type=list[bytes])
                yield Page([msgspec.Raw(item) for item in items], "2", first)
                first = False


async def start(folder: Path) -> dict[str, Any]:
    """Do what a new process does until its first decision; return the durations."""
    began = time.perf_counter()
    state = restore(folder / "log.sqlite")
    restored = time.perf_counter()
    gc.collect()
    gc.freeze()
    changes = 0

    async def sink(events: Sequence[Event]) -> None:
        nonlocal changes
        for event in events:
            changes += isinstance(event, ObjectPut)
            state.apply(state.sequence + 1, event)

    client: Any = _Recorded(folder)
    for kind in ("Node", "Queue", "PodGroup", "Pod"):
        await Watcher(client, KINDS[kind], state, sink)._list(KINDS[kind].path)
    listed = time.perf_counter()
    for manifest in gang(99_999, 100, "q1"):
        kind, obj, version = from_manifest(manifest)
        await sink([ObjectPut(kind, obj.key, version, encode_payload(obj))])
    plan = decide(SnapshotMaker(state).snapshot(), read_policy(DEFAULT), 0, 0)
    decided = time.perf_counter()
    return {
        "total": decided - began,
        "restore": restored - began,
        "lists": listed - restored,
        "decide": decided - listed,
        "bound": sum(len(statement.operations) for statement in plan.statements),
        "rows": changes,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run() -> list[Row]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory() as folder:
        for step in ("prepare", "start"):
            command = [sys.executable, "-m", "bench.restart", step, folder]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(output)
    return [
        row("restart, 5,000 nodes and 140,000 pods, to the first decision", found["total"], "s", 497, 4),
        row("  checkpoint and tail", found["restore"], "s"),
        row("  lists of all objects", found["lists"], "s"),
        row(f"  first session ({found['bound']} bound)", found["decide"], "s"),
        row("  peak memory", found["rss"], "MiB", None, 300),
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", folder]:
            asyncio.run(prepare(Path(folder)))
        case ["start", folder]:
            print(json.dumps(asyncio.run(start(Path(folder)))))  # noqa: T201
        case _:
            show(run())
