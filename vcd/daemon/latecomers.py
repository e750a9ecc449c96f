"""Pods that come to a group which waits already: the plan, which holds changes only, says nothing new of them."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.status import TaskStatus, condition_of
from vcd.state.cluster import ClusterState

_GATED = "SchedulingGated"

Told = tuple[str, Pod, tuple[ev.Waiting, ...]]


class Latecomers:
    """Pending pods that show no condition yet, until a session has seen them; in the order in which they came."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._since: dict[str, int] = {}
        """The events with which they came, by key."""

    def look(self) -> None:
        """All that are there: a leader begins."""
        self._since = {key: self._state.sequence for key in self._state.tasks.row_of if self._is_untold(key)}

    def forget(self) -> None:
        """This replica does not lead: another one tells them, and ``look`` finds those that are left."""
        self._since.clear()

    def observe(self, event: ev.Event) -> None:
        """An event was folded."""
        if isinstance(event, ev.ObjectPut) and event.kind == "Pod" and event.payload is not None:
            if self._is_untold(event.key):
                self._since[event.key] = self._state.sequence
        elif isinstance(event, ev.ObjectGone) and event.kind == "Pod":
            self._since.pop(event.key, None)

    def seen(self, sequence: int) -> Iterator[Told]:
        """Those that a session which began at an event knew of and left waiting: key, pod, why the group waits."""
        known = [key for key, since in self._since.items() if since <= sequence]
        for key in known:
            if self._since.get(key, sequence + 1) > sequence:  # gone, or looked at anew, while the others were told
                continue
            del self._since[key]
            if not self._is_untold(key):
                continue
            row = self._state.tasks.row_of[key]
            job, pod = self._state.tasks.at(row, "job"), self._state.pods[row]
            reasons = self._state.waiting.get(self._state.job_keys[job]) if job >= 0 else None
            if reasons and pod is not None:
                yield key, pod, reasons

    def _is_untold(self, key: str) -> bool:
        row = self._state.tasks.row_of.get(key)
        pod = None if row is None else self._state.pods[row]
        if row is None or pod is None or self._state.tasks.at(row, "status") != TaskStatus.PENDING:
            return False
        told = condition_of("PodScheduled", pod.status.conditions)
        # what the API server said of a gate stays when the gate is lifted
        return told is None or (told.reason == _GATED and not pod.spec.scheduling_gates)
