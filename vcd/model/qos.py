"""The quality of service that Kubernetes gives a pod for what it requests and what its limits are."""

from __future__ import annotations

from vcd.model.objects import PodSpec, Quantities
from vcd.model.quantity import parse_milli


def is_guaranteed(spec: PodSpec) -> bool:
    """Whether a pod's limits of cpu and memory are all there and equal its requests; those of the pod as a whole, where
    it states any. Raises QuantityError."""
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        return _is_guaranteed(spec.resources.requests, spec.resources.limits)
    containers = (*spec.init_containers, *spec.containers)
    return bool(containers) and all(_is_guaranteed(c.resources.requests, c.resources.limits) for c in containers)


def _is_guaranteed(requests: Quantities, limits: Quantities) -> bool:
    for name in ("cpu", "memory"):
        limit = parse_milli(limits.get(name, 0))
        if not limit or parse_milli(requests.get(name, limits[name])) != limit:
            return False
    return True
