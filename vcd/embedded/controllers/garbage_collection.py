"""Garbage collection: objects without existing owners, foreground and orphaning deletion, pods of deleted nodes."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.controllers.controller_base import (
    ADDED,
    DELETED,
    EVENTS,
    NODES,
    PODS,
    Controller,
    Key,
    Manager,
    Obj,
    is_deleting,
    key_of,
)
from vcd.embedded.controllers.pod_properties import node_of
from vcd.embedded.resource_types import CRDS

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
NODE_GONE_SECONDS: Final = 40.0

Address = tuple[str, str, str]


class GarbageCollector(Controller):
    """Deletes objects whose owners were all deleted, and carries out foreground and orphaning deletion.

    It watches all resources that the store serves, including custom resources that are defined later. An owner of an
    unserved kind counts as existing. Keys are (resource, namespace, name).
    """

    name: ClassVar[str] = "garbage-collector"

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.resources = tuple(
            dict.fromkeys(
                rtype.storage for rtype in self.store.registry if "list" in rtype.verbs and rtype.storage != EVENTS
            )
        )
        self._live: dict[str, Address] = {}
        self._owners: dict[Address, tuple[str, ...]] = {}
        self._dependents: dict[str, dict[Address, None]] = {}
        self.store.garbage_collected = True

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Update the graph of owners, and enqueue objects that the change affects."""
        address = (resource, *key_of(obj))
        uid = obj["metadata"]["uid"]
        if resource == CRDS and event == ADDED:
            self.enqueue(address)
        owners = tuple(ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ())
        self._link(address, () if event == DELETED else owners)
        if event == DELETED:
            self._live.pop(uid, None)
            for dependent in self._dependents.get(uid, ()):
                self.enqueue(dependent)
            for owner in owners:
                if owner in self._live:
                    self.enqueue(self._live[owner])
            return
        self._live[uid] = address
        if is_deleting(obj) or not all(owner in self._live for owner in owners):
            self.enqueue(address)

    def reconcile(self, key: Key) -> None:
        """Delete an object without existing owners, or continue the ordered deletion of a terminating one."""
        resource, namespace, name = key
        obj = self.find(resource, namespace, name)
        if obj is None:
            return
        if is_deleting(obj):
            self._finalize(resource, obj)
        elif resource == CRDS:
            self._watch_also(name)
        else:
            self._collect(resource, obj)

    def _watch_also(self, resource: str) -> None:
        if resource not in self.resources and self.store.registry.get(resource) is not None:
            self.resources = (*self.resources, resource)
            self.manager.watch(resource)

    def _served(self, api_version: str, kind: str) -> bool:
        return any(rtype.kind == kind and rtype.api_version == api_version for rtype in self.store.registry)

    def _link(self, address: Address, owners: tuple[str, ...]) -> None:
        for owner in self._owners.pop(address, ()):
            held = self._dependents[owner]
            held.pop(address, None)
            if not held:
                del self._dependents[owner]
        if owners:
            self._owners[address] = owners
            for owner in owners:
                self._dependents.setdefault(owner, {})[address] = None

    def _collect(self, resource: str, obj: Obj) -> None:
        refs = obj["metadata"].get("ownerReferences") or []
        gone = [ref for ref in refs if ref["uid"] not in self._live and self._served(ref["apiVersion"], ref["kind"])]
        if refs and len(gone) == len(refs):
            self.remove(resource, obj, propagation="Background")
        elif gone:
            self._write_meta(resource, obj, ownerReferences=[ref for ref in refs if ref not in gone])

    def _finalize(self, resource: str, obj: Obj) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        uid = obj["metadata"]["uid"]
        if ORPHAN in finalizers:
            for dependent in list(self._dependents.get(uid, ())):
                self._disown(dependent, uid)
            self._write_meta(resource, obj, finalizers=[each for each in finalizers if each != ORPHAN])
        elif FOREGROUND in finalizers:
            for dependent in list(self._dependents.get(uid, ())):
                self._delete_dependent(dependent, uid)
            if not self._dependents.get(uid):
                self._write_meta(resource, obj, finalizers=[each for each in finalizers if each != FOREGROUND])

    def _disown(self, dependent: Address, uid: str) -> None:
        obj = self.find(*dependent)
        if obj is not None:
            refs = [ref for ref in obj["metadata"].get("ownerReferences") or () if ref["uid"] != uid]
            self._write_meta(dependent[0], obj, ownerReferences=refs)

    def _delete_dependent(self, dependent: Address, uid: str) -> None:
        obj = self.find(*dependent)
        if obj is None or is_deleting(obj):
            return
        others = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid and ref["uid"] in self._live]
        if others:
            self._disown(dependent, uid)
        else:
            propagation = "Foreground" if self._dependents.get(obj["metadata"]["uid"]) else "Background"
            self.remove(dependent[0], obj, propagation=propagation)

    def _write_meta(self, resource: str, obj: Obj, **fields: list[Obj] | list[str]) -> None:
        metadata = {**obj["metadata"], **fields}
        self.store.update(resource, {**obj, "metadata": {k: v for k, v in metadata.items() if v != []}})


class PodGarbageCollector(Controller):
    """Removes the pods of missing nodes after 40 seconds, as Kubernetes does."""

    name: ClassVar[str] = "pod-garbage-collector"
    resources = (NODES, PODS)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._pods = manager.index(PODS, node_of)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue pods whose node was deleted or does not exist, for the time after the wait."""
        gone: list[Obj] = []
        if resource == PODS and event != DELETED and node_of(obj) and self.find(NODES, "", node_of(obj)) is None:
            gone = [obj]
        elif resource == NODES and event == DELETED:
            gone = self._pods.of(obj["metadata"]["name"])
        for pod in gone:
            self.enqueue_at(key_of(pod), self.clock.now() + NODE_GONE_SECONDS)

    def reconcile(self, key: Key) -> None:
        """Remove the pod without a grace period if its node is still missing."""
        pod = self.find(PODS, *key)
        if pod is not None and node_of(pod) and self.find(NODES, "", node_of(pod)) is None:
            self.remove(PODS, pod, grace_period=0)
