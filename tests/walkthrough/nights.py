"""Six bad nights, made by hand: what a daemon would have logged, for the walk-through in docs/howto/explain.md.

``python -m tests.walkthrough.nights FOLDER [NIGHT ...]`` writes their logs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tests import dsl
from tests.dsl import Manifest
from tests.eventlog.samples import SECOND
from tests.timetravel.histories import START, Scheduler, scheduler
from vcd.model import events as ev

MINUTE = 60
GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
MEMORY = "nvidia.com/gpu.memory"
CARD = "NVIDIA-A100-SXM4-80GB"

STARVED = """\
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
RECLAIMING = (
    STARVED.replace("allocate, backfill", "allocate, reclaim, backfill")
    .replace("  - name: gang\n", "  - name: gang\n    enablePreemptable: false\n  - name: conformance\n")
    .replace("  - name: drf\n", "")
)
CARDS = STARVED.replace("  - name: proportion\n", "  - name: capacity-card\n").replace("  - name: drf\n", "")


class Night:
    """A scheduler whose pods end after their time, minute by minute."""

    def __init__(self, made: Scheduler) -> None:
        self.made = made
        self.minute = 0
        self._runs: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._pods: dict[str, Manifest] = {}
        self._turns: dict[str, int] = {}

    async def come(self, name: str, size: int, run: int, **options: Any) -> None:
        """A gang comes whose pods run for some minutes."""
        objects = list(dsl.gang(name, size, phase="Pending", created=self.minute * MINUTE, **options))
        for each in objects:
            if each["kind"] == "Pod":
                key = f"default/{each['metadata']['name']}"
                self._pods[key], self._runs[key] = each, run
        await self.made.show(objects)

    async def pass_minute(self) -> None:
        """What ends ends, then one session is decided and carried out."""
        self.made.clock.now = START + self.minute * MINUTE * SECOND
        for key in sorted(key for key, end in self._ends.items() if end == self.minute):
            await self.made.finish(key)
            del self._ends[key]
        record = await self.made.cycle(seconds=0)
        await self.made.carry_out(record)
        for statement in ev.decode_plan(record.plan).statements:
            for operation in statement.operations:
                if operation.verb == "bind":
                    self._ends[operation.key] = self.minute + self._runs[operation.key]
                elif operation.verb == "evict":
                    await self._come_again(operation.key)
        self.minute += 1

    async def _come_again(self, key: str) -> None:
        """The controller of an evicted pod makes another one of its name."""
        self._ends.pop(key, None)
        turn = self._turns[key] = self._turns.get(key, 0) + 1
        pod = self._pods[key]
        created = dsl.moment(self.minute * MINUTE + 30)
        meta = {**pod["metadata"], "uid": f"{pod['metadata']['uid']}-{turn}", "creationTimestamp": created}
        await self.made.show({**pod, "metadata": meta})


async def starved(path: Path) -> None:
    """A gang of 8 GPUs comes at minute 30 while jobs of 2 GPUs come and go: each takes what the one before it left."""
    async with scheduler(path, STARVED) as made:
        await made.show(
            [dsl.node(f"gpu-{i}", cpu=64, gpu=4) for i in range(3)], dsl.queue("root"), dsl.queue("default")
        )
        night = Night(made)
        while night.minute < 120:
            if night.minute % 3 == 0 and night.minute < 100:
                await night.come(f"small-{night.minute // 3:02}", 1, 18, gpu=2, cpu=4)
            if night.minute == 30:
                await night.come("train", 4, 30, gpu=2, cpu=8)
            await night.pass_minute()


async def evicted(path: Path) -> None:
    """Research has weight 1 where 10 were meant; whenever the nodes change it loses what it got back to production."""
    async with scheduler(path, RECLAIMING) as made:
        queues = [dsl.queue("production", weight=9), dsl.queue("research", weight=1, reclaimable=True)]
        await made.show([dsl.node(f"n{i}", cpu=10) for i in range(2)], dsl.queue("root"), dsl.queue("default"), queues)
        night = Night(made)
        await night.come("sweep", 8, 90, queue="research", cpu=2, members=1)
        while night.minute < 180:
            if night.minute in (10, 60, 110):
                await night.come(f"serve-{night.minute}", 6, 25, queue="production", cpu=2, members=6)
            if night.minute in (50, 100):  # an autoscaler changes the cluster, and with it what may be taken back
                await made.show(dsl.node(f"spot-{night.minute}", cpu=2))
            await night.pass_minute()


async def misread(path: Path) -> None:
    """The quota says A100, the nodes call their cards otherwise: the queue has no quota of what it could use."""
    async with scheduler(path, CARDS) as made:
        queue = dsl.queue("vision", capability={"cpu": "64", "memory": "256Gi"})
        queue["metadata"]["annotations"] = {"volcano.sh/card.quota": '{"A100": 8}'}
        nodes = [dsl.node(f"gpu-{i}", cpu=64, gpu=4, labels={PRODUCT: CARD, MEMORY: "81920"}) for i in range(2)]
        await made.show(nodes, dsl.queue("root"), dsl.queue("default"), queue)
        night = Night(made)
        while night.minute < 45:
            if night.minute == 2:
                await night.come(
                    "resnet", 2, 20, gpu=2, cpu=8, queue="vision", annotations={"volcano.sh/card.name": CARD}
                )
            await night.pass_minute()


async def _noise(night: Night, **options: Any) -> None:
    """Every four minutes a small job, which is gone after ten."""
    if night.minute % 4 == 1:
        await night.come(f"notebook-{night.minute:03}", 1, 10, cpu=2, **options)


async def unlabelled(path: Path) -> None:
    """Ten GPU nodes, of which two bear the label that a gang of four selects; the eight that were added do not."""
    async with scheduler(path, STARVED) as made:
        nodes = [dsl.node(f"gpu-{i}", cpu=32, gpu=8, labels={"tier": "a100"} if i < 2 else {}) for i in range(10)]
        await made.show(nodes, dsl.node("cpu-0", cpu=32), dsl.queue("root"), dsl.queue("default"))
        night = Night(made)
        while night.minute < 40:
            await _noise(night)
            if night.minute == 12:
                await night.come("bert", 4, 60, gpu=8, cpu=16, spec={"nodeSelector": {"tier": "a100"}})
            await night.pass_minute()


async def tainted(path: Path) -> None:
    """Somebody's maintenance is over and its taint still there: three of five nodes take nobody, and jobs queue up."""
    taint = {"key": "maintenance", "value": "rack-7", "effect": "NoSchedule"}
    async with scheduler(path, STARVED) as made:
        nodes = [dsl.node(f"n{i}", cpu=16, taints=[taint] if i > 1 else []) for i in range(5)]
        await made.show(nodes, dsl.queue("root"), dsl.queue("default"), dsl.queue("lab"))
        night = Night(made)
        await night.come("service", 4, 600, cpu=7, queue="lab")
        while night.minute < 50:
            if night.minute in (8, 15, 22):
                await night.come(f"render-{night.minute}", 2, 30, cpu=6)
            await night.pass_minute()


async def overtaken(path: Path) -> None:
    """A gang of low priority waits while urgent jobs keep coming, each for what the one before it left."""
    async with scheduler(path, STARVED) as made:
        classes = [dsl.priority_class("urgent", 1000), dsl.priority_class("batch", 10)]
        nodes = [dsl.node(f"gpu-{i}", cpu=64, gpu=4) for i in range(2)]
        await made.show(nodes, dsl.queue("root"), dsl.queue("default"), classes)
        night = Night(made)
        urgent, batch = {"priorityClassName": "urgent"}, {"priorityClassName": "batch"}
        await night.come("first", 2, 20, gpu=4, cpu=8, group_spec=urgent)
        while night.minute < 90:
            if night.minute == 5:
                await night.come("pretrain", 2, 30, gpu=4, cpu=16, group_spec=batch)
            if night.minute in (18, 38, 58):
                await night.come(f"urgent-{night.minute}", 2, 20, gpu=4, cpu=8, group_spec=urgent)
            await night.pass_minute()


NIGHTS: Mapping[str, Callable[[Path], Awaitable[None]]] = {
    "starved": starved,
    "evicted": evicted,
    "misread": misread,
    "unlabelled": unlabelled,
    "tainted": tainted,
    "overtaken": overtaken,
}
"""The nights by name; each writes its log."""


def main() -> None:
    """Write the logs into a folder, of all nights or of those that are named."""
    for name, night in NIGHTS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        path = Path(sys.argv[1]) / f"{name}.sqlite"
        path.unlink(missing_ok=True)
        asyncio.run(night(path))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
