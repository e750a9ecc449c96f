"""What a divided job can lose."""

from __future__ import annotations

from vcd.scheduling.session.views import Partition, Task


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
