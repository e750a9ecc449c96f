"""A gang whose best-effort pod no node takes is not started without it, and nobody is evicted for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import ONE_TIER, Manifest, gang, node, planned, priority_class, queue
from tests.world import World

ORDERS = [
    "enqueue, allocate, backfill",
    "allocate",
    "backfill, allocate",
    "enqueue, allocate, preempt, reclaim, backfill",
    "gangpreempt, gangreclaim, backfill, allocate",
]
MAKES_ROOM = ["preempt", "reclaim", "gangpreempt", "gangreclaim"]
CLASSES = [priority_class("high", 1000), priority_class("low", 10)]
MISSING: Manifest = {"nodeSelector": {"disk": "ssd"}}
REASON = "node(s) didn't match Pod's node affinity/selector"


def mixed(workers: int, helpers: int, *, lost: int = 1, members: int | None = None, **options: Any) -> list[Manifest]:
    """A gang of pods of one cpu each and best-effort ones, of which the last ``lost`` want a node with an ssd."""
    size = workers + helpers
    manifests = list(gang("mine", size, members=size if members is None else members, cpu=1, **options))
    for number, manifest in enumerate(manifests[1 + workers :]):
        manifest["spec"]["containers"][0]["resources"] = {}
        if number >= helpers - lost:
            manifest["spec"].update(MISSING)
    return manifests


def world(actions: str, *objects: Any) -> World:
    return World(CLASSES, *objects, conf=f'actions: "{actions}"{ONE_TIER}')


@pytest.mark.parametrize("workers, helpers, lost", [(1, 1, 1), (3, 2, 1), (2, 3, 3), (0, 2, 1), (0, 1, 1)])
@pytest.mark.parametrize("actions", ORDERS)
def test_a_gang_waits_for_its_best_effort_pods_node(actions: str, workers: int, helpers: int, lost: int) -> None:
    there = world(actions, node("n1"), mixed(workers, helpers, lost=lost))
    for _ in range(3):
        there.cycle()
    assert there.placed() == {}
    told = [(one.gate, one.reason, one.tasks) for one in there.why("mine") if one.gate == "predicate"]
    if "allocate" in actions.split(", "):
        assert told == [("predicate", REASON, lost)]
    there.put(node("n2", labels={"disk": "ssd"}))
    for _ in range(4):
        there.cycle()
    started = workers + helpers if "backfill" in actions else workers
    assert len(there.placed("mine")) == started


def test_its_group_is_told_that_it_cannot_be_scheduled() -> None:
    there = world("enqueue, allocate, backfill", node("n1"), mixed(0, 2))
    (status,) = there.decide().groups
    assert status.condition == ("Unschedulable", "True", "NotEnoughResources", "")


@pytest.mark.parametrize(
    "how",
    [
        {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        {"unschedulable": True},
    ],
    ids=["a taint", "a cordon"],
)
def test_whatever_of_the_nodes_it_is_that_keeps_the_pod_out(how: dict[str, Any]) -> None:
    tolerating = {"tolerations": [{"operator": "Exists"}]}
    manifests = mixed(2, 1, lost=0)
    for manifest in manifests[1:3]:
        manifest["spec"].update(tolerating)
    plan = planned(node("n1", **how), manifests, conf=f'actions: "allocate, backfill"{ONE_TIER}')
    assert plan.binds == {}


def test_what_a_minimum_does_without_keeps_nobody_waiting() -> None:
    there = world("enqueue, allocate, backfill", node("n1"), mixed(2, 2, members=3))
    there.rest()
    assert there.placed() == {"mine-0": "n1", "mine-1": "n1", "mine-2": "n1"}


def test_the_minimum_of_a_role_counts_it_neither() -> None:
    manifests = mixed(2, 1, members=2)
    manifests[0]["spec"]["minTaskMember"] = {"worker": 1, "helper": 1}
    for manifest, role in zip(manifests[1:], ("worker", "worker", "helper"), strict=True):
        manifest["metadata"]["annotations"]["volcano.sh/task-spec"] = role
    there = world("enqueue, allocate, backfill", node("n1"), manifests)
    there.cycle()
    assert there.placed() == {}


@pytest.mark.parametrize("full", [True, False])
def test_a_best_effort_pod_that_only_other_pods_keep_out_counts(full: bool) -> None:
    """No place for one more pod, or somebody beside whom it may not be: that passes, as in Volcano."""
    manifests = mixed(1, 1, lost=0)
    if not full:
        term = {"labelSelector": {"matchLabels": {"app": "loud"}}, "topologyKey": "kubernetes.io/hostname"}
        rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        manifests[2]["spec"]["affinity"] = rule
    other = [*gang("other", 1, on=["n1"], cpu=1, labels={"app": "loud"})]
    there = world("allocate, backfill", node("n1", pods=2 if full else 110), other, manifests)
    there.cycle()
    assert there.placed("mine") == {"mine-0": "n1"}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("action", MAKES_ROOM)
@pytest.mark.parametrize("lost", [0, 1])
def test_nobody_is_evicted_for_a_gang_that_cannot_be_whole(action: str, size: int, lost: int) -> None:
    owner = "asks" if "reclaim" in action else "old"
    there = world(
        f"enqueue, allocate, {action}, backfill",
        queue("old", deserved={"cpu": "0"}),
        queue("asks", deserved={"cpu": "8"}),
        node("n1", cpu=size),
        gang("old", size, members=0, on=["n1"] * size, queue="old", cpu=1, group_spec={"priorityClassName": "low"}),
        mixed(size, 1, lost=lost, queue=owner, group_spec={"priorityClassName": "high"}, spec={"priority": 1000}),
    )
    for _ in range(4):
        there.cycle()
    assert len(there.evicted) == (0 if lost else size)
    assert len(there.placed("mine")) == (0 if lost else size + 1)
