"""The base of all controllers: a shared work queue, level-triggered reconciliation, indexes and Events.

A controller receives changes (``observe``), for which it only adds keys to the queue, and then acts on an object's
current state (``reconcile``). Everything runs in one thread on the store. So ``reconcile`` never reads outdated objects
and no change is missed, and there is no resync.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import structlog

from vcd.embedded.cluster_clock import ClusterClock, Timer
from vcd.embedded.status_errors import StatusError
from vcd.embedded.store import Store
from vcd.embedded.watch_cache import ADDED as ADDED
from vcd.embedded.watch_cache import DELETED as DELETED
from vcd.model.podgroups import controller_of as controller_of

Obj = dict[str, Any]
Key = tuple[str, ...]

PODS: Final = "pods"
NODES: Final = "nodes"
NAMESPACES: Final = "namespaces"
EVENTS: Final = "events"
DEPLOYMENTS: Final = "deployments.apps"
REPLICASETS: Final = "replicasets.apps"
PODGROUPS: Final = "podgroups.scheduling.volcano.sh"
QUEUES: Final = "queues.scheduling.volcano.sh"
JOBS: Final = "jobs.batch.volcano.sh"
COMMANDS: Final = "commands.bus.volcano.sh"

# A count and not a time, so that the order of all tasks on the loop does not depend on the machine's load.
_SLICE = 25
_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 300.0
# Errors of code that expects valid objects if an object is malformed.
_MALFORMED = (AttributeError, LookupError, TypeError, ValueError)

log = structlog.get_logger("vcd.embedded")


def key_of(obj: Obj) -> tuple[str, str]:
    """Return ``(namespace, name)``; the namespace is empty for a cluster-scoped object."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def annotations_of(obj: Obj) -> dict[str, str]:
    """Return the annotations, empty if there are none."""
    return obj["metadata"].get("annotations") or {}


def labels_of(obj: Obj) -> dict[str, str]:
    """Return the labels, empty if there are none."""
    return obj["metadata"].get("labels") or {}


def is_deleting(obj: Obj) -> bool:
    """Return whether the object is terminating."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def with_condition(conditions: Iterable[Obj], condition: Obj, now: str) -> list[Obj]:
    """Replace the condition of the same type, or add it. The transition time changes only with the status."""
    kept = list(conditions)
    fresh = {**condition, "lastTransitionTime": now}
    for index, old in enumerate(kept):
        if old.get("type") == condition["type"]:
            if old.get("status") == condition["status"]:
                fresh["lastTransitionTime"] = old.get("lastTransitionTime", now)
            kept[index] = fresh
            return kept
    return [*kept, fresh]


class Controller(ABC):
    """One control loop. ``resources`` are the resources whose changes it observes."""

    name: ClassVar[str]
    resources: tuple[str, ...]

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.store = manager.store
        self.clock = manager.clock
        self.find = manager.store.find
        self.pods_by_controller = manager.index(PODS)
        self._waiting: dict[Key, Timer] = {}

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue the keys that a change (or an object that exists at the start) affects. Must not write."""
        if event != DELETED:
            self.enqueue(key_of(obj))

    @abstractmethod
    def reconcile(self, key: Key) -> None:
        """Bring the cluster to the state that the object under ``key`` describes. StatusError causes a retry."""

    def enqueue(self, key: Key) -> None:
        """Reconcile ``key`` soon. Repeated calls before that have no effect."""
        self.manager.enqueue(self, key)

    def enqueue_at(self, key: Key, when: float, *, background: bool = False) -> None:
        """Reconcile ``key`` at a time; the earliest requested time wins. ``background`` as in `ClusterClock`."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            if waiting.when <= when:
                return
            waiting.cancel()

        def due() -> None:
            del self._waiting[key]
            self.enqueue(key)

        self._waiting[key] = self.clock.call_at(when, due, background=background)

    def workload_above(self, namespace: str, owner: Obj) -> tuple[Obj | None, Obj | None]:
        """Return the ReplicaSet of an owner reference and its Deployment; None for missing ones."""
        replica_set = self.find(REPLICASETS, namespace, owner["name"])
        above = controller_of(replica_set) if replica_set else None
        return replica_set, self.find(DEPLOYMENTS, namespace, above["name"]) if above else None

    def write_status(self, resource: str, obj: Obj, status: Obj) -> None:
        """Write an object's status if it changes."""
        if status != (obj.get("status") or {}):
            self.store.update(resource, {**obj, "status": status}, "status")

    def remove(self, resource: str, obj: Obj, **options: Any) -> None:
        """Delete the object with this UID, if it still exists."""
        namespace, name = key_of(obj)
        try:
            self.store.delete(resource, namespace, name, uid=obj["metadata"]["uid"], **options)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def remove_group(self, namespace: str, name: str) -> None:
        """Delete a PodGroup if it exists."""
        group = self.find(PODGROUPS, namespace, name)
        if group is not None:
            self.remove(PODGROUPS, group)


def controller_uid(obj: Obj) -> str:
    """Return the UID of the object's controller, empty if it has none."""
    ref = controller_of(obj)
    return ref.get("uid", "") if ref else ""


class Index:
    """An index of one resource's current objects by the text that ``by`` returns."""

    def __init__(self, store: Store, resource: str, by: Callable[[Obj], str]) -> None:
        self._by = by
        self._held: dict[str, dict[Key, Obj]] = {}
        self._place: dict[Key, str] = {}
        self.close = store.subscribe([resource], self._changed)
        for obj in store.list(resource):
            self._changed(ADDED, resource, obj)

    def of(self, text: str) -> list[Obj]:
        """Return the objects with that text, sorted by key."""
        held = self._held.get(text, {})
        return [held[key] for key in sorted(held)]

    def _changed(self, event: str, resource: str, obj: Obj) -> None:
        key = key_of(obj)
        now = self._by(obj) if event != DELETED else ""
        before = self._place.pop(key, "")
        if before and before != now:
            del self._held[before][key]
            if not self._held[before]:
                del self._held[before]
        if now:
            self._place[key] = now
            self._held.setdefault(now, {})[key] = obj


_Seen = tuple[str, str, str, str]
"""UID of the involved object, component, reason and message."""


class EventWriter:
    """Writes core/v1 Events; a repeated Event increments the count of the existing one.

    An Event that the store refuses (its namespace is terminating) is logged and lost, as on a real cluster.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[_Seen, Key] = {}
        """Keys of existing Events by content."""
        self._seen: dict[Key, _Seen] = {}
        """The inverse."""
        store.subscribe([EVENTS], self._forget)

    def _forget(self, change: str, _: str, event: Obj) -> None:
        if change == "DELETED" and (seen := self._seen.pop(key_of(event), None)) is not None:
            del self._names[seen]

    def record(self, component: str, obj: Obj, kind: str, reason: str, message: str) -> None:
        """Write an Event about ``obj``; ``kind`` is Normal or Warning."""
        try:
            self._write(component, obj, kind, reason, message)
        except StatusError as error:
            log.info("event not written", component=component, reason=reason, message=message, error=error.message)

    def _write(self, component: str, obj: Obj, kind: str, reason: str, message: str) -> None:
        namespace, name = key_of(obj)
        now = self._store.now
        seen = (obj["metadata"]["uid"], component, reason, message)
        if seen in self._names:
            event = self._store.get(EVENTS, *self._names[seen])
            self._store.update(EVENTS, {**event, "count": event.get("count", 1) + 1, "lastTimestamp": now})
            return
        where = namespace or "default"
        event = self._store.create(
            EVENTS,
            {
                "metadata": {"namespace": where, "generateName": f"{name}."},
                "involvedObject": {
                    "apiVersion": obj["apiVersion"],
                    "kind": obj["kind"],
                    "name": name,
                    "uid": obj["metadata"]["uid"],
                    "resourceVersion": obj["metadata"].get("resourceVersion", ""),
                    **({"namespace": namespace} if namespace else {}),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": component},
                "reportingComponent": component,
                "reportingInstance": "",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
        )
        self._names[seen] = key_of(event)
        self._seen[key_of(event)] = seen


class Manager:
    """Runs the controllers: passes existing objects and changes to them, and processes their queue.

    If the store refuses a reconciliation, it is repeated after a delay that doubles from one second to five minutes of
    cluster time, and at once after a change of the object.
    """

    def __init__(self, store: Store, clock: ClusterClock) -> None:
        self.store = store
        self.clock = clock
        self.events = EventWriter(store)
        self.controllers: list[Controller] = []
        self._indexes: dict[tuple[str, Callable[[Obj], str]], Index] = {}
        self._queue: OrderedDict[tuple[Controller, Key], None] = OrderedDict()
        self._failures: dict[tuple[Controller, Key], int] = {}
        self._watched: dict[str, Callable[[], None]] = {}
        self._wake = asyncio.Event()
        clock.add_busy(self.busy)

    def index(self, resource: str, by: Callable[[Obj], str] = controller_uid) -> Index:
        """Return the shared index of a resource, by default by controller."""
        if (resource, by) not in self._indexes:
            self._indexes[resource, by] = Index(self.store, resource, by)
        return self._indexes[resource, by]

    def add(self, *controllers: Controller) -> None:
        """Add controllers, before ``start``."""
        self.controllers.extend(controllers)

    def start(self) -> None:
        """Pass all existing objects to the controllers, and from then on every change."""
        for controller in self.controllers:
            for resource in controller.resources:
                self.watch(resource)

    def watch(self, resource: str) -> None:
        """Pass a resource's objects and changes to its controllers, unless that was done before."""
        if resource in self._watched:
            return
        self._watched[resource] = self.store.subscribe([resource], self._changed)
        for obj in self.store.list(resource):
            self._changed(ADDED, resource, obj)

    def stop(self) -> None:
        """Stop passing changes. Queued keys are not processed any more."""
        while self._watched:
            _, unsubscribe = self._watched.popitem()
            unsubscribe()
        for index in self._indexes.values():
            index.close()

    def enqueue(self, controller: Controller, key: Key) -> None:
        """Add a controller's key to the queue, unless it is queued."""
        if (controller, key) not in self._queue:
            self._queue[controller, key] = None
            self._wake.set()
            self.clock.touch()

    def busy(self) -> bool:
        """Return whether any key is queued."""
        return bool(self._queue)

    async def run(self) -> None:
        """Process the queue until cancelled, in short slices so that other tasks on the loop can run."""
        while True:
            for _ in range(min(_SLICE, len(self._queue))):
                self._next()
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(0)

    def _changed(self, event: str, resource: str, obj: Obj) -> None:
        for controller in self.controllers:
            if resource in controller.resources:
                try:
                    controller.observe(event, resource, obj)
                except _MALFORMED as error:
                    # This runs inside a client's write, which must not fail because of a malformed object.
                    _set_aside(controller, key_of(obj), error)

    def _next(self) -> None:
        (controller, key), _ = self._queue.popitem(last=False)
        try:
            controller.reconcile(key)
        except StatusError as error:
            self._retry(controller, key, error)
        except _MALFORMED as error:
            # A malformed object is set aside until it changes.
            _set_aside(controller, key, error)
        else:
            self._failures.pop((controller, key), None)

    def _retry(self, controller: Controller, key: Key, error: StatusError) -> None:
        failures = self._failures.get((controller, key), 0)
        self._failures[controller, key] = failures + 1
        delay = min(_FIRST_RETRY_SECONDS * 2.0 ** min(failures, 16), _LAST_RETRY_SECONDS)
        log.info("reconcile again", controller=controller.name, key=key, error=error.message, delay=delay)
        self.clock.call_later(delay, lambda: self.enqueue(controller, key), background=True)


def _set_aside(controller: Controller, key: Key, error: Exception) -> None:
    log.warning("object set aside", controller=controller.name, key=key, error=repr(error), exc_info=True)
