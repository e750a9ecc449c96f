"""Whether a statement still holds against the state as it is now (design law 3): the check between decide and log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from vcd.model.events import Operation, Plan
from vcd.model.requests import CPU, MEMORY, PODS
from vcd.model.status import ALLOCATED_STATUSES, TERMINATED_STATUSES, TaskStatus
from vcd.scheduling.nodes import fits, room_needed
from vcd.scheduling.predicates.claims import outdated
from vcd.state.snapshot import Snapshot


def stale_statements(plan: Plan, head: Snapshot, base: Snapshot | None = None) -> tuple[tuple[int, str], ...]:
    """The statements of a plan that no longer hold, as pairs of index and reason.

    A bind needs its pod pending under the same UID, its node there with room left by the statements before it, and
    the volumes chosen for it free; a pipelined pod must still be pending under the same UID, so that nobody is evicted
    for a pod that is gone;
    an eviction needs its pod placed under the same UID. One operation that does not hold drops its statement whole,
    and the later ones of its group with it: what a gang gets beyond its minimum must not come without the minimum.

    ``base`` is what the plan was decided from. A queue that holds more than it did then, or whose capability is
    another one, must stay within its capability; of all others the plan knew what it does. None: no queue is asked.
    """
    check = _Head(head, _changed_queues(base, head) if base is not None else {})
    stale = []
    dropped: set[str] = set()
    for index, statement in enumerate(plan.statements):
        reason = "an earlier statement of its group was dropped" if statement.group in dropped else ""
        reason = reason or check.accept(statement.operations)
        if reason:
            stale.append((index, reason))
            dropped.add(statement.group)
    return tuple(stale)


def _changed_queues(base: Snapshot, head: Snapshot) -> dict[str, dict[str, int]]:
    """What is left of the capability of queues that hold more, or may hold something else, than at the base."""
    before, now = _held(base), _held(head)
    left = {}
    for name, record in head.queues.items():
        old = base.queues.get(name)
        grown = now[name] - before[name]
        if record.capability and (old is None or old.capability != record.capability or grown):
            left[name] = {
                resource: limit - now[name][resource]
                for resource, limit in record.capability.items()
                if resource != PODS and not (limit == 0 and resource in (CPU, MEMORY))
            }
    return left


def _held(snapshot: Snapshot) -> dict[str, Counter[str]]:
    """What each queue has allocated, by resource."""
    held: dict[str, Counter[str]] = {name: Counter() for name in snapshot.queues}
    tasks = snapshot.tasks
    allocated = np.flatnonzero((tasks.node >= 0) & (tasks.job >= 0) & np.isin(tasks.status, tuple(ALLOCATED_STATUSES)))
    pairs, counts = np.unique(np.stack([tasks.job[allocated], tasks.shape[allocated]]), axis=1, return_counts=True)
    for job, number, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        queue = queue_name(snapshot, snapshot.job_keys[job] or "")
        shape = snapshot.shapes[number]
        if queue in held and shape is not None:
            held[queue].update({name: value * count for name, value in shape.requests.items()})
    return held


def queue_name(snapshot: Snapshot, group: str) -> str | None:
    """The queue of a group; None where there is no such group."""
    record = snapshot.groups.get(group)
    return None if record is None else record.group.spec.queue or snapshot.settings.default_queue


class _Head:
    """The head state's pods and rooms, less what accepted statements take."""

    def __init__(self, head: Snapshot, left: dict[str, dict[str, int]]) -> None:
        self._head = head
        self._left = left
        self._row_of = {key: row for row, key in enumerate(head.tasks.keys) if key is not None}
        self._requests = head.shape_requests()
        self._idle = head.idle_rooms(self._requests)

    def accept(self, operations: tuple[Operation, ...]) -> str:
        """Take the room that the operations need; an empty text when all hold, else the first reason."""
        taken: list[tuple[int, int]] = []
        for operation in operations:
            reason = self._accept(operation, taken)
            if reason:
                for row, node in taken:
                    self._move(row, node, -1)
                return f"{operation.verb} {operation.key}: {reason}"
        return ""

    def _move(self, row: int, node: int, times: int) -> None:
        """A pod takes room of a node and of its queue, or gives it back."""
        tasks = self._head.tasks
        self._idle[node] -= times * self._requests[tasks.shape[row]]
        left = self._left_of(row)
        for name, value in self._asked(row):
            if name in left:
                left[name] -= times * value

    def _left_of(self, row: int) -> dict[str, int]:
        job = int(self._head.tasks.job[row])
        key = self._head.job_keys[job] if job >= 0 else None
        return self._left.get(queue_name(self._head, key or "") or "", {})

    def _asked(self, row: int) -> Iterable[tuple[str, int]]:
        shape = self._head.shapes[int(self._head.tasks.shape[row])]
        return () if shape is None else [(name, value) for name, value in shape.requests.items() if value > 0]

    def _accept(self, operation: Operation, taken: list[tuple[int, int]]) -> str:
        tasks = self._head.tasks
        row = self._row_of.get(operation.key)
        pod = None if row is None else tasks.pods[row]
        if row is None or pod is None:
            return "the pod is gone"
        if pod.metadata.uid != operation.uid:
            return "another pod has its name now"
        if operation.verb == "evict":
            if tasks.status[row] in TERMINATED_STATUSES:
                return "the pod has ended"
            return "" if tasks.node[row] >= 0 else "the pod has no node"
        if tasks.status[row] != TaskStatus.PENDING:
            return "the pod is no longer pending"
        node = self._head.facts.row_of.get(operation.node)
        if node is None:
            return f"node {operation.node} is gone"
        if operation.verb == "pipeline":
            return ""
        request = self._requests[tasks.shape[row]]
        if not fits(room_needed(request), self._idle[node][:, None])[0]:
            return f"node {operation.node} has no room left"
        for choice in operation.volumes:
            reason = outdated(choice, operation.node, self._head.others)
            if reason:
                return reason
        left = self._left_of(row)
        if any(value > left.get(name, value) for name, value in self._asked(row)):
            return "its queue has no room left within its capability"
        self._move(row, node, 1)
        taken.append((row, node))
        return ""
