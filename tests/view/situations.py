"""Logs of the five situations that each screen of vcd is tested in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import SCORED, Scheduler, scheduler

NODES, WAITING = 1000, 300
"""The size of the large cluster."""
_CONF = SCORED.replace("enqueue, ", "")


async def write_situation(name: str, path: Path) -> None:
    """Write the log of one of SITUATIONS."""
    async with scheduler(path, _CONF) as made:
        await SITUATIONS[name](made)


def _gpus(names: Iterable[str]) -> list[Manifest]:
    return [dsl.node(name, cpu=64, memory=512, gpu=8) for name in names]


def _team(name: str, size: int, gpu: int, created: int = 0, on: Iterable[str] = ()) -> list[Manifest]:
    """A gang of a team; it waits unless it is on nodes."""
    phase = "Running" if on else "Inqueue"
    return list(dsl.gang(name, size, cpu=4, memory=32, gpu=gpu, queue="research", phase=phase, created=created, on=on))


async def _full(made: Scheduler) -> None:
    """All GPUs are taken, and nothing has happened for an hour."""
    await made.show(_gpus(["gpu-0", "gpu-1", "gpu-2"]), dsl.queue("research", weight=2), dsl.queue("vision"))
    await made.show(_team("llm-pretrain", 2, 8, on=["gpu-0", "gpu-1"]), _team("inference", 1, 8, on=["gpu-2"]))
    await made.show(_team("bert-finetune", 1, 1, created=5), _team("resnet50-train", 4, 2, created=9))
    await made.show(_team("diffusion", 1, 16, created=20), _team("yolo-sweep", 1, 1, created=30))
    made.clock.now += 60_000_000_000
    await made.cycle(seconds=3600)
    await made.cycle()


async def _half_idle(made: Scheduler) -> None:
    """Half of the GPUs are free, and no job waits."""
    await made.show(_gpus(f"gpu-{number}" for number in range(6)), dsl.queue("research"))
    await made.show(_team("llm-pretrain", 3, 8, on=["gpu-0", "gpu-1", "gpu-2"]))
    await made.cycle()


async def _large(made: Scheduler) -> None:
    """1,000 nodes on which 300 jobs wait, of several kinds."""
    names = [f"gpu-{number:04}" for number in range(NODES)]
    queues = [dsl.queue(f"team-{number}") for number in range(6)]
    await made.show(_gpus(names), queues, dsl.queue("research"), dsl.queue("shut", state="Closed"))
    await made.show(_team("llm-pretrain", NODES, 7, on=names))
    sizes = {0: (1, 4), 1: (4, 2), 2: (1, 16), 3: (300, 8)}
    for number in range(WAITING):
        await made.show(_team(f"experiment-{number:03}", *sizes[number % len(sizes)], created=number))
    made.clock.now += 600_000_000_000
    await made.cycle()


async def _no_nodes(made: Scheduler) -> None:
    """A job waits, and there is no node."""
    await made.show(dsl.queue("research"), _team("bert-finetune", 1, 1))
    await made.cycle(seconds=90)
    await made.cycle()


async def _no_sessions(made: Scheduler) -> None:
    """The log begins, and no session is in it."""
    await made.show(_gpus(["gpu-0", "gpu-1", "gpu-2"]), dsl.queue("research"), _team("bert-finetune", 1, 1))


SITUATIONS: dict[str, Callable[[Scheduler], Awaitable[None]]] = {
    "full": _full,
    "half-idle": _half_idle,
    "large": _large,
    "no-nodes": _no_nodes,
    "no-sessions": _no_sessions,
}
