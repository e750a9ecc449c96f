"""What objects can ask for that vcd does not know: the one list of it.

A demand that cannot be kept keeps its pods waiting, since what is not understood must not be placed as if it had not
been said; a wish is passed over, and told. README's table "Not supported" has a row for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vcd.model.objects import NetworkTopology, PodGroupSpec, PodSpec, QueueSpec

S = TypeVar("S")


@dataclass(frozen=True)
class Unknown(Generic[S]):
    """One field of ``kind``: its ``path``, what it means, and whether an object's spec asks for it."""

    kind: str
    path: str
    meaning: str
    asks: Callable[[S], bool]


def _is_soft(topology: NetworkTopology) -> bool:
    return topology.mode.lower() == "soft"


def _topologies(spec: PodGroupSpec) -> list[NetworkTopology]:
    return [policy.network_topology for policy in spec.sub_group_policy if policy.network_topology is not None]


POD_DEMANDS: tuple[Unknown[PodSpec], ...] = (
    Unknown("Pod", "spec.resourceClaims", "devices by ResourceClaims (DRA)", lambda spec: bool(spec.resource_claims)),
    Unknown("Pod", "spec.workloadRef", "Kubernetes' own gangs", lambda spec: spec.workload_ref is not None),
    Unknown("Pod", "spec.schedulingGroup", "Kubernetes' own gangs", lambda spec: spec.scheduling_group is not None),
)
GROUP_DEMANDS: tuple[Unknown[PodGroupSpec], ...] = (
    Unknown(
        "PodGroup",
        "spec.networkTopology",
        "pods within one HyperNode (mode hard)",
        lambda spec: spec.network_topology is not None and not _is_soft(spec.network_topology),
    ),
    Unknown(
        "PodGroup",
        "spec.subGroupPolicy[].networkTopology",
        "a sub-group's pods within one HyperNode (mode hard)",
        lambda spec: any(not _is_soft(topology) for topology in _topologies(spec)),
    ),
)
GROUP_WISHES: tuple[Unknown[PodGroupSpec], ...] = (
    Unknown(
        "PodGroup",
        "spec.networkTopology",
        "pods near to each other (mode soft): they may be on any nodes",
        lambda spec: spec.network_topology is not None and _is_soft(spec.network_topology),
    ),
    Unknown(
        "PodGroup",
        "spec.subGroupPolicy[].networkTopology",
        "a sub-group's pods near to each other (mode soft): they may be on any nodes",
        lambda spec: any(map(_is_soft, _topologies(spec))),
    ),
)
QUEUE_WISHES: tuple[Unknown[QueueSpec], ...] = (
    Unknown(
        "Queue",
        "spec.dequeueStrategy",
        "fifo: later groups are tried where the first one waits, as vc-scheduler does",
        lambda spec: spec.dequeue_strategy == "fifo",
    ),
    Unknown(
        "Queue",
        "spec.extendClusters",
        "other clusters: pods are placed in this one",
        lambda spec: bool(spec.extend_clusters),
    ),
)


def demands_of_pod(spec: PodSpec) -> tuple[str, ...]:
    """The fields for which pods of this spec have to wait."""
    return tuple(each.path for each in POD_DEMANDS if each.asks(spec))


def demands_of_group(spec: PodGroupSpec) -> tuple[str, ...]:
    """The fields for which all pods of this group have to wait."""
    return tuple(f"the PodGroup's {each.path}" for each in GROUP_DEMANDS if each.asks(spec))


def wishes_of_group(spec: PodGroupSpec) -> tuple[str, ...]:
    """Sentences about what of a group is passed over."""
    return _told(GROUP_WISHES, spec)


def wishes_of_queue(spec: QueueSpec) -> tuple[str, ...]:
    """Sentences about what of a queue is passed over."""
    return _told(QUEUE_WISHES, spec)


def _told(fields: tuple[Unknown[Any], ...], spec: Any) -> tuple[str, ...]:
    return tuple(f"{each.path} is not supported and passed over ({each.meaning})" for each in fields if each.asks(spec))
