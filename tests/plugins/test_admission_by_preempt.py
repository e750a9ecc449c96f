"""A group of high priority is admitted to a full cluster or queue if preempt could serve it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, node, planned, priority_class, queue
from tests.plugins.opened import conf

CLASSES = [priority_class("low", 1), priority_class("high", 1000)]
LIMITS = {"capability": {"cpu": "8"}, "deserved": {"cpu": "8"}}


def phase(plugin: str, *, actions: str = "enqueue, allocate, preempt", name: str = "high", **options: Any) -> str:
    """The phase of a group of 4 cpu that asks to be admitted beside low ones of 8 cpu, all that its queue may have."""
    lows = [
        m
        for i in range(8)
        for m in gang(f"l{i}", 1, queue="q", on=["n"], phase="Running", minimum={"cpu": 1}, cpu=1, **_of("low"))
    ]
    asks = gang("new", 4, queue="q", phase="Pending", minimum={"cpu": options.pop("cpu", 4)}, cpu=1, **_of(name))
    nodes = node("n", cpu=8 if plugin == "overcommit" else 32)
    settings = conf("priority", "predicates", plugin, actions=actions, arguments=options or None)
    return planned(nodes, *CLASSES, queue("q", **LIMITS), lows, asks, conf=settings).phases["default/new"]


def _of(name: str) -> dict[str, Any]:
    return {"group_spec": {"priorityClassName": name}, "spec": {"priorityClassName": name}}


PLUGINS = ("overcommit", "proportion", "capacity")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_preempt_could_free_counts(plugin: str) -> None:
    assert phase(plugin) == "Inqueue"
    assert phase(plugin, actions="enqueue, allocate, gangpreempt") == "Inqueue"


@pytest.mark.parametrize("plugin", PLUGINS)
def test_more_than_that_does_not_nor_equal_priority_nor_without_the_action(plugin: str) -> None:
    assert phase(plugin, cpu=12) == "Pending"
    assert phase(plugin, name="low") == "Pending"
    assert phase(plugin, actions="enqueue, allocate") == "Pending"
    assert phase(plugin, countVictimsEnable=False) == "Pending"


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(("member", "admitted"), [(8, False), (4, True)])
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_what_a_gang_keeps_does_not_count_unless_gangs_are_evicted_whole(
    plugin: str, member: int, admitted: bool, action: str
) -> None:
    low = gang(
        "low", 8, members=member, queue="q", on=["n"] * 8, phase="Running", minimum={"cpu": member}, cpu=1, **_of("low")
    )
    asks = gang("new", 4, queue="q", phase="Pending", minimum={"cpu": 4}, cpu=1, **_of("high"))
    settings = conf("gang", "priority", "predicates", plugin, actions=f"enqueue, allocate, {action}")
    nodes = node("n", cpu=8 if plugin == "overcommit" else 32)
    found = planned(nodes, *CLASSES, queue("q", **LIMITS), low, asks, conf=settings).phases["default/new"]
    assert found == ("Inqueue" if admitted or action == "gangpreempt" else "Pending")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_may_not_be_preempted_does_not_count(plugin: str) -> None:
    low = [
        *gang("low", 8, members=8, queue="q", on=["n"] * 8, phase="Running", minimum={"cpu": 8}, cpu=1, **_of("low"))
    ]
    low[0]["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    asks = gang("new", 4, queue="q", phase="Pending", minimum={"cpu": 4}, cpu=1, **_of("high"))
    settings = conf("priority", "predicates", plugin, actions="enqueue, allocate, gangpreempt")
    nodes = node("n", cpu=8 if plugin == "overcommit" else 32)
    assert planned(nodes, *CLASSES, queue("q", **LIMITS), low, asks, conf=settings).phases["default/new"] == "Pending"
