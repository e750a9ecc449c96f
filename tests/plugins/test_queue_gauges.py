"""The gauges of queues: of resources that a queue holds, asks for or limits, however many the cluster offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.dsl import gang, node, queue, session_of
from tests.plugins.opened import conf
from vcd.scheduling.framework.framework import framework_of


def scalars(plugin: str, *objects: Any) -> dict[str, set[str]]:
    """By queue the resources with a gauge of their own."""
    session, found = session_of(*objects, conf=conf("gang", plugin)), dict[str, set[str]]()
    for each in framework_of(session).plugins:
        for gauge in each.gauges() if each.name == plugin else ():
            labels: Mapping[str, str] = dict(gauge.labels)
            if "resource" in labels:
                found.setdefault(labels["queue_name"], set()).add(labels["resource"])
    return found


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@pytest.mark.parametrize("count", [1, 50, 300])
def test_a_queue_has_gauges_of_what_it_uses_or_limits(plugin: str, count: int) -> None:
    """50 queues and 300 resources made 98,220 lines."""
    offered = {f"example.com/card-{number}": 8 for number in range(count)}
    asks = gang("g", 1, queue="asks", cpu=1, **{"example.com/card-0": 1, "example.com/none": 1})
    limits = queue("limits", capability={"example.com/card-0": "4"})
    found = scalars(plugin, node("n", **offered), queue("asks"), limits, queue("idle"), asks)
    assert found["asks"] == found["limits"] == {"pods", "example.com/card-0"}
    assert found["idle"] == {"pods"}
