"""The cluster's objects in memory: what a kube-apiserver and its etcd do with a request, without HTTP.

All methods are synchronous and belong to one asyncio loop. When a method returns, its change is visible, and all
subscribers were called. Returned objects are shared and must not be modified.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import lru_cache, partial
from random import Random
from typing import Any, Final

from vcd.embedded import (
    admission_plugins,
    bootstrap,
    defaults,
    field_management,
    pod_subresources,
    quota_admission,
    validation,
)
from vcd.embedded.cluster_clock import FARTHEST
from vcd.embedded.field_management import FieldManager
from vcd.embedded.patch import merge_patch
from vcd.embedded.resource_types import (
    CRDS,
    LIMIT_RANGES,
    PDBS,
    POD_GROUPS,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    Registry,
    ResourceType,
    custom_types,
)
from vcd.embedded.schema_codec import Codec, copy, name_of, ordered, ordered_metadata
from vcd.embedded.status_errors import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    not_found,
)
from vcd.embedded.watch_cache import ADDED, DELETED, MODIFIED, Entry, Key, Shelf, Write
from vcd.model.podadmission import fill_in_group_queue, fill_in_storage_class

Object = dict[str, Any]
Callback = Callable[[str, str, Object], None]
Watcher = Callable[[Write], None]

_NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 5


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(at: float) -> str:
    """Format seconds since the epoch as RFC 3339 in UTC, in whole seconds."""
    return _second(int(at))


def _call_subscriber(callback: Callback, resource: str, change: Write) -> None:
    callback(change.kind, resource, change.entry.obj)


class Store:
    """All objects and their history.

    ``clock`` returns seconds since the epoch. ``random`` generates UIDs and name suffixes: with the same seed they are
    the same in each run. ``history`` is the number of retained changes per resource.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        *,
        history: int = 100_000,
    ) -> None:
        self.clock = clock
        self.random = random or Random()
        self.registry = Registry()
        self.codec = Codec()
        self.version = 1
        # Set by a running garbage collector, which then handles dependents and owners of deleted objects.
        self.garbage_collected = False
        self._history = history
        self._floor = 0
        self._shelves: dict[str, Shelf] = {}
        self._watchers: dict[str, list[Watcher]] = {}
        self._ending: set[str] = set()
        for resource, obj in bootstrap.objects():
            self.create(resource, obj)
        self.compact(self.version)

    # --- reading ----------------------------------------------------------------------------------------------------

    def type_of(self, resource: str) -> ResourceType:
        """Return the type of a resource. Raises StatusError 404 if it is not served."""
        rtype = self.registry.get(resource)
        if rtype is None:
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        return rtype

    def shelf(self, storage: str) -> Shelf:
        """Return the objects and the history of a resource."""
        found = self._shelves.get(storage)
        if found is None:
            found = self._shelves[storage] = Shelf(self._floor, self._history)
        return found

    def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """Return an object. Raises StatusError 404."""
        return self.entry(self.type_of(resource), namespace, name).obj

    def find(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """Return an object; None if it does not exist, or its kind is not served."""
        rtype = self.registry.get(resource)
        found = self.shelf(rtype.storage).entries.get(self.entry_key(rtype, namespace, name)) if rtype else None
        return found.obj if found else None

    def entry(self, rtype: ResourceType, namespace: str | None, name: str) -> Entry:
        """Return an object with its encoded form. Raises StatusError 404."""
        found = self.shelf(rtype.storage).entries.get(self.entry_key(rtype, namespace, name))
        if found is None:
            raise not_found(rtype.resource, name)
        return found

    def list(self, resource: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a resource in one namespace or all, sorted by namespace and name."""
        return [entry.obj for entry in self.shelf(self.type_of(resource).storage).all(namespace)]

    def compact(self, version: int | None = None) -> None:
        """Drop the history up to a resourceVersion (default: all of it); older lists and watches get 410."""
        self._floor = max(self._floor, self.version if version is None else version)
        for shelf in self._shelves.values():
            shelf.compact(self._floor)

    @property
    def now(self) -> str:
        """Return the current time in the format of objects."""
        return timestamp(self.clock())

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def subscribe(self, resources: Sequence[str], callback: Callback) -> Callable[[], None]:
        """Call ``callback(event type, resource, object)`` after each change; return a function that ends this.

        The callback runs inside the change and must not write to the store.
        """
        ends = ExitStack()
        for resource in resources:
            ends.callback(self.watch(self.type_of(resource).storage, partial(_call_subscriber, callback, resource)))
        return ends.close

    def watch(self, storage: str, watcher: Watcher) -> Callable[[], None]:
        """Call ``watcher`` with each Write of a stored resource; return a function that ends this."""
        watchers = self._watchers.setdefault(storage, [])
        watchers.append(watcher)

        def end() -> None:
            if watcher in watchers:
                watchers.remove(watcher)

        return end

    def _commit(self, kind: str, rtype: ResourceType, key: Key, obj: Object, previous: Entry | None) -> Entry:
        """Store a change with a new resourceVersion, and call all watchers."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        if kind == ADDED:
            obj["metadata"] = ordered_metadata(obj["metadata"])
        entry = Entry(key, self.version, obj)
        change = Write(kind, entry, previous)
        self.shelf(rtype.storage).record(change)
        for watcher in tuple(self._watchers.get(rtype.storage, ())):
            watcher(change)
        if rtype.storage == CRDS:
            self._serve(kind, obj)
        if kind == DELETED and self._ending:
            self._end_namespaces()
        return entry

    # --- creating ---------------------------------------------------------------------------------------------------

    def create(self, resource: str, obj: Object) -> Object:
        """Create an object with the namespace and name (or generateName) in its metadata.

        Raises StatusError: 400 undecodable, 403 admission, 404 no such namespace, 409 exists already, 422 invalid.
        """
        rtype = self.type_of(resource)
        cleaned, _ = self.codec.read(rtype, obj)
        return self.insert(rtype, cleaned).obj

    def insert(
        self, rtype: ResourceType, obj: Object, manager: FieldManager | None = None, *, dry_run: bool = False,
        managed: field_management.Managers | None = None,
    ) -> Entry:  # fmt: skip
        """Create an object that was read by the codec; the caller must not use it any more.

        ``manager`` becomes the owner of its fields, unless ``managed`` has the owners.
        """
        given = field_management.given(obj["metadata"])
        metadata = self._new_metadata(rtype, obj)
        obj["kind"], obj["apiVersion"] = rtype.kind, rtype.api_version
        defaults.fill_in(rtype.storage, obj)
        if manager is not None:
            managed = self._managed(rtype, defaults.zero(rtype.storage, rtype.custom), obj, None, manager, given)
        if managed:
            metadata["managedFields"] = managed
        self._admit(rtype, obj)
        self._new_status(rtype, obj)
        validation.check(rtype, obj)
        key = self.entry_key(rtype, metadata.get("namespace"), metadata["name"])
        if key in self.shelf(rtype.storage).entries:
            raise already_exists(rtype.resource, metadata["name"])
        charges = quota_admission.charges(
            rtype, obj, self.shelf(quota_admission.RESOURCE).all(metadata.get("namespace"))
        )
        if dry_run:
            obj["metadata"] = ordered_metadata(metadata)
            return Entry(key, 0, obj)
        for quota in charges:
            self.replace(self.type_of(quota_admission.RESOURCE), quota, "status")
        return self._commit(ADDED, rtype, key, obj, None)

    def _new_metadata(self, rtype: ResourceType, obj: Object) -> Object:
        metadata: Object = obj["metadata"]
        if metadata.pop("resourceVersion", None):
            raise bad_request("resourceVersion should not be set on objects to be created")
        for member in ("generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            metadata.pop(member, None)
        if rtype.namespaced:
            metadata.setdefault("namespace", "default")
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(rtype, metadata)
        metadata["uid"] = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.now
        if rtype.generation:
            metadata["generation"] = 1
        return metadata

    def _free_name(self, rtype: ResourceType, metadata: Object) -> str:
        taken = self.shelf(rtype.storage).entries
        while True:
            suffix = "".join(self.random.choice(_NAME_ALPHABET) for _ in range(_SUFFIX))
            name = f"{metadata['generateName'][: 63 - _SUFFIX]}{suffix}"
            if self.entry_key(rtype, metadata.get("namespace"), name) not in taken:
                return name

    def _admit(self, rtype: ResourceType, obj: Object) -> None:
        """Admit a new object: check its namespace, and set what admission plugins and Volcano's webhook set."""
        metadata = obj["metadata"]
        if rtype.namespaced:
            self._admit_namespace(rtype, metadata)
        if rtype.storage == "pods":
            classes = self.shelf(PRIORITY_CLASSES).all()
            admission_plugins.prioritize(obj, {entry.key[1]: entry.obj for entry in classes})
            defaults.tolerate_outages(obj)
            admission_plugins.limit(obj, [entry.obj for entry in self.shelf(LIMIT_RANGES).all(metadata["namespace"])])
        elif rtype.storage == POD_GROUPS:
            namespace = self.get("namespaces", None, metadata["namespace"])
            fill_in_group_queue(obj.setdefault("spec", {}), namespace["metadata"].get("annotations") or {})
        elif rtype.storage == "persistentvolumeclaims":
            fill_in_storage_class(obj, [entry.obj for entry in self.shelf(STORAGE_CLASSES).all()])
        elif rtype.storage == "nodes":
            admission_plugins.taint_until_ready(obj)
        elif rtype.storage == "services":
            admission_plugins.assign_cluster_ip(obj, 2 + self.version)

    def _admit_namespace(self, rtype: ResourceType, metadata: Object) -> None:
        namespace = metadata["namespace"]
        found = self.shelf("namespaces").entries.get(("", namespace))
        if found is None:
            raise not_found("namespaces", namespace)
        if namespace in self._ending:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(rtype.resource, metadata.get("name", ""), why)

    def _new_status(self, rtype: ResourceType, obj: Object) -> None:
        if rtype.storage == "pods":
            obj["status"] = admission_plugins.pod_status(obj, self.now)
        elif rtype.storage == CRDS:
            obj["status"] = admission_plugins.established(obj, self.now)
        elif rtype.has_status and rtype.storage != "nodes":
            obj.pop("status", None)
            if rtype.storage in defaults.NEW_STATUS:
                obj["status"] = copy(defaults.NEW_STATUS[rtype.storage])

    # --- changing ---------------------------------------------------------------------------------------------------

    def update(self, resource: str, obj: Object, subresource: str | None = None) -> Object:
        """Replace an object, or its status if ``subresource`` is "status".

        A resourceVersion or uid in its metadata must be the current one. Raises StatusError: 400, 404, 409, 422.
        """
        rtype = self.type_of(resource)
        cleaned, _ = self.codec.read(rtype, obj)
        return self.replace(rtype, cleaned, subresource).obj

    def patch(
        self, resource: str, namespace: str | None, name: str, patch: Object, subresource: str | None = None
    ) -> Object:
        """Merge-patch an object (RFC 7386), or its status. Raises StatusError: 400, 404, 409, 422."""
        rtype = self.type_of(resource)
        merged = merge_patch(self.entry(rtype, namespace, name).obj, patch)
        if "resourceVersion" not in (patch.get("metadata") or {}):
            merged["metadata"] = {key: value for key, value in merged["metadata"].items() if key != "resourceVersion"}
        cleaned, _ = self.codec.read(rtype, merged)
        return self.replace(rtype, cleaned, subresource).obj

    def replace(
        self, rtype: ResourceType, new: Object, subresource: str | None = None, manager: FieldManager | None = None, *,
        dry_run: bool = False, managed: field_management.Managers | None = None,
    ) -> Entry:  # fmt: skip
        """Replace an object by one that was read by the codec; the caller must not use it any more.

        ``manager`` becomes the owner of changed fields, unless ``managed`` has the owners.
        """
        current = self.entry(rtype, new["metadata"].get("namespace"), name_of(new))
        self._expect(rtype, current, new["metadata"])
        defaults.fill_in(rtype.storage, new)
        obj = self._with_protected_fields(rtype, current.obj, new, subresource)
        if rtype.storage == "pods" and subresource is None:
            admission_plugins.retain_admitted_fields(current.obj["spec"], obj["spec"])
        if subresource is None:
            self._increment_generation(rtype, current.obj, obj)
        if manager is not None:
            owners = current.obj["metadata"].get("managedFields") or []
            managed = self._managed(rtype, current.obj, obj, subresource, manager, owners)
        if managed is not None:
            obj["metadata"]["managedFields"] = managed
            if not managed:
                del obj["metadata"]["managedFields"]
        if obj == current.obj:
            return current
        if subresource is None:
            validation.check(rtype, obj)
            validation.check_update(rtype, current.obj, obj)
        if dry_run:
            return Entry(current.key, current.version, obj)
        return self._changed(rtype, current, obj)

    def _changed(self, rtype: ResourceType, current: Entry, obj: Object) -> Entry:
        """Commit a change. A terminating object is deleted once it has no finalizer."""
        metadata = obj["metadata"]
        waiting = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
        if waiting and not metadata.get("finalizers"):
            gone = {**obj, "metadata": dict(metadata)}
            self._commit(DELETED, rtype, current.key, gone, current)
            return Entry(current.key, current.version, obj)
        return self._commit(MODIFIED, rtype, current.key, obj, current)

    def _expect(self, rtype: ResourceType, current: Entry, metadata: Object) -> None:
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        if version and version != current.obj["metadata"]["resourceVersion"]:
            raise conflict(rtype.resource, current.key[1])
        if uid and uid != current.obj["metadata"]["uid"]:
            place = "/".join(part for part in (rtype.group, rtype.plural, *current.key) if part)
            raise conflict(rtype.resource, current.key[1], pod_subresources.other_uid(place, current.obj, uid))

    @staticmethod
    def _with_protected_fields(rtype: ResourceType, old: Object, new: Object, subresource: str | None) -> Object:
        """Return ``new`` with the fields from ``old`` that a client cannot write in this request."""
        before: Object = old["metadata"]
        metadata = new["metadata"]
        if subresource == "status" and rtype.custom:
            metadata = dict(before)
        for member in (
            "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
            "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
        ):  # fmt: skip
            metadata.pop(member, None)
            if member in before:
                metadata[member] = before[member]
        obj = dict(new)
        if subresource == "status":
            obj = {**old, "status": new["status"]} if "status" in new else {
                key: value for key, value in old.items() if key != "status"
            }  # fmt: skip
        elif rtype.has_status:
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
        obj["kind"], obj["apiVersion"] = rtype.kind, rtype.api_version
        obj["metadata"] = ordered_metadata(metadata)
        return ordered(obj)

    @staticmethod
    def _increment_generation(rtype: ResourceType, old: Object, new: Object) -> None:
        """Increment the generation if the spec changed; in a custom resource, any field but metadata and status."""
        if not rtype.generation:
            return
        if rtype.custom:
            apart = ("metadata", "status") if rtype.has_status else ("metadata",)
            changed = any(old.get(key) != new.get(key) for key in {**old, **new} if key not in apart)
        else:
            changed = old.get("spec") != new.get("spec")
        if changed:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    @staticmethod
    def _reset(rtype: ResourceType, subresource: str | None) -> tuple[str, ...]:
        """Return the parts of an object that a request for the subresource (None: the object) cannot write."""
        if subresource == "status":
            return ("spec", "metadata") if rtype.custom else ("spec",)
        return ("status",) if rtype.has_status else ()

    def _managed(
        self, rtype: ResourceType, old: Object, new: Object, subresource: str | None, manager: FieldManager,
        owners: field_management.Managers,
    ) -> field_management.Managers:  # fmt: skip
        found = field_management.compare(old, new, self.codec.schema(rtype))
        reset = self._reset(rtype, subresource)
        difference = field_management.FieldChange(
            field_management.owned(found.changed, reset), field_management.owned(found.removed, reset)
        )
        return field_management.after_update(owners, manager, difference, self.now)

    def apply(
        self, rtype: ResourceType, config: Object, subresource: str | None, manager: FieldManager, *, force: bool,
        dry_run: bool = False,
    ) -> tuple[Entry, bool]:  # fmt: skip
        """Apply a configuration that was read by the codec; return the object and whether it was created.

        Raises StatusError 409 for fields that another manager owns, unless ``force``.
        """
        metadata = config["metadata"]
        key = self.entry_key(rtype, metadata.get("namespace"), name_of(config))
        current = self.shelf(rtype.storage).entries.get(key)
        if current is None and subresource:
            raise not_found(rtype.resource, key[1])
        live = current.obj if current else None
        if current is not None:
            self._expect(rtype, current, metadata)
        managers = (live or {}).get("metadata", {}).get("managedFields") or []
        merged, owners = field_management.apply(
            live, managers, config, self.codec.schema(rtype), manager, force=force, now=self.now,
            reset=self._reset(rtype, subresource),
        )  # fmt: skip
        merged, _ = self.codec.read(rtype, merged)
        if current is None:
            return self.insert(rtype, merged, dry_run=dry_run, managed=owners), True
        merged["metadata"].pop("resourceVersion", None)
        return self.replace(rtype, merged, subresource, dry_run=dry_run, managed=owners), False

    # --- pods' subresources -----------------------------------------------------------------------------------------

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """Assign a pod to ``binding.target.name``, which need not exist.

        Raises StatusError: 404 no such pod; 409 wrong UID, already bound, gated or terminating; 422 no target.
        """
        rtype = self.type_of("pods")
        current = self.entry(rtype, namespace, name)
        self._commit(MODIFIED, rtype, current.key, pod_subresources.bound(current.obj, binding, self.now), current)

    def evict(self, namespace: str, name: str, eviction: Object, *, dry_run: bool = False) -> None:
        """Delete a pod through the eviction API, if its disruption budget allows it.

        Raises StatusError: 404, 409 for a wrong UID, 429 if the budget does not allow it, 500 for several budgets.
        """
        rtype = self.type_of("pods")
        current = self.entry(rtype, namespace, name)
        options = eviction.get("deleteOptions") or {}
        preconditions = options.get("preconditions") or {}
        self._expect_deletable(rtype, current, preconditions.get("uid"), preconditions.get("resourceVersion"))
        if pod_subresources.counts_as_disruption(current.obj):
            self._spend_budget(current.obj, dry_run=dry_run)
        if dry_run:
            return
        self._commit(MODIFIED, rtype, current.key, pod_subresources.mark_for_eviction(current.obj, self.now), current)
        self.delete("pods", namespace, name, grace_period=options.get("gracePeriodSeconds"))

    def _spend_budget(self, pod: Object, *, dry_run: bool) -> None:
        budgets = (entry.obj for entry in self.shelf(PDBS).all(pod["metadata"]["namespace"]))
        spent = pod_subresources.spent_budget(pod, budgets, self.now)
        if spent is not None and not dry_run:
            rtype = self.type_of(PDBS)
            entry = self.entry(rtype, spent["metadata"]["namespace"], spent["metadata"]["name"])
            self._commit(MODIFIED, rtype, entry.key, spent, entry)

    # --- deleting ---------------------------------------------------------------------------------------------------

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object; return its last state.

        A pod on a node gets a deletionTimestamp and exists until it is deleted with ``grace_period`` (seconds) 0; an
        object with finalizers exists until they are removed. Raises StatusError 404, 409 if a precondition fails.
        """
        rtype = self.type_of(resource)
        current = self.entry(rtype, namespace, name)
        self._expect_deletable(rtype, current, uid, resource_version)
        if dry_run:
            return current.obj
        if rtype.storage == "pods":
            return self._delete_pod(rtype, current, grace_period)
        if rtype.storage == "namespaces":
            return self._delete_namespace(rtype, current)
        if rtype.storage == CRDS:
            self._delete_all(custom_types(current.obj))
        finalizers = list(current.obj["metadata"].get("finalizers") or ())
        waits = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation or "")
        if waits and self.garbage_collected and waits not in finalizers:
            finalizers.append(waits)
        if not finalizers:
            return self._remove(rtype, current).obj
        if "deletionTimestamp" in current.obj["metadata"]:
            return current.obj
        return self._commit(MODIFIED, rtype, current.key, self._as_terminating(current.obj, 0, finalizers), current).obj

    @staticmethod
    def _expect_deletable(rtype: ResourceType, current: Entry, uid: str | None, version: str | None) -> None:
        metadata, name = current.obj["metadata"], current.key[1]
        kind = f"{rtype.kind}.{rtype.group}" if rtype.group else rtype.kind
        for what, asked, have, why in (
            ("UID", uid, metadata["uid"], "deleted and then recreated"),
            ("ResourceVersion", version, metadata["resourceVersion"], "modified"),
        ):
            if asked and asked != have:
                text = f"the {what} in the precondition ({asked}) does not match the {what} in record ({have})"
                raise conflict(kind, name, f"{text}. The object might have been {why}")

    def _as_terminating(self, obj: Object, grace: int, finalizers: Sequence[str] = ()) -> Object:
        metadata = dict(obj["metadata"])
        if "deletionTimestamp" not in metadata and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = timestamp(self.clock() + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        if finalizers:
            metadata["finalizers"] = list(finalizers)
        return {**obj, "metadata": ordered_metadata(metadata)}

    def _delete_pod(self, rtype: ResourceType, current: Entry, grace: int | None) -> Object:
        pod = current.obj
        metadata = pod["metadata"]
        if grace is None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        grace = min(max(grace, 0), FARTHEST)
        if not pod["spec"].get("nodeName") or pod["status"].get("phase") in pod_subresources.FINISHED:
            grace = 0
        pending = metadata.get("deletionGracePeriodSeconds") if "deletionTimestamp" in metadata else None
        if pending is not None and (grace > pending or (grace == pending and grace > 0)):
            return pod
        if pending != grace or pending is None:
            current = self._commit(MODIFIED, rtype, current.key, self._as_terminating(pod, grace), current)
        if grace > 0 or metadata.get("finalizers"):
            return current.obj
        return self._remove(rtype, current).obj

    def _remove(self, rtype: ResourceType, current: Entry) -> Entry:
        obj = {**current.obj, "metadata": dict(current.obj["metadata"])}
        return self._commit(DELETED, rtype, current.key, obj, current)

    def _delete_namespace(self, rtype: ResourceType, current: Entry) -> Object:
        """Mark a namespace as terminating and delete its objects; the namespace is removed after the last one."""
        name = current.key[1]
        if name in ("default", "kube-system", "kube-public"):
            raise forbidden("namespaces", name, "this namespace may not be deleted")
        if name in self._ending:
            return current.obj
        obj = self._as_terminating(current.obj, 0)
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        marked = self._commit(MODIFIED, rtype, current.key, obj, current).obj
        self._ending.add(name)
        self._delete_all([each for each in self.registry if each.namespaced and not each.stored_as], name)
        self._end_namespaces()
        return marked

    def _delete_all(self, types: Sequence[ResourceType], namespace: str | None = None) -> None:
        for each in types:
            for entry in tuple(self.shelf(each.storage).all(namespace)):
                self.delete(each.resource, entry.key[0] or None, entry.key[1])

    def _end_namespaces(self) -> None:
        for name in sorted(self._ending):
            if any(shelf.count(name) for storage, shelf in self._shelves.items() if storage != "namespaces"):
                continue
            self._ending.discard(name)
            rtype = self.type_of("namespaces")
            self._remove(rtype, self.entry(rtype, None, name))

    # --- kinds ------------------------------------------------------------------------------------------------------

    def _serve(self, kind: str, crd: Object) -> None:
        """Serve the types of a custom resource definition, or stop serving them after its deletion."""
        resource = crd["metadata"]["name"]
        self.codec.forget(resource)
        self.registry.remove(resource)
        if kind == DELETED:
            self._shelves.pop(resource, None)
            return
        for rtype in custom_types(crd):
            self.registry.add(rtype)

    @staticmethod
    def entry_key(rtype: ResourceType, namespace: str | None, name: str) -> Key:
        """Return the key of an object: (namespace or "", name)."""
        return ((namespace or "default") if rtype.namespaced else "", name)
