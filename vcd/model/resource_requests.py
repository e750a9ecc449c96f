"""Requests of pods and capacity of nodes, as integers by resource name.

Units are those of ``vcd.model.quantity.resource_value``: cpu and scalars in thousandths, bytes and pods whole. Source:
Volcano ``pkg/scheduler/api/pod_info.go`` and ``resource_info.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from vcd.model.objects import (
    Container,
    ContainerStatus,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    Quantities,
    ResourceRequirements,
)
from vcd.model.quantity import (
    QuantityError,
    add,
    format_resource,
    is_pod_level_resource,
    is_scalar_resource,
    needed,
    resource_value,
)

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

DEFAULT_MILLI_CPU = 100
"""The cpu of a container without a cpu request in scores (kube-scheduler's non-zero request)."""
DEFAULT_MEMORY = 200 * 1024 * 1024
"""The memory of a container without a memory request in scores."""

_AMOUNTS = {"spec", "status", "containers", "init_containers", "container_statuses", "init_container_statuses",
            "resources", "requests", "overhead", "allocated_resources"}  # fmt: skip
"""The fields of a pod that lead to counted amounts."""
_OVERSUBSCRIPTION = {CPU: "volcano.sh/oversubscription-cpu", MEMORY: "volcano.sh/oversubscription-memory"}


LARGEST = 2**53
"""Limit of a request of a pod or group, and of what counts of a node, so that sums are exact."""
LARGEST_SUM = 2**60
"""Limit of a sum of such amounts, and of the amounts of a queue: an EiB of memory, or 10**15 cores."""


def within_bounds(amounts: dict[str, int]) -> dict[str, int]:
    """Return the amounts. Raises QuantityError for one above LARGEST."""
    for name, value in amounts.items():
        if value > LARGEST:
            raise QuantityError(f"resource {name}: {value} is more than {LARGEST}")
    return amounts


UNOFFERED = "resources that no node offers"
"""One name for all resources that no node offers and no queue limits.

A pod's or group's request of this column is its largest request of any such resource. With a column for each, a pod
that names thousands would widen every sum.
"""


def format_sum(name: str, amount: float) -> str:
    """Format a sum as a quantity, limited to LARGEST_SUM."""
    return format_resource(name, min(int(amount), LARGEST_SUM))


def is_counted(name: str) -> bool:
    """Whether a resource counts in scheduling: cpu, memory, pods, ephemeral-storage and scalars."""
    return name in (CPU, MEMORY, PODS, "ephemeral-storage") or is_scalar_resource(name)


def resource_values(quantities: Quantities) -> dict[str, int]:
    """Return the counted resources of a list of quantities. Raises QuantityError naming the resource."""
    values = {}
    for name, text in quantities.items():
        if is_counted(name):
            try:
                values[name] = resource_value(name, text)
            except QuantityError as error:
                raise QuantityError(f"resource {name}: {error}") from error
    return values


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return what a pod requests of its node.

    That is containers and sidecars or the largest init step, replaced by pod-level requests, plus overhead and one pod.
    Raises QuantityError for an invalid quantity.
    """
    total = _needed(spec, lambda container: resource_values(container.resources.requests))
    add(total, {PODS: 1})
    if spec.resources is not None:
        whole = resource_values(spec.resources.requests)
        total.update({name: value for name, value in whole.items() if is_pod_level_resource(name)})
    add(total, resource_values(spec.overhead))
    return within_bounds(total)


def _needed(spec: PodSpec, amounts_of: Callable[[Container], dict[str, int]]) -> dict[str, int]:
    return needed(
        map(amounts_of, spec.containers),
        ((amounts_of(container), container.restart_policy == "Always") for container in spec.init_containers),
    )


def may_be_resized(pod: Pod) -> bool:
    """Whether the status states resources of containers, so that the pod may count with more than its spec requests."""
    status = pod.status
    return bool(status.container_statuses or status.init_container_statuses or status.resources)


def counted_spec(pod: Pod) -> PodSpec:
    """Return a pod's spec with the requests that count during an in-place resize.

    Each container, and a pod with pod-level requests, counts with the largest of its desired, admitted and running
    requests. Desired requests are left out once the kubelet reports them as infeasible on the node. Source: Volcano
    ``api/pod_info.go`` and Kubernetes' ``component-helpers/resource``. Raises QuantityError.
    """
    spec, status = pod.spec, pod.status
    if not may_be_resized(pod):
        return spec
    never = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions)
    running = {each.name: each for each in status.container_statuses}
    sidecars = {each.name: each for each in status.init_container_statuses}
    whole = spec.resources
    if whole is not None and status.resources is not None:
        whole = _in_force(whole, ContainerStatus("", status.resources, status.allocated_resources or {}), never)
    return msgspec.structs.replace(
        spec,
        containers=tuple(_resized(each, running.get(each.name), never) for each in spec.containers),
        init_containers=tuple(
            _resized(each, sidecars.get(each.name) if each.restart_policy == "Always" else None, never)
            for each in spec.init_containers
        ),
        resources=whole,
    )


def _resized(container: Container, status: ContainerStatus | None, never: bool) -> Container:
    if status is None or status.resources is None:
        return container
    return msgspec.structs.replace(container, resources=_in_force(container.resources, status, never))


def _in_force(wanted: ResourceRequirements, status: ContainerStatus, never: bool) -> ResourceRequirements:
    assert status.resources is not None
    largest: Quantities = {}
    for quantities in ({} if never else wanted.requests, status.resources.requests, status.allocated_resources):
        values = resource_values(quantities)
        for name, text in quantities.items():
            if name not in largest or values.get(name, 0) > resource_values({name: largest[name]}).get(name, 0):
                largest[name] = text
    return msgspec.structs.replace(wanted, requests=largest)


def countable(pod: Pod) -> Pod:
    """Return the pod with invalid or too large amounts replaced by the largest that can be counted.

    For a pod on a node: a resize may request any amount, and the pod still uses its node.
    """
    steps = len(pod.spec.containers) + len(pod.spec.init_containers)
    cut: Pod = _countable(pod, LARGEST // (steps + 2))  # plus overhead, and the pod as a whole
    return cut


def _countable(found: Any, most: int) -> Any:
    """Cut the amounts in a part of a pod, recursively."""
    if isinstance(found, tuple):
        return tuple(_countable(each, most) for each in found)
    if isinstance(found, dict):
        return {name: _cut(name, text, most) for name, text in found.items()}
    if isinstance(found, msgspec.Struct):
        parts = {name: _countable(getattr(found, name), most) for name in found.__struct_fields__ if name in _AMOUNTS}
        return msgspec.structs.replace(found, **parts)
    return found


def _cut(name: str, text: str | int | float, most: int) -> str | int | float:
    try:
        return text if not is_counted(name) or resource_value(name, text) <= most else format_resource(name, most)
    except QuantityError:
        return format_resource(name, most)


def without_echo(pod: Pod) -> PodStatus:
    """Return a pod's status without repetitions of the spec: statuses of containers stay during a resize only."""
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return status
    whole = pod.spec.resources
    as_stated = whole is None or not _differs(
        whole, ContainerStatus("", status.resources, status.allocated_resources or {})
    )
    return msgspec.structs.replace(
        status,
        container_statuses=_resizing(pod.spec.containers, status.container_statuses),
        init_container_statuses=_resizing(pod.spec.init_containers, status.init_container_statuses),
        resources=None if as_stated else status.resources,
        allocated_resources=None if as_stated else status.allocated_resources,
    )


def _resizing(containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    wanted = {container.name: container.resources for container in containers}
    return tuple(each for each in statuses if each.name in wanted and _differs(wanted[each.name], each))


def _differs(wanted: ResourceRequirements, status: ContainerStatus) -> bool:
    if status.resources is None:
        return False
    return any(known not in ({}, wanted.requests) for known in (status.resources.requests, status.allocated_resources))


def is_best_effort(requests: Mapping[str, int]) -> bool:
    """Whether a pod requests nothing except its pod slot."""
    return not any(value for name, value in requests.items() if name != PODS)


def score_requests(spec: PodSpec) -> tuple[int, int]:
    """Return cpu (milli) and memory (bytes) of a pod in kube-scheduler's scores, with defaults where unset.

    Each container without a request counts the default. If the pod has pod-level requests, this holds only when the pod
    with its overhead requests nothing (kube-scheduler ``getNonMissingContainerRequests``). Raises QuantityError.
    """
    return _score_request(spec, CPU, DEFAULT_MILLI_CPU), _score_request(spec, MEMORY, DEFAULT_MEMORY)


def _score_request(spec: PodSpec, name: str, default: int) -> int:
    whole = {} if spec.resources is None else spec.resources.requests
    by_pod = any(is_pod_level_resource(resource) for resource in whole)
    for_container = 0 if by_pod and pod_requests(spec).get(name) else default

    def of(container: Container) -> dict[str, int]:
        text = container.resources.requests.get(name)
        return {name: for_container if text is None else resource_value(name, text)}

    total = resource_value(name, whole[name]) if name in whole else _needed(spec, of).get(name, 0)
    overhead = spec.overhead.get(name)
    return total + (resource_value(name, overhead) if overhead is not None else 0)


def node_allocatable(node: Node) -> dict[str, int]:
    """Return what pods may use of a node, oversubscription included, from 0 to LARGEST. Raises QuantityError."""
    values = resource_values(node.status.allocatable or node.status.capacity)
    for name, annotation in _OVERSUBSCRIPTION.items():
        text = node.metadata.annotations.get(annotation)
        if text is not None:
            try:
                values[name] = values.get(name, 0) + int(float(text))
            except (ValueError, OverflowError) as error:
                raise QuantityError(f"annotation {annotation}: {text!r} is not a number") from error
    return {name: min(max(value, 0), LARGEST) for name, value in values.items()}


def names_in_order(requests: Iterable[str]) -> list[str]:
    """Sort resource names in canonical order: cpu, memory, then by name."""
    rank = {CPU: 0, MEMORY: 1}
    return sorted(requests, key=lambda name: (rank.get(name, 2), name))
