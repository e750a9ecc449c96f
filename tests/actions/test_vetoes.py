"""Why nothing is evicted for a job: the rules that keep its possible victims, beside the reasons why it waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, planned, priority_class, queue
from tests.world import World

PLUGINS = ("priority", "gang", "conformance", "pdb", "cdp", "predicates", "proportion")
HIGH, LOW = priority_class("high", 100), priority_class("low", 1)


def conf(actions: str, *plugins: str) -> str:
    return f'actions: "{actions}"\ntiers:\n- plugins:\n' + "".join(f"  - name: {name}\n" for name in plugins or PLUGINS)


def low(size: int = 2, **options: Any) -> list[Manifest]:
    """A job that fills a node of two cpu and can lose all of its pods but one."""
    options = {"members": 1, "group_spec": {"priorityClassName": "low"}, "on": ["n"] * size, "cpu": 1, **options}
    return list(gang("low", size, **options))


def high(size: int = 1, **options: Any) -> list[Manifest]:
    return list(gang("high", size, **{"group_spec": {"priorityClassName": "high"}, "cpu": 1, **options}))


def budget() -> Manifest:
    selector = {"matchLabels": {"app": "low"}}
    status = {"disruptionsAllowed": 0}
    return {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"selector": selector}, "status": status}


def vetoes(*objects: Any, actions: str = "allocate, preempt", plugins: tuple[str, ...] = ()) -> set[tuple[str, str]]:
    """Code and plugin of each rule that is told of the job high."""
    found = planned(node("n", cpu=2), HIGH, LOW, *objects, conf=conf(actions, *plugins))
    gate = actions.rpartition(" ")[2]
    return {(one["code"], one.get("plugin", "")) for one in found.why.get("default/high", []) if one["gate"] == gate}


COOLING: Manifest = {"labels": {"volcano.sh/cooldown-time": "90000h"}}


@pytest.mark.parametrize(
    ("objects", "rule"),
    [
        ([low(members=2), high()], ("victims-protected", "gang")),
        ([low(group_spec={"priorityClassName": "high"}), high()], ("victims-protected", "priority")),
        ([low(labels={"app": "low"}), budget(), high()], ("victims-protected", "pdb")),
        ([low(spec={"priorityClassName": "system-node-critical"}), high()], ("victims-protected", "conformance")),
        ([low(annotations={"volcano.sh/preemptable": "false"}), high()], ("victims-not-preemptable", "")),
        ([low(), high(spec={"preemptionPolicy": "Never"})], ("never-evicts", "")),
    ],
)
def test_the_rule_that_keeps_the_victims_of_preempt(objects: list[Any], rule: tuple[str, str]) -> None:
    assert rule in vetoes(*objects)
    assert vetoes(*objects, actions="allocate") == set()


HALVES = [queue("old"), queue("new")]


@pytest.mark.parametrize(
    ("objects", "rule"),
    [
        ([*HALVES, low(queue="old", members=2), high(queue="new")], ("victims-protected", "gang")),
        ([queue("old", weight=9), queue("new"), low(queue="old"), high(queue="new")],
         ("may-not-reclaim", "proportion")),
        ([queue("old", reclaimable=False), queue("new"), low(queue="old"), high(queue="new")],
         ("victims-not-reclaimable", "")),
        ([*HALVES, low(queue="old"), high(queue="new", spec={"preemptionPolicy": "Never"})], ("never-evicts", "")),
    ],
)  # fmt: skip
def test_the_rule_that_keeps_the_victims_of_reclaim(objects: list[Any], rule: tuple[str, str]) -> None:
    assert rule in vetoes(*objects, actions="allocate, reclaim")


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("objects", "rule"),
    [
        (lambda size: [low(size, members=size, group_spec={"priorityClassName": "high"}), high()],
         ("victims-not-lower", "")),
        (lambda size: [low(size, labels={"app": "low"}), budget(), high()], ("victims-protected", "pdb")),
        (lambda size: [low(size, spec={"priorityClassName": "system-node-critical"}), high()],
         ("victims-protected", "conformance")),
        (lambda size: [low(size, annotations={"volcano.sh/preemptable": "false"}), high()],
         ("victims-not-preemptable", "")),
        (lambda size: [low(size), high(spec={"preemptionPolicy": "Never"})], ("never-evicts", "")),
    ],
)  # fmt: skip
def test_the_rule_that_keeps_the_victims_of_gangpreempt(objects: Any, rule: tuple[str, str], size: int) -> None:
    full = [list(gang("filler", 2 - size, on=["n"] * (2 - size), cpu=1, group_spec={"priorityClassName": "high"}))]
    found = vetoes(*objects(size), *(full if size < 2 else []), actions="allocate, gangpreempt")
    assert rule in found


@pytest.mark.parametrize("members", [2, 1])
def test_gangpreempt_names_allow_whole_bundle(members: int) -> None:
    whole = "configurations:\n- name: gangpreempt\n  arguments:\n    allowWholeBundle: false\n"
    objects = [low(members=members), high(members=2, size=2)]
    found = planned(node("n", cpu=2), HIGH, LOW, *objects, conf=conf("allocate, gangpreempt") + whole)
    told = {one["code"] for one in found.why["default/high"] if one["gate"] == "gangpreempt"}
    assert "victims-not-whole" in told


@pytest.mark.parametrize(
    ("objects", "rule"),
    [
        ([*HALVES, low(queue="old", spec={"priorityClassName": "system-node-critical"}), high(queue="new")],
         ("victims-protected", "conformance")),
        ([queue("old", weight=9), queue("new"), low(queue="old"), high(queue="new")],
         ("may-not-reclaim", "proportion")),
        ([queue("old", reclaimable=False), queue("new"), low(queue="old"), high(queue="new")],
         ("victims-not-reclaimable", "")),
        ([*HALVES, low(queue="old", annotations={"volcano.sh/preemptable": "false"}), high(queue="new")],
         ("victims-not-preemptable", "")),
    ],
)  # fmt: skip
def test_the_rule_that_keeps_the_victims_of_gangreclaim(objects: list[Any], rule: tuple[str, str]) -> None:
    assert rule in vetoes(*objects, actions="allocate, gangreclaim")


@pytest.mark.parametrize("action", ["gangpreempt", "preempt"])
def test_nothing_is_told_by_an_action_that_evicts(action: str) -> None:
    result = planned(node("n", cpu=2), HIGH, LOW, low(), high(), conf=conf(f"allocate, {action}"))
    assert len(result.evictions) == 1
    assert all(one["gate"] != action for one in result.why.get("default/high", []))


def test_where_no_plugin_names_victims_that_is_the_rule() -> None:
    silent = tuple(f"{name}\n    enablePreemptable: false" for name in ("priority", "gang"))
    assert vetoes(low(), high(), plugins=(*silent, "predicates")) == {("victims-unnamed", "")}


def test_each_rule_is_told_once_however_many_pods_and_nodes_there_are() -> None:
    nodes = [node(f"m{i}", cpu=1) for i in range(3)]
    others = [list(gang(f"other-{i}", 1, on=[f"m{i}"], cpu=1)) for i in range(3)]
    marked = low(annotations={"volcano.sh/preemptable": "false"})
    found = planned(node("n", cpu=2), *nodes, HIGH, LOW, marked, *others, high(4), conf=conf("allocate, preempt"))
    told = [(one["code"], one.get("plugin", "")) for one in found.why["default/high"] if one["gate"] == "preempt"]
    assert told == [("victims-not-preemptable", ""), ("victims-protected", "gang")]


@pytest.mark.parametrize("size", [2, 3])
def test_nothing_is_told_of_a_job_that_others_make_room_for(size: int) -> None:
    """It can lose all of its pods but one, and the gang rule keeps that one."""
    objects = [node("n", cpu=size), HIGH, LOW, *low(size), *high(size - 1)]
    result = planned(*objects, conf=conf("allocate, preempt"))
    assert len(result.evictions) == size - 1
    assert all(one["gate"] != "preempt" for one in result.why.get("default/high", []))


def test_the_reasons_why_it_waits_stay() -> None:
    objects = [node("n", cpu=2), HIGH, LOW, *low(members=2), *high()]
    alone = planned(*objects, conf=conf("allocate")).why["default/high"]
    with_rules = planned(*objects, conf=conf("allocate, preempt")).why["default/high"]
    assert [one for one in with_rules if one["gate"] != "preempt"] == alone
    assert len(with_rules) == len(alone) + 1


def test_the_log_is_told_once_while_pods_come_and_go() -> None:
    world = World(node("n", cpu=2), HIGH, LOW, low(members=2), high(), conf=conf("allocate, preempt"))
    first = world.cycle()
    assert {one.group for one in first.waiting} == {"default/high"}
    for number in range(3):
        world.put(node(f"m{number}", cpu=1), list(gang(f"more-{number}", 1, on=[f"m{number}"], cpu=1)))
        told = [one for one in world.cycle().waiting if one.group == "default/high" and one.gate == "preempt"]
        assert {one.reason for one in told} <= {one.reason for one in first.waiting}
