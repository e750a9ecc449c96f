"""Nothing that is not understood is placed as if it had not been said: it waits, and the reason names the field."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.dsl import BARE, Manifest, flat, gang, group, node, planned, pod, priority_class, queue
from tests.world import World
from vcd.model import unsupported
from vcd.scheduling.framework.registry import plugins

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: capacity
"""
ALL = f'actions: "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim"{TIERS}'
OTHERWISE = f'actions: "preempt, backfill, reclaim, allocate"{TIERS}'
CLASSES = [priority_class("high", 100), priority_class("low", 10)]
HARD, SOFT = {"mode": "hard", "highestTierAllowed": 1}, {"mode": "soft"}
NEAR = {"name": "p", "labelSelector": {}, "matchLabelKeys": ["role"]}

POD_FIELDS: dict[str, Manifest] = {
    "spec.resourceClaims": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "absent"}]},
    "spec.workloadRef": {"workloadRef": {"name": "w", "podGroup": "workers"}},
    "spec.schedulingGroup": {"schedulingGroup": {"podGroupName": "workers"}},
}
GROUP_FIELDS: dict[str, Manifest] = {
    "spec.networkTopology": {"networkTopology": HARD},
    "spec.networkTopology of no mode, which is hard": {"networkTopology": {"highestTierName": "rack"}},
    "spec.subGroupPolicy[].networkTopology": {"subGroupPolicy": [{**NEAR, "networkTopology": HARD}]},
}


def at_gate(result: Any, name: str) -> list[str]:
    return [why["reason"] for why in result.why.get(f"default/{name}", ()) if why["gate"] == "unsupported"]


@pytest.mark.parametrize("conf", [ALL, OTHERWISE])
@pytest.mark.parametrize("amounts", [{"cpu": 1}, {"gpu": 1}, {}], ids=["cpu", "gpu", "best effort"])
@pytest.mark.parametrize("field", POD_FIELDS)
def test_a_pod_waits_for_a_field_that_is_not_known(field: str, amounts: dict[str, Any], conf: str) -> None:
    result = planned(
        node("n", gpu=4), gang("g", 2, spec=POD_FIELDS[field], **amounts), gang("other", 1, cpu=1), conf=conf
    )
    assert result.binds == {"default/other-0": "n"}
    assert at_gate(result, "g") == [f"{field} is not supported"]


@pytest.mark.parametrize("conf", [ALL, OTHERWISE])
@pytest.mark.parametrize("field", GROUP_FIELDS)
def test_all_pods_of_a_group_wait_for_one_of_its_own(field: str, conf: str) -> None:
    pods = gang("g", 2, cpu=1, group_spec=GROUP_FIELDS[field], labels={"role": "a"})
    result = planned(node("n"), pods, gang("other", 1, cpu=1), conf=conf)
    assert result.binds == {"default/other-0": "n"}
    assert at_gate(result, "g") == [f"the PodGroup's {field.partition(' of')[0]} is not supported"]


def test_a_group_is_not_admitted_and_says_so_before_it_has_pods() -> None:
    asks = group("g", phase="Pending", minimum={"cpu": 2}, networkTopology=HARD)
    result = planned(node("n"), asks, conf=ALL)
    assert result.phases["default/g"] == "Pending"
    assert at_gate(result, "g") == ["the PodGroup's spec.networkTopology is not supported"]


def test_other_pods_of_the_same_group_are_placed() -> None:
    odd = pod("odd", group="g", cpu=1, spec=POD_FIELDS["spec.resourceClaims"])
    result = planned(node("n"), group("g"), odd, pod("even", group="g", cpu=1), conf=ALL)
    assert result.binds == {"default/even": "n"}
    assert at_gate(result, "g") == ["spec.resourceClaims is not supported"]


ROLES = {"minTaskMember": {"even": 1, "odd": 1}}
SUB_GROUPS = {"subGroupPolicy": [{"name": "p", "subGroupSize": 2, "matchLabelKeys": ["part"]}]}


@pytest.mark.parametrize("wishes", [{}, ROLES, SUB_GROUPS], ids=["minimum", "roles", "sub-groups"])
@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("conf", [ALL, OTHERWISE])
def test_one_that_asks_for_nothing_is_none_of_a_gang_that_is_ready(conf: str, members: int, wishes: Manifest) -> None:
    """Best-effort pods count as ready while they wait for their turn; one that waits at this gate has none."""
    role = "volcano.sh/task-spec"
    odd = pod("odd", group="g", labels={"part": "a"}, annotations={role: "odd"}, spec=POD_FIELDS["spec.resourceClaims"])
    rest = [
        pod(f"even-{number}", group="g", cpu=1, labels={"part": "a"}, annotations={role: "even"})
        for number in range(members - 1)
    ]
    result = planned(node("n"), group("g", members=members, **wishes), odd, *rest, conf=conf)
    assert result.binds == {}
    assert at_gate(result, "g") == ["spec.resourceClaims is not supported"]


def test_several_fields_are_named_together() -> None:
    spec = {**POD_FIELDS["spec.resourceClaims"], **POD_FIELDS["spec.workloadRef"]}
    result = planned(node("n"), gang("g", 1, cpu=1, spec=spec), conf=BARE)
    assert at_gate(result, "g") == ["spec.resourceClaims and spec.workloadRef are not supported"]


@pytest.mark.parametrize("where", ["pod", "group"])
@pytest.mark.parametrize("conf", [ALL, OTHERWISE])
def test_nobody_is_evicted_for_it(where: str, conf: str) -> None:
    spec: Manifest = {"priority": 100, **(POD_FIELDS["spec.resourceClaims"] if where == "pod" else {})}
    wishes = {"priorityClassName": "high", **({"networkTopology": HARD} if where == "group" else {})}
    old = gang(
        "old", 2, members=1, on=["n", "n"], cpu=4, group_spec={"priorityClassName": "low"}, spec={"priority": 10}
    )
    result = planned(CLASSES, node("n"), old, gang("g", 1, cpu=4, group_spec=wishes, spec=spec), conf=conf)
    assert result.evictions == []


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
@pytest.mark.parametrize("field", ["networkTopology", "resourceClaims"])
def test_it_reserves_no_quota(field: str, plugin: str) -> None:
    """A group that was admitted before, by whatever scheduler, keeps nobody else out."""
    at_pods = POD_FIELDS["spec.resourceClaims"] if field == "resourceClaims" else {}
    at_group = {"networkTopology": HARD} if field == "networkTopology" else {}
    held = gang("held", 2, cpu=2, minimum={"cpu": 4}, group_spec=at_group, spec=at_pods, queue="q")
    new = gang("new", 1, cpu=4, minimum={"cpu": 4}, phase="Pending", created=5, queue="q")
    conf = ALL.replace("name: capacity", f"name: {plugin}")
    result = planned(node("n"), queue("q", capability={"cpu": "4"}), held, new, conf=conf)
    assert result.phases["default/new"] == "Inqueue"
    assert result.binds == {"default/new-0": "n"}


# --- wishes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish, field",
    [
        ({"networkTopology": SOFT}, "spec.networkTopology"),
        ({"subGroupPolicy": [{**NEAR, "networkTopology": SOFT}]}, "spec.subGroupPolicy[].networkTopology"),
    ],
)
def test_a_preference_is_passed_over_and_told(wish: Manifest, field: str) -> None:
    result = planned(node("n"), gang("g", 2, cpu=1, group_spec=wish, labels={"role": "a"}), conf=ALL)
    assert len(result.binds) == 2
    (told,) = result.problems["PodGroup default/g"]
    assert told.startswith(f"{field} is not supported and passed over")


@pytest.mark.parametrize(
    "spec, field",
    [({"dequeueStrategy": "fifo"}, "dequeueStrategy"), ({"extendClusters": [{"name": "far"}]}, "extendClusters")],
)
def test_so_is_what_a_queue_asks_for_in_vain(spec: Manifest, field: str) -> None:
    result = planned(node("n"), queue("q", **spec), gang("g", 1, cpu=1, queue="q"), conf=ALL)
    assert result.binds == {"default/g-0": "n"}
    (told,) = result.problems["Queue q"]
    assert told.startswith(f"spec.{field} is not supported and passed over")


def test_what_is_supported_of_a_queue_is_not_told() -> None:
    assert planned(node("n"), queue("q", dequeueStrategy="traverse"), conf=ALL).problems == {}


# --- the state ------------------------------------------------------------------------------------------------------


def objects(spec: Manifest, wishes: Manifest) -> Iterable[Manifest]:
    return flat([node("n"), gang("g", 1, cpu=1, group_spec=wishes, spec=spec)])


@pytest.mark.parametrize("spec, wishes", [(POD_FIELDS["spec.resourceClaims"], {}), ({}, {"networkTopology": HARD})])
def test_who_waits_is_placed_once_the_field_is_taken_away(spec: Manifest, wishes: Manifest) -> None:
    world = World(objects(spec, wishes), conf=ALL)
    world.rest()
    assert world.placed() == {}
    assert "not supported" in world.reasons("g")
    world.put(*objects({}, {}))
    world.rest()
    assert world.placed() == {"g-0": "n"}
    assert world.why("g") == []


def test_a_checkpoint_holds_what_was_asked_for() -> None:
    world = World(objects(POD_FIELDS["spec.workloadRef"], {"networkTopology": HARD}), conf=ALL)
    before = world.maker.snapshot()
    loaded = type(world.state).load(world.state.dump())
    assert loaded.groups["default/g"].unsupported == before.groups["default/g"].unsupported != ()
    assert [shape.unsupported for shape in loaded.shapes.values if shape] == [("spec.workloadRef",)]


# --- configuration --------------------------------------------------------------------------------------------------

SUPPORTING = f"{ALL}  - name: network-topology-aware\n"


@pytest.mark.parametrize("topology", [HARD, SOFT])
def test_a_field_that_an_active_plugin_supports_is_supported(topology: Manifest) -> None:
    wishes = {"networkTopology": topology, "subGroupPolicy": [{**NEAR, "networkTopology": topology}]}
    result = planned(node("n"), gang("g", 1, cpu=1, group_spec=wishes), conf=SUPPORTING)
    assert at_gate(result, "g") == []
    assert result.problems == {}


def test_the_plugins_support_fields_that_are_listed() -> None:
    fields = {path for plugin in plugins().values() for path in plugin.supports}
    assert fields == set(unsupported.DEMANDS["PodGroup"])


def test_an_admitted_group_reserves_quota_if_its_field_is_supported() -> None:
    held = gang("held", 2, cpu=2, minimum={"cpu": 4}, group_spec={"networkTopology": HARD}, queue="q")
    new = gang("new", 1, cpu=4, minimum={"cpu": 4}, phase="Pending", created=5, queue="q")
    rack = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "rack"},
        "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n"}}}]},
    }
    result = planned(node("n"), rack, queue("q", capability={"cpu": "4"}), held, new, conf=SUPPORTING)
    assert result.phases["default/new"] == "Pending"
    assert len(result.binds) == 2


# --- the documentation ----------------------------------------------------------------------------------------------


def test_the_page_has_a_row_for_each_field() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "unsupported.md").read_text()
    table = text.partition("## Not supported")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| (\w+) `([^`]+)`", table, re.MULTILINE))
    declared = (*unsupported.DEMANDS.items(), *unsupported.WISHES.items())
    assert rows == {(kind, path) for kind, fields in declared for path in fields}
