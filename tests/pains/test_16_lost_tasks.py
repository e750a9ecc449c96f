"""Pain 16: the node cache loses tasks when a node comes and goes (volcano #4888, #2348)."""

from __future__ import annotations

from tests.dsl import gang, node
from tests.laws.answering import Answering


def test_a_pod_still_counts_on_a_node_that_was_removed_and_added_again() -> None:
    world = Answering(node("n", cpu=4), gang("a", 1, on=["n"], cpu=2, phase="Running", minimum={"cpu": 2}))
    world.rest()
    world.remove("Node", "n")
    world.rest()
    world.put(node("n", cpu=4))
    world.put(gang("three", 1, cpu=3, created=1), gang("two", 1, cpu=2, created=2))
    world.rest()
    assert world.placed() == {"a-0": "n", "two-0": "n"}


def test_a_pod_seen_before_its_node_counts() -> None:
    world = Answering(gang("a", 1, on=["n"], cpu=2, phase="Running"))
    world.rest()
    world.put(node("n", cpu=4), gang("three", 1, cpu=3, created=1))
    world.rest()
    assert world.placed() == {"a-0": "n"}


def test_a_node_with_less_room_than_is_used_does_not_vanish() -> None:
    world = Answering(node("n", cpu=4), gang("a", 1, on=["n"], cpu=3, phase="Running"))
    world.rest()
    world.put(node("n", cpu=2))
    world.rest()
    assert world.session is not None
    assert world.session.nodes.facts.names == ["n"]
    assert int(world.session.nodes.usage.idle[world.session.nodes.column_of["cpu"], 0]) == -1000


def test_a_node_with_less_room_than_is_used_takes_nothing_until_enough_pods_have_ended() -> None:
    world = Answering(node("n", cpu=4), gang("a", 2, members=1, on=["n", "n"], cpu=2, phase="Running"))
    world.put(node("n", cpu=3), gang("new", 1, cpu=1, created=1))
    world.rest()
    assert world.placed("new") == {}
    world.finish("default/a-0")
    world.rest()
    assert world.placed("new") == {"new-0": "n"}
