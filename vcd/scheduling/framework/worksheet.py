"""The order in which the tasks of a job with sub-jobs are placed, and which sub-jobs are complete."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from copy import copy
from typing import Any

from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.order import PriorityQueue
from vcd.scheduling.session.views import Job, Partition, SubJob, Task


class Worksheet:
    """The sub-jobs of a job that have tasks to place, the first to be tried first.

    Sub-jobs that are still needed for ``minSubGroups`` come before all others, both in the plugins' order of sub-jobs.
    ``len`` is the number of remaining sub-jobs; iterating yields their tasks.
    """

    def __init__(self, framework: Framework, partition: Partition, wanted: list[Task]) -> None:
        self.partition = partition
        self._framework = framework
        by_sub_job: dict[int, list[Task]] = {}
        for task in wanted:
            by_sub_job.setdefault(partition.of(task).index, []).append(task)
        self._tasks = {index: deque(framework.in_task_order(tasks)) for index, tasks in by_sub_job.items()}
        sub_jobs = [partition.sub_jobs[index] for index in sorted(self._tasks)]
        self._required = self._find_required(partition, sub_jobs)
        self._heap = PriorityQueue(self._key, sub_jobs)

    def _find_required(self, partition: Partition, sub_jobs: list[SubJob]) -> dict[int, None]:
        """Return the fewest sub-jobs, first in the plugins' order, that the job's minima of sub-jobs need."""
        framework = self._framework
        missing = {groups.index: groups.minimum for groups in partition.policies if groups.minimum}
        if not missing:
            return {}
        for sub_job in partition.sub_jobs:
            if sub_job.groups.index in missing and framework.sub_job_ready(sub_job):
                missing[sub_job.groups.index] -= 1
        required: dict[int, None] = {}
        for sub_job in sorted(sub_jobs, key=framework.sub_job_key):
            number = sub_job.groups.index
            if missing.get(number, 0) > 0 and not framework.sub_job_ready(sub_job):
                required[sub_job.index] = None
                missing[number] -= 1
        return required

    def _key(self, sub_job: SubJob) -> tuple[Any, ...]:
        return (sub_job.index not in self._required, *self._framework.sub_job_key(sub_job))

    def copy(self) -> Worksheet:
        """Return a copy from which sub-jobs and tasks can be taken in trial."""
        result = copy(self)
        result._tasks = {index: deque(tasks) for index, tasks in self._tasks.items()}
        result._required = dict(self._required)
        result._heap = self._heap.copy(result._key)
        return result

    def assign(self, other: Worksheet | None) -> None:
        """Take over the remaining sub-jobs and tasks of a copy; None leaves no sub-job."""
        if other is None:
            self._heap = PriorityQueue(self._key)
        elif other is not self:
            self._tasks, self._required = other._tasks, other._required
            self._heap = other._heap.copy(self._key)

    def pop(self) -> tuple[SubJob, deque[Task]]:
        """Remove and return the first sub-job, with its remaining tasks, the first to be placed first."""
        sub_job = self._heap.pop()
        return sub_job, self._tasks[sub_job.index]

    def push(self, sub_job: SubJob) -> None:
        """Return a sub-job with remaining tasks to the queue. A sub-job that is ready is not required any more."""
        if self._framework.sub_job_ready(sub_job):
            self._required.pop(sub_job.index, None)
        self._heap.push(sub_job)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Task]:
        for sub_job in sorted(self._heap.rest(), key=lambda each: each.index):
            yield from self._tasks[sub_job.index]


def is_whole(framework: Framework, sub_job: SubJob) -> bool:
    """Return whether enough tasks of a sub-job are allocated, or pipelined on resources that are being freed."""
    return framework.sub_job_ready(sub_job) or framework.sub_job_pipelined(sub_job)


def units(framework: Framework, job: Job, tasks: list[Task]) -> Iterator[tuple[SubJob | None, list[Task]]]:
    """Yield a job's tasks in units that are placed together.

    Without sub-jobs, yield all tasks in the given order as one unit, in which each task is independent. Otherwise yield
    sub-job by sub-job, the first to be placed first.
    """
    partition = job.partition
    if partition is None:
        yield None, tasks
        return
    by_sub_job: dict[int, list[Task]] = {}
    for task in tasks:
        by_sub_job.setdefault(partition.of(task).index, []).append(task)
    worksheet = Worksheet(framework, partition, tasks)
    while worksheet:
        sub_job, _ = worksheet.pop()
        yield sub_job, by_sub_job[sub_job.index]


def whole_with(framework: Framework, partition: Partition, tasks: list[Task]) -> list[Task]:
    """Return those pending tasks whose sub-jobs are complete, or would be if all of the tasks were placed."""
    more = Counter(partition.of(task).index for task in tasks if not task.best_effort)
    reach = [
        sub_job.margin + sub_job.waiting_count + more[sub_job.index] >= 0 or is_whole(framework, sub_job)
        for sub_job in partition.sub_jobs
    ]
    return [task for task in tasks if reach[partition.of(task).index]]
