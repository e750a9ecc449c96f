"""Nominations: capacity that evictions free for a task is reserved for it, as remembered or by nominatedNodeName.

A job of higher priority in the same queue may still use it, as in kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from operator import itemgetter

import numpy as np

from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.views import Job, Task

_ENOUGH = 2**63 - 1
"""More tasks than exist: the task needs no node, or no node takes it."""


class Nominations:
    """The pending tasks that are nominated, and the turn (session) of each nomination. One object per session.

    Best-effort tasks are left out: they need no capacity that could be reserved.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        session = self._session = framework.session
        self.served = False
        """Whether these tasks were tried in this session, in allocate or before an earlier action."""
        self._turns: dict[int, int] = {}
        self._by_job: dict[int, list[Task]] = {}
        self._known: dict[int, tuple[int, bool]] = {}
        self._moves: dict[int, tuple[int, bool]] = {}
        snapshot = session.snapshot
        for row in session.pending_rows_of(snapshot.nominated) if snapshot.nominated else ():
            task = session.task(row)
            if not (task.gated or task.best_effort) and session.nominated_node(task) is not None:
                self._turns[row] = snapshot.nomination_turns[task.key]
                self._by_job.setdefault(task.job.index, []).append(task)

    def jobs(self) -> list[Job]:
        """Return the jobs of these tasks, in order of key."""
        return [self._session.job(index) for index in sorted(self._by_job)]

    def jobs_and_rivals(self) -> list[Job]:
        """Return the nominated jobs and pending jobs of higher priority in their queues, in order of key."""
        session, columns = self._session, self._session.jobs
        found = np.zeros(len(columns), np.bool_)
        lowest: dict[int, int] = {}
        for job in self.jobs():
            lowest[job.queue.index] = min(job.priority, lowest.get(job.queue.index, job.priority))
        for queue, priority in lowest.items():
            found |= (columns.queue == queue) & (columns.priority > priority)
        found &= columns.counts[:, TaskStatus.PENDING] > 0
        indices = {*session.tried(np.flatnonzero(found)), *self._by_job}
        return [session.job(index) for index in sorted(indices)]

    def outranks(self, other: Job, job: Job) -> bool:
        """Whether ``other`` may take the capacity nominated for ``job`` of the same queue.

        It may if it comes first by priority and needs the capacity: some of its tasks fit there, and idle resources
        elsewhere do not suffice for them. If the nominated job can use idle resources elsewhere, it is enough that the
        other job can use these too.
        """
        if other.priority <= job.priority or self._framework.job_key(other) >= self._framework.job_key(job):
            return False
        found = [self._session.nominated_node(task) for task in self._by_job[job.index]]
        nodes = [node for node in found if node is not None]
        wanting = [task for task in other.pending() if not (task.gated or task.best_effort or task.unsupported)]
        of_shape = Counter(task.shape for task in wanting)
        moves = self._could_use_idle_node(job)
        distinct: dict[Hashable, Task] = {}
        for key, task in zip(self._framework.evaluator.keys.keys_in_job(wanting), wanting, strict=True):
            distinct.setdefault((key, task.shape), task)
        return any(
            (moves and self._idle_elsewhere(task, nodes) > 0)
            or (
                any(self._session.nodes.will_have_room(node, task.floor) for node in nodes)
                and self._idle_elsewhere(task, nodes) < of_shape[task.shape]
            )
            for task in distinct.values()
        )

    def _could_use_idle_node(self, job: Job) -> bool:
        """Whether a task waits for releases on its nominated node while another node has idle resources for it.

        Cached until something is placed or rolled back.
        """
        session = self._session
        known = self._moves.get(job.index)
        if known is None or known[0] != session.trial.changes:
            nominated = [(task, session.nominated_node(task)) for task in self._by_job[job.index]]
            moves = any(
                node is not None
                and not session.nodes.has_room(node, task.floor)
                and self._idle_elsewhere(task, [node]) > 0
                for task, node in nominated
            )
            known = self._moves[job.index] = session.trial.changes, moves
        return known[1]

    def _idle_elsewhere(self, task: Task, nodes: list[int]) -> int:
        """Return how many such tasks fit the idle resources of nodes other than ``nodes``."""
        requested = task.floor > 0
        if not requested.any() or self._framework.pre_predicate(task) is not None:
            return _ENOUGH
        passing = self._framework.candidates(task).passing().copy()
        passing[nodes] = False
        idle = self._session.nodes.usage.idle[requested][:, passing]
        copies = np.maximum(idle // task.floor[requested][:, None], 0).min(axis=0)
        return int(copies.sum())

    def turns(self, job: Job) -> list[int]:
        """Return the turns of a job's nominations, the latest first."""
        return sorted({self._turns[task.row] for task in self._by_job.get(job.index, ())}, reverse=True)

    def turn(self, task: Task) -> int | None:
        """Return the turn of a task's nomination (later is higher), or None if it has none or does not fit now."""
        turn = self._turns.get(task.row)
        return None if turn is None or task.status != TaskStatus.PENDING or not self._still_fits(task) else turn

    def holds(self, job: Job, turn: int) -> bool:
        """Whether a job can now use capacity that was nominated for it in this turn."""
        return any(self.turn(task) == turn for task in self._by_job[job.index])

    def _still_fits(self, task: Task) -> bool:
        """Whether the nominated node takes the task, now or after releases. Cached until a placement changes."""
        session = self._session
        known = self._known.get(task.row)
        if known is None or known[0] != session.trial.changes:
            known = self._known[task.row] = session.trial.changes, self._fits(task)
        return known[1]

    def _fits(self, task: Task) -> bool:
        session, node = self._session, self._session.nominated_node(task)
        return (
            node is not None
            and session.nodes.will_have_room(node, task.floor)
            and self._framework.pre_predicate(task) is None
            and self._framework.candidates(task).passes(node)
        )


def nominations_of(framework: Framework) -> Nominations:
    """Return the session's nominations."""
    session = framework.session
    return session.provided(Nominations, lambda: Nominations(framework))


def is_nominated(framework: Framework, task: Task) -> bool:
    """Whether a pending task is nominated to an existing node that takes it, now or after releases."""
    session = framework.session
    return bool(session.snapshot.nominated) and nominations_of(framework).turn(task) is not None


def nominated_jobs(framework: Framework, jobs: Iterable[Job]) -> Iterator[tuple[Job, int]]:
    """Yield nominated jobs with their turn: the latest turn first, within a turn queue by queue.

    A job is yielded once per turn, as long as its nomination may still fit.
    """
    session = framework.session
    if not session.snapshot.nominated:
        return
    nominations = nominations_of(framework)
    found = [(-turn, job.queue.index, framework.job_key(job), job) for job in jobs for turn in nominations.turns(job)]
    for turn, _, _, job in sorted(found, key=itemgetter(0, 1, 2)):
        if nominations.holds(job, -turn):
            yield job, -turn
