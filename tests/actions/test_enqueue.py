"""enqueue."""

from __future__ import annotations

from tests.dsl import gang, group, node, planned, queue

CONF = """
actions: enqueue
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: overcommit
  - name: proportion
"""
NO_GATE = "actions: enqueue\ntiers:\n- plugins:\n  - name: priority\n"


def test_a_group_without_minimum_resources_is_admitted() -> None:
    assert planned(group("g", phase="Pending"), conf=CONF).phases["default/g"] == "Inqueue"


def test_a_group_is_admitted_when_the_cluster_has_room() -> None:
    result = planned(node("n", cpu=4), gang("g", 2, cpu=1, phase="Pending", minimum={"cpu": 2}), conf=CONF)
    assert result.phases["default/g"] == "Inqueue"


def test_a_rejected_group_stays_pending_and_names_the_gate() -> None:
    result = planned(node("n", cpu=4), group("g", members=5, phase="Pending", minimum={"cpu": 5}), conf=CONF)
    assert result.phases["default/g"] == "Pending"
    assert result.why["default/g"][0] == {
        "gate": "enqueue",
        "plugin": "overcommit",
        "reason": "resource in cluster is overused",
        "detail": {"asks cpu": "5", "limit cpu": "4800m"},
    }


def test_groups_are_admitted_in_order_of_priority() -> None:
    result = planned(
        node("n", cpu=4),
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9},
        group("a-low", members=4, phase="Pending", minimum={"cpu": 3}, created=1),
        group("z-high", members=4, phase="Pending", minimum={"cpu": 3}, created=2, priorityClassName="high"),
        conf=CONF,
    )
    assert result.phases == {"default/a-low": "Pending", "default/z-high": "Inqueue"}


def test_a_pod_larger_than_any_node_is_not_admitted() -> None:
    """pains.md 3."""
    result = planned(node("n", cpu=8), node("m", cpu=8), group("g", phase="Pending", minimum={"cpu": 9}), conf=NO_GATE)
    assert result.phases["default/g"] == "Pending"
    why = result.why["default/g"][0]
    assert why["reason"] == "a pod of the group is larger than the largest node"
    assert why["detail"] == {"needs cpu": "9", "largest node cpu": "8"}


def test_a_group_of_a_missing_queue_waits_and_says_so() -> None:
    result = planned(group("g", queue="nowhere", phase="Pending"), conf=CONF)
    assert result.phases["default/g"] == "Pending"
    assert result.why["default/g"][0]["reason"] == "queue nowhere does not exist"


def test_a_closed_queue_admits_nothing() -> None:
    result = planned(
        node("n"),
        queue("shut", state="Closed"),
        group("g", queue="shut", phase="Pending", minimum={"cpu": 1}),
        conf=CONF,
    )
    assert result.phases["default/g"] == "Pending"
    assert result.why["default/g"][0]["reason"] == "queue is Closed"


def test_without_enqueue_pending_groups_are_taken_as_admitted() -> None:
    conf = NO_GATE.replace("enqueue", "allocate")
    result = planned(node("n"), gang("g", 1, cpu=1, phase="Pending"), conf=conf)
    assert result.binds == {"default/g-0": "n"}
