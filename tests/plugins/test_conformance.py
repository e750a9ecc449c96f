"""conformance."""

from __future__ import annotations

import pytest

from tests.dsl import group, node, pod, session_of
from tests.plugins.opened import conf, named, plugin_of, task_of
from vcd.scheduling.plugins.conformance import ConformancePlugin

PODS = [
    pod("system", group="s", on="n", namespace="kube-system"),
    pod("cluster-critical", group="g", on="n", spec={"priorityClassName": "system-cluster-critical"}),
    pod("node-critical", group="g", on="n", spec={"priorityClassName": "system-node-critical"}),
    pod("important", group="g", on="n", spec={"priorityClassName": "high"}),
    pod("plain", group="g", on="n"),
]


@pytest.mark.parametrize("point", ["preemptable", "reclaimable", "unified_evictable"])
def test_system_pods_are_no_victims(point: str) -> None:
    session = session_of(
        node("n"),
        *[group("s", namespace="kube-system"), group("g"), group("want"), pod("want", group="want"), *PODS],
        conf=conf("conformance"),
    )
    candidates = [task_of(session, p["metadata"]["name"], p["metadata"]["namespace"]) for p in PODS]
    victims = getattr(plugin_of(session, ConformancePlugin), point)(task_of(session, "want"), candidates)
    assert named(victims) == ["important", "plain"]
