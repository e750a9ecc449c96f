"""Plain manifests as an API server and Volcano's controllers would leave them: flattened, defaulted, grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vcd.model.codec import BadObject
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Container, Pod
from vcd.model.quantity import format_resource
from vcd.model.requests import CPU, MEMORY, PODS, pod_requests

Manifest = dict[str, Any]

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
_QUEUES = ("default", "root")


def flatten(manifests: Iterable[Any]) -> Iterator[Manifest]:
    """Single objects out of documents and lists of any kind; what is no object raises BadObject."""
    for manifest in manifests:
        if manifest is None:
            continue
        if not isinstance(manifest, Mapping):
            raise BadObject("(no kind)", "", f"a manifest is a mapping, not {type(manifest).__name__}")
        kind = str(manifest.get("kind", ""))
        if kind.endswith("List") and isinstance(manifest.get("items"), list):
            yield from flatten({"kind": kind.removesuffix("List"), **item} for item in manifest["items"] if item)
        else:
            yield dict(manifest)


def defaulted(manifest: Manifest, kinds: Iterable[Kind] = KINDS.values()) -> Manifest:
    """With the namespace and uid that an API server would have given it."""
    name = str(manifest.get("kind", ""))
    meta = dict(manifest.get("metadata") or {})
    if any(kind.namespaced for kind in kinds if kind.manifest_kind == name):
        meta["namespace"] = meta.get("namespace") or "default"
    meta["uid"] = meta.get("uid") or str(meta.get("name", ""))
    return {**manifest, "metadata": meta}


def default_queues(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """The queues that vc-scheduler makes at its start, where the manifests do not have them."""
    there = {(m.get("metadata") or {}).get("name") for m in manifests if m.get("kind") == "Queue"}
    for name in _QUEUES:
        if name not in there:
            yield {"kind": "Queue", "metadata": {"name": name, "uid": name}, "spec": {"weight": 1}}


def group_for(pod: Pod) -> Manifest:
    """The group that Volcano's controller makes for a pod without one: minimum 1, in the queue its annotation names.

    Source: Volcano ``pkg/controllers/podgroup``. Raises QuantityError for requests that cannot be read.
    """
    meta = pod.metadata
    owner = next((owner.uid for owner in meta.owner_references if owner.controller), "")
    requests = pod_requests(pod.spec)
    minimum = {name: value for name, value in requests.items() if name in (CPU, MEMORY, "ephemeral-storage", PODS)}
    return {
        "kind": "PodGroup",
        "metadata": {
            "name": f"podgroup-{owner or meta.uid or meta.name}",
            "namespace": meta.namespace,
            "uid": f"podgroup-{owner or meta.uid}",
            "creationTimestamp": meta.creation_timestamp,
            "annotations": {k: v for k, v in meta.annotations.items() if k.startswith("volcano.sh/")},
        },
        "spec": {
            "minMember": 1,
            "queue": meta.annotations.get(QUEUE_NAME, ""),
            "priorityClassName": pod.spec.priority_class_name,
            "minResources": {name: format_resource(name, value) for name, value in minimum.items()},
        },
        "status": {"phase": "Pending"},
    }


def with_limits_as_requests(pod: Pod) -> Pod:
    """A pod whose limits without a request are requests, as the API server fills in."""
    spec = msgspec.structs.replace(
        pod.spec,
        containers=tuple(map(_filled, pod.spec.containers)),
        init_containers=tuple(map(_filled, pod.spec.init_containers)),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _filled(container: Container) -> Container:
    resources = container.resources
    filled = msgspec.structs.replace(resources, requests={**resources.limits, **resources.requests})
    return msgspec.structs.replace(container, resources=filled)
