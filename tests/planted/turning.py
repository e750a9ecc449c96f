"""The smallest change that vcd found for a planted cluster, as an edit of its manifests, as a user would make it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable

from tests.planted.plant import Fix, Manifest, Plant, group_of, named
from vcd.model.quantity import format_resource
from vcd.model.resource_requests import resource_values
from vcd.timetravel.why.snapshotchanges import Change

CLASS = "as-high-as-found"
CARDS = "volcano.sh/card.quota"


def fix_of(plant: Plant, change: Change) -> Fix:
    """The edit that a change stands for."""
    turn: dict[str, Callable[[Plant, Change], Fix]] = {
        "cordon": _uncordoned,
        "label": _labelled,
        "toleration": _tolerant,
        "term": _without_term,
        "quota": _quota,
        "priority": _priority,
        "minimum": _minimum,
        "room": _room,
        "job": lambda _, gone: Fix(gone=(("PodGroup", gone.subject),)),
        "node": _more_nodes,
    }
    return turn[change.what](plant, change)


def _found(plant: Plant, kind: str, keys: Iterable[str]) -> list[Manifest]:
    """Copies of the objects of some keys, each as it is shown last."""
    last = {named(manifest): manifest for stage in plant.stages for manifest in stage.put}
    return [copy.deepcopy(last[kind, key]) for key in keys]


def _uncordoned(plant: Plant, change: Change) -> Fix:
    nodes = _found(plant, "Node", change.nodes)
    for node in nodes:
        node["spec"]["unschedulable"] = False
        node["spec"]["taints"] = [t for t in node["spec"].get("taints", ()) if "unschedulable" not in t["key"]]
    return Fix(put=tuple(nodes))


def _labelled(plant: Plant, change: Change) -> Fix:
    nodes = _found(plant, "Node", change.nodes)
    for node in nodes:
        node["metadata"]["labels"].update(pair.split("=", 1) for pair in change.subject.split(","))
    return Fix(put=tuple(nodes))


def _pods(plant: Plant) -> list[Manifest]:
    pods = [m for stage in plant.stages for m in stage.put if m["kind"] == "Pod" and group_of(m) == plant.asked]
    return copy.deepcopy(pods)


def _tolerant(plant: Plant, change: Change) -> Fix:
    pods, (taint, _, effect) = _pods(plant), change.subject.rpartition(":")
    for pod in pods:
        more = {"key": taint.partition("=")[0], "operator": "Exists", "effect": effect}
        pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", ()), more]
    return Fix(put=tuple(pods))


def _without_term(plant: Plant, change: Change) -> Fix:
    pods = _pods(plant)
    for pod in pods:
        spec = pod["spec"]
        if change.subject in spec:
            del spec[change.subject]
        else:
            spec["affinity"][change.subject].pop("requiredDuringSchedulingIgnoredDuringExecution")
    return Fix(put=tuple(pods))


def _quota(plant: Plant, change: Change) -> Fix:
    (queue,) = _found(plant, "Queue", [change.subject])
    if change.field == "weight":
        queue["spec"]["weight"] = int(change.after[""])
    elif change.field == "guarantee":
        resource = queue["spec"].setdefault("guarantee", {}).setdefault("resource", {})
        resource.update(change.after)
    elif change.field in ("capability", "deserved"):
        queue["spec"].setdefault(change.field, {}).update(change.after)
    else:
        annotations = queue["metadata"].setdefault("annotations", {})
        quota = json.loads(annotations.get(CARDS, "{}")) | {name: int(n) for name, n in change.after.items()}
        annotations[CARDS] = json.dumps(quota)
    return Fix(put=(queue,))


def _priority(plant: Plant, change: Change) -> Fix:
    (group,) = _found(plant, "PodGroup", [plant.asked])
    group["spec"]["priorityClassName"] = CLASS
    value = int(change.after[""])
    pods = _pods(plant)
    for pod in pods:
        pod["spec"] |= {"priorityClassName": CLASS, "priority": value}
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}, "value": value}
    return Fix(put=(made, group, *pods))


def _minimum(plant: Plant, change: Change) -> Fix:
    (group,) = _found(plant, "PodGroup", [plant.asked])
    before, after = group["spec"]["minMember"], int(change.after[""])
    group["spec"]["minMember"] = after
    least = group["spec"].get("minResources")
    if least:
        values = resource_values(least)
        group["spec"]["minResources"] = {name: format_resource(name, n * after // before) for name, n in values.items()}
    return Fix(put=(group,))


def _room(plant: Plant, change: Change) -> Fix:
    (node,) = _found(plant, "Node", [change.subject])
    for field in ("allocatable", "capacity"):
        node["status"].setdefault(field, {}).update(change.after)
    return Fix(put=(node,))


def _more_nodes(plant: Plant, change: Change) -> Fix:
    (node,) = _found(plant, "Node", [change.subject])
    made = []
    for number in range(int(change.after[""])):
        another = copy.deepcopy(node)
        name = another["metadata"]["name"] = f"{change.subject}-another-{number}"
        labels = another["metadata"].get("labels", {})
        if "kubernetes.io/hostname" in labels:
            labels["kubernetes.io/hostname"] = name
        another["metadata"].pop("uid", None)
        made.append(another)
    return Fix(put=tuple(made))


def minimum_after(plant: Plant, change: Change) -> int:
    """How many pods make the job start after the change."""
    return int(change.after[""]) if change.what == "minimum" else plant.minimum
