"""Nominations: room that was made for a task is left to it, by memory or as ``status.nominatedNodeName`` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.views import Job, Task


class Nominations:
    """The pending tasks that room was made for, and when: a service of the session.

    A best-effort task is not among them: it needs no room that could be left to it.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        session = self._session = framework.session
        self.served = False
        """Whether these tasks had their turn in this session, in allocate or before an earlier action."""
        self._turns: dict[int, int] = {}
        self._by_job: dict[int, list[Task]] = {}
        self._known: dict[int, tuple[int, bool]] = {}
        snapshot = session.snapshot
        for row in session.pending_rows_of(snapshot.nominated) if snapshot.nominated else ():
            task = session.task(row)
            if not (task.gated or task.best_effort) and session.nominated_node(task) is not None:
                self._turns[row] = snapshot.nomination_turns[task.key]
                self._by_job.setdefault(task.job.index, []).append(task)

    def jobs(self) -> list[Job]:
        """The jobs of these tasks, in order of key."""
        return [self._session.job(index) for index in sorted(self._by_job)]

    def turns(self, job: Job) -> list[int]:
        """When room was made for tasks of a job, the last time first."""
        return sorted({self._turns[task.row] for task in self._by_job.get(job.index, ())}, reverse=True)

    def turn(self, task: Task) -> int | None:
        """When the room of a task was made, the later the higher; None where it has none, or cannot have it now."""
        turn = self._turns.get(task.row)
        return None if turn is None or task.status != TaskStatus.PENDING or not self._still_fits(task) else turn

    def holds(self, job: Job, turn: int) -> bool:
        """Whether a job can have room now that was made for it then."""
        return any(self.turn(task) == turn for task in self._by_job[job.index])

    def _still_fits(self, task: Task) -> bool:
        """Whether the node takes the task, now or when room is freed; known until something is placed or taken back."""
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
    """The session's nominations."""
    session = framework.session
    return session.provided(Nominations, lambda: Nominations(framework))


def is_nominated(framework: Framework, task: Task) -> bool:
    """Whether a pending task is nominated to a node that is there and takes it, now or when room is freed."""
    session = framework.session
    return bool(session.snapshot.nominated) and nominations_of(framework).turn(task) is not None


def nominated_jobs(framework: Framework, jobs: Iterable[Job]) -> Iterator[tuple[Job, int]]:
    """Those of the jobs that are nominated, with the turn: the last made first, of one session queue by queue.

    A job comes once for each of its turns, while it can still have some of the room.
    """
    session = framework.session
    if not session.snapshot.nominated:
        return
    nominations = nominations_of(framework)
    found = [(-turn, job.queue.index, framework.job_key(job), job) for job in jobs for turn in nominations.turns(job)]
    for turn, _, _, job in sorted(found, key=itemgetter(0, 1, 2)):
        if nominations.holds(job, -turn):
            yield job, -turn
