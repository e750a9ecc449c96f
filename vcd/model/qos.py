"""The quality of service class that Kubernetes derives from a pod's requests and limits."""

from __future__ import annotations

from vcd.model.objects import PodSpec, Quantities, ResourceRequirements
from vcd.model.quantity import QuantityError, parse_milli


def is_guaranteed(spec: PodSpec) -> bool:
    """Whether a pod is Guaranteed: it has limits of cpu and memory, and they equal its requests.

    Pod-level values are used if the pod has any. Raises QuantityError.
    """
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        return _is_guaranteed(spec.resources.requests, spec.resources.limits)
    containers = (*spec.init_containers, *spec.containers)
    return bool(containers) and all(_is_guaranteed(c.resources.requests, c.resources.limits) for c in containers)


def has_best_effort_class(spec: PodSpec) -> bool:
    """Whether a pod's QoS class is BestEffort: neither it nor a container requests or limits cpu or memory."""
    whole = () if spec.resources is None else (spec.resources,)
    containers = (container.resources for container in (*spec.init_containers, *spec.containers))
    return not any(_uses_cpu_or_memory(resources) for resources in (*whole, *containers))


def _uses_cpu_or_memory(resources: ResourceRequirements) -> bool:
    lists = (resources.requests, resources.limits)
    return any(_is_positive(amounts.get(name, 0)) for amounts in lists for name in ("cpu", "memory"))


def _is_positive(amount: str | int | float) -> bool:
    try:
        return parse_milli(amount) > 0
    except QuantityError:
        return True  # beyond int64


def _is_guaranteed(requests: Quantities, limits: Quantities) -> bool:
    for name in ("cpu", "memory"):
        limit = parse_milli(limits.get(name, 0))
        if not limit or parse_milli(requests.get(name, limits[name])) != limit:
            return False
    return True
