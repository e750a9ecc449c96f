"""Reasons of queue plugins tell what a queue has allocated apart from what a failed attempt of the job took."""

from __future__ import annotations

import pytest

from tests.dsl import gang, node, queue
from tests.plugins.opened import conf
from tests.world import World
from vcd.scheduling.framework.registry import limits_of

PLUGINS = ("capacity", "proportion")


def cycled(plugin: str, size: int, cpu: int, held: int = 1, members: int | None = None) -> World:
    """A queue that may have 5 cpus and holds some of them, and a gang that wants more than the rest."""
    settled = conf("gang", "predicates", plugin, actions="allocate")
    runs = gang("h", held, members=1, queue="q", on=["n"] * held, phase="Running", cpu=1)
    wants = gang("g", size, members=size if members is None else members, queue="q", cpu=cpu)
    world = World(node("n", cpu=64), queue("q", capability={"cpu": "5"}), runs, wants, conf=settled)
    world.cycle()
    return world


def amounts(world: World) -> dict[str, int]:
    return next(told.amounts["cpu"] for told in world.why("g") if told.gate == "queue")


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(
    ("size", "cpu", "held", "attempted"), [(5, 1, 1, 4), (9, 1, 1, 4), (2, 3, 1, 3), (3, 2, 1, 4), (3, 2, 2, 2)]
)
def test_what_is_rolled_back_is_not_told_as_allocated(
    plugin: str, size: int, cpu: int, held: int, attempted: int
) -> None:
    world = cycled(plugin, size, cpu, held)
    assert not world.placed("g")
    found = amounts(world)
    assert (found["allocated"], found["attempted"]) == (held * 1000, attempted * 1000)
    assert found["allocated"] + found["attempted"] + found["asks"] > 5000


@pytest.mark.parametrize("plugin", PLUGINS)
def test_without_an_attempt_there_is_none_to_tell(plugin: str) -> None:
    assert "attempted" not in amounts(cycled(plugin, 1, 5))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_stays_is_told_as_allocated(plugin: str) -> None:
    """A group without a minimum keeps what it got."""
    world = cycled(plugin, 9, 1, members=1)
    found = amounts(world)
    assert len(world.placed("g")) == 4
    assert found["allocated"] == 5000 and "attempted" not in found


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_limit_that_is_short_counts_both(plugin: str) -> None:
    world = cycled(plugin, 6, 1)
    (waiting,) = [one for one in world.state.waiting["default/g"] if one.gate == "queue"]
    (limit,) = limits_of(waiting)
    assert (limit.asks, limit.taken, limit.limit) == (1000, 5000, 5000)
