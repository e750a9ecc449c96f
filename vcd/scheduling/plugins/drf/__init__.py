"""drf: order jobs by dominant share, and queues along a hierarchy (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.order import SHARE, Label, labelled, plain
from vcd.scheduling.framework.victims import Allowance, victim_rule
from vcd.scheduling.plugins.drf.hierarchy import HIERARCHY, WEIGHTS, Hierarchy, Rank
from vcd.scheduling.session.gauges import JobGauge
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.sums import plus

SHARE_DELTA = 0.000001
"""Shares that differ less count as equal in the choice of victims (Volcano ``plugins/drf``)."""


def _place(rank: Rank | int) -> str:
    """Format the share by weight at each level from the top; empty without a hierarchy."""
    steps = () if isinstance(rank, int) else rank.shares
    return " > ".join(f"{plain(share)}{' saturated' if saturated else ''}" for share, saturated in steps)


_PLACE = Label("hierarchy", "first in the tree", "last in the tree", _place)


class DrfPlugin(KeepsAccounts):
    """Order jobs by dominant share (the largest allocated/total over all resources of the cluster), smallest first.

    A task may be preempted if the preemptor's job would still have the smaller share, or an equal one, after the
    exchange.

    With ``enableHierarchy: true`` queues are shared along the tree that their annotations name, for example
    `volcano.sh/hierarchy: root/eng/prod` with `volcano.sh/hierarchy-weights: 1/2/8` (hierarchical drf):

    - A job is saturated if it holds some of a resource that is used up, or everything that it requests of a resource. A
      place in the tree is saturated if all its children are.
    - A place holds what its saturated children hold, and of each other child held x M / share, where M is the smallest
      share of these. Its share is that of its dominant resource.
    - Queues are compared from the top of the tree down: unsaturated ones first, then the smaller share/weight.
    - A task may be reclaimed if its queue, without it, would still come after the reclaiming queue with the reclaiming
      task.

    Weights below 1 count as 1. A queue without hierarchy is a child of the root with weight 1. The plugin proportion
    cannot be active in the same tier. Source: Volcano ``plugins/drf``.
    """

    name = "drf"
    keys = (HIERARCHY, WEIGHTS)
    series = (("volcano_job_share", "The largest part of any of the cluster's resources that a job has."),)
    excludes = (("enableHierarchy", "proportion"),)

    def open(self, session: Session) -> None:
        self._session = session
        self._allocated = session.jobs.allocated
        self._held: dict[int, list[int]] = {}
        self._total = [(column, amount) for column, amount in enumerate(session.nodes.total.tolist()) if amount]
        self._hierarchy = Hierarchy(session, self._held) if self.flags.get("enableHierarchy") else None

    def share(self, allocated: list[int]) -> float:
        """Return the dominant share of integers in the order of the session's resources."""
        share = 0.0
        for column, amount in self._total:
            part = allocated[column] / amount
            if part > share:
                share = part
        return share

    @labelled(SHARE)
    def job_order(self, job: Job) -> float:
        """Order jobs by share, smallest first."""
        return self.share(self.held(job))

    @labelled(_PLACE)
    def queue_order(self, queue: Queue) -> Rank | int:
        """Order queues by the hierarchy, if it is enabled: at each level unsaturated first, then by share/weight."""
        return 0 if self._hierarchy is None else Rank(partial(self._hierarchy.standing, queue))

    def held(self, job: Job) -> list[int]:
        """Return what a job's share is computed from: allocated and Pipelined resources."""
        return self._held.get(job.index, job.allocated)

    def gauges(self) -> Iterator[JobGauge]:
        """Return Volcano's shares of all jobs."""
        jobs = self._session.jobs
        columns = [column for column, _ in self._total]
        totals = np.array([amount for _, amount in self._total], np.float64)
        shares = (jobs.allocated[:, columns] / totals).max(axis=1, initial=0.0)
        for job in self._session.views.jobs():
            shares[job.index] = self.share(job.allocated)
        yield JobGauge("volcano_job_share", shares)

    @victim_rule("tasks whose job retains at least the share that the preemptor's job would have")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> _LargerShares:
        """Permit victims whose jobs retain at least the share that the preemptor's job would have."""
        return _LargerShares(self, self.share(plus(self.held(preemptor.job), preemptor.amounts, 1)))

    @victim_rule("tasks whose queue would still come after the reclaiming queue in order")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> Allowance | None:
        """Permit victims whose queue would still come after the reclaiming queue, if the hierarchy is enabled."""
        return None if self._hierarchy is None else self._hierarchy.reclaimable(reclaimer)

    def close(self, session: Session) -> None:
        """Note problems with the queue's place in the hierarchy on pending jobs."""
        if self._hierarchy is None or not any(self._hierarchy.places.wrong):
            return
        for job in session.jobs_with_pending():
            for refusal in self._hierarchy.annotation_problems(job.queue):
                job.note("invalid", self.name, refusal)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Update what the job holds, including Pipelined tasks."""
        task, times = tasks[0], sign * len(tasks)
        index = task.job.index
        held = self._held[index] if index in self._held else self._allocated[index].tolist()
        self._held[index] = plus(held, task.amounts, times)
        if self._hierarchy is not None:
            self._hierarchy.moved(task, times)


class _LargerShares(Allowance):
    """Permits victims whose jobs retain a share of at least ``mine``."""

    def __init__(self, drf: DrfPlugin, least: float) -> None:
        self._drf = drf
        self._least = least
        self._left: dict[int, list[int]] = {}

    def _without(self, task: Task) -> list[int]:
        left = self._left.get(task.job.index)
        return plus(self._drf.held(task.job) if left is None else left, task.amounts, -1)

    def permits(self, task: Task) -> bool:
        remaining = self._drf.share(self._without(task))
        return self._least < remaining or abs(self._least - remaining) <= SHARE_DELTA

    def spend(self, task: Task) -> None:
        self._left[task.job.index] = self._without(task)
