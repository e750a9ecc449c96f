"""Telling of objects that cannot be used: once in the log, and, by the leader, at the object (docs/laws.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from vcd.kube.recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.model import events as ev
from vcd.model.codec import decode_payload
from vcd.model.objects import Condition
from vcd.state.cluster import ClusterState

_log = structlog.get_logger(__name__)


class _Told(NamedTuple):
    message: str
    uid: str


@dataclass(eq=False)
class InvalidObjects:
    """Follows what the state sets aside. Each message is told once, however often its object changes otherwise."""

    state: ClusterState
    recorder: EventRecorder
    conditions: StatusWriter
    _told: dict[tuple[str, str], _Told] = field(default_factory=dict, init=False)

    def observe(self, event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> None:
        """Note an event that is in the state."""
        name = event.kind, event.key
        message = self.state.bad.get(name)
        before = self._told.get(name)
        if message is None:
            self._told.pop(name, None)
            return
        told = _Told(message, _uid(event, before))
        if told != before:
            self._told[name] = told
            _log.warning("object set aside", kind=event.kind, key=event.key, reason=message)
            self._tell_owner(event.kind, event.key, told)

    def tell_owners(self) -> None:
        """Tell of all that is known: while nobody led, only the log was told."""
        for (kind, key), told in self._told.items():
            self._tell_owner(kind, key, told)

    def _tell_owner(self, kind: str, key: str, told: _Told) -> None:
        """An Event, and on a pod that is on no node the condition, naming field and value."""
        self.recorder.record(kind, key, told.uid, "Warning", "InvalidObjects", told.message)
        if kind == "Pod" and told.uid and self.state.pod(key) is None:
            condition = Condition("PodScheduled", "False", "SchedulerError", told.message)
            self.conditions.submit_pod_condition(key, told.uid, condition)


def _uid(event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad, before: _Told | None) -> str:
    """The object's, as far as it can be read."""
    if not isinstance(event, ev.ObjectPut):
        return ""
    if event.payload is not None:
        return decode_payload(event.kind, event.payload).metadata.uid
    return "" if before is None else before.uid
