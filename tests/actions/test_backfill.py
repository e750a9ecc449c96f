"""backfill."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, group, node, planned, pod
from tests.laws.answering import Answering

CONF = "actions: allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"


def test_a_best_effort_pod_is_placed() -> None:
    assert planned(node("n"), gang("g", 1), conf=CONF).binds == {"default/g-0": "n"}


def test_allocate_alone_leaves_best_effort_pods() -> None:
    assert planned(node("n"), gang("g", 1), conf=CONF.replace(", backfill", "")).binds == {}


def test_a_node_without_a_place_for_a_pod_takes_none() -> None:
    result = planned(node("n", pods=1), gang("old", 1, on=["n"]), gang("g", 1), conf=CONF)
    assert result.binds == {}
    assert result.why["default/g"][0]["reason"] == "Too many pods"


def test_best_effort_pods_count_towards_the_gang() -> None:
    result = planned(
        node("n", cpu=2),
        group("g", members=3),
        pod("a", group="g", cpu=1),
        pod("b", group="g", cpu=1),
        pod("c", group="g"),
        conf=CONF,
    )
    assert len(result.binds) == 3


def test_a_pending_group_waits_for_enqueue() -> None:
    result = planned(
        node("n"), gang("g", 1, phase="Pending"), conf="actions: backfill\ntiers:\n- plugins:\n  - name: gang\n"
    )
    assert result.binds == {}


BETWEEN = """
actions: "{actions}"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
ORDERS = (
    "enqueue, allocate, preempt, reclaim, backfill",
    "allocate, preempt, backfill",
    "allocate, reclaim, backfill",
    "enqueue, preempt, allocate, backfill",
    "enqueue, allocate, gangpreempt, gangreclaim, backfill",
)


@pytest.mark.parametrize("actions", ORDERS)
@pytest.mark.parametrize("size", [1, 3])
def test_best_effort_pods_are_bound_whatever_action_stands_before(actions: str, size: int) -> None:
    """Best-effort pods that preempt or reclaim let wait on a vacant node are backfill's all the same."""
    result = planned(node("n"), node("m"), gang("g", size), conf=BETWEEN.format(actions=actions))
    assert len(result.binds) == size


@pytest.mark.parametrize("actions", ORDERS)
def test_a_gang_with_a_best_effort_pod_is_bound_whole(actions: str) -> None:
    pods = [pod("a", group="g", cpu=2), pod("b", group="g", cpu=2), pod("c", group="g")]
    result = planned(node("n", cpu=4), group("g", members=3), pods, conf=BETWEEN.format(actions=actions))
    assert sorted(result.binds) == ["default/a", "default/b", "default/c"]


@pytest.mark.parametrize("actions", ORDERS)
@pytest.mark.parametrize("gate", ["example.com/wait", "scheduling.volcano.sh/queue-allocation-gate"])
@pytest.mark.parametrize("roles", [{}, {"minTaskMember": {"worker": 2, "launcher": 1}}], ids=["minimum", "roles"])
def test_a_gang_is_not_bound_without_a_best_effort_pod_that_a_gate_holds(
    actions: str, gate: str, roles: dict[str, Any]
) -> None:
    """It is bound whole once the gate is gone."""
    workers = [pod(f"w{i}", group="g", cpu=1, annotations={"volcano.sh/task-spec": "worker"}) for i in range(2)]
    marks = {"volcano.sh/task-spec": "launcher"}
    held = pod("l", group="g", annotations=marks, spec={"schedulingGates": [{"name": gate}]})
    conf = BETWEEN.format(actions=actions)
    world = Answering(node("n", cpu=4), group("g", members=3, **roles), *workers, held, conf=conf)
    world.cycle()
    world.cycle()
    assert world.placed() == {}
    assert "a scheduling gate holds the pod" in world.reasons("g")
    world.put(pod("l", group="g", annotations=marks))
    world.rest()
    assert sorted(world.placed()) == ["l", "w0", "w1"]


def test_a_gang_is_whole_in_the_second_session_where_backfill_comes_first() -> None:
    pods = [pod("a", group="g", cpu=2), pod("b", group="g", cpu=2), pod("c", group="g")]
    conf = BETWEEN.format(actions="enqueue, reclaim, backfill, allocate")
    world = Answering(node("n", cpu=4), group("g", members=3), pods, conf=conf)
    world.rest()
    assert world.placed() == {"a": "n", "b": "n", "c": "n"}


@pytest.mark.parametrize("actions", ["allocate, preempt, reclaim, backfill", "preempt, allocate, backfill"])
def test_best_effort_pods_are_bound_in_a_session_that_evicts(actions: str) -> None:
    """Room that somebody has to leave is waited for; a pod that needs none of it is not kept waiting with it."""
    result = planned(
        node("n", cpu=2),
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9},
        gang("low", 2, members=1, cpu=1, on=["n", "n"], phase="Running"),
        gang("high", 1, cpu=1, group_spec={"priorityClassName": "high"}, spec={"priority": 9}),
        gang("free", 2, members=2),
        conf=BETWEEN.format(actions=actions),
    )
    assert len(result.evictions) == 1
    assert result.binds.keys() == {"default/free-0", "default/free-1"}


def test_a_best_effort_pod_waits_with_its_gang_for_room_that_is_being_freed() -> None:
    """Backfill leaves it where it waits: its gang is not whole before the other pod has room."""
    result = planned(
        node("n", cpu=2),
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9},
        gang("low", 2, members=1, cpu=1, on=["n", "n"], phase="Running"),
        group("high", members=2, priorityClassName="high"),
        pod("a", group="high", cpu=1, spec={"priority": 9}),
        pod("b", group="high", spec={"priority": 9}),
        conf=BETWEEN.format(actions="enqueue, allocate, preempt, backfill"),
    )
    assert result.binds == {}
    assert len(result.evictions) == 1
    assert result.pipelined.keys() == {"default/a", "default/b"}


@pytest.mark.parametrize("actions", ["allocate, backfill", "backfill, allocate"])
def test_best_effort_pods_of_a_gang_that_cannot_start_are_in_nobody_s_way(actions: str) -> None:
    result = planned(
        node("n", cpu=2, pods=1),
        group("gang", members=3),
        pod("gang-0", group="gang"),
        pod("gang-1", group="gang", cpu=1),
        pod("gang-2", group="gang", cpu=1),
        gang("single", 1, created=9),
        conf=CONF.replace("allocate, backfill", actions),
    )
    assert result.binds == {"default/single-0": "n"}
