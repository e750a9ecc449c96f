"""Sub-jobs: a job's tasks divided by its group's ``subGroupPolicy``, and the order in which they are placed.

A policy takes the pods that its ``labelSelector`` matches and that have every label of its ``matchLabelKeys``; those
with the same values are one sub-job, which is placed as a unit: ``subGroupSize`` of its tasks or none. ``minSubGroups``
of a policy's sub-jobs make the job ready. The first policy that takes a pod has it; what none takes is one more
sub-job, of size 1. Source: Volcano ``api/sub_job_info.go``, ``api/job_info.go``, ``actions/allocate``.

A group without policies has no partition, and nothing here is ever called for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vcd.model.selectors import LabelSelector, Selector, SelectorError
from vcd.model.status import READY_STATUSES, STATUSES, TaskStatus
from vcd.scheduling.session.reasons import Refusal

if TYPE_CHECKING:
    from vcd.model.objects import Pod, SubGroupPolicy
    from vcd.scheduling.session.statement import Statement
    from vcd.scheduling.session.views import Job, Task

_PENDING, _PIPELINED = int(TaskStatus.PENDING), int(TaskStatus.PIPELINED)
_READY = tuple(int(status) for status in READY_STATUSES)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST = 2**63


class SubJob:
    """Some tasks of a job that are placed together: those of one policy with the same values of its labels.

    ``min_available`` is the policy's subGroupSize, ``priority`` that of its most urgent task, ``match_index`` the first
    of ``values`` as a number, 0 where it is none. ``missed`` is how many tasks had room when it was given up last.
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

    def __init__(self, job: Job, groups: SubGroups, values: tuple[str, ...], index: int) -> None:
        self.job = job
        self.groups = groups
        self.values = values
        self.index = index
        self.uid = f"{job.key}/{groups.name}-{'-'.join(values)}" if values else job.key
        self.min_available = groups.size
        self.match_index = _number(values[0]) if values else 0
        self.tasks: list[Task] = []
        self.counts = [0] * STATUSES
        self.best_effort_pending = 0
        self.priority = 0
        self.failed_roles: set[str] = set()
        self.missed: int | None = None
        self._is_ready = self._is_pipelined = False

    def add(self, task: Task) -> None:
        """One more task is of this sub-job."""
        self.priority = task.priority if not self.tasks else max(self.priority, task.priority)
        self.tasks.append(task)
        self.counts[task.status] += 1
        self.best_effort_pending += task.best_effort and task.status == _PENDING and not task.gated

    @property
    def ready_count(self) -> int:
        """Tasks that are bound, binding, running, allocated or succeeded."""
        counts = self.counts
        return sum(counts[status] for status in _READY)

    @property
    def waiting_count(self) -> int:
        """Pipelined tasks."""
        return self.counts[_PIPELINED]

    @property
    def margin(self) -> int:
        """How many tasks it has above its size that have room, or need none; below zero, how many it misses."""
        return self.ready_count + self.best_effort_pending - self.min_available

    def is_ready(self) -> bool:
        """Whether enough tasks have room; best-effort ones need none."""
        return self._is_ready

    def is_pipelined(self) -> bool:
        """Whether enough tasks have room, or will have."""
        return self._is_pipelined

    def needs_more(self) -> bool:
        """Whether trying further tasks can still make it ready after one found no node (Volcano
        ``NeedContinueAllocating``)."""
        return self.job.min_available < self.job.task_count and self.min_available < len(self.tasks)

    def moved(self, task: Task, before: int, status: int) -> None:
        """A task of this sub-job changes its status."""
        self.counts[before] -= 1
        self.counts[status] += 1
        if task.best_effort:
            self.best_effort_pending += (status == _PENDING) - (before == _PENDING)
        self.settle()

    def settle(self) -> None:
        """See anew whether it is ready or pipelined, for itself and its policy's counts."""
        margin = self.margin
        ready, pipelined = margin >= 0, margin + self.counts[_PIPELINED] >= 0
        self.groups.ready += ready - self._is_ready
        self.groups.pipelined += pipelined - self._is_pipelined
        self._is_ready, self._is_pipelined = ready, pipelined

    def __repr__(self) -> str:
        return f"SubJob({self.uid!r})"


class SubGroups:
    """One policy, and how many sub-jobs it has: in all (``count``), ready, and pipelined or ready."""

    __slots__ = ("_keys", "_selector", "count", "fault", "index", "minimum", "name", "pipelined", "ready", "size")

    def __init__(self, policy: SubGroupPolicy | None, index: int) -> None:
        self.index = index
        self.name = "" if policy is None else policy.name
        self.size = 1 if policy is None else policy.sub_group_size
        self.minimum = 0 if policy is None else policy.min_sub_groups
        self.count = self.ready = self.pipelined = 0
        self.fault = ""
        """Why it can take no pod, and how to mend it; empty where it can."""
        self._keys = () if policy is None else policy.match_label_keys
        self._selector: Selector | None = None
        if policy is None:
            return
        if not self._keys:
            self.fault = "matchLabelKeys is empty, so no pod is of it; name the labels that tell sub-groups apart"
        if policy.label_selector is not None:
            try:
                self._selector = LabelSelector.compile(policy.label_selector)
            except SelectorError as error:
                self.fault = f"labelSelector cannot be read, so no pod is of it: {error}"

    def values_of(self, pod: Pod) -> tuple[str, ...]:
        """What tells a pod's sub-job from the others of this policy; nothing where the pod is not of it."""
        labels = pod.metadata.labels
        if self.fault or (self._selector is not None and not self._selector.matches(labels)):
            return ()
        values = tuple([labels.get(key, "") for key in self._keys])
        return values if all(values) else ()


class Partition:
    """A job's tasks as sub-jobs, in the order of their first tasks' keys; counts follow every change in trial."""

    def __init__(self, job: Job, policies: Sequence[SubGroupPolicy]) -> None:
        self.job = job
        self.policies = [SubGroups(policy, index) for index, policy in enumerate(policies)]
        self.sub_jobs: list[SubJob] = []
        self.held: list[Statement] = []
        """What is kept for sub-jobs that wait for room, and is not bound before they have it."""
        self._of: dict[int, SubJob] = {}
        rest = SubGroups(None, len(self.policies))
        found: dict[tuple[int, tuple[str, ...]], SubJob] = {}
        for task in job.tasks():
            groups, values = self._place_of(task.pod, rest)
            sub_job = found.get((groups.index, values))
            if sub_job is None:
                sub_job = found[(groups.index, values)] = SubJob(job, groups, values, len(self.sub_jobs))
                self.sub_jobs.append(sub_job)
                groups.count += 1
            sub_job.add(task)
            self._of[task.row] = sub_job
        for sub_job in self.sub_jobs:
            sub_job.settle()

    def _place_of(self, pod: Pod, rest: SubGroups) -> tuple[SubGroups, tuple[str, ...]]:
        for groups in self.policies:
            values = groups.values_of(pod)
            if values:
                return groups, values
        return rest, ()

    def of(self, task: Task) -> SubJob:
        """The sub-job of a task."""
        return self._of[task.row]

    # --- minSubGroups -----------------------------------------------------------------------------------------------

    def too_few(self) -> SubGroups | None:
        """The first policy that has fewer sub-jobs than its minimum, whatever their state."""
        return next((groups for groups in self.policies if groups.count < groups.minimum), None)

    def short(self) -> SubGroups | None:
        """The first policy that has fewer ready sub-jobs than its minimum."""
        return next((groups for groups in self.policies if groups.ready < groups.minimum), None)

    def are_ready(self) -> bool:
        """Whether each policy has its minimum of ready sub-jobs."""
        return self.short() is None

    def are_pipelined(self) -> bool:
        """Whether each policy has its minimum of sub-jobs that are ready or wait for room."""
        return all(groups.pipelined >= groups.minimum for groups in self.policies)

    # --- reasons ----------------------------------------------------------------------------------------------------

    def remarks(self) -> Iterator[Refusal]:
        """What of the policies is passed over, and why."""
        for groups in self.policies:
            if groups.fault:
                yield Refusal("a sub-group policy takes no pod", {"policy": groups.name, "message": groups.fault})

    def missed(self) -> Iterator[Refusal]:
        """Of each policy, the sub-jobs that were given up for lack of room, with the figures of the first."""
        for groups in self.policies:
            given_up = [each for each in self.sub_jobs if each.groups is groups and each.missed is not None]
            if given_up:
                first = given_up[0]
                yield Refusal(
                    "fewer tasks of a sub-group have room than its size",
                    {
                        "policy": groups.name,
                        "subGroups": str(len(given_up)),
                        "first": ", ".join(first.values),
                        "have": str(first.missed),
                        "size": str(first.min_available),
                    },
                )


class SpareSubJobs:
    """Which placed tasks a job could lose, one after the other, and keep ``minSubGroups`` of each policy ready.

    A sub-job above its size loses a task for nothing, one that is broken already has nothing to lose; one that is at
    its size costs its policy a ready sub-job. Source: Volcano ``actions/utils/bundle.go``.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._margin = [sub_job.margin for sub_job in partition.sub_jobs]
        self._surplus = [groups.ready - groups.minimum for groups in partition.policies]

    def may_lose(self, task: Task) -> bool:
        """Whether the minima hold without a task."""
        sub_job = self._partition.of(task)
        number = sub_job.groups.index
        return self._margin[sub_job.index] != 0 or number == len(self._surplus) or self._surplus[number] > 0

    def lose(self, task: Task) -> None:
        """A task goes."""
        sub_job = self._partition.of(task)
        if self._margin[sub_job.index] == 0 and sub_job.groups.index < len(self._surplus):
            self._surplus[sub_job.groups.index] -= 1
        self._margin[sub_job.index] -= 1


def _number(text: str) -> int:
    """A text as Go's ``Atoi`` reads it, 0 where that fails."""
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        return 0
    number = int(text)
    return number if -_LARGEST <= number < _LARGEST else 0
