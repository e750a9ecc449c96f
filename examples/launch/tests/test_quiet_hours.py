"""The plugin quiet-hours: which nodes take pods when, and which come first."""

from __future__ import annotations

import pytest
from clusters import CONF, node, planned, pod, session_after

import vcd
from vcd.scheduling.framework.framework import framework_of

BY_SCORE = CONF.replace("launch", "allocate")


@pytest.mark.parametrize(
    ("hours", "hour", "takes"),
    [
        *[("22-6", hour, 6 <= hour < 22) for hour in range(24)],
        *[("9-17", hour, not 9 <= hour < 17) for hour in (8, 9, 16, 17)],
        ("0-0", 5, False),
    ],
)
def test_a_quiet_node_takes_no_new_pods(hours: str, hour: int, takes: bool) -> None:
    assert bool(planned(node("a", quiet=hours), pod("new"), hour=hour).binds) is takes


def test_the_reason_is_told() -> None:
    result = planned(node("a", quiet="22-6"), pod("new"), hour=23)
    assert result.why["default/podgroup-new"][0]["reason"] == "node(s) with quiet hours"


@pytest.mark.parametrize("text", ["night", "22", "22-24", "-6", "22-6-7", ""])
def test_a_label_that_cannot_be_read_is_told_of(text: str) -> None:
    result = planned(node("a", quiet=text), pod("new"))
    assert result.binds == {}
    assert "write BEGIN-END in hours from 0 to 23" in result.why["default/podgroup-new"][0]["reason"]


def test_nodes_whose_quiet_hours_are_far_away_come_first() -> None:
    nodes = [node("a", quiet="14-15"), node("b", quiet="20-21"), node("c", quiet="13-14")]
    assert planned(*nodes, pod("new"), conf=BY_SCORE).binds == {"default/new": "b"}
    assert planned(*nodes, node("d"), pod("new"), conf=BY_SCORE).binds == {"default/new": "d"}


def test_another_label_may_be_named() -> None:
    conf = CONF + "    arguments:\n      quiet-hours.label: example.com/silent-hours\n"
    assert planned(node("a", quiet="0-0"), node("b", silent="0-0"), pod("new"), conf=conf).binds == {"default/new": "a"}


def test_the_weight_is_not_negative() -> None:
    with pytest.raises(ValueError, match=r"quiet-hours\.weight"):
        vcd.plan([], CONF + "    arguments:\n      quiet-hours.weight: -1\n")


def test_quiet_nodes_are_counted() -> None:
    nodes = [node("a"), node("b", quiet="22-6"), node("c", quiet="6-22"), node("d", quiet="x")]
    plugins = framework_of(session_after(*nodes, hour=23)).plugins
    (plugin,) = [each for each in plugins if each.name == "quiet-hours"]
    assert [(gauge.name, gauge.value) for gauge in plugin.gauges()] == [("quiet_hours_nodes", 2)]
