"""Reports objects that vcd cannot use: a log line, and from the leader an Event and a condition (docs/laws.md, law 6).

The state decides which objects are invalid (``ClusterState.bad``).
"""

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
    """Reports each message once per object, even if the object changes otherwise."""

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
        """Report all known objects again: before this term, only the log had them."""
        for (kind, key), told in self._told.items():
            self._tell_owner(kind, key, told)

    def _tell_owner(self, kind: str, key: str, told: _Told) -> None:
        """Write an Event and, for a pod without a node, the condition."""
        self.recorder.record(kind, key, told.uid, "Warning", "SetAside", told.message)
        if kind == "Pod" and told.uid and self.state.pod(key) is None:
            condition = Condition("PodScheduled", "False", "SchedulerError", told.message)
            self.conditions.submit_pod_condition(key, told.uid, condition)


def _uid(event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad, before: _Told | None) -> str:
    """Return the object's UID, as far as it can be decoded."""
    if not isinstance(event, ev.ObjectPut):
        return ""
    if event.payload is not None:
        return decode_payload(event.kind, event.payload).metadata.uid
    return "" if before is None else before.uid
