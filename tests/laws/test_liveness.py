"""Liveness: at rest nothing is left that could be done, nobody waits for idle room, and who waits says truly why.

Under every order of actions that Volcano describes, and other orders of tiers and plugins. ``VCD_SEEDS`` asks for
more clusters, or for a range, as `tests/sizes.py` says.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.cluster import group, node, pod
from tests.laws.liveness import ORDERS, Living, Search, Unfolding
from tests.reference.config import DEFAULT
from tests.sizes import blocks, seeds
from vcd.model.events import Waiting
from vcd.state.holds import HoldKind

BLOCK = 30


def faults(seed: int) -> list[str]:
    """What is wrong with a cluster at rest."""
    world = Living(seed)
    last = world.settle()
    waits = [f"{op.key} waits on {op.node}" for statement in last.statements for op in statement.operations]
    search = Search(world.objects(), world.conf, world.state.waiting)
    return [*waits, *search.left_undone(), *search.untrue()]


@pytest.mark.parametrize("block", blocks(16, 300, BLOCK), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_at_rest_nothing_is_left_to_do_and_reasons_are_true(block: range) -> None:
    wrong = {seed: found for seed in block if (found := faults(seed))}
    assert wrong == {}


STEPS = 4


def unexplained(world: Unfolding) -> list[str]:
    """What could be done at rest though no live hold keeps it from being done."""
    held = {hold.node for hold in world.holds() if hold.kind is not HoldKind.IMMUNITY}
    found = Search(world.objects(), world.conf, world.state.waiting).left_undone()
    return [text for text in found if not any(node and f" {node}" in text for node in held)]


@pytest.mark.parametrize("seed", seeds(6, 300))
def test_nothing_is_held_back_but_by_a_live_hold_and_each_ends_with_its_owner(seed: int) -> None:
    """Law 8 (docs/laws.md), over histories of several preemptors, jobs that end, nodes that come and go."""
    world, kinds = Unfolding(seed), Counter[HoldKind]()
    steps = []
    for _ in range(STEPS):
        steps.append(world.step())
        assert unexplained(world) == [], f"seed {seed}: {steps}"
        kinds.update(hold.kind for hold in world.holds())
        there = {*world.state.groups, *world.state.queues}
        gone = [hold for hold in world.holds() if hold.owner not in there]
        assert gone == world.remembered() == [], f"seed {seed}: {steps}"
    owners = sorted({hold.owner for hold in world.holds()} & set(world.state.groups))
    for owner in owners:
        world.delete_job(owner)
    world.settle()
    assert world.remembered() == [], f"seed {seed}: {steps}, {owners} gone"
    assert unexplained(world) == [], f"seed {seed}: {steps}, {owners} gone"


@pytest.mark.parametrize("cores", [3, 2])
def test_a_gang_that_waits_though_there_is_room_for_all_of_it_is_found(cores: int) -> None:
    pods = ("default/p-0", "default/p-1", "default/p-2")
    told = {"default/g": (Waiting("default/g", "predicate", "", "Insufficient cpu", 1, len(pods), pods),)}
    admitted = {**group("g", len(pods)), "status": {"phase": "Inqueue"}}
    search = Search([node("n", cores), admitted, *(pod(key.partition("/")[2], "g") for key in pods)], DEFAULT, told)
    has_room = cores >= len(pods)
    assert search.left_undone() == ([f"{', '.join(pods)} could be bound together"] if has_room else [])
    assert len(search.untrue()) == has_room


@pytest.mark.wide
def test_the_clusters_are_about_something() -> None:
    """Every order of actions comes up; pods are bound, are evicted, and wait for reasons of many kinds."""
    worlds = [Living(seed) for seed in range(60)]
    gates: Counter[str] = Counter()
    for world in worlds:
        world.settle()
        gates.update(told.gate for told in [one for reasons in world.state.waiting.values() for one in reasons])
    assert {world.actions for world in worlds} == set(ORDERS)
    assert any("capacity-card" in world.tiers for world in worlds)
    assert any(world.lifted for world in worlds)
    assert any(world.state.observed_nominations for world in worlds)
    assert any(record.group.spec.sub_group_policy for world in worlds for record in world.state.groups.values())
    assert sum(bool(world.placed()) for world in worlds) > 40
    assert sum(bool(world.evicted) for world in worlds) > 5
    evicting = {"preempt", "reclaim", "gangpreempt", "gangreclaim"}
    assert gates.keys() == {"enqueue", "queue", "predicate", "gang", "invalid", "gated", "held", *evicting}
