"""Node lifecycle: sets the taints for a node's conditions, as Kubernetes' node lifecycle controller does."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.controllers.controller_base import NODES, Controller, Key, Obj

_PREFIX: Final = "node.kubernetes.io/"
_BY_CONDITION: Final = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
}
_KEPT: Final = frozenset(_PREFIX + name for name in [*_BY_CONDITION.values(), "unschedulable"])


class NodeLifecycleController(Controller):
    """Taints nodes that are not ready, under pressure or cordoned (NoSchedule), and removes these taints."""

    name: ClassVar[str] = "node-lifecycle-controller"
    resources = (NODES,)

    def reconcile(self, key: Key) -> None:
        """Set the taints for the node's conditions. A node without conditions is not changed."""
        node = self.find(NODES, *key)
        if node is None or not (node.get("status") or {}).get("conditions"):
            return
        spec = node.get("spec") or {}
        present = spec.get("taints") or []
        wanted = wanted_taints(node)
        have = {taint["key"] for taint in present if taint["key"] in _KEPT and taint.get("effect") == "NoSchedule"}
        if have == set(wanted):
            return
        others = [t for t in present if not (t["key"] in _KEPT and t.get("effect") == "NoSchedule")]
        taints = [*others, *({"key": taint, "effect": "NoSchedule"} for taint in wanted)]
        fresh = {k: v for k, v in spec.items() if k != "taints"}
        self.store.update(NODES, {**node, "spec": {**fresh, **({"taints": taints} if taints else {})}})


def wanted_taints(node: Obj) -> list[str]:
    """Return the keys of the taints for the node's conditions and ``spec.unschedulable``."""
    found = [(each.get("type"), each.get("status")) for each in node["status"]["conditions"]]
    keys = [_PREFIX + name for condition, name in _BY_CONDITION.items() if condition in found]
    return [*keys, *([_PREFIX + "unschedulable"] if (node.get("spec") or {}).get("unschedulable") else [])]
