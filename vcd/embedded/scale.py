"""The scale subresource: a workload's replica count as an ``autoscaling/v1`` Scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcd.embedded.patch import merge_patch
from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema_codec import at
from vcd.embedded.status_errors import bad_request, conflict

Object = dict[str, Any]


def _paths(rtype: ResourceType) -> tuple[str, str]:
    declared = ((rtype.definition or {}).get("subresources") or {}).get("scale") or {}
    return (
        declared.get("specReplicasPath", ".spec.replicas").removeprefix("."),
        declared.get("statusReplicasPath", ".status.replicas").removeprefix("."),
    )


def of(rtype: ResourceType, obj: Object) -> Object:
    """Return the Scale of a workload."""
    wanted, have = _paths(rtype)
    metadata = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = at(obj, "spec.selector.matchLabels", {})
    return {
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in shown if key in metadata},
        "spec": {"replicas": at(obj, wanted, 0)},
        "status": {
            "replicas": at(obj, have, 0), "selector": ",".join(f"{key}={labels[key]}" for key in sorted(labels))
        },
    }  # fmt: skip


def changed(rtype: ResourceType, obj: Object, scale: Mapping[str, Any]) -> Object:
    """Return the workload with the replicas of a Scale. Raises StatusError 400 for an invalid count, 409 if stale."""
    replicas = at(scale, "spec.replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        raise bad_request(f'Scale "{obj["metadata"]["name"]}" is invalid: spec.replicas: Invalid value: {replicas}: '
                          "must be greater than or equal to 0")  # fmt: skip
    version = at(scale, "metadata.resourceVersion")
    if version and version != obj["metadata"]["resourceVersion"]:
        raise conflict(rtype.resource, obj["metadata"]["name"])
    wanted: Object | int = replicas
    for part in reversed(_paths(rtype)[0].split(".")):
        wanted = {part: wanted}
    made: Object = merge_patch(obj, wanted)
    return made
