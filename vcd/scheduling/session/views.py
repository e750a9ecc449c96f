"""Views of a session's tasks, jobs and sub-jobs, created from the snapshot's columns on first access.

A group's ``subGroupPolicy`` divides its job into sub-jobs. A policy takes the pods that its ``labelSelector`` matches
and that have every label of its ``matchLabelKeys``; pods with the same values form one sub-job. A sub-job is placed as
a unit: ``subGroupSize`` of its tasks or none. ``minSubGroups`` sub-jobs of a policy make the job ready. If several
policies match a pod, the first takes it. Pods that no policy takes form one more sub-job, of size 1. A group without
policies has no partition. Source: Volcano ``api/sub_job_info.go``, ``api/job_info.go``, ``actions/allocate``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.events import Waiting
from vcd.model.objects import Pod, SubGroupPolicy
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, STATUSES, Phase, TaskStatus
from vcd.model.subgroups import SubGroups, index_of_value, place_of
from vcd.scheduling.session.nodes import Deltas
from vcd.scheduling.session.queue_view import Queue
from vcd.state.backoff import RefusalBackoff
from vcd.state.group_columns import Rows
from vcd.state.records import GroupRecord, Shape, is_preemptable, task_role
from vcd.state.snapshot import Snapshot
from vcd.state.snapshot_content import TaskColumns, values_of
from vcd.state.sums import Ints, plus

_POLICY_WITHOUT_PODS = ReasonCode("sub-groups-missing", Cause.INVALID, "a sub-group policy takes no pod")
_SUB_GROUP_SHORT = ReasonCode(
    "sub-group-short", Cause.GANG_INCOMPLETE, "fewer tasks of a sub-group have room than its size", nodes_help=True
)

_S = TaskStatus
_PENDING, _PIPELINED = int(TaskStatus.PENDING), int(TaskStatus.PIPELINED)
_READY = tuple(int(status) for status in READY_STATUSES)
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)
_PHASES = tuple(Phase)
_ready, _allocated = itemgetter(*_READY), itemgetter(*_ALLOCATED)
"""Select the counts of these statuses from the counts of all."""
_SHOWN_PODS = 3
"""The number of pods that a reason names."""


class Task(msgspec.Struct, eq=False):
    """A pod in a session. ``row`` is its row in the snapshot's columns, ``node`` its node's row or -1.

    ``request`` is int64 in the order of the session's resources, ``amounts`` the same as a tuple of integers, and
    ``floor`` the least idle resources that it needs (``nodes.room_needed``).
    """

    row: int
    key: str
    labels: int
    priority: int
    created: int
    status: int
    node: int
    job: Job
    shape: Shape
    deltas: Deltas
    request: Ints
    floor: Ints
    amounts: tuple[int, ...]
    best_effort: bool
    unsupported: tuple[str, ...]
    """Unsupported fields of its group and pod; a task with any waits."""
    gated: bool
    """Whether its own fields, or a back-off, exclude it from every node."""
    _columns: TaskColumns

    def __repr__(self) -> str:
        return f"Task({self.key!r})"

    @property
    def pod(self) -> Pod:
        """The Pod object."""
        return self._columns.pod(self.row)

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def namespace(self) -> str:
        return self.job.namespace

    @property
    def uid(self) -> str:
        return self._columns.pod(self.row).metadata.uid

    @property
    def role(self) -> str:
        """The name of its task in the job (``volcano.sh/task-spec``)."""
        return task_role(self.pod)

    @property
    def refused_until(self) -> int:
        """The end of the task's last back-off (ns since the epoch), 0 for none. Refused evictions do not count."""
        return self.job.refusal_of(self.row)

    @property
    def preemptable(self) -> bool:
        """Whether it may be evicted at all."""
        return is_preemptable(self.pod) and not self.eviction_was_refused

    @property
    def eviction_was_refused(self) -> bool:
        """Whether the API server refused its eviction, so that it is not evicted before a time in the future."""
        backoff = self.job.backoff_of(self.row)
        return backoff is not None and backoff.verb == "evict"


class Job:
    """A PodGroup and its tasks: counts by status, allocated resources, and its minimum."""

    __slots__ = (
        "_partition",
        "_pending",
        "_roles",
        "_tasks",
        "_views",
        "allocated",
        "best_effort_pending",
        "counts",
        "created",
        "failed",
        "failed_roles",
        "has_roles",
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
        "touched",
        "wants_second_round",
        "why",
    )

    def __init__(self, views: Views, index: int) -> None:
        columns = views.columns
        self._views = views
        self.index = index
        self.key = columns.keys[index]
        self.namespace, _, self.name = self.key.partition("/")
        self.record: GroupRecord = columns.records[index]
        spec = self.record.group.spec
        self.queue: Queue = views.queues[int(columns.queue[index])]
        self.priority = int(columns.priority[index])
        self.min_available = spec.min_member
        self.role_minima = spec.min_task_member
        self.role_total = sum(spec.min_task_member.values()) if spec.min_task_member else 0
        self.has_roles: bool = bool(spec.min_task_member)
        self.created = self.record.created
        self.phase = _PHASES[views.phases[index]]
        self.counts: list[int] = columns.counts[index].tolist()
        self.best_effort_pending = int(columns.best_effort_pending[index])
        self.allocated: list[int] = columns.allocated[index].tolist()
        self.failed_roles: set[str] = set()
        self.failed: list[Task] = []
        """Tasks for which no node was found, and not because of other tasks of the job."""
        self.wants_second_round = False
        """Whether a task was skipped because of another task of the job, or found no resources in addition to it."""
        self.is_broken = False
        """Whether it is invalid because no node takes some of its best-effort tasks."""
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
        """Number of bound, binding, running, allocated and succeeded tasks."""
        return sum(_ready(self.counts))

    @property
    def waiting_count(self) -> int:
        """Number of pipelined tasks."""
        return self.counts[_S.PIPELINED]

    @property
    def allocated_count(self) -> int:
        return sum(_allocated(self.counts))

    @property
    def valid_count(self) -> int:
        """Number of tasks that are placed, pipelined or pending."""
        return self.ready_count + self.counts[_S.PIPELINED] + self.counts[_S.PENDING]

    def is_ready(self) -> bool:
        """Return whether enough tasks are placed; pending best-effort tasks count."""
        return self.ready_count + self.best_effort_pending >= self.min_available

    def is_pipelined(self) -> bool:
        """Return whether enough tasks are placed or pipelined; pending best-effort tasks count."""
        return self.ready_count + self.waiting_count + self.best_effort_pending >= self.min_available

    def is_starving(self) -> bool:
        """Return whether fewer tasks than the minimum are placed or pipelined."""
        return self.ready_count + self.waiting_count < self.min_available

    def release(self) -> None:
        """Drop its tasks, which refer back to it; they are created again on access."""
        self.failed.clear()
        self._pending = self._tasks = None

    @property
    def refused_until(self) -> int:
        """The end of its last back-off (ns since the epoch), 0 without refusals. Of jobs of equal order, a refused one
        comes last, the earlier refusal first."""
        return self._views.refused_jobs.get(self.index, 0)

    @property
    def is_stranded(self) -> bool:
        """Whether the API server admitted it only in part. Of jobs of equal order it comes first, refused or not."""
        return self.key in self._views.snapshot.stranded

    def is_pending(self) -> bool:
        """Return whether the group is not admitted yet."""
        return self.phase is Phase.PENDING

    def backoff_of(self, row: int) -> RefusalBackoff | None:
        """Return the current back-off of one of its tasks."""
        return self._views.backing_off.get(row)

    def refusal_of(self, row: int) -> int:
        """Return the end of the last back-off of one of its tasks; 0 for none. Refused evictions do not
        count."""
        backoff = self._views.snapshot.backoffs.get(row)
        return 0 if backoff is None or backoff.verb == "evict" else backoff.until

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The fields of its group that no active plugin supports, and for which its tasks wait."""
        supported = self._views.supported
        return tuple([f"the PodGroup's {path}" for path in self.record.unsupported if path not in supported])

    # --- reasons ----------------------------------------------------------------------------------------------------

    def note(self, gate: str, source: str, refusal: Reason, nodes: int = 0, task: Task | None = None) -> None:
        """Record why the job or a task waits. Equal reasons are merged: a count, and the keys of the first tasks."""
        key = (gate, source, refusal, nodes)
        for position, known in enumerate(self.why):
            if task is not None and (known.gate, known.plugin, known.reason, known.nodes) == key:
                pods = (*known.pods, task.key)[:_SHOWN_PODS]
                self.why[position] = msgspec.structs.replace(known, tasks=known.tasks + 1, pods=pods)
                return
        pods = () if task is None else (task.key,)
        self.why.append(Waiting(self.key, *key, len(pods), pods))

    # --- roles ------------------------------------------------------------------------------------------------------

    @property
    def minds_roles(self) -> bool:
        """Whether minima of roles apply: only if the job's minimum is at least their sum (docs/semantics/status.md)."""
        return self.has_roles and self.min_available >= self.role_total

    def role_counts(self) -> dict[str, list[int]]:
        """Return the number of tasks by role and status. One more entry counts pending best-effort tasks that are not
        gated."""
        if self._roles is None:
            self._roles = {}
            for task in self.tasks():
                counts = self._roles.setdefault(task.role, [0] * (STATUSES + 1))
                counts[task.status] += 1
                counts[STATUSES] += task.status == _S.PENDING and task.best_effort and not task.gated
        return self._roles

    def roles_reach(self, statuses: Sequence[int], best_effort: bool) -> bool:
        """Return whether each role has its minimum in these statuses (with pending best-effort tasks, if counted)."""
        if not self.minds_roles:
            return True
        counts = self.role_counts()
        for role, minimum in self.role_minima.items():
            have = counts.get(role)
            reached = 0 if have is None else sum(have[status] for status in statuses) + best_effort * have[STATUSES]
            if reached < minimum:
                return False
        return True

    def is_pipelined_whole(self) -> bool:
        """Return whether the minimum of tasks, of each role and of sub-groups is placed or pipelined."""
        if not (self.is_pipelined() and self.roles_reach((*_READY, _PIPELINED), best_effort=True)):
            return False
        return self.partition is None or self.partition.are_pipelined()

    def misses(self, role: str) -> bool:
        """Return whether a role has fewer placed tasks than its minimum."""
        minimum = self.role_minima.get(role, 0) if self.minds_roles else 0
        return minimum > 0 and self.role_allocated(self.role_counts().get(role)) < minimum

    @staticmethod
    def role_allocated(counts: Sequence[int] | None) -> int:
        """Return the number of ready tasks of a role, pending best-effort ones included."""
        return 0 if counts is None else sum(counts[status] for status in _READY) + counts[STATUSES]

    # --- sub-jobs ---------------------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition | None:
        """Its sub-jobs; None if its group has no policy that divides it."""
        if self._partition is None:
            policies = self.record.group.spec.sub_group_policy
            if policies:
                self._partition = Partition(self, policies)
        return self._partition

    # --- tasks ------------------------------------------------------------------------------------------------------

    def pending(self) -> list[Task]:
        """Return the tasks that were pending when the session began, in order of key."""
        if self._pending is None:
            self._pending = self._views.tasks_at(self._views.pending_rows(self.index))
        return self._pending

    def tasks(self) -> list[Task]:
        """Return all tasks, in order of key."""
        if self._tasks is None:
            self._tasks = self._views.tasks_at(self._views.task_rows(self.index))
        return self._tasks

    def moved(self, tasks: Sequence[Task], status: int) -> None:
        """Change the status of tasks of this job, all of one status, and update counts and sums.

        Several tasks must have equal requests, unless they are allocated both before and after.
        """
        first, count = tasks[0], len(tasks)
        before = first.status
        self.counts[before] -= count
        self.counts[status] += count
        waits = ((status == _S.PENDING) - (before == _S.PENDING)) * first.best_effort
        self.best_effort_pending += waits * count
        gains = (status in _ALLOCATED) - (before in _ALLOCATED)
        if gains:
            self.allocated = plus(self.allocated, first.amounts, gains * count)
        for task in tasks:
            if self._roles is not None:
                counts = self._roles[task.role]
                counts[before] -= 1
                counts[status] += 1
                counts[STATUSES] += waits
            if self._partition is not None:
                self._partition.of(task).moved(task, before, status)
            task.status = status
        self.touched = True
        self._views.moves.extend(tasks)


class SubJob:
    """Tasks of a job that are placed together: those of one policy with the same values of its labels.

    ``min_available`` is the policy's subGroupSize, ``priority`` the highest of its tasks', and ``match_index`` the
    first of ``values`` as a number, 0 if it is none. ``missed`` is the number of placed tasks when the sub-job last
    failed.
    """

    __slots__ = (
        "_is_pipelined",
        "_is_ready",
        "best_effort_pending",
        "counts",
        "failed_roles",
        "groups",
        "index",
        "job",
        "match_index",
        "min_available",
        "missed",
        "priority",
        "tasks",
        "uid",
        "values",
    )

    def __init__(self, job: Job, groups: CountedSubGroups, values: tuple[str, ...], index: int) -> None:
        self.job = job
        self.groups = groups
        self.values = values
        self.index = index
        self.uid = f"{job.key}/{'-'.join((groups.name, *values))}" if groups.name or values else job.key
        self.min_available = groups.size
        self.match_index = index_of_value(values[0]) if values else 0
        self.tasks: list[Task] = []
        self.counts = [0] * STATUSES
        self.best_effort_pending = 0
        self.priority = 0
        self.failed_roles: set[str] = set()
        self.missed: int | None = None
        self._is_ready = self._is_pipelined = False

    def add(self, task: Task) -> None:
        self.priority = task.priority if not self.tasks else max(self.priority, task.priority)
        self.tasks.append(task)
        self.counts[task.status] += 1
        self.best_effort_pending += task.best_effort and task.status == _PENDING and not task.gated

    @property
    def ready_count(self) -> int:
        """Number of bound, binding, running, allocated and succeeded tasks."""
        counts = self.counts
        return sum(counts[status] for status in _READY)

    @property
    def waiting_count(self) -> int:
        """Number of pipelined tasks."""
        return self.counts[_PIPELINED]

    @property
    def margin(self) -> int:
        """Ready and pending best-effort tasks minus the sub-job's size; negative if it lacks tasks."""
        return self.ready_count + self.best_effort_pending - self.min_available

    def is_ready(self) -> bool:
        """Return whether enough tasks are placed; pending best-effort tasks count."""
        return self._is_ready

    def is_pipelined(self) -> bool:
        """Return whether enough tasks are placed or pipelined."""
        return self._is_pipelined

    def needs_more(self) -> bool:
        """Return whether further tasks can still make it ready after one found no node (Volcano
        ``NeedContinueAllocating``)."""
        return self.job.min_available < self.job.task_count and self.min_available < len(self.tasks)

    def moved(self, task: Task, before: int, status: int) -> None:
        self.counts[before] -= 1
        self.counts[status] += 1
        if task.best_effort:
            self.best_effort_pending += (status == _PENDING) - (before == _PENDING)
        self.settle()

    def settle(self) -> None:
        """Update whether it is ready or pipelined, also in its policy's counts."""
        margin = self.margin
        ready, pipelined = margin >= 0, margin + self.counts[_PIPELINED] >= 0
        self.groups.ready += ready - self._is_ready
        self.groups.pipelined += pipelined - self._is_pipelined
        self._is_ready, self._is_pipelined = ready, pipelined

    def __repr__(self) -> str:
        return f"SubJob({self.uid!r})"


class CountedSubGroups(SubGroups):
    """One policy, and its numbers of sub-jobs: all (``count``), ready, and pipelined or ready."""

    __slots__ = ("count", "pipelined", "ready")

    def __init__(self, policy: SubGroupPolicy | None, index: int) -> None:
        super().__init__(policy, index)
        self.count = self.ready = self.pipelined = 0


class Partition:
    """A job's tasks as sub-jobs, in the order of their first tasks' keys. Counts follow every trial change."""

    def __init__(self, job: Job, policies: Sequence[SubGroupPolicy]) -> None:
        self.job = job
        self.policies = [CountedSubGroups(policy, index) for index, policy in enumerate(policies)]
        self.sub_jobs: list[SubJob] = []
        self._of: dict[int, SubJob] = {}
        rest = CountedSubGroups(None, len(self.policies))
        found: dict[tuple[int, tuple[str, ...]], SubJob] = {}
        for task in job.tasks():
            groups, values = place_of(task.pod, self.policies)
            groups = groups or rest
            sub_job = found.get((groups.index, values))
            if sub_job is None:
                sub_job = found[(groups.index, values)] = SubJob(job, groups, values, len(self.sub_jobs))
                self.sub_jobs.append(sub_job)
                groups.count += 1
            sub_job.add(task)
            self._of[task.row] = sub_job
        for sub_job in self.sub_jobs:
            sub_job.settle()

    def of(self, task: Task) -> SubJob:
        """Return the sub-job of a task."""
        return self._of[task.row]

    # --- minSubGroups -----------------------------------------------------------------------------------------------

    def too_few(self) -> CountedSubGroups | None:
        """Return the first policy with fewer sub-jobs, in any state, than its minimum."""
        return next((groups for groups in self.policies if groups.count < groups.minimum), None)

    def short(self) -> CountedSubGroups | None:
        """Return the first policy with fewer ready sub-jobs than its minimum."""
        return next((groups for groups in self.policies if groups.ready < groups.minimum), None)

    def are_ready(self) -> bool:
        """Return whether each policy has its minimum of ready sub-jobs."""
        return self.short() is None

    def are_pipelined(self) -> bool:
        """Return whether each policy has its minimum of ready or pipelined sub-jobs."""
        return all(groups.pipelined >= groups.minimum for groups in self.policies)

    # --- reasons ----------------------------------------------------------------------------------------------------

    def remarks(self) -> Iterator[Reason]:
        """Yield which policies are ignored, and why."""
        for groups in self.policies:
            if groups.fault:
                yield _POLICY_WITHOUT_PODS({"policy": groups.name, "message": groups.fault})

    def missed(self) -> Iterator[Reason]:
        """Yield for each policy the number of sub-jobs that failed, with the counts of the first."""
        for groups in self.policies:
            given_up = [each for each in self.sub_jobs if each.groups is groups and each.missed is not None]
            if given_up:
                first = given_up[0]
                counts = [
                    ("subGroups", "", len(given_up)),
                    ("have", "", first.missed or 0),
                    ("size", "", first.min_available),
                ]
                yield _SUB_GROUP_SHORT({"policy": groups.name, "first": ", ".join(first.values)}, counts)


class Views:
    """A session's jobs and tasks, created from the snapshot's columns on first access.

    ``queues`` are by index. ``backing_off`` has tasks, by row, that are gated while they are pending. ``phases`` are
    the groups' phases in the session, for jobs without a view. ``moves`` has the tasks in the order of trial changes of
    status or node, one entry per change.
    """

    def __init__(self, snapshot: Snapshot, queues: Sequence[Queue], backing_off: Mapping[int, RefusalBackoff]) -> None:
        self.snapshot = snapshot
        self.backing_off = backing_off
        self.columns = snapshot.group_columns
        self.queues = queues
        self.phases = self.columns.phase.copy()
        self.moves: list[Task] = []
        self.supported: frozenset[str] = frozenset()
        """Fields of groups that active plugins support, of those in ``GroupRecord.unsupported``."""
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, Task] = {}
        self._shared: dict[tuple[int, int], tuple[Any, ...]] = {}

    def job(self, index: int) -> Job:
        """Return the job of a row of the groups' columns."""
        view = self._jobs.get(index)
        if view is None:
            view = self._jobs[index] = Job(self, index)
        return view

    def task(self, row: int) -> Task:
        """Return the task of a row of the snapshot's columns. The row must belong to a job."""
        return self._tasks.get(row) or self.tasks_at([row])[0]

    def tasks_at(self, rows: list[int]) -> list[Task]:
        """Return the tasks of some rows, which must belong to jobs."""
        views_by_row, tasks = self._tasks, self.snapshot.tasks
        new = [row for row in rows if row not in views_by_row]
        if new:
            own = (tasks.labels, tasks.priority, tasks.created, tasks.status, tasks.node)
            jobs, shapes, *values = zip(*values_of((self.columns.of_row, tasks.shape, *own), new), strict=True)
            kinds, shared = list(zip(jobs, shapes, strict=True)), self._shared
            self._share([kind for kind in dict.fromkeys(kinds) if kind not in shared])
            common = zip(*[shared[kind] for kind in kinds], strict=True)
            views_by_row.update(zip(new, map(Task, new, tasks.keys_of(new), *values, *common), strict=True))
            for row in [row for row in new if row in self.backing_off] if self.backing_off else ():
                views_by_row[row].gated |= views_by_row[row].status == _PENDING
        return [views_by_row[row] for row in rows]

    def _share(self, kinds: list[tuple[int, int]]) -> None:
        """Cache what tasks of one job and shape have in common, by the job's index and the shape's number."""
        for (index, number), deltas in zip(kinds, self._deltas([number for _, number in kinds]), strict=True):
            job, shape = self.job(index), cast(Shape, self.snapshot.shapes[number])
            unsupported = job.unsupported + shape.unsupported
            gated = bool(shape.spec.scheduling_gates or unsupported)
            requests = (deltas.request, deltas.floor, deltas.amounts, shape.best_effort)
            self._shared[index, number] = (job, shape, deltas, *requests, unsupported, gated, self.snapshot.tasks)

    @cached_property
    def refused_jobs(self) -> dict[int, int]:
        """The end of the last back-off of each job that had one (ns since the epoch), by index."""
        snapshot, found = self.snapshot, dict[int, int]()
        jobs: list[tuple[int | None, RefusalBackoff]] = [
            (int(self.columns.of_row[row]), backoff)
            for row, backoff in snapshot.backoffs.items()
            if backoff.verb != "evict"
        ]
        jobs += [(self.columns.index(key), backoff) for key, backoff in snapshot.released.items()]
        for job, backoff in jobs:
            if job is not None and job >= 0:
                found[job] = max(found.get(job, 0), backoff.until)
        return found

    def jobs(self) -> list[Job]:
        """Return the jobs that were accessed, in order of key."""
        return [self._jobs[index] for index in sorted(self._jobs)]

    def _deltas(self, numbers: list[int]) -> list[Deltas]:
        shapes = self.snapshot.shape_columns
        return shapes.cached("deltas", numbers, lambda new: Deltas.of_each(shapes.requests[new], shapes.scored[new]))

    @cached_property
    def pending(self) -> PendingRows:
        pending = self.snapshot.tasks.status == _S.PENDING
        return self.columns.cached("pending", lambda: PendingRows(self.columns.of_row, pending))

    def pending_rows(self, job: int) -> list[int]:
        """Return the rows of a job's pending tasks, in order of key."""
        return self.snapshot.tasks.in_order(self.pending.of(job))

    def task_rows(self, job: int) -> list[int]:
        """Return the rows of all tasks of a job, in order of key."""
        return self.snapshot.tasks.in_order(self.columns.rows_of(job))

    def release(self) -> None:
        """Drop all views, which refer to each other."""
        for job in self._jobs.values():
            job.release()
        self._jobs.clear()
        self._tasks.clear()
        self._shared.clear()
        self.moves.clear()


class PendingRows:
    """Rows of pending tasks by the index of their job, jobs and rows ascending; ``distinct`` are the jobs."""

    def __init__(self, job_of_row: Ints, pending: npt.NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(pending & (job_of_row >= 0))
        jobs = job_of_row[rows]
        order = np.argsort(jobs, kind="stable")
        self.rows, self.jobs = rows[order], jobs[order]
        self.distinct = _distinct(self.jobs)

    def jobs_of(self, chosen: npt.NDArray[np.bool_]) -> Rows:
        """Return the jobs of some rows."""
        return _distinct(self.jobs[chosen])

    def of(self, job: int) -> list[int]:
        """Return the rows of a job."""
        starts = self._starts
        rows: list[int] = self.rows[starts[job] : starts[job + 1]].tolist() if job + 1 < len(starts) else []
        return rows

    @cached_property
    def _starts(self) -> Rows:
        """The position where each job's rows begin, and the end of the last one's."""
        last = int(self.jobs[-1]) if len(self.jobs) else -1
        return np.searchsorted(self.jobs, np.arange(last + 2))


def _distinct(ascending: Rows) -> Rows:
    first = np.ones(len(ascending), np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    return ascending[first]
