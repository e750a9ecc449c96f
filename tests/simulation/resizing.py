"""Pods that are resized in place: users request it through the subresource, and kubelets do it some seconds later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.workload import pods_of, refusable
from vcd.embedded.controllers.controller_base import is_deleting, key_of, with_condition
from vcd.embedded.controllers.pod_properties import requests_of
from vcd.embedded.kubelet import Kubelets

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
PENDING = "PodResizePending"


def resize_pods(sim: Simulation, gang: str, every: int, cpu: str, seconds: float) -> None:
    """A user changes the requests of a gang's pods, or of every second one, third one ...

    The kubelet reports the current resources of running pods. After some seconds it resizes them, or reports that the
    node lacks capacity.
    """
    for each in pods_of(sim, gang)[::every]:
        first, *others = each["spec"]["containers"]
        asked, runs = first["resources"].get("requests") or {}, each["status"].get("phase") == "Running"
        # a pod's quality of service must not change; and a starting pod has no admitted resources yet
        if "cpu" not in asked or is_deleting(each) or runs != bool(each["spec"].get("nodeName")):
            continue
        resized = {**first, "resources": {**first["resources"], "requests": {**asked, "cpu": cpu}}}
        with refusable():
            if runs and not any("resources" in status for status in each["status"]["containerStatuses"]):
                _write(sim, each, {"containerStatuses": _in_force(each)})
            sim.store.patch("pods", *key_of(each), {"spec": {"containers": [resized, *others]}}, "resize")
        if runs:
            sim.loop.call_later(seconds, _resize, sim, each)


def _resize(sim: Simulation, resized: Obj) -> None:
    """The kubelet gives a pod its requests if the node has them in addition to its other pods' requests."""
    pod, uid = sim.store.find("pods", *key_of(resized)), resized["metadata"]["uid"]
    (kubelets,) = (each for each in sim.cluster.manager.controllers if isinstance(each, Kubelets))
    stay = kubelets._stays.get(uid)
    if pod is None or pod["metadata"]["uid"] != uid or pod["status"].get("phase") != "Running" or is_deleting(pod):
        return
    if stay is None or not stay.requests:
        return
    wanted = {**requests_of(pod["spec"]), "pods": 1}
    room, used = kubelets._allocatable.get(stay.node, {}), kubelets._used.get(stay.node, {})
    others = {name: used.get(name, 0) - stay.requests.get(name, 0) for name in room}
    why = {
        "Infeasible": any(wanted.get(name, 0) > amount for name, amount in room.items()),
        "Deferred": any(wanted.get(name, 0) + others[name] > amount for name, amount in room.items()),
    }
    conditions = [each for each in pod["status"].get("conditions") or () if each["type"] != PENDING]
    if reason := next((reason for reason, holds in why.items() if holds), None):
        pending = {"type": PENDING, "status": "True", "reason": reason}
        _write(sim, pod, {"conditions": with_condition(conditions, pending, sim.store.now)})
    else:
        kubelets._release(stay)
        kubelets._take(stay, pod)
        _write(sim, pod, {"conditions": conditions, "containerStatuses": _in_force(pod)})


def _in_force(pod: Obj) -> list[Obj]:
    """Return the statuses of a pod's containers that run with their requests."""
    asked = {each["name"]: each["resources"].get("requests") or {} for each in pod["spec"]["containers"]}
    return [
        {**each, "allocatedResources": asked[each["name"]], "resources": {"requests": asked[each["name"]]}}
        for each in pod["status"]["containerStatuses"]
    ]


def _write(sim: Simulation, pod: Obj, status: Obj) -> None:
    with refusable():
        sim.store.patch("pods", *key_of(pod), {"status": status}, "status")


ACTS: dict[str, Callable[..., None]] = {"resize_pods": resize_pods}
