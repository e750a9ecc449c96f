"""Room that was made for a task is kept for it: by this scheduler's memory, or as the API server shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.views import Job, Task


class Promises:
    """The pending tasks that room was made for, and when: a service of the session.

    A best-effort task is not among them: it needs no room that could be kept.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        session = self._session = framework.session
        self.given_out = False
        """Whether allocate gave the room out in this session, or somebody before it did."""
        self._turns: dict[int, int] = {}
        self._by_job: dict[int, list[Task]] = {}
        self._kept: dict[int, tuple[int, bool]] = {}
        snapshot = session.snapshot
        for row in session.pending_rows_of(snapshot.nominated) if snapshot.nominated else ():
            task = session.task(row)
            if not (task.gated or task.best_effort) and session.nominated_node(task) is not None:
                self._turns[row] = snapshot.turns[task.key]
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
        return None if turn is None or task.status != TaskStatus.PENDING or not self._is_kept(task) else turn

    def holds(self, job: Job, turn: int) -> bool:
        """Whether a job can have room now that was made for it then."""
        return any(self.turn(task) == turn for task in self._by_job[job.index])

    def _is_kept(self, task: Task) -> bool:
        """Whether the node takes the task, now or when room is freed; known until something is placed or taken back."""
        session = self._session
        known = self._kept.get(task.row)
        if known is None or known[0] != session.trial.changes:
            known = self._kept[task.row] = session.trial.changes, self._is_taken(task)
        return known[1]

    def _is_taken(self, task: Task) -> bool:
        session, node = self._session, self._session.nominated_node(task)
        return (
            node is not None
            and session.nodes.will_have_room(node, task.floor)
            and self._framework.pre_predicate(task) is None
            and self._framework.candidates(task).passes(node)
        )


def promises_of(framework: Framework) -> Promises:
    """The session's promises."""
    session = framework.session
    return session.provided(Promises, lambda: Promises(framework))


def is_promised(framework: Framework, task: Task) -> bool:
    """Whether a pending task is nominated to a node that is there and takes it, now or when room is freed."""
    session = framework.session
    return bool(session.snapshot.nominated) and promises_of(framework).turn(task) is not None


def promised_jobs(framework: Framework, jobs: Iterable[Job]) -> Iterator[tuple[Job, int]]:
    """Those of the jobs that hold such a promise, with its turn: the last made first, of one session queue by queue.

    A job comes once for each of its turns, while it can still have some of the room.
    """
    session = framework.session
    if not session.snapshot.nominated:
        return
    promises = promises_of(framework)
    found = [(-turn, job.queue.index, framework.job_key(job), job) for job in jobs for turn in promises.turns(job)]
    for turn, _, _, job in sorted(found, key=itemgetter(0, 1, 2)):
        if promises.holds(job, -turn):
            yield job, -turn
