"""Pain 7: reclaim in a tree of queues ignores the parent (volcano #5107, PR #5115)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, queue
from tests.laws.returning import Returning

CYCLES = 8


def conf(level: int, action: str = "reclaim") -> str:
    """One tier: in a tier below gang's, capacity would not be asked for victims at all."""
    return f"""
actions: "enqueue, allocate, {action}"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: predicates
  - name: capacity
    enableHierarchy: true
    arguments:
      ancestorReclaimLevel: {level}
  - name: nodeorder
"""


def q(name: str, parent: str, deserved: int) -> Manifest:
    return queue(name, parent=parent, deserved={"cpu": str(deserved)})


def jobs(name: str, of: str, running: int, waiting: int = 0) -> Iterator[Manifest]:
    """Pods of one CPU each."""
    if running:
        yield from gang(name, running, members=1, on=["n"] * running, queue=of, cpu=1, phase="Running")
    if waiting:
        minimum = {"cpu": waiting}
        yield from gang(f"{name}-new", waiting, queue=of, cpu=1, phase="Pending", minimum=minimum, created=9)


def world(level: int, *more: Any, running: int = 40, action: str = "reclaim") -> Returning:
    """a deserves 50, of that a1 10 and a2 40; all that a has runs in a1. The stranger deserves 30, has 20, wants 10."""
    return Returning(
        node("n", cpu=running + 20, memory=1000, pods=200),
        *[queue("root"), q("a", "root", 50), q("a1", "a", 10), q("a2", "a", 40)],
        *[q("b", "root", 30), q("stranger", "b", 30)],
        jobs("a1", "a1", running),
        jobs("stranger", "stranger", 20, 10),
        *more,
        conf=conf(level, action),
    )


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_queue_below_a_parent_within_its_share_is_not_reclaimed_from_for_a_stranger(action: str) -> None:
    there = world(1, action=action)
    there.cycles(CYCLES)
    assert there.evictions == {}
    assert there.placed("stranger-new") == {}
    assert there.why("stranger-new")


def test_at_level_0_the_queue_alone_counts_as_in_volcano() -> None:
    there = world(0)
    there.cycles(CYCLES)
    assert sum(there.evictions.values()) == 10
    assert len(there.placed("stranger-new")) == 10


def test_its_sibling_reclaims_what_the_parent_keeps_for_it() -> None:
    there = world(1, jobs("a2", "a2", 0, 30))
    there.cycles(CYCLES)
    assert set(there.evictions.values()) == {1}
    assert sum(there.evictions.values()) == 30
    assert len(there.placed("a1")) == 10
    assert len(there.placed("a2")) == 30


def test_of_what_the_parent_has_beyond_its_share_a_gang_that_needs_more_takes_nothing() -> None:
    """a has 54 and deserves 50: four of the ten pods would find room."""
    there = world(1, running=54)
    there.cycles(CYCLES)
    assert there.evictions == {}
    assert there.placed("stranger-new") == {}


def test_single_pods_take_what_the_parent_has_beyond_its_share_and_no_more() -> None:
    there = world(1, *[jobs(f"single{i}", "stranger", 0, 1) for i in range(6)], running=54)
    there.cycles(CYCLES)
    assert sum(there.evictions.values()) == 4
    assert len(there.placed("single")) == 4
    assert len(there.placed("a1")) == 50
