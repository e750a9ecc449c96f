"""Pain 12: reclaim evicts what does not help (volcano #4918)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, node
from tests.pains.test_04_no_vain_eviction import ACTIONS, world


def holders(of: dict[str, Any], **options: Any) -> list[Manifest]:
    """Four pods of the queue old that run on n."""
    return list(gang("holds", 4, members=1, on=["n"] * 4, queue="old", **of, **options))


def cpu_is_used_up(*olds: list[Manifest]) -> list[Any]:
    """Eight cpu, all held by one who stays."""
    stays = gang("stays", 1, on=["n"], queue="old", cpu=8, annotations={"volcano.sh/preemptable": "false"})
    return [node("n", gpu=8), stays, *olds]


@ACTIONS
@pytest.mark.parametrize("what", [{"gpu": 2}, {"memory": 2}, {}])
def test_who_holds_no_cpu_does_not_go_for_cpu(action: str, what: dict[str, int]) -> None:
    there = world(action, *cpu_is_used_up(holders(what)), cpu=1)
    there.rest()
    assert there.evicted == []


@ACTIONS
def test_of_both_only_the_one_goes_that_holds_cpu(action: str) -> None:
    """Those with GPU alone are younger, and would go first."""
    cpu = gang("cpu", 2, members=1, on=["n"] * 2, queue="old", cpu=4)
    there = world(action, node("n", gpu=8), cpu, holders({"gpu": 2}, created=5), cpu=1)
    there.rest()
    assert len(there.evicted) == 1
    assert there.evicted[0].startswith("default/cpu")


@ACTIONS
def test_a_node_that_is_too_small_is_not_emptied(action: str) -> None:
    old = gang("old", 4, members=1, on=["n"] * 4, queue="old", cpu=1)
    there = world(action, node("n", cpu=4), node("m", cpu=8, unschedulable=True), old, cpu=6)
    there.rest()
    assert there.evicted == []


@ACTIONS
def test_victims_on_several_nodes_do_not_add_up(action: str) -> None:
    """Four cpu on each of two nodes are not six on one."""
    olds = [gang(f"on-{name}", 4, members=1, on=[name] * 4, queue="old", cpu=1) for name in ("n", "m")]
    there = world(action, node("n", cpu=4), node("m", cpu=4), *olds, cpu=6)
    there.rest()
    assert there.evicted == []
