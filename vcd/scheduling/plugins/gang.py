"""gang: place at least a job's minimum of tasks, or none (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import READY_STATUSES, SCHEDULED, UNSCHEDULABLE, TaskStatus
from vcd.scheduling.framework.order import Label, labelled
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer, victim_rule
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import CountedSubGroups, Job, Partition, SubJob, Task

_MEND = "see why the controller makes no more pods, or lower the minimum"
_TOO_FEW_OF_TASK = ReasonCode("pods-missing-of-task", Cause.PODS_MISSING, "NotEnoughPodsOfTask", mend=_MEND)
_TOO_FEW = ReasonCode("pods-missing", Cause.PODS_MISSING, "NotEnoughTasks", mend=_MEND)
_SHORT = ReasonCode("gang-short", Cause.GANG_INCOMPLETE, "fewer tasks than the minimum", nodes_help=True)
_SHORT_OF_SUB_GROUPS = ReasonCode(
    "gang-short-of-sub-groups", Cause.GANG_INCOMPLETE, "fewer sub-groups than the minimum", nodes_help=True
)

_VALID = (*READY_STATUSES, TaskStatus.PIPELINED, TaskStatus.PENDING)
_SCHEDULED = (TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)
_STANDING = Label(
    "gang", "its gang goes first", "its gang goes last", ("broken", "without room", "has its minimum").__getitem__
)


class GangPlugin(Plugin):
    """Schedule a job only when at least ``minMember`` of its tasks, and ``minTaskMember`` of each role, can be placed.

    A job without enough pods for its minimum is not tried. A job loses only the tasks above its minimum to evictions.
    A gang that lost some of its tasks comes before a gang without any (docs/differences.md). When the session closes,
    groups that are not ready get the condition Unschedulable, ready groups get Scheduled.
    Task minima count only if ``minMember`` is at least their sum. A group with a ``subGroupPolicy`` also needs
    ``minSubGroups`` sub-groups of each policy with ``subGroupSize`` tasks each: tasks that exist (valid), that have
    resources (ready), or that have resources or wait for releasing ones (pipelined).
    Source: Volcano ``plugins/gang``.
    """

    name = "gang"
    without_it = "pods are bound though their group has fewer than minMember"
    protects = True
    keys = ("volcano.sh/task-spec",)

    def job_valid(self, job: Job) -> Reason | None:
        """Return a reason if the job has too few pods for its minimum of tasks, of a role or of sub-groups."""
        if not job.roles_reach(_VALID, best_effort=False):
            return _TOO_FEW_OF_TASK({"message": "Not enough valid pods of each task for gang-scheduling"})
        groups = job.partition.too_few() if job.partition is not None else None
        if groups is not None:
            return _TOO_FEW_OF_TASK(_too_few(groups))
        if job.valid_count < job.min_available:
            return _TOO_FEW(
                {"message": "Not enough valid tasks for gang-scheduling"},
                [("valid", "", job.valid_count), ("min", "", job.min_available)],
            )
        return None

    @labelled(_STANDING)
    def job_order(self, job: Job) -> int:
        """Order broken gangs first, then jobs without ready tasks, then ready jobs."""
        if job.is_ready():
            return 2
        return 0 if job.ready_count else 1

    @labelled(_STANDING)
    def sub_job_order(self, sub_job: SubJob) -> int:
        """Order sub-jobs like jobs: broken ones first, ready ones last."""
        if sub_job.is_ready():
            return 2
        return 0 if sub_job.ready_count else 1

    def job_ready(self, job: Job) -> bool:
        """Return whether enough tasks, tasks of each role and sub-groups are ready."""
        if not (job.is_ready() and job.roles_reach(READY_STATUSES, best_effort=True)):
            return False
        partition = job.partition
        return partition is None or partition.are_ready()

    def missing_tasks(self, job: Job) -> int:
        """Return how many tasks at least must be placed before the job can be ready; it has no sub-groups."""
        return job.min_available - job.ready_count - job.best_effort_pending

    def sub_job_ready(self, sub_job: SubJob) -> bool:
        """Return whether ``subGroupSize`` of its tasks are ready."""
        return sub_job.is_ready()

    def job_pipelined(self, job: Job) -> Vote:
        """Permit if enough tasks are ready or pipelined, else reject."""
        return Vote.PERMIT if job.is_pipelined_whole() else Vote.REJECT

    def sub_job_pipelined(self, sub_job: SubJob) -> Vote:
        """Permit if ``subGroupSize`` of its tasks are ready or pipelined, else reject."""
        return Vote.PERMIT if sub_job.is_pipelined() else Vote.REJECT

    def job_starving(self, job: Job) -> bool:
        """Return whether fewer tasks than the minimum are ready or pipelined."""
        return job.is_starving()

    @victim_rule("of each job, the tasks above its minimum")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> _Surplus:
        """Permit as many victims of each job as it has ready tasks above its minimum."""
        return _Surplus()

    reclaimable = preemptable

    def unprotected(self, point: str, asker: object, tasks: list[Task]) -> VictimsAnswer:
        """Permit the surplus of each job, and gangs that are evicted as a whole, when another tier chooses the victims.

        A gang may be evicted as a whole if one placed task is left, or, at ``victim_tasks``, if all of its placed tasks
        are candidates. A gang below its minimum is not protected, unless pipelined tasks will complete it.
        """
        if point == "unified_evictable":
            return tasks
        return _WholeOrNone(Counter(task.job.index for task in tasks) if point == "victim_tasks" else {})

    @victim_rule("all tasks: whole-gang eviction obeys the minimums itself")
    def unified_evictable(self, context: object, tasks: list[Task]) -> list[Task]:
        """Return all candidates: whole-gang eviction observes the minima itself."""
        return tasks

    def close(self, session: Session) -> None:
        """Set the groups' conditions, and note why gangs are not ready."""
        releasing = session.releasing_on_nodes()
        scheduled = (SCHEDULED, "True", "tasks in gang are ready to be scheduled")
        for job in session.settle(scheduled):
            if not job.task_count:
                continue
            if session.full and not (job.touched or job.why):
                continue  # not tried yet: the next session follows at once
            if job.partition is not None:
                self._note_sub_groups(session, job, job.partition)
            if job.is_ready() and not job.is_broken:
                session.conditions[job.index] = scheduled
            elif not _only_waits_for_releasing(job, int(releasing[job.index])):
                session.conditions[job.index] = (UNSCHEDULABLE, "True", "NotEnoughResources")
                counts = [("have", "", job.ready_count), ("min", "", job.min_available)]
                job.note("gang", self.name, _SHORT(amounts=counts))

    def _note_sub_groups(self, session: Session, job: Job, partition: Partition) -> None:
        for refusal in partition.missed():
            job.note("gang", self.name, refusal)
        short = partition.short()
        if short is not None:
            counts = [("have", "", short.ready), ("min", "", short.minimum)]
            job.note("gang", self.name, _SHORT_OF_SUB_GROUPS({"policy": short.name}, counts))


class _Surplus(Allowance):
    """Permits as many victims of each job as it has ready tasks above its minimum."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def left(self, job: Job) -> int:
        """Return how many of a job's ready tasks are left after the victims so far."""
        found = self._left.get(job.index)
        return job.ready_count if found is None else found

    def permits(self, task: Task) -> bool:
        job = task.job
        left = self._left.get(job.index)
        return (job.ready_count if left is None else left) > job.min_available

    def spend(self, task: Task) -> None:
        self._left[task.job.index] = self.left(task.job) - 1


class _WholeOrNone(_Surplus):
    """Permits the surplus, gangs that are evicted as a whole, and gangs that are below their minimum anyway.

    ``named`` counts the candidates by job, if all candidates will be evicted.
    """

    def __init__(self, named: Mapping[int, int]) -> None:
        super().__init__()
        self._named = named

    def permits(self, task: Task) -> bool:
        job = task.job
        ready, left = job.ready_count, self.left(job)
        if left > job.min_available:
            return True
        if job.waiting_count > 0 and job.is_pipelined():
            return False  # the gang is about to be complete
        placed = ready - job.counts[TaskStatus.SUCCEEDED]
        return left == 1 or self._named.get(job.index, 0) >= placed or ready < job.min_available


def _too_few(groups: CountedSubGroups) -> dict[str, str]:
    """Return the details of a reason about a policy with too few sub-groups."""
    detail = {
        "message": "Not enough valid subGroups of each task for gang-scheduling",
        "policy": groups.name,
        "have": str(groups.count),
        "min": str(groups.minimum),
    }
    return {**detail, "fault": groups.fault} if groups.fault else detail


def _only_waits_for_releasing(job: Job, releasing: int) -> bool:
    """Return whether the gang has its minimum once ``releasing`` tasks count, and no task is Pending or Pipelined."""
    if job.counts[TaskStatus.PENDING] or job.counts[TaskStatus.PIPELINED]:
        return False
    return releasing > 0 and sum(job.counts[status] for status in _SCHEDULED) + releasing >= job.min_available
