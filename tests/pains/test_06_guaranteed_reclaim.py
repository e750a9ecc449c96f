"""Pain 6: the enqueue gate blocks a reclaim that is guaranteed (volcano #4817, #4756)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, queue
from tests.laws.returning import Returning

CYCLES = 8
CPU = 100
BORROWED = ["n0"] * 50 + ["n1"] * 50
FORMS = pytest.mark.parametrize(("size", "cpu"), [(50, 1), (5, 10), (1, 50)])


def conf(shares: str, *, hierarchy: bool = False) -> str:
    flag = "\n    enableHierarchy: true" if hierarchy else ""
    return f"""
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: {shares}{flag}
  - name: nodeorder
"""


def single(name: str, place: str, borrower: str) -> Iterator[Manifest]:
    """A job of one pod: nothing of it is elastic, so no gate may leave it out of its sum."""
    return gang(name, 1, on=[place], queue=borrower, cpu=1, phase="Running", minimum={"cpu": 1})


def world(queues: Any, borrower: str, entitled: str, config: str, size: int = 50, cpu: int = 1) -> Returning:
    """100 CPU, all of them borrowed; then the queue that they are guaranteed to asks for 50."""
    there = Returning(
        [node(f"n{i}", cpu=CPU // 2, memory=1000) for i in range(2)],
        queues,
        *[single(f"old-{i}", place, borrower) for i, place in enumerate(BORROWED)],
        conf=config,
    )
    there.cycles(2)
    there.put(gang("new", size, queue=entitled, cpu=cpu, phase="Pending", minimum={"cpu": 50}, created=9))
    return there


def check(there: Returning) -> None:
    """Admitted at once, 50 taken and no more, and so it stays."""
    there.cycle()
    assert there.state.groups["default/new"].group.status.phase != "Pending", there.reasons("new")
    there.cycles(CYCLES)
    assert sum(there.evictions.values()) == 50
    assert set(there.evictions.values()) == {1}
    assert len(there.placed("old")) == 50
    assert there.why("new") == []


def guaranteed(name: str, **spec: Any) -> Any:
    return queue(name, guarantee={"resource": {"cpu": "50"}}, **spec)


@FORMS
@pytest.mark.parametrize("shares", ["proportion", "capacity"])
def test_what_is_guaranteed_to_a_queue_is_given_back(shares: str, size: int, cpu: int) -> None:
    there = world([queue("org-1"), guaranteed("org-2")], "org-1", "org-2", conf(shares), size, cpu)
    check(there)
    assert len(there.placed("new")) == size


def test_what_a_queue_deserves_is_given_back() -> None:
    queues = [queue("org-1", deserved={"cpu": "50"}), queue("org-2", deserved={"cpu": "50"})]
    check(world(queues, "org-1", "org-2", conf("capacity")))


FULL = queue("root", capability={"cpu": "100"})
TREES = {
    "the leaf is guaranteed it": [
        *[FULL, queue("org-1", parent="root"), queue("team-1", parent="org-1")],
        *[guaranteed("org-2", parent="root"), guaranteed("team-2", parent="org-2")],
    ],
    "its parent is guaranteed it": [
        *[FULL, queue("org-1", parent="root"), queue("team-1", parent="org-1")],
        *[guaranteed("org-2", parent="root"), queue("team-2", parent="org-2")],
    ],
    "the leaf deserves it, below a parent that is full": [
        *[queue("root"), queue("org", parent="root", capability={"cpu": "100"}, deserved={"cpu": "100"})],
        queue("team-1", parent="org", deserved={"cpu": "50"}),
        queue("team-2", parent="org", deserved={"cpu": "50"}),
    ],
}


@FORMS
@pytest.mark.parametrize("tree", TREES)
def test_so_it_is_in_a_tree_of_queues(tree: str, size: int, cpu: int) -> None:
    check(world(TREES[tree], "team-1", "team-2", conf("capacity", hierarchy=True), size, cpu))


@pytest.mark.parametrize("shares", ["proportion", "capacity"])
def test_a_queue_that_is_guaranteed_nothing_takes_nothing(shares: str) -> None:
    """The gate still holds for who has no claim."""
    queues = [queue("org-1", weight=100, deserved={"cpu": "100"}), queue("org-2", weight=1)]
    there = world(queues, "org-1", "org-2", conf(shares))
    there.cycles(CYCLES)
    assert there.placed("new") == {}
    assert not there.evictions
