"""The PodGroup that Volcano's controller creates for a pod without one, as plain manifests, and its quota usage.

Source: Volcano ``pkg/controllers/podgroup`` and ``pkg/controllers/util``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from vcd.model.controllers import (
    GROUP_NAME,
    POD_ANNOTATIONS,
    POD_LABELS,
    Manifest,
    controller_reference,
    min_member,
    topology_of,
)
from vcd.model.quantity import QuantityError, add, format_resource, is_scalar_resource, needed, resource_value

Amounts = dict[str, int]

NAME_PREFIX: Final = "podgroup-"
QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
VOLCANO_PREFIX: Final = "volcano.sh/"
"""The prefix of annotations and labels that a group inherits from its workload."""
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_MOST: Final = 2**63 - 1

# --- the group --------------------------------------------------------------------------------------------------------


def controller_of(obj: Manifest) -> Manifest | None:
    """Return the owner reference of the controller, or None if the object has no controller."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def group_name(pod: Manifest) -> str:
    """Return ``podgroup-<uid>`` of the pod's controller, or of the pod if it has none."""
    owner = controller_of(pod)
    return f"{NAME_PREFIX}{owner['uid'] if owner else pod['metadata']['uid']}"


def lacks_group(pod: Manifest) -> bool:
    """Whether a pod names no group."""
    return not (pod["metadata"].get("annotations") or {}).get(GROUP_NAME)


def volcano_entries(marks: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations or labels under ``volcano.sh/``."""
    return {key: value for key, value in marks.items() if key.startswith(VOLCANO_PREFIX)}


def group_of_pod(pod: Manifest, annotations: Mapping[str, str], labels: Mapping[str, str]) -> Manifest:
    """Create the group of a pod, with the annotations and labels of its controlling workload, or a bare pod's own.

    The pod's values override the workload's. The group has the owners of the pod, or is owned by a bare pod.
    """
    own, owner = pod["metadata"].get("annotations") or {}, controller_of(pod)
    inherited, marks = (annotations, labels) if owner else (own, pod["metadata"].get("labels") or {})
    return {
        "metadata": {
            "namespace": pod["metadata"]["namespace"],
            "name": group_name(pod),
            "annotations": {**volcano_entries(inherited), **{key: own[key] for key in POD_ANNOTATIONS if key in own}},
            "labels": {**volcano_entries(marks), **_own_labels(pod)},
            "ownerReferences": (
                pod["metadata"]["ownerReferences"]
                if owner
                else [controller_reference({**pod, "apiVersion": "v1", "kind": "Pod"})]
            ),
        },
        "spec": _spec(pod, own, min_member(annotations if owner else {})),
        "status": {"phase": "Pending"},
    }


def _own_labels(pod: Manifest) -> dict[str, str]:
    return {key: value for key, value in (pod["metadata"].get("labels") or {}).items() if key in POD_LABELS}


def _spec(pod: Manifest, annotations: Mapping[str, str], members: int) -> Manifest:
    spec: Manifest = {"minMember": members, "minResources": quota_usage(pod["spec"], members)}
    if pod["spec"].get("priorityClassName"):
        spec["priorityClassName"] = pod["spec"]["priorityClassName"]
    if annotations.get(QUEUE_ANNOTATION):
        spec["queue"] = annotations[QUEUE_ANNOTATION]
    topology = topology_of(annotations)
    return {**spec, "networkTopology": topology} if topology else spec


# --- what pods use of a quota -----------------------------------------------------------------------------------------


def quota_usage(spec: Manifest, pods: int) -> dict[str, str]:
    """Return what ``pods`` pods of this spec use of a ResourceQuota, as a resource list.

    This is the ``minResources`` that Volcano's controllers write: besides cpu, memory and extended resources it has the
    quota's own names (``pods``, ``count/pods``, ``requests.cpu``, ``limits.memory``...).
    """
    if pods <= 0:
        return {}
    usage = {"count/pods": str(pods), "pods": str(pods)}
    for name, value in requests_of(spec).items():
        text = _format_limited(name, value * pods)
        if name in _COMPUTE or name.startswith("hugepages-") or _is_extended(name):
            usage[name] = usage[f"requests.{name}"] = text
    for name, value in limits_of(spec).items():
        if name in _COMPUTE:
            usage[f"limits.{name}"] = _format_limited(name, value * pods)
    return dict(sorted(usage.items()))


def add_quotas(lists: Iterable[dict[str, str]]) -> dict[str, str]:
    """Add resource lists in the form of ``quota_usage``."""
    total: Amounts = {}
    for each in lists:
        add(total, {name: resource_value(unit_name(name), text) for name, text in each.items()})
    return {name: _format_limited(unit_name(name), value) for name, value in sorted(total.items())}


def _format_limited(name: str, value: int) -> str:
    """Format an amount as a quantity, limited to 64 bits: annotations may request any number of pods."""
    return format_resource(name, min(value, _MOST))


def requests_of(spec: Manifest) -> Amounts:
    """Return a pod's requests by resource, in the units of ``vcd.model.quantity.resource_value``.

    These are the needs of its containers, or its pod-level requests if it has them, plus its overhead.
    """
    amounts = pod_amounts(spec, "requests")
    add(amounts, _parse_all(spec.get("overhead") or {}))
    return amounts


def limits_of(spec: Manifest) -> Amounts:
    """Return the pod's limits by resource, computed like the requests."""
    amounts = pod_amounts(spec, "limits")
    for name, value in _parse_all(spec.get("overhead") or {}).items():
        if name in amounts:
            amounts[name] += value
    return amounts


def unit_name(name: str) -> str:
    """Return the resource whose unit a quota's name is counted in."""
    if name == "count/pods":
        return "pods"
    if name.endswith("requests.storage"):  # of claims, also of one StorageClass
        return "memory"
    return name.removeprefix("requests.").removeprefix("limits.")


def _is_extended(name: str) -> bool:
    return is_scalar_resource(name) and "kubernetes.io/" not in name and not name.startswith("attachable-volumes-")


def container_requests(spec: Manifest) -> Amounts:
    """Return the combined requests of a pod's containers by resource, in the units of ``requests_of``."""
    return _of_containers(spec, "requests")


def pod_amounts(spec: Manifest, field: str) -> Amounts:
    """Return a pod's ``requests`` or ``limits`` without its overhead, in the units of ``requests_of``."""
    total = _of_containers(spec, field)
    total.update(container_amounts(spec, field))
    return total


def container_amounts(holder: Manifest, field: str) -> Amounts:
    """Return the ``requests`` or ``limits`` declared by a container, or by a pod as a whole."""
    return _parse_all((holder.get("resources") or {}).get(field) or {})


def _of_containers(spec: Manifest, field: str) -> Amounts:
    starting = spec.get("initContainers") or ()
    return needed(
        (container_amounts(container, field) for container in spec.get("containers") or ()),
        ((container_amounts(container, field), container.get("restartPolicy") == "Always") for container in starting),
    )


def _parse_all(quantities: Mapping[str, Any]) -> Amounts:
    return {name: _parse_limited(name, text) for name, text in quantities.items()}


def _parse_limited(name: str, text: str | int | float) -> int:
    """Parse a quantity, limited to 64 bits: the API server admits more, and Kubernetes then counts the limit."""
    try:
        return resource_value(name, text)
    except QuantityError:
        return _MOST
