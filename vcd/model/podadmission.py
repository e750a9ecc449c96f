"""Fill in what the API server and Volcano's webhooks set in new pods, PodGroups, claims and queues.

The embedded server, plans and what-ifs share this module, so that all decide on objects as a server would store them.
The functions take plain manifests, and change the spec that they are given. What scheduling does not read is filled in
elsewhere; LimitRanges are in ``vcd.model.limitranges``.

Sources: Kubernetes ``pkg/apis/core/v1/defaults.go``, ``pkg/apis/core/validation`` and ``plugin/pkg/admission``
(``priority``, ``runtimeclass``, ``storage/storageclass``), Volcano ``pkg/webhooks/admission`` (``queues/mutate``,
``podgroups/mutate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from vcd.model.controllers import Manifest
from vcd.model.podgroups import QUEUE_ANNOTATION, container_requests
from vcd.model.quantity import QuantityError, format_resource, is_pod_level_resource, resource_value

SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The values of the priority classes that every cluster has."""
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


_DEFAULT_QUEUE: Final = "default"


class UnknownPriorityClass(LookupError):
    """A pod names a priority class that does not exist; the argument is its name."""


def fill_in_scheduling(spec: Manifest) -> None:
    """Fill in requests from limits, pod-level requests, and the host ports of pods in the host's network."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for container in containers:
        _fill_in_requests(container.get("resources") or {})
        for port in (spec.get("hostNetwork") and container.get("ports")) or ():
            port["hostPort"] = port.get("hostPort") or port.get("containerPort")
    _fill_in_pod_level(spec)


def fill_in_priority(spec: Manifest, classes: Mapping[str, Manifest]) -> None:
    """Fill in class, priority and preemption policy; of several global default classes, the lowest value counts.

    ``classes`` are PriorityClasses by name. A priority in the pod is not changed. Raises UnknownPriorityClass.
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


def fill_in_runtime_class(spec: Manifest, runtime_class: Manifest) -> None:
    """Fill in a pod's overhead, and add the node selector and the tolerations of its RuntimeClass."""
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if overhead and not spec.get("overhead"):
        spec["overhead"] = dict(overhead)
    scheduling = runtime_class.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
    own = spec.get("tolerations") or []
    if added := [each for each in scheduling.get("tolerations") or () if each not in own]:
        spec["tolerations"] = [*own, *added]


def fill_in_storage_class(claim: Manifest, classes: Iterable[Manifest]) -> None:
    """Fill in the default StorageClass of an unbound claim that names none: of several, the newest, then by name."""
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    spec = claim["spec"]
    if spec.get("storageClassName") is not None or spec.get("volumeName") or _BETA_CLASS in annotations:
        return
    by_name = sorted((each for each in classes if _is_default_class(each)), key=lambda each: each["metadata"]["name"])
    newest = max(by_name, key=lambda each: each["metadata"].get("creationTimestamp") or "", default=None)
    if newest is not None:
        spec["storageClassName"] = newest["metadata"]["name"]


def fill_in_queue(spec: Manifest) -> None:
    """Fill in a queue's weight: 1 if it is missing or 0."""
    spec["weight"] = spec.get("weight") or 1


def fill_in_group_queue(spec: Manifest, annotations: Mapping[str, str]) -> None:
    """Fill in a PodGroup's queue from its namespace's ``annotations``, if it names none or ``default``."""
    of_namespace = annotations.get(QUEUE_ANNOTATION)
    if of_namespace and spec.get("queue") in (None, "", _DEFAULT_QUEUE):
        spec["queue"] = of_namespace


def requests_above_limits(resources: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Yield resource, request and limit of each request above its limit. The API server refuses such pods.

    Invalid quantities are not compared.
    """
    limits = resources.get("limits") or {}
    for name, request in (resources.get("requests") or {}).items():
        if name in limits and _is_more(name, request, limits[name]):
            yield name, request, limits[name]


def _is_more(name: str, request: Any, limit: Any) -> bool:
    try:
        return resource_value(name, request) > resource_value(name, limit)
    except QuantityError:
        return False


def _is_default_class(storage_class: Manifest) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)


def _fill_in_requests(resources: Manifest) -> None:
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _fill_in_pod_level(spec: Manifest) -> None:
    """Fill in pod-level requests if there are pod-level limits: from containers, else from the limits (KEP-2837)."""
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
