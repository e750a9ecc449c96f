"""Properties of pods for controllers and kubelets: phase, node, readiness and requests."""

from __future__ import annotations

from typing import Final

from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.controllers.controller_base import Obj, controller_uid, is_deleting
from vcd.model.podgroups import Amounts as Amounts
from vcd.model.podgroups import add_quotas as add_quotas
from vcd.model.podgroups import limits_of as limits_of
from vcd.model.podgroups import quota_usage as quota_usage
from vcd.model.podgroups import requests_of as requests_of

TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def phase_of(pod: Obj) -> str:
    """Return the pod's phase; a pod without one is Pending."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def node_of(pod: Obj) -> str:
    """Return the name of the pod's node, empty if it is not bound."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def is_active(pod: Obj) -> bool:
    """Return whether the pod counts for its controller: it has not ended and is not terminating."""
    return not has_ended(pod) and not is_deleting(pod)


def has_ended(pod: Obj) -> bool:
    """Return whether the pod succeeded or failed."""
    return phase_of(pod) in TERMINAL


def active_controller_uid(pod: Obj) -> str:
    """Return the UID of an active pod's controller, empty for other pods."""
    return controller_uid(pod) if is_active(pod) else ""


def condition_of(pod: Obj, kind: str) -> Obj | None:
    """Return the condition of that type; None if there is none."""
    return next((each for each in (pod.get("status") or {}).get("conditions") or () if each.get("type") == kind), None)


def is_ready(pod: Obj) -> bool:
    """Return whether the pod's Ready condition is true."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def available_at(pod: Obj, min_ready_seconds: int) -> float | None:
    """Return when a ready pod becomes available (seconds since the epoch, 0: at once); None if it is not ready."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    since = ready.get("lastTransitionTime")
    return parse_timestamp(since) + min_ready_seconds if since and min_ready_seconds else 0.0
