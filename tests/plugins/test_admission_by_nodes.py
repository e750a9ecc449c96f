"""overcommit: applications that may use a part of the nodes are admitted by what these nodes have (volcano#2838)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, group, node, planned, pod, queue
from tests.plugins.opened import conf
from vcd.scheduling.framework.applications import ADMIT_BY_NODES

CONF = conf("gang", "predicates", "overcommit", actions="enqueue, allocate")
SELECTOR: Manifest = {"nodeSelector": {"pool": "spark"}}
AFFINITY: Manifest = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["spark"]}]}]
            }
        }
    }
}


def nodes(labelled: int, others: int, cpu: int = 4) -> list[Manifest]:
    marked = [node(f"s{i}", cpu=cpu, labels={"pool": "spark"}) for i in range(labelled)]
    return [*marked, *(node(f"o{i}", cpu=cpu) for i in range(others))]


def application(
    name: str, *, minimum: int, spec: Manifest | None = SELECTOR, on: str = "", pods: int = 1, **more: Any
) -> list[Manifest]:
    """A group of which ``pods`` pods of one CPU exist: the driver, then executors; the driver runs if it is ``on``."""
    made = [pod(f"{name}-{i}", group=name, on=on if i == 0 else "", cpu=1, spec=spec) for i in range(pods)]
    phase = "Running" if on else "Pending"
    return [group(name, members=1, phase=phase, minimum={"cpu": minimum}, **more), *made]


def admitted(*objects: Any, configuration: str = CONF) -> list[str]:
    phases = planned(*objects, conf=configuration).phases
    return sorted(key.partition("/")[2] for key, phase in phases.items() if phase == "Inqueue")


@pytest.mark.parametrize("spec", [SELECTOR, AFFINITY], ids=["selector", "affinity"])
@pytest.mark.parametrize(("labelled", "fit"), [(1, 1), (2, 3), (3, 4)])
def test_as_many_are_admitted_as_fit_their_nodes_by_the_factor(labelled: int, fit: int, spec: Manifest) -> None:
    six = [application(f"app{i}", minimum=3, spec=spec) for i in range(6)]
    assert admitted(*nodes(labelled, 6), *six) == [f"app{i}" for i in range(fit)]


def test_of_many_applications_the_reason_names_some_and_counts_the_others() -> None:
    many = [application(f"app{i}", minimum=3) for i in range(9)]
    why = planned(*nodes(5, 6), *many, conf=CONF).why["default/app8"][0]
    owners = ", ".join(f"default/app{i}" for i in range(4))
    assert why["reason"].endswith(f"reserved for groups admitted before it: {owners} and 4 more")


def test_another_one_waits_while_executors_of_the_first_are_to_come() -> None:
    first = application("first", minimum=3, on="s0")
    result = planned(*nodes(1, 6), *first, *application("next", minimum=3), conf=CONF)
    assert result.phases.get("default/next", "Pending") == "Pending"
    why = result.why["default/next"][0]
    assert (why["gate"], why["plugin"]) == ("enqueue", "overcommit")
    assert why["reason"] == "the nodes that it may use are reserved for groups admitted before it: default/first"
    assert why["detail"] == {"asks cpu": "3", "awaited cpu": "2", "limit cpu": "3800m"}


def test_the_next_one_is_admitted_once_the_first_is_whole() -> None:
    whole = [
        group("first", phase="Running", minimum={"cpu": 3}),
        *(pod(f"first-{i}", group="first", on="s0", cpu=1, spec=SELECTOR) for i in range(3)),
    ]
    assert admitted(*nodes(1, 6), *whole, *application("next", minimum=3)) == ["next"]


def test_one_with_executors_on_other_nodes_does_not_keep_the_next_one_out() -> None:
    elsewhere = [pod(f"first-{i}", group="first", on="o0", cpu=1) for i in (1, 2)]
    first = [*application("first", minimum=3, on="s0"), *elsewhere]
    assert admitted(*nodes(1, 6), *first, *application("next", minimum=3)) == ["next"]


@pytest.mark.parametrize(
    "marks",
    [{"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}, {"unschedulable": True}],
    ids=["taint", "cordon"],
)
def test_nodes_that_no_pod_may_use_do_not_count(marks: Manifest) -> None:
    """One node of four can be used, whatever excludes the others."""
    cluster = [node("s0", cpu=4), *(node(f"o{i}", cpu=4, **marks) for i in range(3))]
    six = [application(f"app{i}", minimum=3, spec=None) for i in range(6)]
    assert admitted(*cluster, *six) == ["app0"]


def test_where_all_nodes_can_be_used_the_cluster_is_compared() -> None:
    six = [application(f"app{i}", minimum=3, spec=None) for i in range(6)]
    assert admitted(*nodes(1, 2), *six) == [f"app{i}" for i in range(4)]


def test_what_executors_had_that_are_done_is_not_awaited_again() -> None:
    done = [pod(f"first-{i}", group="first", on="s0", phase="Succeeded", cpu=1, spec=SELECTOR) for i in (1, 2)]
    first = [*application("first", minimum=3, on="s0"), *done]
    assert admitted(*nodes(1, 6), *first, *application("next", minimum=3)) == ["next"]


def test_what_can_never_be_whole_is_not_awaited() -> None:
    first = application("first", minimum=8, on="s0")
    assert admitted(*nodes(1, 6), *first, *application("next", minimum=3)) == ["next"]


def test_what_a_closed_queue_keeps_out_is_not_awaited() -> None:
    first = application("first", minimum=3, on="s0", queue="closed")
    cluster = [*nodes(1, 6), queue("closed", state="Closed")]
    assert admitted(*cluster, *first, *application("next", minimum=3)) == ["next"]


def test_a_driver_behind_a_gate_awaits_nothing() -> None:
    gated = {**SELECTOR, "schedulingGates": [{"name": "example.com/wait"}]}
    first = [group("first", phase="Inqueue", minimum={"cpu": 3}), pod("first-0", group="first", cpu=1, spec=gated)]
    assert admitted(*nodes(1, 6), *first, *application("next", minimum=3)) == ["first", "next"]


def test_one_that_has_ended_keeps_nobody_out() -> None:
    ended = [
        group("first", phase="Running", minimum={"cpu": 3}),
        pod("first-0", group="first", on="s0", phase="Succeeded", cpu=1, spec=SELECTOR),
    ]
    assert admitted(*nodes(1, 6), *ended, *application("next", minimum=3)) == ["next"]


@pytest.mark.parametrize("spec", [None, {"nodeSelector": {"pool": "other"}}], ids=["anywhere", "other nodes"])
def test_only_applications_on_the_same_nodes_count(spec: Manifest | None) -> None:
    cluster = [*nodes(1, 6), node("x", cpu=4, labels={"pool": "other"})]
    first = application("first", minimum=3, on="x", spec=spec)
    assert admitted(*cluster, *first, *application("next", minimum=3)) == ["next"]


def test_a_gang_with_all_its_pods_is_compared_with_the_cluster_alone() -> None:
    first = application("first", minimum=3, on="s0")
    gang = [group("gang", members=3, phase="Pending", minimum={"cpu": 3})]
    gang += [pod(f"gang-{i}", group="gang", cpu=1, spec=SELECTOR) for i in range(3)]
    assert admitted(*nodes(1, 6), *first, *gang) == ["gang"]


@pytest.mark.parametrize(("priority", "found"), [(0, []), (5, []), (6, ["next"])])
def test_those_of_lower_priority_do_not_count(priority: int, found: list[str]) -> None:
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"class-{value}"},
            "value": value,
        }
        for value in (5, priority)
    ]
    first = application("first", minimum=3, on="s0", priorityClassName="class-5")
    following = application("next", minimum=3, priorityClassName=f"class-{priority}")
    configuration = conf("priority", "gang", "predicates", "overcommit", actions="enqueue")
    assert (
        admitted(*nodes(1, 6), *classes[: 1 + (priority != 5)], *first, *following, configuration=configuration)
        == found
    )


def test_in_two_queues_as_in_one() -> None:
    first = application("first", minimum=3, on="s0", queue="a")
    assert admitted(*nodes(1, 6), queue("a"), queue("b"), *first, *application("next", minimum=3, queue="b")) == []


def test_the_switch_compares_the_cluster_alone() -> None:
    off = conf("gang", "predicates", "overcommit", arguments={ADMIT_BY_NODES.key: False}, actions="enqueue, allocate")
    six = [application(f"app{i}", minimum=3) for i in range(6)]
    assert admitted(*nodes(1, 6), *six, configuration=off) == [f"app{i}" for i in range(6)]
