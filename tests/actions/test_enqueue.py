"""enqueue."""

from __future__ import annotations

import pytest

from tests.dsl import Manifest, gang, group, node, planned, pod, queue
from vcd.timetravel.planning import PlanResult

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
        "code": "cluster-reserved",
        "cause": "admission",
        "reason": "resource in cluster is overused",
        "detail": {"asks cpu": "5", "limit cpu": "4800m"},
        "amounts": {"cpu": {"asks": 5000, "limit": 4800}},
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


TOO_LARGE = "a pod of the group is larger than any node"


def told(result: PlanResult, group: str = "default/g") -> list[str]:
    """The reasons why a group waits."""
    return [why["reason"] for why in result.why.get(group, ())]


@pytest.mark.parametrize("actions", ["enqueue", "enqueue, allocate, backfill", "allocate"])
def test_a_pod_larger_than_any_node_is_admitted_and_told(actions: str) -> None:
    """A group whose pods no node could hold is admitted like any other, so that an autoscaler sees the pods."""
    conf = NO_GATE.replace("enqueue", actions)
    result = planned(
        node("n", cpu=8), node("m", cpu=8), gang("g", 1, cpu=9, phase="Pending", minimum={"cpu": 9}), conf=conf
    )
    assert result.phases["default/g"] == "Inqueue"
    why = result.why["default/g"][0]
    assert (why["gate"], why["reason"], why["pods"]) == ("predicate", TOO_LARGE, ["default/g-0"])
    assert why["detail"] == {"needs cpu": "9", "largest node cpu": "8"}


def test_a_pod_that_fits_each_node_in_something_else_only_is_larger_than_any() -> None:
    nodes = [node("cpus", cpu=16, memory=8), node("memory", cpu=4, memory=64)]
    result = planned(*nodes, gang("g", 1, cpu=8, memory=32, phase="Pending"), conf=NO_GATE)
    assert result.why["default/g"][0]["detail"] == {"needs cpu": "8", "needs memory": "32Gi", "needs pods": "1"}
    assert told(planned(*nodes, gang("g", 1, cpu=8, memory=8, phase="Pending"), conf=NO_GATE)) == []


def test_a_group_that_can_have_its_minimum_without_its_largest_pod_is_not_told() -> None:
    pods = [pod("large", group="g", cpu=9), pod("small", group="g", cpu=1)]
    assert TOO_LARGE not in told(planned(node("n"), group("g", members=1, phase="Pending"), pods, conf=NO_GATE))
    assert TOO_LARGE in told(planned(node("n"), group("g", members=2, phase="Pending"), pods, conf=NO_GATE))


def owned(manifest: Manifest, kind: str, version: str) -> Manifest:
    """A manifest with an owner."""
    manifest["metadata"]["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": "o", "uid": "u"}]
    return manifest


@pytest.mark.parametrize("owner", [None, ("SparkApplication", "sparkoperator.k8s.io/v1beta2"), ("Job", "batch/v1")])
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_the_minimum_of_a_group_without_pods_is_no_pod_s_size(owner: tuple[str, str] | None, phase: str) -> None:
    """Spark states minMember 1 and the minResources of driver and executors together."""
    spark = group("g", members=1, phase=phase, minimum={"cpu": 12, "memory": 48})
    if owner is not None:
        spark = owned(spark, *owner)
    result = planned(node("n"), node("m"), spark, conf=NO_GATE)
    assert result.phases["default/g"] == "Inqueue"
    assert told(result) == []


@pytest.mark.parametrize(("members", "cpu", "is_told"), [(1, 9, True), (2, 17, True), (2, 16, False), (4, 32, False)])
def test_of_a_volcano_job_without_pods_the_mean_pod_is_judged(members: int, cpu: int, is_told: bool) -> None:
    """Its controller adds up minMember pods: one of them asks for the mean at least."""
    wanted = group("g", members=members, phase="Pending", minimum={"cpu": cpu})
    result = planned(node("n"), owned(wanted, "Job", "batch.volcano.sh/v1alpha1"), conf=NO_GATE)
    assert result.phases["default/g"] == "Inqueue"
    assert (told(result) == [TOO_LARGE]) is is_told


@pytest.mark.parametrize("conf", [NO_GATE, CONF, CONF.replace("enqueue", "allocate")])
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_without_nodes_a_group_is_told_so_first(conf: str, phase: str) -> None:
    """Plugins would say that its queue or the cluster is overused."""
    result = planned(gang("g", 1, cpu=1, phase=phase, minimum={"cpu": 1}), conf=conf)
    assert told(result)[0] == "there is no node"
    assert told(result).count("there is no node") == 1
    assert TOO_LARGE not in told(result)


def test_a_resource_that_no_node_offers_is_named() -> None:
    wanted = gang("g", 1, cpu=1, requests={"cpu": "1", "nvidia.com/gpu": "1"}, phase="Pending", minimum={"cpu": 1})
    why = planned(node("n"), wanted, conf=CONF).why["default/g"][0]
    assert why["code"] == "resource-not-offered"
    assert why["reason"] == "no node offers nvidia.com/gpu, which a pod of the group asks for"


@pytest.mark.parametrize("plugin", ["overcommit", "proportion", "capacity"])
def test_a_minimum_that_names_what_no_node_offers_is_refused_by_that_name(plugin: str) -> None:
    """Each plugin knows one column for all such resources, and would call them "resources that no node offers"."""
    conf = f"actions: enqueue\ntiers:\n- plugins:\n  - name: {plugin}\n"
    wanted = [gang(name, 1, cpu=1, phase="Pending", minimum={f"example.com/{name}": 1}) for name in "ab"]
    result = planned(node("n"), *wanted, conf=conf)
    words = "no node offers example.com/{}, which minResources of the group asks for"
    assert {key: told(result, key) for key in result.why} == {f"default/{name}": [words.format(name)] for name in "ab"}


def test_a_group_of_a_missing_queue_waits_and_says_so() -> None:
    result = planned(group("g", queue="nowhere", phase="Pending"), conf=CONF)
    assert result.phases["default/g"] == "Pending"
    assert result.why["default/g"][0]["reason"] == "queue nowhere does not exist"


@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown"])
@pytest.mark.parametrize("plugin", ["proportion", "capacity", "overcommit", "priority"])
@pytest.mark.parametrize("minimum", [None, {"cpu": 1}])
@pytest.mark.parametrize("actions", ["enqueue, allocate, backfill", "allocate, backfill"])
def test_a_queue_that_is_not_open_admits_nothing(
    state: str, plugin: str, minimum: dict[str, int] | None, actions: str
) -> None:
    """With or without minResources, whatever plugin is asked, whatever action admits."""
    result = planned(
        node("n"),
        queue("shut", state=state),
        gang("g", 1, cpu=1, queue="shut", phase="Pending", minimum=minimum),
        conf=NO_GATE.replace("priority", plugin).replace("enqueue", actions),
    )
    assert result.phases["default/g"] == "Pending"
    assert result.why["default/g"][0]["reason"] == f"queue is {state}"
    assert result.binds == {}


def test_without_enqueue_pending_groups_are_taken_as_admitted() -> None:
    conf = NO_GATE.replace("enqueue", "allocate")
    result = planned(node("n"), gang("g", 1, cpu=1, phase="Pending"), conf=conf)
    assert result.binds == {"default/g-0": "n"}
