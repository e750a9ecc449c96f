"""Builds the PodGroup of a pod from the pod and its owners (ReplicaSet, StatefulSet, DaemonSet, Job).

Owners are read on demand, not watched. The rules are Volcano's (``pkg/controllers/podgroup``); `vcd.model.podgroups`
has the part that needs no API server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import quote

import msgspec

from vcd.kube.api_errors import ApiError, decode
from vcd.kube.client import KubeClient
from vcd.model.controllers import Manifest
from vcd.model.objects import OwnerReference, Pod, PodGroup
from vcd.model.podgroups import group_name, group_of_pod

_PATHS: Final = {
    ("apps", "ReplicaSet"): "/apis/apps/v1/namespaces/{}/replicasets/{}",
    ("apps", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    ("apps", "DaemonSet"): "/apis/apps/v1/namespaces/{}/daemonsets/{}",
    ("batch", "Job"): "/apis/batch/v1/namespaces/{}/jobs/{}",
}
"""Owners from which PodGroups copy annotations, by API group and kind."""


class WorkloadGone(Exception):
    """The owner of an owner reference does not exist."""


class OwnerManifest(msgspec.Struct, frozen=True):
    """Annotations and labels of owners (the first owner wins), and replicas, if stated."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    replicas: int | None = None


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True):
    replicas: int | None = None


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()


_decoder = msgspec.json.Decoder(_Workload, strict=False)


class Workloads:
    """Reads the owners of pods and PodGroups."""

    def __init__(self, client: KubeClient, fence: Callable[[], bool]) -> None:
        self._client = client
        self._fence = fence

    async def above(self, pod: Pod) -> OwnerManifest:
        """Read and merge the owners of a pod. Raises KubeError, WorkloadGone."""
        annotations: dict[str, str] = {}
        labels: dict[str, str] = {}
        for owner in pod.metadata.owner_references:
            shown = await self._get(pod.metadata.namespace, owner)
            if shown is not None:
                annotations = {**shown.metadata.annotations, **annotations}
                labels = {**shown.metadata.labels, **labels}
        return OwnerManifest(annotations, labels)

    async def of_group(self, group: PodGroup, kinds: Collection[str]) -> OwnerManifest | None:
        """Read the controller of a group; None if it is gone or of another kind. Raises KubeError."""
        meta = group.metadata
        owner = next((owner for owner in meta.owner_references if owner.controller and owner.kind in kinds), None)
        try:
            shown = None if owner is None else await self._get(meta.namespace, owner)
        except WorkloadGone:
            return None
        if shown is None:
            return None
        return OwnerManifest(shown.metadata.annotations, shown.metadata.labels, shown.spec.replicas)

    async def _get(self, namespace: str, owner: OwnerReference) -> _Workload | None:
        """Read an owner; None if its kind is not in `_PATHS`. Raises KubeError, WorkloadGone."""
        form = _PATHS.get((owner.api_version.rpartition("/")[0], owner.kind))
        if form is None:
            return None
        if owner.name in (".", "..") or "/" in owner.name or "%" in owner.name:
            raise WorkloadGone(
                f"no {owner.kind} can be called {owner.name!r}"
            )  # the API server does not validate names in references
        path = form.format(namespace, quote(owner.name, safe=""))
        try:
            shown = decode(_decoder, await self._client.request("GET", path, fence=self._fence), path)
        except ApiError as error:
            if error.status != 404:
                raise
            raise WorkloadGone(path) from error
        if shown.metadata.uid != owner.uid:
            raise WorkloadGone(path)
        return shown


def group_key(pod: Pod) -> str:
    """Return the key of the PodGroup that Volcano's controller creates for a pod."""
    return f"{pod.metadata.namespace}/{group_name({'metadata': msgspec.to_builtins(pod.metadata)})}"


def group_for(pod: Pod, workload: OwnerManifest, queue: str) -> Manifest:
    """Return that PodGroup; ``queue`` applies if the pod names none."""
    made = group_of_pod(msgspec.to_builtins(pod), workload.annotations, workload.labels)
    for owner in made["metadata"]["ownerReferences"]:
        owner.pop("blockOwnerDeletion", None)
    if queue:
        made["spec"].setdefault("queue", queue)
    return made


def changes(shown: Manifest, wanted: Manifest) -> Manifest:
    """Return a merge patch from the observed to the wanted PodGroup; fields that others added stay."""
    meta, spec = shown.get("metadata", {}), shown.get("spec", {})
    marks = {part: _new(meta.get(part, {}), wanted["metadata"][part]) for part in ("annotations", "labels")}
    gone = dict.fromkeys(spec.get("minResources", {}).keys() - wanted["spec"]["minResources"].keys())
    wishes = _new(spec, wanted["spec"])
    if "minResources" in wishes:
        wishes["minResources"] = {**wishes["minResources"], **gone}  # null removes a key
    found = {"metadata": {part: new for part, new in marks.items() if new}, "spec": wishes}
    return {part: new for part, new in found.items() if new}


def _new(shown: Manifest, wanted: Manifest) -> Manifest:
    return {name: value for name, value in wanted.items() if value != shown.get(name)}
