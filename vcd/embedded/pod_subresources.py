"""The pods' subresources binding and eviction, as pure functions of pods and disruption budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from vcd.embedded.status_errors import StatusCause, StatusError, conflict, invalid
from vcd.model.selectors import LabelSelector

Object = dict[str, Any]

FINISHED: Final = ("Succeeded", "Failed")
_RETRY_SECONDS: Final = 10


def other_uid(path: str, obj: Object, uid: str) -> str:
    """Return the storage layer's message for a wrong UID; ``path`` is the object's path under /registry."""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {obj['metadata']['uid']}"
    )


# --- binding --------------------------------------------------------------------------------------------------------


def bound(pod: Object, binding: Object, now: str) -> Object:
    """Return the pod, assigned to the binding's target.

    Raises StatusError: 409 for a wrong UID or version, or a pod that is bound, gated or terminating; 422 without a
    target.
    """
    metadata = dict(pod["metadata"])
    wanted = binding.get("metadata") or {}
    node = (binding.get("target") or {}).get("name")
    if not node:
        cause = StatusCause("FieldValueRequired", "Required value", "target.name")
        raise invalid("Binding", "", metadata["name"], [cause])
    _expect_bindable(pod, wanted)
    for member in ("annotations", "labels"):
        if wanted.get(member):
            metadata[member] = {**(metadata.get(member) or {}), **wanted[member]}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return {**_with_condition(pod, scheduled), "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}}


def _with_condition(pod: Object, condition: Object) -> Object:
    """Return a copy of the pod in which the condition replaces the one of its type, or is added."""
    conditions = {each.get("type"): each for each in pod["status"].get("conditions") or ()}
    conditions[condition["type"]] = condition
    status = {**pod["status"], "conditions": list(conditions.values())}
    return {**pod, "metadata": dict(pod["metadata"]), "status": status}


def _expect_bindable(pod: Object, wanted: Object) -> None:
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        raise conflict("pods", name, other_uid(f"pods/{metadata['namespace']}/{name}", pod, uid))
    if version and version != metadata["resourceVersion"]:
        raise conflict("pods", name)
    why = ""
    if "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("pods/binding", name, why)


# --- eviction -------------------------------------------------------------------------------------------------------


def mark_for_eviction(pod: Object, now: str) -> Object:
    """Return the pod with the condition DisruptionTarget."""
    return _with_condition(pod, {
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    })  # fmt: skip


def counts_as_disruption(pod: Object) -> bool:
    """Return whether a pod's eviction counts as a disruption: not if it is pending, finished or terminating."""
    return pod["status"].get("phase") not in ("Pending", *FINISHED) and "deletionTimestamp" not in pod["metadata"]


def spent_budget(pod: Object, budgets: Iterable[Object], now: str) -> Object | None:
    """Return the pod's disruption budget after its eviction; None if there is none, or it does not apply.

    Raises StatusError: 429 if the budget allows no disruption or has no current status, 500 for several budgets.
    """
    labels = pod["metadata"].get("labels") or {}
    mine = [each for each in budgets if LabelSelector.compile(each["spec"].get("selector")).matches(labels)]
    if not mine:
        return None
    if len(mine) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, "InternalError", message)
    budget, status = mine[0], mine[0].get("status") or {}
    name = budget["metadata"]["name"]
    if _is_exempt(pod, budget):
        return None
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise _refused(f"The disruption budget {name} is still being processed by the server.", _RETRY_SECONDS)
    if status.get("disruptionsAllowed", 0) <= 0:
        desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refused(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
    return {**budget, "metadata": dict(budget["metadata"]), "status": left}


def _is_exempt(pod: Object, budget: Object) -> bool:
    """Return whether the budget does not apply to a pod that is not ready: by policy, or while the budget is met."""
    conditions = pod["status"].get("conditions") or ()
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired: int = status.get("desiredHealthy", 0)
    return desired > 0 and bool(status.get("currentHealthy", 0) >= desired)


def _refused(message: str, retry_after: int = 0) -> StatusError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(429, "TooManyRequests", text, details)
