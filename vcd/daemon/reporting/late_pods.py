"""Finds pending pods whose group waits already and that may lack its condition: late pods, and all pods for a new
leader and after a list.

A plan holds only changes of reasons, so it does not mention such a pod again.
"""

from __future__ import annotations

from collections.abc import Iterator

from vcd.daemon.reporting.autoscaler_hint import POD_GROUP_MISSING
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.status import TaskStatus, condition_of
from vcd.state.cluster_state import ClusterState

_GATED = "SchedulingGated"

LatePod = tuple[str, Pod, tuple[ev.Waiting, ...]]


class LatePods:
    """Pending pods without a condition of this leader, in order of arrival, until a session has considered them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._since: dict[str, int] = {}
        """Sequence number of each pod's arrival, by key."""

    def look(self) -> None:
        """Note all pending pods, whose conditions may be outdated."""
        waiting = [key for key in self._state.tasks.row_of if self._pending(key) is not None]
        self._since = dict.fromkeys(waiting, self._state.sequence)

    def forget(self) -> None:
        """Drop all pods, because another replica leads; ``look`` finds the remaining ones later."""
        self._since.clear()

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state."""
        if isinstance(event, ev.ObjectPut) and event.kind == "Pod" and event.payload is not None:
            if self._is_unreported(event.key):
                self._since[event.key] = self._state.sequence
        elif isinstance(event, ev.ObjectGone) and event.kind == "Pod":
            self._since.pop(event.key, None)

    def seen(self, sequence: int) -> Iterator[LatePod]:
        """Yield the pods that a session knew and left pending: key, pod, reasons of the group."""
        known = [key for key, since in self._since.items() if since <= sequence]
        for key in known:
            if self._since.get(key, sequence + 1) > sequence:  # deleted or noted again while the caller handled others
                continue
            del self._since[key]
            pod = self._pending(key)
            if pod is None:
                continue
            job = self._state.tasks.at(self._state.tasks.row_of[key], "job")
            reasons = self._state.waiting.get(self._state.job_keys[job]) if job >= 0 else None
            if reasons:
                yield key, pod, reasons

    def _is_unreported(self, key: str) -> bool:
        pod = self._pending(key)
        condition = None if pod is None else condition_of("PodScheduled", pod.status.conditions)
        # these conditions remain after the gate is removed or the group is created
        return pod is not None and (condition is None or condition.reason in (_GATED, POD_GROUP_MISSING))

    def _pending(self, key: str) -> Pod | None:
        """Return a pod that is pending and not gated."""
        row = self._state.tasks.row_of.get(key)
        pod = None if row is None else self._state.pods[row]
        if row is None or pod is None or self._state.tasks.at(row, "status") != TaskStatus.PENDING:
            return None
        condition = condition_of("PodScheduled", pod.status.conditions)
        is_gated = condition is not None and condition.reason == _GATED and pod.spec.scheduling_gates
        return None if is_gated else pod
