"""Displace waiting jobs: give a preemptor without victims what pipelined pods of lower priority hold in its queue.

A waiting job runs no pod in that capacity, so no rule for victims protects it: neither a gang's minimum nor a budget.
In kube-scheduler, too, nominated pods of lower priority do not count in the search for victims. If the capacity
suffices without evictions, allocate gives it to the higher priority (``Nominations.outranks``).

A job for which this session evicts pods is not displaced: its evictions would be in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

from vcd.model.reasons import Cause, ReasonCode
from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.victim_search import PLACED, fits_on, placed_tasks
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.nodes import fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement, Withdrawn
from vcd.scheduling.session.views import Job

DISPLACED: Final = ReasonCode(
    "nomination-displaced",
    Cause.ORDER,
    "capacity that it waited for is given to {owner}, a job of higher priority in its queue",
)
_STARTED = (TaskStatus.BINDING, *PLACED)
_Wait = list[tuple[Statement, Withdrawn]]
"""The withdrawn placements of a displaced job, by statement."""


class _WaitingJobs:
    """The jobs with pipelined pods at this moment, by queue and priority. One object per session."""

    def __init__(self, session: Session) -> None:
        self._moves = session.views.moves
        self._seen = 0
        self._jobs: dict[tuple[int, int], dict[int, Job]] = {}

    def below(self, framework: Framework, job: Job) -> list[Job]:
        """Return jobs of the same queue with lower priority that come after ``job``, the last in order first.

        A gang that waits to be complete again is not displaced, because its running pods would remain below its
        minimum.
        """
        for task in self._moves[self._seen :]:
            if task.status == TaskStatus.PIPELINED:
                scope = task.job.queue.index, task.job.priority
                self._jobs.setdefault(scope, {})[task.job.index] = task.job
        self._seen = len(self._moves)
        found = [
            (framework.job_key(other), other)
            for (queue, priority), jobs in self._jobs.items()
            if queue == job.queue.index and priority < job.priority
            for other in jobs.values()
            if other.counts[TaskStatus.PIPELINED]
            and (framework.job_ready(other) or not any(other.counts[status] for status in _STARTED))
        ]
        own = framework.job_key(job) if found else ()
        return [other for key, other in sorted(found, key=lambda pair: pair[0], reverse=True) if key > own]


def displacing(framework: Framework, action: str, job: Job, attempt: Callable[[], bool]) -> bool:
    """Attempt to serve a job with what waiting jobs of lower priority in its queue hold; return whether one succeeds.

    Each attempt displaces twice as many jobs as the one before, beginning with the last in order: one attempt per job
    would be slow. Displaced jobs that still fit wait on. If no attempt succeeds and evicts pods, all jobs wait on.
    """
    jobs, count = _jobs_below(framework, job), 0
    while count < len(jobs):
        count = max(1, 2 * count)
        waits = [[(each, each.withdraw()) for each in statements] for statements in jobs[:count]]
        succeeds = _evicts(framework.session, attempt)
        for wait in reversed(waits):
            if not succeeds:
                _restore(wait)
            else:
                _restore_what_fits(framework, wait)
                _note_displaced(action, job, wait)
        if succeeds:
            return True
    return False


def _evicts(session: Session, attempt: Callable[[], bool]) -> bool:
    """Return whether an attempt succeeds and evicts pods; roll it back if it evicts none.

    Without evictions nothing is nominated for the job, and the next session would serve the waiting jobs first again.
    """
    statements = session.trial.statements
    before = len(statements)
    if not attempt():
        return False
    if any(statement.evicted() for statement in statements[before:]):
        return True
    for statement in statements[before:]:
        statement.withdraw()
    del statements[before:]
    return False


def _jobs_below(framework: Framework, job: Job) -> list[list[Statement]]:
    """Return the waiting jobs that a job may displace, the last in order first, each by its statements."""
    session = framework.session
    jobs = session.provided(_WaitingJobs, lambda: _WaitingJobs(session)).below(framework, job)
    if not (jobs and _could_help(session, job)):
        return []
    found: dict[int, list[Statement]] = {other.index: [] for other in jobs}
    pipelined = chain.from_iterable(session.trial.pipelined.get(index, ()) for index in found)
    for statement in chain(session.trial.statements, pipelined):
        if statement.job.index in found:
            found[statement.job.index].append(statement)
    return [statements for statements in found.values() if not any(each.evicted() for each in statements)]


def _could_help(session: Session, job: Job) -> bool:
    """Whether some node fits a pod of the job without the pods that wait there and the pods of its queue."""
    usage, placed, queue = session.nodes.usage, placed_tasks(session), job.queue.index
    freeable = placed.freeable_in(("queue", queue), lambda: session.jobs.queue[placed.jobs] == queue)
    most = usage.future_idle + usage.pipelined + freeable.left()
    floors = {task.floor.tobytes(): task.floor for task in job.pending()}
    return any(fits(floor, most).any() for floor in floors.values())


def _restore(wait: _Wait) -> None:
    for statement, withdrawn in reversed(wait):
        statement.restore(withdrawn)


def _restore_what_fits(framework: Framework, wait: _Wait) -> None:
    """Restore pods of a displaced job to their nodes where they still fit.

    Restore none if the job cannot have its minimum that way. For a job with sub-jobs, restore all or none.
    """
    job, fit = wait[0][0].job, True
    for statement, withdrawn in wait:
        for placement in withdrawn:
            task, node = placement[1].task, placement[1].node
            if fits_on(framework, task, node, framework.candidates(task)):
                statement.restore([placement])
            else:
                fit = False
    if not (fit or job.partition is None) or not (framework.job_ready(job) or framework.job_pipelined(job)):
        for statement, _ in reversed(wait):
            statement.withdraw()


def _note_displaced(action: str, owner: Job, wait: _Wait) -> None:
    for statement, withdrawn in wait:
        for _, done in withdrawn:
            if done.task.status == TaskStatus.PENDING:
                statement.job.note(action, "", DISPLACED({"owner": owner.key}), task=done.task)
