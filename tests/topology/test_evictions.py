"""Evictions for groups with a network topology: within one HyperNode that then holds the group, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, planned, pod, priority_class, queue
from tests.topology.manifests import SOFT, TIERS, hard, parent, rack_of, racks
from tests.world import World
from vcd.api import PlanResult

CLASSES = [priority_class("high", 100), priority_class("low", 10)]
HIGH: Manifest = {"priorityClassName": "high"}
LOW: Manifest = {"priorityClassName": "low"}
PREEMPTING = ("preempt", "gangpreempt")


def conf(action: str) -> str:
    tiers = TIERS.replace("gang\n", "gang\n    enablePreemptable: false\n    enableReclaimable: false\n")
    return f'actions: "allocate, {action}"{tiers}  - name: proportion\n'


def running(rack: int, count: int, name: str = "old", **options: Any) -> Iterator[Manifest]:
    """Groups of one pod each that fill the nodes of a rack."""
    for number in range(count):
        on = [f"r{rack}-n{number}"]
        yield from gang(f"{name}{rack}{number}", 1, on=on, cpu=8, group_spec=LOW, spec={"priority": 10}, **options)


def preemptor(size: int, spec: Manifest, **options: Any) -> Iterator[Manifest]:
    return gang("new", size, cpu=8, group_spec={**HIGH, **spec}, spec={"priority": 100}, **options)


def racks_of_victims(result: PlanResult) -> set[str]:
    """The racks that pods of ``running`` were evicted from, by their names."""
    return {f"r{key.split('/')[1][3]}" for key in result.evictions}


@pytest.mark.parametrize("action", PREEMPTING)
@pytest.mark.parametrize("spec", [hard(1), SOFT])
def test_a_gang_evicts_in_one_rack_that_then_holds_it(action: str, spec: Manifest) -> None:
    old = [*running(0, 1), *running(1, 3), *running(2, 2)]
    result = planned(CLASSES, racks([1, 3, 2]), old, preemptor(3, spec), conf=conf(action))
    assert racks_of_victims(result) == {"r1"}
    assert len(result.evictions) == 3
    assert {rack_of(on) for on in result.pipelined.values()} == {"r1"}


@pytest.mark.parametrize("action", PREEMPTING)
def test_no_pod_is_evicted_for_a_gang_that_no_rack_can_hold(action: str) -> None:
    old = [*running(0, 2), *running(1, 2)]
    result = planned(CLASSES, racks([2, 2]), old, preemptor(3, hard(1)), conf=conf(action))
    assert (result.evictions, result.pipelined) == ([], {})


@pytest.mark.parametrize("action", PREEMPTING)
def test_the_lowest_tier_comes_first_and_in_it_the_fewest_victims(action: str) -> None:
    """One node of rack r2 is idle, so one eviction suffices there."""
    old = [*running(0, 2), *running(1, 2), *running(2, 1)]
    result = planned(CLASSES, racks([2, 2, 2]), old, preemptor(2, hard(2)), conf=conf(action))
    assert (result.evictions, len(result.pipelined)) == ([], 0) or racks_of_victims(result) == {"r2"}
    assert len(result.evictions) == 1


@pytest.mark.parametrize("action", PREEMPTING)
def test_a_replacement_evicts_in_the_rack_of_its_group(action: str) -> None:
    old = [*running(1, 3)]
    mine = [pod("g-0", group="g", cpu=8, on="r0-n0"), pod("g-1", group="g", cpu=8, spec={"priority": 100})]
    other = gang("low", 1, on=["r0-n1"], cpu=8, group_spec=LOW, spec={"priority": 10})
    mine_group = group("g", members=2, phase="Running", **HIGH, **hard(1))
    result = planned(CLASSES, racks([2, 3]), old, other, mine_group, mine, conf=conf(action))
    assert result.evictions == ["default/low-0"]
    assert result.pipelined == {"default/g-1": "r0-n1"}


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("size, found", [(2, {"r1"}), (3, set())])
def test_a_queue_reclaims_within_one_rack(action: str, size: int, found: set[str]) -> None:
    old = [*running(0, 1, queue="theirs"), *running(1, 2, queue="theirs"), *running(2, 1, queue="theirs")]
    queues = [queue("ours", weight=3), queue("theirs", weight=1)]
    result = planned(CLASSES, queues, racks([1, 2, 1]), old, preemptor(size, hard(1), queue="ours"), conf=conf(action))
    assert racks_of_victims(result) == found
    assert {rack_of(on) for on in result.pipelined.values()} == found


@pytest.mark.parametrize("action", PREEMPTING)
def test_sub_groups_evict_in_a_rack_each(action: str) -> None:
    policy = {"name": "p", "matchLabelKeys": ["part"], "subGroupSize": 2, "minSubGroups": 2, **hard(1)}
    pods = [
        pod(f"new-{part}-{number}", group="new", labels={"part": str(part)}, cpu=8, spec={"priority": 100})
        for part in range(2)
        for number in range(2)
    ]
    old = [*running(0, 2), *running(1, 1), *running(2, 2)]
    new = group("new", members=4, **HIGH, subGroupPolicy=[policy])
    result = planned(CLASSES, racks([2, 1, 2]), old, new, pods, conf=conf(action))
    by_part: dict[str, set[str]] = {}
    for key, on in result.pipelined.items():
        by_part.setdefault(key.split("-")[1], set()).add(rack_of(on))
    assert sorted(map(tuple, by_part.values())) == [("r0",), ("r2",)]
    assert len(result.evictions) == 4


def test_a_domain_above_others_is_used_where_no_lower_one_works() -> None:
    old = [*running(0, 1), *running(1, 1), *running(2, 1)]
    halves = [parent("left", 2, "r0", "r1"), parent("right", 2, "r2")]
    spine = [each for each in racks([1, 1, 1]) if each["metadata"]["name"] != "spine"]
    result = planned(CLASSES, spine, halves, old, preemptor(2, hard(2)), conf=conf("preempt"))
    assert racks_of_victims(result) == {"r0", "r1"}


@pytest.mark.parametrize("action", PREEMPTING)
def test_what_was_freed_in_one_rack_is_used_there(action: str) -> None:
    """After the victims are gone, rack r0 is as free as r1, and comes first by name."""
    world = World(CLASSES, racks([2, 2]), running(0, 2), running(1, 1), preemptor(2, hard(1)), conf=conf(action))
    world.cycle()
    assert world.evicted == ["default/old10-0"]
    world.remove("Pod", "default/old00-0", "default/old01-0")
    world.rest()
    assert {rack_of(on) for name, on in world.placed().items() if name.startswith("new")} == {"r1"}
