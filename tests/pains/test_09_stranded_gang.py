"""Pain 9: a gang that lost a pod is stranded when the node is back (volcano #5805)."""

from __future__ import annotations

import pytest

from tests.dsl import gang, node, pod
from tests.laws.answering import Answering


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_the_gang_is_filled_before_an_equal_newcomer(phase: str) -> None:
    world = Answering(node("n0", cpu=4), node("n1", cpu=4), gang("old", 2, cpu=4, phase="Pending", minimum={"cpu": 8}))
    world.rest()
    lost, place = sorted(world.placed().items())[0]
    world.remove("Pod", f"default/{lost}")
    world.remove("Node", place)
    world.put(pod(lost, group="old", cpu=4, created=50))
    world.rest()
    assert len(world.placed()) == 1

    world.put(gang("new", 1, cpu=4, phase=phase, minimum={"cpu": 4}, created=20), node(place, cpu=4))
    world.rest()
    assert sorted(world.placed()) == ["old-0", "old-1"]


def test_a_higher_priority_newcomer_still_comes_first() -> None:
    world = Answering(node("n0", cpu=4), gang("old", 2, on=["n0"], cpu=4, phase="Running", minimum={"cpu": 8}))
    world.put({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9})
    world.put(gang("new", 1, cpu=4, minimum={"cpu": 4}, created=20, group_spec={"priorityClassName": "high"}))
    world.rest()
    world.put(node("n1", cpu=4))
    world.rest()
    assert world.placed("new") == {"new-0": "n1"}
