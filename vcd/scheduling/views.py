"""Queues, tasks and jobs as a session sees them: made from the snapshot's columns when they are first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vcd.model.events import Waiting
from vcd.model.objects import Pod
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, STATUSES, Phase, TaskStatus
from vcd.state.records import GroupRecord, QueueRecord, Shape, is_preemptable, task_role

if TYPE_CHECKING:
    from vcd.scheduling.session import Session

_S = TaskStatus
_READY = tuple(int(status) for status in READY_STATUSES)
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)


class Queue:
    """A queue: its record, its weight, and the number by which columns of queues know it."""

    __slots__ = ("created", "index", "name", "record", "state", "weight")

    def __init__(self, index: int, name: str, record: QueueRecord) -> None:
        self.index = index
        self.name = name
        self.record = record
        self.weight = record.queue.spec.weight
        self.state = record.queue.status.state
        self.created = record.created

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
        "waited",
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
        self.gated = bool(shape.spec.scheduling_gates)
        self.waited = False
        """Whether it waits for room that an eviction of this session frees."""

    @property
    def preemptable(self) -> bool:
        """Whether it may be evicted at all."""
        return is_preemptable(self.pod)


class Job:
    """A PodGroup and its tasks: counts by status, what it has allocated, and its minimum."""

    __slots__ = (
        "_pending",
        "_roles",
        "_tasks",
        "allocated",
        "best_effort_pending",
        "condition",
        "counts",
        "created",
        "failed_roles",
        "has_roles",
        "index",
        "key",
        "min_available",
        "name",
        "namespace",
        "phase",
        "phase_before",
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
        self.phase = self.phase_before = self.record.phase
        self.counts: list[int] = columns.counts[index].tolist()
        self.best_effort_pending = int(columns.best_effort_pending[index])
        self.allocated: list[int] = columns.allocated[index].tolist()
        self.failed_roles: set[str] = set()
        self.condition: tuple[str, str, str, str] | None = None
        self.why: list[Waiting] = []
        self.touched = False
        self._pending: list[Task] | None = None
        self._tasks: list[Task] | None = None
        self._roles: dict[str, list[int]] | None = None

    # --- counts (seed 003 section 4.6) ------------------------------------------------------------------------------

    @property
    def task_count(self) -> int:
        return sum(self.counts)

    @property
    def ready_count(self) -> int:
        """Tasks that are bound, binding, running, allocated or succeeded."""
        counts = self.counts
        return sum(counts[status] for status in _READY)

    @property
    def waiting_count(self) -> int:
        """Pipelined tasks."""
        return self.counts[_S.PIPELINED]

    @property
    def allocated_count(self) -> int:
        counts = self.counts
        return sum(counts[status] for status in _ALLOCATED)

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

    def is_pending(self) -> bool:
        """Whether the group was not admitted yet."""
        return self.phase is Phase.PENDING

    # --- roles ------------------------------------------------------------------------------------------------------

    @property
    def minds_roles(self) -> bool:
        """Task minima bind only while the job's minimum is at least their sum (rulings, gang)."""
        return self.has_roles and self.min_available >= self.role_total

    def role_counts(self) -> dict[str, list[int]]:
        """Tasks by role and status; one more entry counts pending best-effort tasks."""
        if self._roles is None:
            self._roles = {}
            for task in self.tasks():
                counts = self._roles.setdefault(task.role, [0] * (STATUSES + 1))
                counts[task.status] += 1
                counts[STATUSES] += task.status == _S.PENDING and task.best_effort
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

    @staticmethod
    def role_allocated(counts: Sequence[int] | None) -> int:
        """Tasks of a role that have room or ended well, pending best-effort ones included."""
        return 0 if counts is None else sum(counts[status] for status in _READY) + counts[STATUSES]

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
        task.status = status
        self.touched = True
