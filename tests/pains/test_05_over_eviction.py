"""Pain 5: more pods are evicted than are needed (volcano #5984, #5994)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, node
from tests.pains.test_04_no_vain_eviction import ACTIONS, world


def eleven() -> list[Any]:
    """One node of 11 cpu and a gang of eleven with a minimum of one."""
    return [node("n", cpu=11), *gang("old", 11, members=1, on=["n"] * 11, queue="old", cpu=1)]


@ACTIONS
def test_for_one_cpu_one_of_eleven_goes(action: str) -> None:
    there = world(action, eleven(), cpu=1)
    there.rest()
    assert len(there.evicted) == 1
    assert there.placed("new") == {"new-0": "n"}


def test_the_same_where_nodes_are_compared() -> None:
    more = "configurations:\n- name: preempt\n  arguments:\n    enableTopologyAwarePreemption: true\n"
    there = world("preempt", eleven(), cpu=1, more=more)
    there.rest()
    assert len(there.evicted) == 1


@ACTIONS
@pytest.mark.parametrize("size", [1, 2, 5])
def test_for_a_gang_as_many_as_it_needs(action: str, size: int) -> None:
    there = world(action, eleven(), size=size, cpu=1)
    there.rest()
    assert len(there.evicted) == size
    assert len(there.placed("new")) == size


@ACTIONS
def test_a_small_victim_is_spared_where_a_big_one_has_to_go(action: str) -> None:
    """It would go first, being younger, and does not suffice."""
    old = [
        *gang("big", 1, on=["n"], queue="old", cpu=7),
        *gang("small", 1, on=["n"], queue="old", cpu=1, created=5),
    ]
    there = world(action, node("n"), old, cpu=6)
    there.rest()
    assert there.evicted == ["default/big-0"]


@ACTIONS
def test_what_a_big_victim_leaves_is_used_by_the_rest_of_the_gang(action: str) -> None:
    """Two nodes, each with a pod of eight cpu; two of four cpu fit beside each other on one."""
    old = [gang(f"on-{name}", 1, on=[name], queue="old", cpu=8) for name in ("n1", "n2")]
    there = world(action, node("n1"), node("n2"), *old, size=2)
    there.rest()
    assert len(there.evicted) == 1
    assert len(there.placed("new")) == 2


@ACTIONS
def test_nobody_else_goes_while_victims_are_leaving(action: str) -> None:
    """The evicted pods take their time: cycle after cycle the same one is nominated to their room."""
    there = world(action, eleven(), size=2, cpu=1)
    first = there.decide()
    victims = {op.key for statement in first.statements for op in statement.operations if op.verb == "evict"}
    assert len(victims) == 2
    for _ in range(3):
        again = there.decide()
        assert [op.key for s in again.statements for op in s.operations if op.verb == "evict"] == []
