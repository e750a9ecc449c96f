"""Clusters for the benchmarks, as manifests and as states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vcd.state.cluster_state import ClusterState
from vcd.timetravel.planning import state_of

Manifest = dict[str, Any]


def nodes(count: int, cpu: int = 32, memory: str = "256Gi", **labels: str) -> Iterator[Manifest]:
    """Yield nodes of one size; label values may contain ``{i}`` and ``{zone}`` (ten zones)."""
    for i in range(count):
        marks = {key: text.format(i=i, zone=i % 10) for key, text in labels.items()}
        yield {
            "kind": "Node",
            "metadata": {"name": f"node-{i:05}", "labels": {"kubernetes.io/hostname": f"node-{i:05}", **marks}},
            "status": {"allocatable": {"cpu": str(cpu), "memory": memory, "pods": "256"}},
        }


def in_turn(first: int, count: int) -> Callable[[int], str]:
    """Return a function that maps pod i to a node, round-robin over ``count`` nodes from ``first`` on."""
    return lambda i: f"node-{(first + i) % count:05}"


def running_in_turn(first: int, count: int, **more: object) -> Callable[[int], Manifest]:
    """Return a function for ``gang`` that adds ``more`` and the node by ``in_turn`` to pod i's spec."""
    node = in_turn(first, count)
    return lambda i: {**more, "nodeName": node(i)}


def queues(count: int) -> Iterator[Manifest]:
    """Yield open queues of equal weight."""
    for i in range(count):
        yield {"kind": "Queue", "metadata": {"name": f"q{i}"}, "spec": {"weight": 1}, "status": {"state": "Open"}}


def gang(
    number: int, size: int, queue: str, phase: str = "Pending", spec: Callable[[int], Manifest] | None = None
) -> Iterator[Manifest]:
    """Yield a PodGroup and its pods of 1 CPU and 1 Gi, all of which it needs; ``spec`` adds to pod i's spec.

    Each pod has a volume with a unique name, like the token volumes that the API server adds.
    """
    name = f"gang-{number:05}"
    yield {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "bench", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "minMember": size,
            "queue": queue,
            "minResources": {"cpu": str(size), "memory": f"{size}Gi"},
        },
        "status": {"phase": phase},
    }
    for i in range(size):
        extra = dict(spec(i)) if spec else {}
        labels = extra.pop("labels", {"app": name})
        yield {
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{i}",
                "namespace": "bench",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"scheduling.k8s.io/group-name": name},
                "labels": labels,
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [
                    {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
                ],
                "volumes": [{"name": f"token-{number}-{i}", "emptyDir": {}}],
                **extra,
            },
            "status": {"phase": "Running" if extra.get("nodeName") else "Pending"},
        }


def pending_gangs(node_count: int, pod_count: int, queue_count: int, size: int = 100) -> ClusterState:
    """Return the state of an empty cluster with pending gangs."""
    objects = [*nodes(node_count), *queues(queue_count)]
    for number in range(pod_count // size):
        objects.extend(gang(number, size, f"q{number % queue_count}"))
    return state_of(objects)
