"""drf: the job with the smallest dominant share first (seed 003 s.6.4, seed 002)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vcd.scheduling.gauges import Gauge
from vcd.scheduling.plugin import Plugin
from vcd.scheduling.session import Session
from vcd.scheduling.views import Job, Task

SHARE_DELTA = 0.000001
"""Shares closer than this count as equal when a victim is chosen (Volcano ``plugins/drf``)."""


class DrfPlugin(Plugin):
    """A job's share is the largest of allocated/total over all resources of the cluster; smaller shares come first.

    A task may be preempted when the preemptor's job would still have the smaller share (or an equal one) after the
    exchange. Source: seed 003 s.6.4.1.
    """

    name = "drf"

    def open(self, session: Session) -> None:
        """Note the totals that shares are of."""
        self._session = session
        self._allocated = session.jobs.allocated
        self._held: dict[int, list[int]] = {}
        self._total = [(column, amount) for column, amount in enumerate(session.nodes.total.tolist()) if amount]

    def share(self, allocated: list[int]) -> float:
        """Dominant share of integers in the order of the session's resources."""
        share = 0.0
        for column, amount in self._total:
            part = allocated[column] / amount
            if part > share:
                share = part
        return share

    def job_order(self, job: Job) -> float:
        """Smaller share first."""
        return self.share(self.held(job))

    def held(self, job: Job) -> list[int]:
        """What a job's share is of: what it has allocated, and what its tasks wait for."""
        return self._held.get(job.index, job.allocated)

    def gauges(self) -> Iterator[Gauge]:
        """Volcano's shares, of all jobs."""
        jobs = self._session.jobs
        columns = [column for column, _ in self._total]
        totals = np.array([amount for _, amount in self._total], np.float64)
        shares = (jobs.allocated[:, columns] / totals).max(axis=1, initial=0.0).tolist()
        for job in self._session.viewed_jobs():
            shares[job.index] = self.share(job.allocated)
        for key, share in zip(jobs.keys, shares, strict=True):
            namespace, _, name = key.partition("/")
            yield Gauge("volcano_job_share", (("job_ns", namespace), ("job_id", name)), share)

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        """Tasks whose jobs keep no less than the preemptor's job would get."""
        mine = self.share(_plus(self.held(preemptor.job), preemptor.amounts, 1))
        left: dict[int, list[int]] = {}
        victims = []
        for task in tasks:
            remaining = _plus(left.get(task.job.index, self.held(task.job)), task.amounts, -1)
            left[task.job.index] = remaining
            theirs = self.share(remaining)
            if mine < theirs or abs(mine - theirs) <= SHARE_DELTA:
                victims.append(task)
        return victims

    def on_allocate(self, task: Task, row: int) -> None:
        """The job holds more, also while it waits for the room."""
        self._add(task, 1)

    def on_deallocate(self, task: Task, row: int) -> None:
        """The job holds less."""
        self._add(task, -1)

    def _add(self, task: Task, sign: int) -> None:
        index = task.job.index
        held = self._held[index] if index in self._held else self._allocated[index].tolist()
        self._held[index] = _plus(held, task.amounts, sign)


def _plus(amounts: list[int], request: tuple[int, ...], sign: int) -> list[int]:
    return [amount + sign * more for amount, more in zip(amounts, request, strict=True)]
