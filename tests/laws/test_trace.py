"""Law: what a session is told to write down of itself is what it did, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.laws.contention import Contention
from tests.laws.histories import History, sessions
from tests.laws.tracing import Counts, differences
from tests.world import World
from vcd.state.cluster import ClusterState
from vcd.state.snapshot import SnapshotMaker

CLUSTERS, CYCLES, BATCHES = 120, 6, 4


def lived(seed: int) -> World:
    """A cluster on which jobs arrive and end."""
    history = History(seed)
    list(history.live(CYCLES))
    return history


def contended(seed: int) -> World:
    """A full cluster on which jobs make room for others."""
    world = Contention(seed)
    for _ in range(CYCLES):
        world.cycle()
    return world


@pytest.mark.parametrize("world_of", [lived, contended])
@pytest.mark.parametrize("batch", range(BATCHES))
def test_winners_victims_and_orders_of_the_trace_are_the_plans(world_of: Callable[[int], World], batch: int) -> None:
    seen = Counts()
    for seed in range(batch, CLUSTERS, BATCHES):
        world, state, position = world_of(seed), ClusterState(), 0
        for record in sessions(world.log):
            for event in world.log[position : record.head]:
                position += 1
                state.apply(position, event)
            found = differences(
                SnapshotMaker(state).snapshot(), world.policy, record.now, record.seed, record.plan, seen
            )
            assert not found, f"seed {seed}, session {record.session}: {found}"
    assert seen.choices > 100
    assert seen.victims > 100 or world_of is lived
