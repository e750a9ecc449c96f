"""What controllers and kubelets read off a pod: whether it lives, is ready, and what it asks for."""

from __future__ import annotations

from typing import Final

from vcd.embedded.clock import parse_timestamp
from vcd.embedded.controllers.base import Obj, controller_uid, is_deleting
from vcd.model.podgroups import Amounts as Amounts
from vcd.model.podgroups import add_quotas as add_quotas
from vcd.model.podgroups import limits_of as limits_of
from vcd.model.podgroups import quota_usage as quota_usage
from vcd.model.podgroups import requests_of as requests_of

TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def phase_of(pod: Obj) -> str:
    """The pod's phase; a pod without one is Pending."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def node_of(pod: Obj) -> str:
    """The name of the node that the pod is bound to, empty when it is bound to none."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def is_active(pod: Obj) -> bool:
    """Whether the pod counts for its controller: it has not ended and nobody is deleting it."""
    return not has_ended(pod) and not is_deleting(pod)


def has_ended(pod: Obj) -> bool:
    """Whether all containers of the pod have terminated for good."""
    return phase_of(pod) in TERMINAL


def active_controller_uid(pod: Obj) -> str:
    """The UID of the controller that an active pod counts for, empty for a pod that counts for none."""
    return controller_uid(pod) if is_active(pod) else ""


def condition_of(pod: Obj, kind: str) -> Obj | None:
    """The condition of that type."""
    return next((each for each in (pod.get("status") or {}).get("conditions") or () if each.get("type") == kind), None)


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is true."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def available_at(pod: Obj, min_ready_seconds: int) -> float | None:
    """When the pod counts as available: ready for that long; None while it is not ready."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    since = ready.get("lastTransitionTime")
    return parse_timestamp(since) + min_ready_seconds if since and min_ready_seconds else 0.0
