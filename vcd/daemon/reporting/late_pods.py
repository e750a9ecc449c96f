"""Pods of groups that wait already, of which the plan, which holds changes only, says nothing new: those that come, and
all where a leader begins."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.daemon.reporting.autoscaler_hint import POD_GROUP_MISSING
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.status import TaskStatus, condition_of
from vcd.state.cluster import ClusterState

_GATED = "SchedulingGated"

Told = tuple[str, Pod, tuple[ev.Waiting, ...]]


class LatePods:
    """Pending pods that show no condition yet, or perhaps that of another leader, until a session has seen them; in the
    order in which they came."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._since: dict[str, int] = {}
        """The events with which they came, by key."""

    def look(self) -> None:
        """All that are there: a leader begins, and what they show may be what one before it found."""
        waiting = [key for key in self._state.tasks.row_of if self._pending(key) is not None]
        self._since = dict.fromkeys(waiting, self._state.sequence)

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
            pod = self._pending(key)
            if pod is None:
                continue
            job = self._state.tasks.at(self._state.tasks.row_of[key], "job")
            reasons = self._state.waiting.get(self._state.job_keys[job]) if job >= 0 else None
            if reasons:
                yield key, pod, reasons

    def _is_untold(self, key: str) -> bool:
        pod = self._pending(key)
        told = None if pod is None else condition_of("PodScheduled", pod.status.conditions)
        # what was said of a gate, or of a missing group, stays when the gate is lifted, or the group is made
        return pod is not None and (told is None or told.reason in (_GATED, POD_GROUP_MISSING))

    def _pending(self, key: str) -> Pod | None:
        """A pod that is pending, unless it is told by the API server that it is gated."""
        row = self._state.tasks.row_of.get(key)
        pod = None if row is None else self._state.pods[row]
        if row is None or pod is None or self._state.tasks.at(row, "status") != TaskStatus.PENDING:
            return None
        told = condition_of("PodScheduled", pod.status.conditions)
        is_gated = told is not None and told.reason == _GATED and pod.spec.scheduling_gates
        return None if is_gated else pod
