"""The tasks that a job with sub-jobs can lose."""

from __future__ import annotations

from vcd.scheduling.session.views import Partition, Task


class SpareSubJobs:
    """Tests which placed tasks a job can lose, one after the other, so that ``minSubGroups`` of each policy stay ready.

    A sub-job above its size can lose a task without cost, and one below its size is not ready anyway. If a sub-job is
    exactly at its size, its policy loses a ready sub-job. Source: Volcano ``actions/utils/bundle.go``.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._margin = [sub_job.margin for sub_job in partition.sub_jobs]
        self._surplus = [groups.ready - groups.minimum for groups in partition.policies]

    def may_lose(self, task: Task) -> bool:
        """Return whether the minima hold without a task."""
        sub_job = self._partition.of(task)
        number = sub_job.groups.index
        return self._margin[sub_job.index] != 0 or number == len(self._surplus) or self._surplus[number] > 0

    def lose(self, task: Task) -> None:
        """Record that a task is lost."""
        sub_job = self._partition.of(task)
        if self._margin[sub_job.index] == 0 and sub_job.groups.index < len(self._surplus):
            self._surplus[sub_job.groups.index] -= 1
        self._margin[sub_job.index] -= 1
