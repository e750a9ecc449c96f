"""Bound how many bytes one object may write to the event log per minute, so that no tenant can fill the log.

For an object above its budget, only changes that affect other tenants' pods enter the log at once. Of its other
changes, the newest one is logged when the minute is over. Held versions are not in the log, so no decision depends on
them (docs/laws.md, law 1); only the object's owner sees its labels, annotations or conditions take effect later.
"""

from __future__ import annotations

from typing import Any

import structlog

from vcd.kube.clock import Clock
from vcd.model.events import ObjectPut
from vcd.model.objects import Object, Pod

log = structlog.get_logger(__name__)

MAX_BYTES = 1 << 20
"""Bytes that one object may write per window: a pod of 10 KB may change 100 times."""
WINDOW = 60.0
"""Seconds."""


class LogBudget:
    """Count the bytes that each object of a kind writes, and hold the newest version of objects above their budget."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_end = 0.0
        self._written: dict[str, tuple[int, Any]] = {}
        """By key: bytes in this window, and `_shared_effect` of the last logged version."""
        self._held: dict[str, ObjectPut] = {}

    def should_hold(self, event: ObjectPut, obj: Object) -> bool:
        """Return whether a changed object must wait. If so, the object replaces its older held version."""
        if self._clock.monotonic() >= self._window_end:
            self._written.clear()
            self._window_end = self._clock.monotonic() + WINDOW
        size, effect = len(event.payload or b""), _shared_effect(obj)
        written, logged_effect = self._written.get(event.key, (0, effect))
        if written + size > MAX_BYTES and written and effect == logged_effect:
            if event.key not in self._held:
                log.warning("object_held_back", kind=event.kind, key=event.key, written=written, seconds=WINDOW)
            self._held[event.key] = event
            return True
        self._written[event.key] = written + size, effect
        self._held.pop(event.key, None)
        return False

    def drop_held(self, key: str) -> None:
        """Drop the held version of an object, because a newer one was logged."""
        self._held.pop(key, None)

    def forget(self, key: str) -> None:
        """Drop everything about a deleted object."""
        self.drop_held(key)
        self._written.pop(key, None)

    def release(self, *, at_once: bool = False) -> list[ObjectPut]:
        """Stop holding versions whose window is over, or all if ``at_once``; return them."""
        if not self._held or not (at_once or self._clock.monotonic() >= self._window_end):
            return []
        released, self._held = [*self._held.values()], {}
        return released


def _shared_effect(obj: Object) -> Any:
    """Return what other pods depend on: the object's existence, and the resources that a pod occupies on its node."""
    meta = obj.metadata
    if not isinstance(obj, Pod):
        return meta.uid, meta.deletion_timestamp
    containers = [(each.name, each.resources) for each in (*obj.spec.containers, *obj.spec.init_containers)]
    return meta.uid, meta.deletion_timestamp, obj.spec.node_name, obj.status.phase, containers
