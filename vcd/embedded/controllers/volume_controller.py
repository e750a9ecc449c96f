"""Volumes: binds claims to matching or provisioned volumes, and deletes volumes with their claims."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.controllers.controller_base import (
    DELETED,
    Controller,
    Key,
    Obj,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
)
from vcd.embedded.status_errors import StatusError
from vcd.model.quantity import parse_units
from vcd.model.selectors import LabelSelector

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
CLASSES: Final = "storageclasses.storage.k8s.io"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"


class VolumeController(Controller):
    """Binds claims as kube-controller-manager's volume binder does, and creates volumes as a provisioner does.

    A claim of a class with WaitForFirstConsumer waits until a scheduler has chosen a node (annotation
    ``volume.kubernetes.io/selected-node``) or a volume (its ``claimRef``). Keys are (kind, namespace, name).
    """

    name: ClassVar[str] = "persistentvolume-controller"
    resources = (CLAIMS, VOLUMES, CLASSES)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue a claim or volume with its partner, and all unbound claims after a change of a volume or class."""
        if resource == CLAIMS:
            self.enqueue((_CLAIM, *key_of(obj)))
            if obj["spec"].get("volumeName"):
                self.enqueue((_VOLUME, "", obj["spec"]["volumeName"]))
            return
        if resource == VOLUMES and event != DELETED:
            self.enqueue((_VOLUME, *key_of(obj)))
        for claim in self.store.list(CLAIMS):
            if not _is_bound(claim):
                self.enqueue((_CLAIM, *key_of(claim)))

    def reconcile(self, key: Key) -> None:
        """Bind a claim if possible, or update or delete a volume by the state of its claim."""
        kind, namespace, name = key
        if kind == _VOLUME:
            volume = self.find(VOLUMES, "", name)
            if volume is not None and not is_deleting(volume):
                self._sync_volume(volume)
            return
        claim = self.find(CLAIMS, namespace, name)
        if claim is None or is_deleting(claim) or _is_bound(claim):
            return
        volume = self._volume_for(claim)
        if volume is not None:
            self._bind(claim, volume)
        elif (claim.get("status") or {}).get("phase") != "Pending":
            self.write_status(CLAIMS, claim, {**(claim.get("status") or {}), "phase": "Pending"})

    def _volume_for(self, claim: Obj) -> Obj | None:
        """Return the volume that names the claim, is named by it, matches it, or is provisioned, in this order."""
        volumes = self.store.list(VOLUMES)
        for volume in volumes:
            if _refers_to(volume, claim):
                return volume
        name = claim["spec"].get("volumeName")
        if name:
            return next((each for each in volumes if each["metadata"]["name"] == name and _is_free(each)), None)
        class_name = claim["spec"].get("storageClassName")
        storage = self.find(CLASSES, "", class_name) if class_name else None
        waits = storage is not None and storage.get("volumeBindingMode") == "WaitForFirstConsumer"
        if waits and SELECTED_NODE not in annotations_of(claim):
            return None
        fitting = [] if waits else [each for each in volumes if _fits(each, claim)]
        if fitting:
            return min(fitting, key=lambda each: (_capacity(each), each["metadata"]["name"]))
        if storage is None or storage.get("provisioner") in (None, NO_PROVISIONER):
            return None
        return self._provision(claim, storage)

    def _provision(self, claim: Obj, storage: Obj) -> Obj:
        name = f"pvc-{claim['metadata']['uid']}"
        spec = {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "volumeMode": claim["spec"].get("volumeMode", "Filesystem"),
            "storageClassName": storage["metadata"]["name"],
            "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy", "Delete"),
            "claimRef": _reference(claim),
            "csi": {"driver": storage["provisioner"], "volumeHandle": name},
        }
        try:
            return self.store.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
        except StatusError as error:
            self.manager.events.record(self.name, claim, "Warning", "ProvisioningFailed", error.message)
            raise

    def _bind(self, claim: Obj, volume: Obj) -> None:
        spec = {**volume["spec"], "claimRef": _reference(claim)}
        if spec != volume["spec"]:
            volume = self.store.update(VOLUMES, {**volume, "spec": spec})
        marks = {"annotations": {BIND_COMPLETED: "yes"}}
        bound = {"metadata": marks, "spec": {"volumeName": volume["metadata"]["name"]}}
        self.store.patch(CLAIMS, *key_of(claim), bound)
        given = {"accessModes": volume["spec"].get("accessModes", []), "capacity": volume["spec"].get("capacity", {})}
        self.store.patch(CLAIMS, *key_of(claim), {"status": {"phase": "Bound", **given}}, "status")
        self._sync_volume(volume)

    def _sync_volume(self, volume: Obj) -> None:
        """Write the phase Available, Bound or Released; delete a released volume with reclaim policy Delete."""
        ref = volume["spec"].get("claimRef")
        claim = self.find(CLAIMS, ref.get("namespace", ""), ref["name"]) if ref else None
        if ref is None or not ref.get("uid"):
            phase = "Available"
        elif claim is not None and claim["metadata"]["uid"] == ref["uid"]:
            phase = "Bound"
        elif volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            self.remove(VOLUMES, volume)
            return
        else:
            phase = "Released"
        self.write_status(VOLUMES, volume, {**(volume.get("status") or {}), "phase": phase})


def _is_bound(claim: Obj) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def _is_free(volume: Obj) -> bool:
    return not volume["spec"].get("claimRef") and not is_deleting(volume)


def _reference(claim: Obj) -> Obj:
    namespace, name = key_of(claim)
    return {"apiVersion": "v1", "kind": _CLAIM, "namespace": namespace, "name": name, "uid": claim["metadata"]["uid"]}


def _refers_to(volume: Obj, claim: Obj) -> bool:
    ref = volume["spec"].get("claimRef") or {}
    named = (ref.get("namespace"), ref.get("name")) == key_of(claim)
    return named and ref.get("uid") in (None, "", claim["metadata"]["uid"])


def _capacity(volume: Obj) -> int:
    return parse_units((volume["spec"].get("capacity") or {}).get("storage", "0"))


def _fits(volume: Obj, claim: Obj) -> bool:
    """Return whether a free volume has the class, modes, labels and capacity that a claim requests."""
    wanted, given = claim["spec"], volume["spec"]
    selector = wanted.get("selector")
    return (
        _is_free(volume)
        and given.get("storageClassName", "") == wanted.get("storageClassName", "")
        and given.get("volumeMode", "Filesystem") == wanted.get("volumeMode", "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(given.get("accessModes") or ())
        and (selector is None or LabelSelector.compile(selector).matches(labels_of(volume)))
        and _capacity(volume) >= parse_units(wanted["resources"]["requests"]["storage"])
    )
