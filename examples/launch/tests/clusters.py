"""Manifests for the tests."""

from __future__ import annotations

import datetime
from typing import Any

import vcd
from vcd.api import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.session.session import Session
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

CONF = """
actions: "enqueue, launch"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: quiet-hours
"""


def node(name: str, cpu: int = 8, **labels: str) -> dict[str, Any]:
    """Return a node; ``quiet`` is the value of its label quiet-hours."""
    room = {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}
    marks = {f"example.com/{key}-hours": text for key, text in labels.items()}
    return {"kind": "Node", "metadata": {"name": name, "labels": marks}, "status": {"allocatable": room}}


def pod(name: str, cpu: int = 1, on: str = "", group: str | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod, pending unless it is ``on`` a node."""
    marks = {} if group is None else {"scheduling.k8s.io/group-name": group}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": marks},
        "spec": {"schedulerName": "volcano", "containers": [container], "nodeName": on, **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def group(name: str, members: int, phase: str = "Inqueue") -> dict[str, Any]:
    """Return a PodGroup in the queue default."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members, "queue": "default"},
        "status": {"phase": phase},
    }


def planned(*objects: dict[str, Any], conf: str = CONF, hour: int = 12) -> vcd.PlanResult:
    """Decide one cycle over the objects at an hour of a day; assert that nothing failed."""
    result = vcd.plan(objects, conf, _at(hour))
    assert result.faults == []
    return result


def session_after(*objects: dict[str, Any], hour: int = 12) -> Session:
    """Return the session after such a cycle, for details that a plan does not contain."""
    snapshot = SnapshotMaker(state_of(objects)).snapshot()
    return run(snapshot, read_policy(CONF), now=int(_at(hour).timestamp()) * 10**9, seed=0)


def _at(hour: int) -> datetime.datetime:
    return datetime.datetime(2026, 11, 21, hour, tzinfo=datetime.UTC)
