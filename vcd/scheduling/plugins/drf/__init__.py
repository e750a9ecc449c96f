"""drf: the job with the smallest dominant share first, and queues along a hierarchy (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.order import SHARE, Label, labelled, plain
from vcd.scheduling.framework.victims import Allowance, lets_go
from vcd.scheduling.plugins.drf.hierarchy import HIERARCHY, WEIGHTS, Hierarchy, Rank
from vcd.scheduling.session.gauges import JobGauge
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.sums import plus

SHARE_DELTA = 0.000001
"""Shares closer than this count as equal when a victim is chosen (Volcano ``plugins/drf``)."""


def _place(rank: Rank | int) -> str:
    """From the top the share by weight at each step; empty where the hierarchy is off."""
    steps = () if isinstance(rank, int) else rank.shares
    return " > ".join(f"{plain(share)}{' saturated' if saturated else ''}" for share, saturated in steps)


_PLACE = Label("hierarchy", "first in the tree", "last in the tree", _place)


class DrfPlugin(KeepsAccounts):
    """A job's share is the largest of allocated/total over all resources of the cluster; smaller shares come first.

    A task may be preempted when the preemptor's job would still have the smaller share (or an equal one) after the
    exchange.

    With ``enableHierarchy: true`` queues are shared along the tree that their annotations name, for example
    `volcano.sh/hierarchy: root/eng/prod` with `volcano.sh/hierarchy-weights: 1/2/8` (hierarchical drf):

    - a job is saturated when it holds some of a resource that is used up, or all that it asks for of one; a place of
      the tree is saturated when all below it is;
    - a place holds what its saturated children hold, and for each other child held x M / share, where M is the
      smallest share among these; its share is that of its dominant resource;
    - queues are compared from the top of the tree down: what is not saturated comes first, then the smaller
      share/weight;
    - a task may be reclaimed when its queue, without it, would still come after the reclaimer's queue with the
      reclaimer.

    Weights below 1 count as 1. A queue without hierarchy is taken as a child of the root with weight 1. The plugin
    proportion cannot be on in the same tier. Source: Volcano ``plugins/drf``.
    """

    name = "drf"
    treats_alike = True
    annotations = (HIERARCHY, WEIGHTS)
    series = (("volcano_job_share", "The largest part of any of the cluster's resources that a job has."),)
    excludes = (("enableHierarchy", "proportion"),)

    def open(self, session: Session) -> None:
        """Note the totals that shares are of."""
        self._session = session
        self._allocated = session.jobs.allocated
        self._held: dict[int, list[int]] = {}
        self._total = [(column, amount) for column, amount in enumerate(session.nodes.total.tolist()) if amount]
        self._hierarchy = Hierarchy(session, self._held) if self.flags.get("enableHierarchy") else None

    def share(self, allocated: list[int]) -> float:
        """Dominant share of integers in the order of the session's resources."""
        share = 0.0
        for column, amount in self._total:
            part = allocated[column] / amount
            if part > share:
                share = part
        return share

    @labelled(SHARE)
    def job_order(self, job: Job) -> float:
        """Smaller share first."""
        return self.share(self.held(job))

    @labelled(_PLACE)
    def queue_order(self, queue: Queue) -> Rank | int:
        """By the hierarchy, where it is on: place by place the one not saturated, then the smaller share by weight."""
        return 0 if self._hierarchy is None else Rank(partial(self._hierarchy.standing, queue))

    def held(self, job: Job) -> list[int]:
        """What a job's share is of: what it has allocated, and what its tasks wait for."""
        return self._held.get(job.index, job.allocated)

    def gauges(self) -> Iterator[JobGauge]:
        """Volcano's shares, of all jobs."""
        jobs = self._session.jobs
        columns = [column for column, _ in self._total]
        totals = np.array([amount for _, amount in self._total], np.float64)
        shares = (jobs.allocated[:, columns] / totals).max(axis=1, initial=0.0)
        for job in self._session.views.jobs():
            shares[job.index] = self.share(job.allocated)
        yield JobGauge("volcano_job_share", shares)

    @lets_go("tasks whose jobs keep no less than the preemptor's job would get")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> _LargerShares:
        """Tasks whose jobs keep no less than the preemptor's job would get."""
        return _LargerShares(self, self.share(plus(self.held(preemptor.job), preemptor.amounts, 1)))

    @lets_go("tasks whose queue would still come after the reclaimer's")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> Allowance | None:
        """By the hierarchy, where it is on: tasks whose queue would still come after the reclaimer's."""
        return None if self._hierarchy is None else self._hierarchy.reclaimable(reclaimer)

    def close(self, session: Session) -> None:
        """Waiting jobs tell what is wrong with their queue's place in the hierarchy."""
        if self._hierarchy is None or not any(self._hierarchy.places.wrong):
            return
        for job in session.jobs_with_pending():
            for refusal in self._hierarchy.complaints(job.queue):
                job.note("invalid", self.name, refusal)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """The job holds more, also while it waits for the room, or less."""
        task, times = tasks[0], sign * len(tasks)
        index = task.job.index
        held = self._held[index] if index in self._held else self._allocated[index].tolist()
        self._held[index] = plus(held, task.amounts, times)
        if self._hierarchy is not None:
            self._hierarchy.moved(task, times)


class _LargerShares(Allowance):
    """Tasks whose jobs keep a share of at least ``mine``, each that goes leaving its job less."""

    def __init__(self, drf: DrfPlugin, mine: float) -> None:
        self._drf = drf
        self._mine = mine
        self._left: dict[int, list[int]] = {}

    def _without(self, task: Task) -> list[int]:
        left = self._left.get(task.job.index)
        return plus(self._drf.held(task.job) if left is None else left, task.amounts, -1)

    def permits(self, task: Task) -> bool:
        theirs = self._drf.share(self._without(task))
        return self._mine < theirs or abs(self._mine - theirs) <= SHARE_DELTA

    def spend(self, task: Task) -> None:
        self._left[task.job.index] = self._without(task)
