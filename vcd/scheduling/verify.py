"""Whether a statement still holds against the state as it is now (design law 3): the check between decide and log."""

from __future__ import annotations

import numpy as np

from vcd.model.events import Operation, Plan
from vcd.model.status import TERMINATED_STATUSES, TaskStatus
from vcd.scheduling.nodes import Ints, fits, room_needed
from vcd.state.snapshot import Snapshot


def stale_statements(plan: Plan, head: Snapshot) -> tuple[tuple[int, str], ...]:
    """The statements of a plan that no longer hold, as pairs of index and reason.

    A bind needs its pod pending under the same UID, and its node there with room left by the statements before it;
    an eviction needs its pod placed under the same UID. One operation that does not hold drops its statement whole.
    """
    check = _Head(head)
    stale = []
    for index, statement in enumerate(plan.statements):
        reason = check.accept(statement.operations)
        if reason:
            stale.append((index, reason))
    return tuple(stale)


class _Head:
    """The head state's pods and rooms, less what accepted statements take."""

    def __init__(self, head: Snapshot) -> None:
        self._head = head
        self._row_of = {key: row for row, key in enumerate(head.tasks.keys) if key is not None}
        self._column_of = {name: column for column, name in enumerate(head.resources)}
        self._idle = self._rooms()

    def _rooms(self) -> Ints:
        head = self._head
        requests = np.zeros((len(head.shapes) + 1, len(head.resources)), np.int64)
        for number, shape in enumerate(head.shapes):
            if shape is not None:
                for name, value in shape.requests.items():
                    requests[number, self._column_of[name]] = value
        self._requests = requests
        tasks = head.tasks
        placed = (tasks.node >= 0) & ~np.isin(tasks.status, TERMINATED_STATUSES)
        idle = head.facts.allocatable.copy()
        np.subtract.at(idle, tasks.node[placed], requests[tasks.shape[placed]])
        return idle

    def accept(self, operations: tuple[Operation, ...]) -> str:
        """Take the room that the operations need; an empty text when all hold, else the first reason."""
        taken: list[tuple[int, Ints]] = []
        for operation in operations:
            reason = self._accept(operation, taken)
            if reason:
                for node, request in taken:
                    self._idle[node] += request
                return f"{operation.verb} {operation.key}: {reason}"
        return ""

    def _accept(self, operation: Operation, taken: list[tuple[int, Ints]]) -> str:
        if operation.verb == "pipeline":
            return ""
        tasks = self._head.tasks
        row = self._row_of.get(operation.key)
        pod = None if row is None else tasks.pods[row]
        if row is None or pod is None:
            return "the pod is gone"
        if pod.metadata.uid != operation.uid:
            return "another pod has its name now"
        if operation.verb == "evict":
            return "" if tasks.node[row] >= 0 else "the pod has no node"
        if tasks.status[row] != TaskStatus.PENDING:
            return "the pod is no longer pending"
        node = self._head.facts.row_of.get(operation.node)
        if node is None:
            return f"node {operation.node} is gone"
        request = self._requests[tasks.shape[row]]
        if not fits(room_needed(request), self._idle[node][:, None])[0]:
            return f"node {operation.node} has no room left"
        self._idle[node] -= request
        taken.append((node, request))
        return ""
