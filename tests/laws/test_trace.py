"""Law: what a session is told to write down of itself is what it did, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dsl import gang, group, node, pod, priority_class
from tests.laws.contention import Contention
from tests.laws.histories import History, sessions
from tests.laws.tracing import Counts, differences
from tests.sizes import seeds
from tests.world import World
from vcd.model.events import encode_plan
from vcd.scheduling.decide import decide
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

CLUSTERS = seeds(8, 120)
CYCLES = 6


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
def test_winners_victims_and_orders_of_the_trace_are_the_plans(world_of: Callable[[int], World]) -> None:
    seen = Counts()
    for seed in CLUSTERS:
        world, state, position = world_of(seed), ClusterState(), 0
        for record in sessions(world.log):
            for event in world.log[position : record.head]:
                position += 1
                state.apply(position, event)
            found = differences(
                SnapshotMaker(state).snapshot(), world.policy, record.now, record.seed, record.plan, seen
            )
            assert not found, f"seed {seed}, session {record.session}: {found}"
    assert seen.choices > len(CLUSTERS)
    assert seen.victims > len(CLUSTERS) or world_of is lived


def test_tasks_of_jobs_alike_go_in_one_order_whichever_job_is_older() -> None:
    """The pod of the older job is younger, and is evicted first: no plugin tells the jobs apart."""
    conf = 'actions: "preempt"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: predicates\n'
    groups = [group("old", members=0, phase="Running"), group("young", members=0, phase="Running", created=5)]
    pods = [
        pod("old-x", group="old", on="n", cpu=1, created=9, phase="Running"),
        pod("young-x", group="young", on="n", cpu=1, created=6, phase="Running"),
    ]
    urgent = gang("urgent", 1, cpu=1, group_spec={"priorityClassName": "high"}, spec={"priority": 9})
    world = World(node("n", cpu=2), priority_class("high", 9), groups, pods, urgent, conf=conf)
    snapshot, seen = world.maker.snapshot(), Counts()
    plan = decide(snapshot, world.policy, world.now, 0)
    assert [one.key for one in plan.operations("evict")] == ["default/old-x"]
    assert differences(snapshot, world.policy, world.now, 0, encode_plan(plan), seen) == []
    assert seen.victims == 1
