"""A bound on what one object may write to the log in a minute, so that a tenant's patches do not fill it.

Of an object beyond its budget only changes are let through on which the pods of others depend; of the rest the newest
version waits until the minute is over. What is held back is not in the log, so no decision depends on it (docs/laws.md,
law 1). Its owner alone notices: changes to the object's labels, annotations or conditions are seen later.
"""

from __future__ import annotations

from typing import Any

import structlog

from vcd.kube.clock import Clock
from vcd.model.events import ObjectPut
from vcd.model.objects import Object, Pod

log = structlog.get_logger(__name__)

MOST_BYTES = 1 << 20
"""Bytes that one object may write in one window: a pod of 10 KB may change 100 times."""
WINDOW = 60.0
"""Seconds."""


class WriteBudget:
    """Counts what each object of a kind writes, and holds back the newest version of those that write too much."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_end = 0.0
        self._written: dict[str, tuple[int, Any]] = {}
        """By key the bytes in this window, and what others depend on."""
        self._held: dict[str, ObjectPut] = {}

    def holds(self, event: ObjectPut, obj: Object) -> bool:
        """Return whether a changed object has to wait; it then replaces an older version that waits."""
        if self._clock.monotonic() >= self._window_end:
            self._written.clear()
            self._window_end = self._clock.monotonic() + WINDOW
        size, essence = len(event.payload or b""), _essence(obj)
        written, before = self._written.get(event.key, (0, essence))
        if written + size > MOST_BYTES and written and essence == before:
            if event.key not in self._held:
                log.warning("object_held_back", kind=event.kind, key=event.key, written=written, seconds=WINDOW)
            self._held[event.key] = event
            return True
        self._written[event.key] = written + size, essence
        self._held.pop(event.key, None)
        return False

    def forget(self, key: str) -> None:
        """Drop what is held of an object: it is gone, or a newer version is in the log."""
        self._held.pop(key, None)

    def gone(self, key: str) -> None:
        """Drop all of an object that was deleted."""
        self.forget(key)
        self._written.pop(key, None)

    def release(self, *, at_once: bool = False) -> list[ObjectPut]:
        """Return the versions whose window is over, or all of them ``at_once``; they are held no longer."""
        if not self._held or not (at_once or self._clock.monotonic() >= self._window_end):
            return []
        released, self._held = [*self._held.values()], {}
        return released


def _essence(obj: Object) -> Any:
    """Return what pods of others depend on: whether the object is still there, and what a pod takes of which node."""
    meta = obj.metadata
    if not isinstance(obj, Pod):
        return meta.uid, meta.deletion_timestamp
    containers = [(each.name, each.resources) for each in (*obj.spec.containers, *obj.spec.init_containers)]
    return meta.uid, meta.deletion_timestamp, obj.spec.node_name, obj.status.phase, containers
