"""Histories of a shadow: what it decides is logged, and another scheduler does what it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import CONF, Scheduler, scheduler
from vcd.model import events as ev


@asynccontextmanager
async def shadow(path: Path, conf: str = CONF) -> AsyncIterator[Scheduler]:
    """A shadow that has listed everything, of two nodes of 4 cpu, two priorities and a queue that may have 2 cpu."""
    async with scheduler(path, conf, leading=False) as made:
        await made.load(conf, shadow="true")
        await begin(made)
        small = dsl.queue("small", capability={"cpu": "2"})
        await made.show(dsl.priority_class("high", 10), dsl.priority_class("low", 5), dsl.queue("root"))
        await made.show(dsl.node("n0", cpu=4), dsl.node("n1", cpu=4), dsl.queue("default"), small)
        yield made


async def begin(made: Scheduler, *seen: Manifest | Iterable[Manifest]) -> None:
    """The shadow begins, and its first list shows what is there."""
    await made.tell(ev.LeadershipChanged(-1, "shadow", leading=False))
    await made.show(*seen)
    await made.tell(ev.KindListed("Pod", "1"), ev.KindListed("PodGroup", "1"))


def job(name: str, **options: Any) -> list[Manifest]:
    """A job of one pod of 1 cpu, unless told otherwise."""
    return list(dsl.gang(name, 1, **{"cpu": 1, **options}))


async def bind(made: Scheduler, name: str, node: str) -> None:
    """The other scheduler binds a job's pod."""
    shown = made.last_shown("Pod", f"default/{name}-0")
    await made.show({**shown, "spec": {**shown["spec"], "nodeName": node}, "status": {"phase": "Running"}})


async def write_shadow_history(path: Path) -> None:
    """A shadow's log in which each kind of difference is, and a wait."""
    async with shadow(path) as made:
        await made.show(job("same"), job("other"), job("kept", queue="small", cpu=3), job("left"))
        record = await made.cycle(seconds=2)
        nodes = {one.key: one.node for one in record.accepted().operations("bind")}
        await bind(made, "same", nodes["default/same-0"])
        await bind(made, "other", "n1" if nodes["default/other-0"] == "n0" else "n0")
        await bind(made, "kept", "n0")
        await made.show(job("late", created=2))
        await bind(made, "late", "n1")
        await made.show(job("huge", cpu=9, created=2))
        await made.cycle(seconds=3)
