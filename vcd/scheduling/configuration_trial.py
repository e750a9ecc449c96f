"""Try out a configuration before it is used: open its plugins, and decide one cycle on a small cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from vcd.model.controllers import GROUP_NAME
from vcd.model.events import ObjectPut
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.decide import run
from vcd.scheduling.framework import guard, registry
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker

_AMOUNTS: Final = {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "1"}
_REQUESTS: Final = {"cpu": "1", "memory": "1Gi"}


def faults(policy: Policy) -> Mapping[str, str]:
    """Return the errors of a cycle under ``policy``, by plugin (empty: no plugin is responsible).

    Third-party plugins and actions are left out: if one fails in a session, the session continues without it and
    reports it.
    """
    try:
        session = run(_snapshot(), _built_in(policy), 0, 0)
        plan_of(session)
    except Exception as error:  # noqa: BLE001 - whatever it is, a cycle would end with it
        return {"": f"{error!r}"}
    return {guard.name_in(fault): fault.partition(": ")[2] for fault in session.faults}


def _built_in(policy: Policy) -> Policy:
    plugins, actions = registry.plugins(), registry.actions()
    tiers = tuple(tuple(option for option in tier if guard.is_ours(plugins[option.name])) for tier in policy.tiers)
    names = tuple(name for name in policy.actions if guard.is_ours(actions[name]))
    return dataclasses.replace(policy, tiers=tiers, actions=names)


def _snapshot() -> Snapshot:
    """Return two queues, two nodes, a running group and two waiting ones: one fits, one needs evictions."""
    state = ClusterState()
    for manifest in (
        _object("Queue", "default", "", {"weight": 1}),
        _object("Queue", "other", "", {"weight": 2}),
        *(_object("Node", name, "", {}, {"allocatable": _AMOUNTS, "capacity": _AMOUNTS}) for name in ("a", "b")),
        *_group("runs", "other", ["a"]),
        *_group("waits", "default", ["", ""]),
        *_group("large", "default", [""] * 9),
    ):
        kind, obj, _ = from_manifest(manifest)
        state.apply(state.sequence + 1, ObjectPut(kind, obj.key, "", encode_payload(obj)))
    return SnapshotMaker(state).snapshot()


def _group(name: str, queue: str, nodes: list[str]) -> list[dict[str, Any]]:
    """Return a group and its pods; ``nodes`` has the node of each pod, empty for a waiting one."""
    spec = {"minMember": len(nodes), "queue": queue, "minResources": _REQUESTS}
    return [
        _object("PodGroup", name, "default", spec, {"phase": "Running" if all(nodes) else "Pending"}),
        *(_pod(f"{name}-{number}", name, node) for number, node in enumerate(nodes)),
    ]


def _pod(name: str, group: str, node: str) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": _REQUESTS}}]
    spec = {"schedulerName": "volcano", "nodeName": node, "containers": containers}
    pod = _object("Pod", name, "default", spec, {"phase": "Running" if node else "Pending"})
    pod["metadata"]["annotations"] = {GROUP_NAME: group}
    return pod


def _object(kind: str, name: str, namespace: str, spec: Any, status: Any = None) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    version = "scheduling.volcano.sh/v1beta1" if kind in ("Queue", "PodGroup") else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec, "status": status or {}}
