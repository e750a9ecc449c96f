"""What an API server fills in of pods before a scheduler sees them, as far as the reference reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.reference.model import Manifest, meta


def admitted(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The manifests, pods with the priority and the preemption policy of their class. A pod that names none has those
    of the least global default, or priority 0; one whose class is not there stays as it is."""
    objects = list(manifests)
    classes: dict[str, dict[str, Any]] = {"system-cluster-critical": {"value": 2 * 10**9}}
    classes["system-node-critical"] = {"value": 2 * 10**9 + 1000}
    classes.update({meta(one)["name"]: one for one in objects if one.get("kind") == "PriorityClass"})
    defaults = [one for one in classes.values() if one.get("globalDefault")]
    without = min(defaults, key=lambda one: int(one["value"])) if defaults else {"value": 0}
    return [_prioritized(one, classes, without) if one.get("kind") == "Pod" else one for one in objects]


def _prioritized(pod: Manifest, classes: dict[str, dict[str, Any]], without: dict[str, Any]) -> Manifest:
    spec = pod.get("spec") or {}
    name = spec.get("priorityClassName")
    chosen = classes.get(name) if name else without
    if chosen is None:
        return pod
    filled = {"priority": chosen.get("value", 0), "preemptionPolicy": chosen.get("preemptionPolicy")}
    if chosen is without and "metadata" in without:
        filled["priorityClassName"] = meta(without)["name"]
    stated = {key: value for key, value in spec.items() if value is not None}
    return {**pod, "spec": {**filled, **stated}}
