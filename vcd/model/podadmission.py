"""What the API server fills in of a new pod that scheduling reads, as plain manifests.

The embedded server, plans and what-ifs share this module, so that all decide on pods as a server would store them. The
functions change the specification that they are given. What scheduling does not read is filled in elsewhere. LimitRange
is not applied.

Sources: Kubernetes ``pkg/apis/core/v1/defaults.go`` and ``plugin/pkg/admission/priority``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from vcd.model.controllers import Manifest
from vcd.model.podgroups import container_requests
from vcd.model.quantity import format_resource, is_pod_level_resource

SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The values of the priority classes that every cluster has."""


class UnknownPriorityClass(LookupError):
    """A pod names a priority class that does not exist; the argument is its name."""


def fill_in_scheduling(spec: Manifest) -> None:
    """Fill in requests by limits, pod-level requests, and the host ports of pods in the host's network."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for container in containers:
        _fill_in_requests(container.get("resources") or {})
        for port in (spec.get("hostNetwork") and container.get("ports")) or ():
            port["hostPort"] = port.get("hostPort") or port.get("containerPort")
    _fill_in_pod_level(spec)


def fill_in_priority(spec: Manifest, classes: Mapping[str, Manifest]) -> None:
    """Fill in class, priority and preemption policy; of several global default classes the one of least value counts.

    ``classes`` are PriorityClasses by name. A priority that the pod states is kept. Raises UnknownPriorityClass.
    """
    name = spec.get("priorityClassName")
    if name:
        chosen = classes.get(name)
        if chosen is None:
            raise UnknownPriorityClass(name)
    else:
        chosen = min(_global_defaults(classes.values()), key=_value, default={})
        if chosen:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    if spec.get("priority") is None:
        spec["priority"] = _value(chosen)
    if spec.get("preemptionPolicy") is None:
        spec["preemptionPolicy"] = chosen.get("preemptionPolicy") or "PreemptLowerPriority"


def _fill_in_requests(resources: Manifest) -> None:
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _fill_in_pod_level(spec: Manifest) -> None:
    """Where a pod as a whole has limits, it requests what its containers do, else these limits (KEP-2837)."""
    resources: Manifest = spec.get("resources") or {}
    limits: Mapping[str, Any] = resources.get("limits") or {}
    if limits:
        effective = {name: format_resource(name, amount) for name, amount in container_requests(spec).items()}
        filled = {name: text for name, text in {**limits, **effective}.items() if is_pod_level_resource(name)}
        resources["requests"] = {**filled, **(resources.get("requests") or {})}


def _global_defaults(classes: Iterable[Manifest]) -> list[Manifest]:
    return [each for each in classes if each.get("globalDefault")]


def _value(priority_class: Manifest) -> int:
    value: int = priority_class.get("value") or 0
    return value
