"""The cluster that a script begins with: nodes, queues, priority classes, namespaces, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.simulation.script import Act
from tests.simulation.swarm.draw import Draw

MODELS = ("H200", "H800", "RTX")
GPU = "nvidia.com/gpu"
GROUP_LABEL, ZONE_LABEL = "volcano.sh/nodegroup-name", "topology.kubernetes.io/zone"


def cluster(draw: Draw) -> Iterator[Act]:
    """All that is there before anybody works."""
    yield from _nodes(draw)
    for name, value in (("low", -10), ("high", 100), ("highest", 1000)):
        if draw.often(0.6):
            draw.classes.append(name)
            policy = {"preemptionPolicy": "Never"} if draw.often(0.2) else {}
            yield draw.act(0.0, "add_class", name, value, policy)
    if draw.often(0.2):
        draw.classes.append("system-cluster-critical")
    if draw.often(0.2):
        draw.namespaces.append("kube-system")
    if draw.often(0.4):
        draw.namespaces.append("team")
        yield draw.act(0.0, "add_namespace", "team")
    yield draw.act(0.0, "add_storage", "disks", draw.pick(("WaitForFirstConsumer", "Immediate")))
    yield from _queues(draw)
    if "loads" in draw.traits:
        for name in draw.nodes:
            for _ in range(draw.number(0, 3)):
                yield draw.act(draw.when(), "load", name, draw.number(0, 100), draw.number(0, 100))
    if "quotas" in draw.traits:
        for namespace in draw.namespaces:
            yield draw.act(0.0, "set_quota", "limit", namespace, amounts(draw))
    if "budgets" in draw.traits or draw.often(0.2):
        for number in range(draw.number(1, 2)):
            draw.budgets.append(f"budget-{number}")
            yield draw.act(0.0, "add_budget", f"budget-{number}", _budget(draw))


def _nodes(draw: Draw) -> Iterator[Act]:
    """Often machines are of one kind, and ties go to the order of nodes; some join a little later than others."""
    kind = (draw.number(2, 6), node_details(draw)) if draw.often(0.4) else None
    one_by_one = draw.often(0.3)
    for number in range(draw.pick((2, 2, 2, 3, 3, 4, 6))):
        cpu, details = kind or (draw.number(2, 8), node_details(draw))
        draw.nodes[f"node-{number}"] = cpu
        at = draw.when() / 4 if one_by_one else 0.0
        yield draw.act(at, "add_node", f"node-{number}", cpu, details)


def node_details(draw: Draw) -> dict[str, Any]:
    """Labels, further room and taints of a node."""
    labels = {ZONE_LABEL: draw.pick(("a", "b"))} if draw.often(0.7) else {}
    room: dict[str, str] = {}
    if "cards" in draw.traits or draw.often(0.3):
        room[GPU] = str(draw.pick((1, 2, 4)))
        labels.update(card_labels(draw.pick(MODELS)))
    if "shares" in draw.traits:
        cards = draw.number(1, 3)
        room |= {"volcano.sh/gpu-number": str(cards), "volcano.sh/gpu-memory": str(8 * cards)}
    if "nodegroups" in draw.traits and draw.often(0.7):
        labels[GROUP_LABEL] = draw.pick(("one", "two"))
    if "zones" in draw.traits and draw.often(0.4):
        labels["volcano.sh/revocable-zone"] = "rz"
    if draw.often(0.1):
        room["pods"] = str(draw.number(1, 4))
    taints = [{"key": "dedicated", "value": "batch", "effect": draw.pick(("NoSchedule", "PreferNoSchedule"))}]
    return {"labels": labels, "room": room, "taints": taints if draw.often(0.15) else []}


def card_labels(model: str) -> dict[str, str]:
    """What a node with cards of a model says of them."""
    return {"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": "81920"}


def amounts(draw: Draw, low: int = 1) -> dict[str, str]:
    """What a queue or a namespace may have."""
    found = {"cpu": str(draw.number(low, 12))}
    if draw.often(0.4):
        found["memory"] = f"{draw.number(1, 64)}Gi"
    if draw.often(0.1):
        found[GPU] = str(draw.number(0, 3))
    return found


def _queues(draw: Draw) -> Iterator[Act]:
    parents = ["root"]
    for number in range(draw.number(0, 3)):
        name = f"queue-{number}"
        spec = queue_spec(draw)
        if "tree" in draw.traits:
            spec["parent"] = draw.pick(parents)
            if draw.often(0.4):
                parents.append(name)
        draw.queues.append(name)
        yield draw.act(0.0, "add_queue", name, spec, queue_marks(draw))
        if draw.often(0.1):
            yield draw.act(1.0, "command", "CloseQueue", "Queue", name)
    if "cards" in draw.traits:
        yield draw.act(0.5, "edit", "queue", "", "default", {"metadata": {"annotations": queue_marks(draw)}})


def queue_spec(draw: Draw) -> dict[str, Any]:
    """What a queue may say of itself."""
    spec: dict[str, Any] = {"weight": draw.number(1, 4)}
    for member, part in (("capability", 0.4), ("deserved", 0.3), ("guarantee", 0.15)):
        if draw.often(part):
            given = amounts(draw)
            spec[member] = {"resource": given} if member == "guarantee" else given
    if draw.often(0.2):
        spec["reclaimable"] = False
    if draw.often(0.2):
        spec["priority"] = draw.number(1, 5)
    if "nodegroups" in draw.traits and draw.often(0.6):
        how = draw.pick(("requiredDuringSchedulingIgnoredDuringExecution",) * 2
                        + ("preferredDuringSchedulingIgnoredDuringExecution",))  # fmt: skip
        spec["affinity"] = {
            draw.pick(("nodeGroupAffinity", "nodeGroupAntiAffinity")): {how: [draw.pick(("one", "two"))]}
        }
    return spec


def queue_marks(draw: Draw) -> dict[str, str]:
    """A queue's annotations: its quota of cards, and of groups of nodes."""
    marks = {}
    if "cards" in draw.traits:
        quota = {model: draw.number(0, 4) for model in MODELS if draw.often(0.8)}
        marks["volcano.sh/card.quota"] = json.dumps(quota)
    if "nodegroups" in draw.traits and draw.often(0.3):
        marks["volcano.sh/nodegroup-resource-limits"] = json.dumps({"one": {"cpu": str(draw.number(1, 6))}})
    return marks


def _budget(draw: Draw) -> dict[str, Any]:
    selector = {"matchLabels": {"protected": "yes"}}
    return {"selector": selector, "minAvailable": draw.number(0, 4)}
