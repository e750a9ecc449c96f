"""What is free where, counted from the manifests alone: which cause of rooms holds, without asking the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.planted.plant import Manifest, Plant, group_of, key_of
from tests.planted.runs import Ran
from vcd.model.quantity import resource_value

COUNTED = ("cpu", "memory", "nvidia.com/gpu")
Amounts = tuple[int, ...]


class _Node(NamedTuple):
    manifest: Manifest
    size: Amounts
    free: Amounts


def room_cause(plant: Plant, ran: Ran) -> str:
    """The cause of rooms for which the asked job's first pod, as often as it is missing, waits; empty where there is
    room for all of them, or there are no pods."""
    pods = {key_of(m): m for stage in plant.stages for m in stage.put if m["kind"] == "Pod"}
    pod = next((pod for pod in pods.values() if group_of(pod) == plant.asked), None)
    if pod is None:
        return ""
    asks, missing = _requests([pod]), plant.minimum - ran.placed(plant.asked)
    nodes = list(_nodes(plant, ran, pods))
    allowed = [node for node in nodes if not _barred(pod["spec"], node.manifest)]
    if not any(_fits(node.size, asks) for node in allowed) and any(allowed):
        return "unschedulable-shape"
    room = _pods(allowed, asks)
    if room >= missing:
        return ""
    if _pods(nodes, asks) >= missing:
        gains = {
            clause: sum(_fits(node.free, asks) for node in nodes if _barred(pod["spec"], node.manifest) == {clause})
            for clause in _CLAUSES
        }
        return max(gains, key=lambda clause: gains[clause])
    if _enough(allowed, asks, missing):
        return "fragmentation"
    if not _enough(nodes, asks, missing):
        return "cluster-full"
    return "node-room" if _pods(nodes, asks) == room else "both"


def _nodes(plant: Plant, ran: Ran, pods: dict[str, Manifest]) -> Iterable[_Node]:
    for stage in plant.stages:
        for manifest in stage.put:
            if manifest["kind"] == "Node":
                name = manifest["metadata"]["name"]
                used = _requests(pods[key] for key, node in ran.nodes.items() if node == name)
                size = _amounts(manifest["status"]["allocatable"])
                yield _Node(manifest, size, tuple(have - took for have, took in zip(size, used, strict=True)))


def _requests(pods: Iterable[Manifest]) -> Amounts:
    every = [_amounts(each["resources"]["requests"]) for pod in pods for each in pod["spec"]["containers"]]
    return tuple(sum(column) for column in zip((0,) * len(COUNTED), *every, strict=True))


def _amounts(listed: dict[str, Any]) -> Amounts:
    return tuple(resource_value(name, listed.get(name, 0)) for name in COUNTED)


def _fits(room: Amounts, asks: Amounts) -> int:
    """How many pods find room."""
    return min(max(have, 0) // want for have, want in zip(room, asks, strict=True) if want)


def _pods(nodes: Iterable[_Node], asks: Amounts) -> int:
    return sum(_fits(node.free, asks) for node in nodes)


def _enough(nodes: Iterable[_Node], asks: Amounts, count: int) -> bool:
    free = [sum(column) for column in zip(*(node.free for node in nodes), strict=True)]
    return all(have >= want * count for have, want in zip(free, asks, strict=True))


# --- who may be where -------------------------------------------------------------------------------------------------


def _selects(spec: Manifest, node: Manifest) -> bool:
    labels = node["metadata"]["labels"]
    if not spec.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = affinity["nodeSelectorTerms"] if affinity else [{"matchExpressions": []}]
    return any(all(_matches(each, labels) for each in term["matchExpressions"]) for term in terms)


def _matches(wants: Manifest, labels: dict[str, str]) -> bool:
    value = labels.get(wants["key"])
    match wants["operator"]:
        case "In":
            return value in wants["values"]
        case "NotIn":
            return value not in wants["values"]
        case "Exists":
            return value is not None
    raise ValueError(f"no operator that a plant has: {wants}")


def _tolerates(spec: Manifest, node: Manifest) -> bool:
    tolerated = [(each["key"], each["value"]) for each in spec.get("tolerations", ())]
    taints = [(each["key"], each.get("value", "")) for each in node["spec"]["taints"]]
    return all(taint in tolerated for taint in taints)


_CLAUSES: dict[str, Callable[[Manifest, Manifest], bool]] = {
    "selector": _selects,
    "taint": _tolerates,
    "unschedulable-node": lambda _, node: not node["spec"]["unschedulable"],
}


def _barred(spec: Manifest, node: Manifest) -> set[str]:
    """The clauses by which a node is none for the pod."""
    return {clause for clause, passes in _CLAUSES.items() if not passes(spec, node)}
