"""What a pod asks for and what a node has, as integers by resource name.

Units are those of ``vcd.model.quantity.resource_value``: cpu and scalars in thousandths, memory in bytes, pods in
whole pods. Source: Volcano ``pkg/scheduler/api/pod_info.go`` and ``resource_info.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vcd.model.objects import Container, Node, PodSpec, Quantities
from vcd.model.quantity import QuantityError, is_scalar_resource, resource_value

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

DEFAULT_MILLI_CPU = 100
"""What a container without a cpu request counts in scores (kube-scheduler's non-zero request)."""
DEFAULT_MEMORY = 200 * 1024 * 1024
"""What a container without a memory request counts in scores."""

_OVERSUBSCRIPTION = {CPU: "volcano.sh/oversubscription-cpu", MEMORY: "volcano.sh/oversubscription-memory"}


LARGEST = 2**53
"""What one pod may ask for, or one node have, of a resource: more could not be summed up exactly."""


def within_bounds(amounts: dict[str, int]) -> dict[str, int]:
    """The amounts themselves. Raises QuantityError for one that is above LARGEST."""
    for name, value in amounts.items():
        if value > LARGEST:
            raise QuantityError(f"resource {name}: {value} is more than {LARGEST}")
    return amounts


def is_counted(name: str) -> bool:
    """Whether a resource takes part in scheduling: cpu, memory, pods, ephemeral-storage and scalars."""
    return name in (CPU, MEMORY, PODS, "ephemeral-storage") or is_scalar_resource(name)


def resource_values(quantities: Quantities) -> dict[str, int]:
    """The counted resources of a list of quantities. Raises QuantityError naming the resource."""
    values = {}
    for name, text in quantities.items():
        if is_counted(name):
            try:
                values[name] = resource_value(name, text)
            except QuantityError as error:
                raise QuantityError(f"resource {name}: {error}") from error
    return values


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What a pod asks of its node: containers and sidecars, or the largest init step, pod level, overhead, one pod.

    Raises QuantityError for a quantity that cannot be read.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, resource_values(container.resources.requests))
    sidecars: dict[str, int] = {}
    largest_step: dict[str, int] = {}
    for container in spec.init_containers:
        step = resource_values(container.resources.requests)
        if container.restart_policy == "Always":
            _add(total, step)
            _add(sidecars, step)
            _raise_to(largest_step, sidecars)
        else:
            _add(step, sidecars)
            _raise_to(largest_step, step)
    _raise_to(total, largest_step)
    _add(total, {PODS: 1})
    if spec.resources is not None:
        whole = resource_values(spec.resources.requests)
        total.update({name: value for name, value in whole.items() if _is_pod_level(name)})
    _add(total, resource_values(spec.overhead))
    return within_bounds(total)


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def is_best_effort(requests: Mapping[str, int]) -> bool:
    """Whether a pod asks for nothing but its place."""
    return not any(value for name, value in requests.items() if name != PODS)


def score_requests(spec: PodSpec) -> tuple[int, int]:
    """Cpu (milli) and memory (bytes) that a pod counts in kube-scheduler's scores, with defaults where unset.

    Each container that asks for none counts the default; where the pod as a whole asks for anything, only when the pod
    with its overhead comes to nothing (kube-scheduler ``getNonMissingContainerRequests``). Raises QuantityError.
    """
    return (
        _score_request(spec, CPU, DEFAULT_MILLI_CPU),
        _score_request(spec, MEMORY, DEFAULT_MEMORY),
    )


def _score_request(spec: PodSpec, name: str, default: int) -> int:
    whole = {} if spec.resources is None else spec.resources.requests
    by_pod = any(_is_pod_level(resource) for resource in whole)
    for_container = 0 if by_pod and pod_requests(spec).get(name) else default

    def of(container: Container) -> int:
        text = container.resources.requests.get(name)
        return for_container if text is None else resource_value(name, text)

    total = sum(of(container) for container in spec.containers)
    sidecars = largest_step = 0
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            total += of(container)
            sidecars += of(container)
            largest_step = max(largest_step, sidecars)
        else:
            largest_step = max(largest_step, of(container) + sidecars)
    total = max(total, largest_step)
    if name in whole:
        total = resource_value(name, whole[name])
    overhead = spec.overhead.get(name)
    return total + (resource_value(name, overhead) if overhead is not None else 0)


def node_allocatable(node: Node) -> dict[str, int]:
    """What pods may use of a node, oversubscription included. Raises QuantityError."""
    values = resource_values(node.status.allocatable or node.status.capacity)
    for name, annotation in _OVERSUBSCRIPTION.items():
        text = node.metadata.annotations.get(annotation)
        if text is not None:
            try:
                values[name] = values.get(name, 0) + int(float(text))
            except (ValueError, OverflowError) as error:
                raise QuantityError(f"annotation {annotation}: {text!r} is not a number") from error
    return within_bounds(values)


def names_in_order(requests: Iterable[str]) -> list[str]:
    """Resource names in canonical order: cpu, memory, then by name."""
    rank = {CPU: 0, MEMORY: 1}
    return sorted(requests, key=lambda name: (rank.get(name, 2), name))
