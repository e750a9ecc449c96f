"""What controllers and kubelets read off a pod: whether it lives, is ready, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vcd.embedded.clock import parse_timestamp
from vcd.embedded.controllers.base import Obj, is_deleting
from vcd.model.quantity import QuantityError, add, format_resource, is_scalar_resource, needed, resource_value

Amounts = dict[str, int]

TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")

_MOST = 2**63 - 1


def phase_of(pod: Obj) -> str:
    """The pod's phase; a pod without one is Pending."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def node_of(pod: Obj) -> str:
    """The name of the node that the pod is bound to, empty when it is bound to none."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def is_active(pod: Obj) -> bool:
    """Whether the pod counts for its controller: it has not ended and nobody is deleting it."""
    return phase_of(pod) not in TERMINAL and not is_deleting(pod)


def condition_of(pod: Obj, kind: str) -> Obj | None:
    """The condition of that type."""
    return next((each for each in (pod.get("status") or {}).get("conditions") or () if each.get("type") == kind), None)


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is true."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def available_at(pod: Obj, min_ready_seconds: int) -> float | None:
    """When the pod counts as available: ready for that long; None while it is not ready."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    since = ready.get("lastTransitionTime")
    return parse_timestamp(since) + min_ready_seconds if since and min_ready_seconds else 0.0


def requests_of(spec: Obj) -> Amounts:
    """What a pod asks for by resource, in the units of ``vcd.model.quantity.resource_value``.

    What its containers need, or what it requests itself where it does; its overhead on top.
    """
    amounts = _amounts(spec, "requests")
    add(amounts, _parsed(spec.get("overhead") or {}))
    return amounts


def limits_of(spec: Obj) -> Amounts:
    """The pod's limits by resource, counted as the requests are."""
    amounts = _amounts(spec, "limits")
    for name, value in _parsed(spec.get("overhead") or {}).items():
        if name in amounts:
            amounts[name] += value
    return amounts


def quota_usage(spec: Obj, pods: int) -> dict[str, str]:
    """What ``pods`` pods of this specification use of a resource quota, as a resource list.

    This is the ``minResources`` that Volcano's controllers write: besides cpu, memory and extended resources it has
    the quota's own names (``pods``, ``count/pods``, ``requests.cpu``, ``limits.memory``...).
    """
    if pods <= 0:
        return {}
    usage = {"count/pods": str(pods), "pods": str(pods)}
    for name, value in requests_of(spec).items():
        text = format_resource(name, value * pods)
        if name in _COMPUTE or name.startswith("hugepages-") or _is_extended(name):
            usage[name] = usage[f"requests.{name}"] = text
    for name, value in limits_of(spec).items():
        if name in _COMPUTE:
            usage[f"limits.{name}"] = format_resource(name, value * pods)
    return dict(sorted(usage.items()))


def add_quotas(lists: Iterable[dict[str, str]]) -> dict[str, str]:
    """The sum of resource lists as ``quota_usage`` makes them."""
    total: Amounts = {}
    for each in lists:
        add(total, {name: resource_value(_unit_name(name), text) for name, text in each.items()})
    return {name: format_resource(_unit_name(name), value) for name, value in sorted(total.items())}


def _unit_name(name: str) -> str:
    """The resource whose unit a quota's name is counted in."""
    if name == "count/pods":
        return "pods"
    return name.removeprefix("requests.").removeprefix("limits.")


def _is_extended(name: str) -> bool:
    return is_scalar_resource(name) and "kubernetes.io/" not in name and not name.startswith("attachable-volumes-")


def _amounts(spec: Obj, field: str) -> Amounts:
    starting = spec.get("initContainers") or ()
    total = needed(
        (_resources(container, field) for container in spec.get("containers") or ()),
        ((_resources(container, field), container.get("restartPolicy") == "Always") for container in starting),
    )
    total.update(_resources(spec, field))
    return total


def _resources(holder: Obj, field: str) -> Amounts:
    return _parsed((holder.get("resources") or {}).get(field) or {})


def _parsed(quantities: Obj) -> Amounts:
    return {name: _capped(name, text) for name, text in quantities.items()}


def _capped(name: str, text: str | int | float) -> int:
    """A quantity, at most what 64 bits hold: the API server admits more, and Kubernetes then counts that."""
    try:
        return resource_value(name, text)
    except QuantityError:
        return _MOST
