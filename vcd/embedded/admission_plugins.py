"""Admission: what the server sets in a new object, such as priority, limits, taints and the first status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from vcd.embedded import defaults
from vcd.embedded.schema_codec import copy, name_of
from vcd.embedded.status_errors import forbidden
from vcd.model.limitranges import LimitRanges
from vcd.model.podadmission import UnknownPriorityClass, fill_in_priority

Object = dict[str, Any]

_NOT_READY: Final = "node.kubernetes.io/not-ready"


def prioritize(pod: Object, classes: Mapping[str, Object]) -> None:
    """Set a pod's priority and preemption policy from its class, or from the global default class (Priority admission).

    ``classes`` are the priority classes by name. Raises StatusError 403 for a class that does not exist.
    """
    pod["spec"].pop("priority", None)  # only admission sets it
    try:
        fill_in_priority(pod["spec"], classes)
    except UnknownPriorityClass as error:
        raise forbidden("pods", name_of(pod), f"no PriorityClass with name {error} was found") from None


def limit(pod: Object, limit_ranges: Iterable[Object]) -> None:
    """Set the defaults of the namespace's LimitRanges (LimitRanger admission).

    Raises StatusError 403 for a pod that violates one of them.
    """
    limits = LimitRanges(limit_ranges)
    limits.fill_in(pod["spec"])
    broken = list(limits.refusals(pod["spec"]))
    messages = [message for name, message in broken if name == broken[0][0]]
    if messages:
        raise forbidden("pods", name_of(pod), messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")


def taint_until_ready(node: Object) -> None:
    """Taint a new node until its conditions state that it is ready (TaintNodesByCondition admission)."""
    taints = node["spec"].setdefault("taints", [])
    if not any(taint.get("key") == _NOT_READY for taint in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})


def retain_admitted_fields(old: Object, new: Object) -> None:
    """Copy fields that admission had set into a pod's new spec if the client left them out."""
    for member in ("priority", "preemptionPolicy", "tolerations"):
        if old.get(member) is not None:
            new.setdefault(member, old[member])


def pod_status(pod: Object, now: str) -> Object:
    """Return the status of a new pod."""
    status: Object = {"phase": "Pending"}
    if pod["spec"].get("schedulingGates"):
        status["conditions"] = [{
            "type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": now,
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]  # fmt: skip
    status["qosClass"] = defaults.qos_class(pod)
    return status


def assign_cluster_ip(service: Object, number: int) -> None:
    """Assign the ``number``-th cluster IP to a service, unless it has one or needs none."""
    spec = service["spec"]
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        spec["clusterIP"] = f"10.96.{number // 254 % 254}.{number % 254 + 1}"
    if spec.get("clusterIP"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def established(crd: Object, now: str) -> Object:
    """Return the status of a CustomResourceDefinition that is established."""
    conditions = [
        {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts",
         "message": "no conflicts found"},
        {"type": "Established", "status": "True", "lastTransitionTime": now, "reason": "InitialNamesAccepted",
         "message": "the initial names have been accepted"},
    ]  # fmt: skip
    spec = crd.get("spec") or {}
    stored = [version["name"] for version in spec.get("versions") or () if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": copy(spec.get("names") or {}), "storedVersions": stored}
