"""Queues, tasks, jobs and nodes as a session sees them: made from the snapshot's columns when first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from vcd.model.events import Waiting
from vcd.model.objects import Node, Pod
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, STATUSES, TERMINATED_STATUSES, Phase, TaskStatus
from vcd.scheduling.session.subjobs import Partition
from vcd.state.records import GroupRecord, QueueRecord, Shape, is_preemptable, task_role

if TYPE_CHECKING:
    from vcd.scheduling.session.nodes import Ints, Usage
    from vcd.scheduling.session.session import Session

_S = TaskStatus
_READY = tuple(int(status) for status in READY_STATUSES)
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)
_ready, _allocated = itemgetter(*_READY), itemgetter(*_ALLOCATED)
"""The counts of these statuses, out of the counts of all."""


class Queue:
    """A queue: its record, its weight, and the number by which columns of queues know it."""

    __slots__ = ("created", "index", "name", "reclaimable", "record", "state", "weight")

    def __init__(self, index: int, name: str, record: QueueRecord) -> None:
        self.index = index
        self.name = name
        self.record = record
        self.weight = record.queue.spec.weight
        self.state = record.queue.status.state
        self.created = record.created
        self.reclaimable = record.queue.spec.reclaimable is not False
        """Whether other queues may take back what it holds beyond its share; yes unless it says no."""

    @property
    def is_open(self) -> bool:
        """Whether it admits new work; a queue whose state nobody wrote yet is open."""
        return self.state in ("", "Open")


class Task:
    """A pod in a session. ``row`` is its row in the snapshot's columns, ``node`` its node's row or -1.

    ``request`` is int64 in the order of the session's resources, ``amounts`` the same as a
    tuple of integers, ``floor`` the least room that takes it (``nodes.room_needed``).
    """

    __slots__ = (
        "amounts",
        "best_effort",
        "created",
        "deltas",
        "floor",
        "gated",
        "job",
        "key",
        "labels",
        "name",
        "namespace",
        "node",
        "pod",
        "priority",
        "request",
        "role",
        "row",
        "shape",
        "status",
        "uid",
        "unsupported",
    )

    def __init__(self, session: Session, row: int, job: Job) -> None:
        tasks = session.snapshot.tasks
        pod = tasks.pods[row]
        number = tasks.shape[row]
        shape = session.snapshot.shapes[number]
        assert pod is not None and shape is not None
        meta = pod.metadata
        self.row = row
        self.job = job
        self.pod: Pod = pod
        self.name = meta.name
        self.namespace = meta.namespace
        self.key = f"{meta.namespace}/{meta.name}"
        self.uid = meta.uid
        self.shape: Shape = shape
        self.deltas = session.deltas(int(number))
        self.request = self.deltas.request
        self.floor = self.deltas.floor
        self.amounts = self.deltas.amounts
        self.best_effort = shape.best_effort
        self.labels = int(tasks.labels[row])
        self.priority = int(tasks.priority[row])
        self.created = int(tasks.created[row])
        self.status = int(tasks.status[row])
        self.node = int(tasks.node[row])
        self.role = task_role(pod)
        self.unsupported = job.record.unsupported + shape.unsupported
        """Fields of its group and its pod that are not supported: it has to wait."""
        self.gated = bool(shape.spec.scheduling_gates or self.unsupported)
        """Whether something that it says itself keeps it from every node."""

    @property
    def preemptable(self) -> bool:
        """Whether it may be evicted at all."""
        return is_preemptable(self.pod)


class Job:
    """A PodGroup and its tasks: counts by status, what it has allocated, and its minimum."""

    __slots__ = (
        "_partition",
        "_pending",
        "_roles",
        "_tasks",
        "allocated",
        "best_effort_pending",
        "counts",
        "created",
        "failed",
        "failed_roles",
        "has_roles",
        "hindered",
        "index",
        "is_broken",
        "key",
        "min_available",
        "name",
        "namespace",
        "phase",
        "priority",
        "queue",
        "record",
        "role_minima",
        "role_total",
        "session",
        "touched",
        "why",
    )

    def __init__(self, session: Session, index: int) -> None:
        columns = session.jobs
        self.session = session
        self.index = index
        self.key = columns.keys[index]
        self.namespace, _, self.name = self.key.partition("/")
        self.record: GroupRecord = columns.records[index]
        spec = self.record.group.spec
        self.queue: Queue = session.queue_list[int(columns.queue[index])]
        self.priority = int(columns.priority[index])
        self.min_available = spec.min_member
        self.role_minima = spec.min_task_member
        self.role_total = sum(spec.min_task_member.values())
        self.has_roles: bool = bool(spec.min_task_member)
        self.created = self.record.created
        self.phase = Phase(int(session.phases[index]))
        self.counts: list[int] = columns.counts[index].tolist()
        self.best_effort_pending = int(columns.best_effort_pending[index])
        self.allocated: list[int] = columns.allocated[index].tolist()
        self.failed_roles: set[str] = set()
        self.failed: list[Task] = []
        """Tasks that found no node where none of the job's own could be in the way."""
        self.hindered = False
        """Whether a task was passed over because of another of the job, or had no room beside it."""
        self.is_broken = False
        """Whether it lacks tasks that it needs without those best-effort ones that no node takes."""
        self.why: list[Waiting] = []
        self.touched = False
        self._pending: list[Task] | None = None
        self._tasks: list[Task] | None = None
        self._roles: dict[str, list[int]] | None = None
        self._partition: Partition | None = None

    # --- counts (docs/semantics/status.md) --------------------------------------------------------------------------

    @property
    def task_count(self) -> int:
        return sum(self.counts)

    @property
    def ready_count(self) -> int:
        """Tasks that are bound, binding, running, allocated or succeeded."""
        return sum(_ready(self.counts))

    @property
    def waiting_count(self) -> int:
        """Pipelined tasks."""
        return self.counts[_S.PIPELINED]

    @property
    def allocated_count(self) -> int:
        return sum(_allocated(self.counts))

    @property
    def valid_count(self) -> int:
        """Tasks that run, wait or may still be placed."""
        return self.ready_count + self.counts[_S.PIPELINED] + self.counts[_S.PENDING]

    def is_ready(self) -> bool:
        """Whether enough tasks have room; best-effort ones need none."""
        return self.ready_count + self.best_effort_pending >= self.min_available

    def is_pipelined(self) -> bool:
        """Whether enough tasks have room, or will have."""
        return self.ready_count + self.waiting_count + self.best_effort_pending >= self.min_available

    def is_starving(self) -> bool:
        """Whether fewer tasks than the minimum have room or wait for it."""
        return self.ready_count + self.waiting_count < self.min_available

    def release(self) -> None:
        """Let go of its tasks, which refer back to it; they are made anew when they are asked for."""
        self.failed.clear()
        self._pending = self._tasks = None

    def is_pending(self) -> bool:
        """Whether the group was not admitted yet."""
        return self.phase is Phase.PENDING

    # --- roles ------------------------------------------------------------------------------------------------------

    @property
    def minds_roles(self) -> bool:
        """Task minima bind only while the job's minimum is at least their sum (docs/semantics/status.md)."""
        return self.has_roles and self.min_available >= self.role_total

    def role_counts(self) -> dict[str, list[int]]:
        """Tasks by role and status; one more entry counts pending best-effort tasks that nothing holds."""
        if self._roles is None:
            self._roles = {}
            for task in self.tasks():
                counts = self._roles.setdefault(task.role, [0] * (STATUSES + 1))
                counts[task.status] += 1
                counts[STATUSES] += task.status == _S.PENDING and task.best_effort and not task.gated
        return self._roles

    def roles_reach(self, statuses: Sequence[int], best_effort: bool) -> bool:
        """Whether each role has its minimum in the given statuses (and pending best-effort tasks, where they count)."""
        if not self.minds_roles:
            return True
        counts = self.role_counts()
        for role, minimum in self.role_minima.items():
            have = counts.get(role)
            reached = 0 if have is None else sum(have[status] for status in statuses) + best_effort * have[STATUSES]
            if reached < minimum:
                return False
        return True

    def misses(self, role: str) -> bool:
        """Whether a role has fewer than its minimum of tasks that have room."""
        minimum = self.role_minima.get(role, 0) if self.minds_roles else 0
        return minimum > 0 and self.role_allocated(self.role_counts().get(role)) < minimum

    @staticmethod
    def role_allocated(counts: Sequence[int] | None) -> int:
        """Tasks of a role that have room or ended well, pending best-effort ones included."""
        return 0 if counts is None else sum(counts[status] for status in _READY) + counts[STATUSES]

    # --- sub-jobs ---------------------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition | None:
        """Its sub-jobs, None where its group has no policy that divides it."""
        if self._partition is None:
            policies = self.record.group.spec.sub_group_policy
            if policies:
                self._partition = Partition(self, policies)
        return self._partition

    # --- tasks ------------------------------------------------------------------------------------------------------

    def pending(self) -> list[Task]:
        """Tasks that were pending when the session began, in order of key."""
        if self._pending is None:
            self._pending = [self.session.task(row) for row in self.session.pending_rows(self.index)]
        return self._pending

    def tasks(self) -> list[Task]:
        """All tasks, in order of key."""
        if self._tasks is None:
            self._tasks = [self.session.task(row) for row in self.session.task_rows(self.index)]
        return self._tasks

    def moved(self, task: Task, status: int) -> None:
        """A task of this job changes its status: counts and sums follow."""
        before = task.status
        self.counts[before] -= 1
        self.counts[status] += 1
        if task.best_effort:
            self.best_effort_pending += (status == _S.PENDING) - (before == _S.PENDING)
        gains = (status in _ALLOCATED) - (before in _ALLOCATED)
        if gains:
            allocated = self.allocated
            for column, amount in enumerate(task.amounts):
                allocated[column] += gains * amount
        if self._roles is not None:
            counts = self._roles[task.role]
            counts[before] -= 1
            counts[status] += 1
            if task.best_effort:
                counts[STATUSES] += (status == _S.PENDING) - (before == _S.PENDING)
        if self._partition is not None:
            self._partition.of(task).moved(task, before, status)
        task.status = status
        self.touched = True
        self.session.moves.append(task)


class NodeView:
    """One node, for who looks at nodes one by one: names in place of columns.

    Quantities are whole numbers by resource name (cpu and scalars in thousandths, bytes and pods whole).
    All is read when it is asked for, and shows the node as it is at that moment. ``usage`` is where it is read from,
    the session's own unless given, and ``column`` the node's column there.
    """

    __slots__ = ("_column", "_session", "_usage", "row")

    def __init__(self, session: Session, row: int, usage: Usage | None = None, column: int | None = None) -> None:
        self._session = session
        self._usage = session.nodes.usage if usage is None else usage
        self._column = row if column is None else column
        self.row = row

    @property
    def name(self) -> str:
        return self._session.nodes.facts.names[self.row]

    @property
    def node(self) -> Node:
        """The object."""
        return self._session.nodes.facts.nodes[self.row]

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations

    @property
    def allocatable(self) -> dict[str, int]:
        """What pods may use of it."""
        return self._named(self._usage.allocatable)

    @property
    def used(self) -> dict[str, int]:
        """What placed pods use, and those that are going away."""
        return self._named(self._usage.used)

    @property
    def idle(self) -> dict[str, int]:
        """Allocatable less used; below zero where the node is over."""
        return self._named(self._usage.idle)

    @property
    def releasing(self) -> dict[str, int]:
        """What pods use that are going away."""
        return self._named(self._usage.releasing)

    @property
    def pods(self) -> int:
        """How many pods are on it or wait for its room, without those that this session evicts."""
        return int(self._usage.pods[self._column])

    @property
    def tasks(self) -> list[Task]:
        """The tasks of groups that are on it, in order of key: those that wait for its room, and those that are going
        away, too; not those that ended."""
        session = self._session
        return session.provided(_TasksByNode, lambda: _TasksByNode(session)).on(self.row)

    def _named(self, columns: Ints) -> dict[str, int]:
        return dict(zip(self._session.nodes.resources, columns[:, self._column].tolist(), strict=True))

    def __repr__(self) -> str:
        return f"NodeView({self.name!r})"


class _TasksByNode:
    """Which tasks are on which node, kept up with what changes in trial since it was last asked."""

    def __init__(self, session: Session) -> None:
        tasks = session.snapshot.tasks
        self._session = session
        self._seen = 0
        there = (tasks.node >= 0) & (session.job_of_row >= 0) & ~np.isin(tasks.status, TERMINATED_STATUSES)
        self._node_of: dict[int, int] = dict(
            zip(np.flatnonzero(there).tolist(), tasks.node[there].tolist(), strict=True)
        )
        self._rows: dict[int, dict[int, None]] = {}
        for row, node in self._node_of.items():
            self._rows.setdefault(node, {})[row] = None

    def on(self, node: int) -> list[Task]:
        """The tasks on a row of the nodes, in order of key."""
        moves = self._session.moves
        for task in moves[self._seen :]:
            self._move(task)
        self._seen = len(moves)
        return sorted((self._session.task(row) for row in self._rows.get(node, ())), key=lambda task: task.key)

    def _move(self, task: Task) -> None:
        before = self._node_of.pop(task.row, None)
        if before is not None:
            del self._rows[before][task.row]
        if task.node >= 0:
            self._node_of[task.row] = task.node
            self._rows.setdefault(task.node, {})[task.row] = None
