"""A field of a Queue that no active plugin reads is reported on the queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, node, planned, queue
from tests.plugins.opened import conf

HIERARCHY = conf("capacity").replace("  - name: capacity\n", "  - name: capacity\n    enableHierarchy: true\n")
CPU = {"cpu": "4"}
CAPABLE = {"deserved": CPU}
NEAR = {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["g"]}}


@pytest.mark.parametrize(
    ("settings", "spec", "unread"),
    [
        (conf("proportion"), {"deserved": CPU}, "deserved"),
        (conf("proportion"), {"weight": 3, "capability": CPU, "guarantee": {"resource": CPU}, "priority": 2}, ""),
        (conf("capacity"), {"weight": 3}, "weight"),
        (conf("capacity"), {"parent": "team"}, "parent"),
        (HIERARCHY, {"parent": "team", "deserved": CPU}, ""),
        (conf("gang"), {"capability": CPU}, "capability"),
        (conf("gang"), {"weight": 1, "parent": "root"}, ""),
        (conf("gang"), {"affinity": NEAR}, "affinity"),
    ],
)
def test_a_field_that_no_active_plugin_reads_is_reported(settings: str, spec: dict[str, Any], unread: str) -> None:
    result = planned(node("n"), queue("root"), queue("team", **CAPABLE), queue("q", **spec), conf=settings)
    found = [text for text in result.problems.get("Queue q", ()) if "has no effect" in text]
    assert [text.split()[0] for text in found] == ([f"spec.{unread}"] if unread else [])


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
def test_a_capability_of_zero_that_limits_nothing_is_told_on_the_queue(plugin: str) -> None:
    """As in Volcano; a user who writes it means that the queue is to have none."""
    amounts = {"cpu": "0", "memory": "1Gi", "nvidia.com/gpu": "0"}
    result = planned(node("n"), queue("q", capability=amounts), gang("g", 1, cpu=1, queue="q"), conf=conf(plugin))
    assert result.problems["Queue q"] == [
        "spec.capability cpu 0 limits nothing: close the queue, or state an amount above 0"
    ]
    assert result.binds == {"default/g-0": "n"}
