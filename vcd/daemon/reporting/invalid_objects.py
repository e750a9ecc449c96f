"""Reports objects that vcd cannot use: a log line, and from the leader an Event and a condition (docs/laws.md, law 6).

The state decides which objects are invalid (``ClusterState.bad``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from vcd.kube.event_recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.model import events as ev
from vcd.model.objects import Condition
from vcd.model.projection_codec import decode_payload
from vcd.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)


class _Report(NamedTuple):
    message: str
    uid: str


@dataclass(eq=False)
class InvalidObjects:
    """Reports each message once per object, even if the object changes otherwise."""

    state: ClusterState
    recorder: EventRecorder
    conditions: StatusWriter
    _reports: dict[tuple[str, str], _Report] = field(default_factory=dict, init=False)

    def observe(self, event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> None:
        """Note an event that is in the state."""
        name = event.kind, event.key
        message = self.state.bad.get(name)
        before = self._reports.get(name)
        if message is None:
            self._reports.pop(name, None)
            return
        report = _Report(message, _uid(event, before))
        if report != before:
            self._reports[name] = report
            _log.warning("object set aside", kind=event.kind, key=event.key, reason=message)
            self._report(event.kind, event.key, report)

    def report_all(self) -> None:
        """Report all known objects again: before this term, only the log had them."""
        for (kind, key), report in self._reports.items():
            self._report(kind, key, report)

    def _report(self, kind: str, key: str, report: _Report) -> None:
        """Write an Event and, for a pod without a node, the condition."""
        self.recorder.record(kind, key, report.uid, "Warning", "SetAside", report.message)
        if kind == "Pod" and report.uid and self.state.pod(key) is None:
            condition = Condition("PodScheduled", "False", "SchedulerError", report.message)
            self.conditions.submit_pod_condition(key, report.uid, condition)


def _uid(event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad, before: _Report | None) -> str:
    """Return the object's UID, as far as it can be decoded."""
    if not isinstance(event, ev.ObjectPut):
        return ""
    if event.payload is not None:
        return decode_payload(event.kind, event.payload).metadata.uid
    return "" if before is None else before.uid
