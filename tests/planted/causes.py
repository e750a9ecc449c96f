"""Every cause with who plants it: ``planted(code, seed)``."""

from __future__ import annotations

from collections.abc import Callable

from tests.planted import gates, places, rooms, states
from tests.planted.plant import Plant

CAUSES: dict[str, Callable[[int], Plant]] = {
    "unschedulable-shape": rooms.unschedulable_shape,
    "selector": rooms.selector,
    "taint": rooms.taint,
    "unschedulable-node": rooms.unschedulable_node,
    "node-room": rooms.node_room,
    "fragmentation": rooms.fragmentation,
    "cluster-full": rooms.cluster_full,
    "queue-deserved": gates.queue_deserved,
    "queue-capability": gates.queue_capability,
    "parent-limit": gates.parent_limit,
    "others-guarantee": gates.others_guarantee,
    "card-quota": gates.card_quota,
    "namespace-quota": gates.namespace_quota,
    "admission": gates.admission,
    "volume": places.volume,
    "pod-affinity": places.pod_affinity,
    "spread": places.spread,
    "ports": places.ports,
    "pods-missing": states.pods_missing,
    "gated": states.gated,
    "queue-closed": states.queue_closed,
    "queue-missing": states.queue_missing,
    "unsupported": states.unsupported,
    "invalid": states.invalid,
    "order": states.order,
    "leaving": states.leaving,
}


def planted(code: str, seed: int) -> Plant:
    """The cluster of a seed in which one job waits for this cause."""
    return CAUSES[code](seed)
