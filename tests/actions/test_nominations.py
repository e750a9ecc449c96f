"""Room that was made for a pod is not given to another, whether the log knows of it or only the API server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import ONE_TIER, Manifest, gang, node, planned, priority_class, queue
from tests.world import World
from vcd.timetravel.planning import PlanResult

REVERSED = """
tiers:
- plugins:
  - name: capacity
  - name: nodeorder
  - name: predicates
- plugins:
  - name: gang
  - name: priority
"""
ORDERS = ["allocate, preempt, reclaim", "preempt, reclaim, allocate", "reclaim, allocate, backfill", "allocate"]
CLASSES = [priority_class("high", 100), priority_class("low", 10)]


def nominated(
    name: str, places: Iterable[str], *, members: int = 1, rank: str = "low", **options: Any
) -> list[Manifest]:
    """A job of pending pods, the last of which are nominated to ``places``."""
    wanted = list(places)
    size = options.pop("size", len(wanted))
    manifests = list(gang(name, size, members=members, group_spec={"priorityClassName": rank}, **options))
    for manifest, place in zip(manifests[1 + size - len(wanted) :], wanted, strict=True):
        manifest["status"]["nominatedNodeName"] = place
    return manifests


def leaving(name: str, where: str, **amounts: Any) -> list[Manifest]:
    return list(gang(name, 1, on=[where], deleting=True, **amounts))


def other(name: str, *, size: int = 1, rank: str = "low", **options: Any) -> list[Manifest]:
    """A job that comes before those of its priority: it is older."""
    return list(gang(name, size, members=size, group_spec={"priorityClassName": rank}, created=-9, **options))


def decided(*objects: Manifest | Iterable[Manifest], actions: str, tiers: str = ONE_TIER) -> PlanResult:
    return planned(CLASSES, *objects, conf=f'actions: "{actions}"{tiers}')


@pytest.mark.parametrize("tiers", [ONE_TIER, REVERSED])
@pytest.mark.parametrize("actions", ORDERS)
def test_room_that_is_being_freed_for_a_pod_is_kept_for_it(actions: str, tiers: str) -> None:
    """Only the API server says that 'mine' waits on n1; nobody is evicted again for either of them."""
    plan = decided(
        node("n1", cpu=3),
        leaving("old", "n1", cpu=3),
        nominated("mine", ["n1"], cpu=3),
        other("first", cpu=2),
        actions=actions,
        tiers=tiers,
    )
    assert (plan.pipelined, plan.binds, plan.evictions) == ({"default/mine-0": "n1"}, {}, [])


@pytest.mark.parametrize("actions", ORDERS)
def test_room_that_became_free_for_a_pod_is_kept_for_it(actions: str) -> None:
    plan = decided(node("n1", gpu=2), nominated("mine", ["n1"], gpu=2), other("first", gpu=1), actions=actions)
    assert "default/first-0" not in {**plan.binds, **plan.pipelined}
    assert "default/mine-0" in {**plan.binds, **plan.pipelined}


@pytest.mark.parametrize("actions", ORDERS)
def test_a_job_of_higher_priority_in_the_same_queue_gets_it(actions: str) -> None:
    mine, first = nominated("mine", ["n1"], gpu=2), other("first", rank="high", gpu=1)
    plan = decided(node("n1", gpu=2), mine, first, actions=actions)
    assert {**plan.binds, **plan.pipelined} == {"default/first-0": "n1"}


@pytest.mark.parametrize("actions", ORDERS)
def test_a_job_of_another_queue_does_not_get_it_either(actions: str) -> None:
    plan = decided(
        queue("a", priority=9),
        queue("b"),
        node("n1", cpu=4),
        leaving("old", "n1", cpu=4, queue="b"),
        nominated("mine", ["n1"], cpu=4, queue="b"),
        other("first", rank="high", cpu=1, queue="a"),
        actions=actions,
    )
    assert plan.pipelined == {"default/mine-0": "n1"}
    assert plan.evictions == []


def test_no_pod_of_the_same_job_takes_it() -> None:
    """The first of the job fits nowhere but in the room that was made for the second."""
    plan = decided(node("n1", cpu=2), nominated("mine", ["n1"], size=2, cpu=2), actions="allocate")
    assert plan.binds == {"default/mine-1": "n1"}


def test_all_of_a_job_that_room_was_made_for_come_first_not_its_minimum_alone() -> None:
    plan = decided(
        node("n1", cpu=2),
        node("n2", cpu=2),
        nominated("mine", ["n1", "n2"], cpu=2),
        other("first", cpu=2),
        actions="allocate",
    )
    assert plan.binds == {"default/mine-0": "n1", "default/mine-1": "n2"}


@pytest.mark.parametrize(
    "place, why",
    [("n9", "there is no such node"), ("n2", "it does not take the pod"), ("n3", "it has no room, and gets none")],
)
def test_a_nomination_to_a_node_that_does_not_take_the_pod_gives_no_precedence(place: str, why: str) -> None:
    plan = decided(
        node("n1", cpu=2),
        node("n2", cpu=2, unschedulable=True),
        node("n3", cpu=1),
        nominated("mine", [place], cpu=2),
        other("first", cpu=2),
        actions="allocate",
    )
    assert plan.binds == {"default/first-0": "n1"}, why


def test_what_the_api_server_shows_holds_after_a_restart_without_the_log() -> None:
    """The first scheduler evicts and tells the pod; the second knows nothing but what the pods show."""
    conf = f'actions: "allocate, preempt"{ONE_TIER}'
    low = gang(
        "old", 2, members=1, on=["n1", "n1"], cpu=2, group_spec={"priorityClassName": "low"}, spec={"priority": 10}
    )
    high = gang("mine", 1, cpu=2, group_spec={"priorityClassName": "high"}, spec={"priority": 100})
    objects = [*CLASSES, node("n1", cpu=4), *low, *high]
    before = World(objects, conf=conf)
    (statement,) = before.decide().statements
    victim, waiting = (operation.key for operation in statement.operations)
    for manifest in objects:
        key = f"default/{manifest['metadata']['name']}"
        if key == victim:
            manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif key == waiting:
            manifest["status"]["nominatedNodeName"] = before.state.nominated[key]
    late = gang("late", 1, cpu=2, created=-9, group_spec={"priorityClassName": "high"}, spec={"priority": 100})
    after = World(objects, late, conf=conf)
    assert after.state.nominated == {}
    after.remove("Pod", victim)
    after.cycle()
    assert after.placed("mine") == {"mine-0": "n1"}
    assert "default/mine-0" not in after.maker.snapshot().nominated
