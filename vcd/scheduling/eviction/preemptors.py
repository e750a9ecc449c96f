"""Preemptors: starving jobs, the order in which they are served, and those of their tasks that need a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.nominations import nominated_jobs
from vcd.scheduling.framework.domainsearch import evict_in_domains
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.job_validity import why_invalid
from vcd.scheduling.framework.order import PriorityQueue
from vcd.scheduling.framework.worksheet import is_whole, units, whole_with
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, SubJob, Task
from vcd.state.backoff import resting_preemptors


def starving_jobs(framework: Framework) -> dict[int, list[Job]]:
    """Return admitted, valid, starving jobs of open queues, by the queue's index.

    A job is left out for about a second after the API server refused an eviction for it.
    """
    session = framework.session
    found: dict[int, list[Job]] = {}
    resting = resting_preemptors(session.backing_off.values(), session.now)
    for job in session.jobs_with_pending():
        if job.is_pending() or not job.queue.is_open or job.key in resting:
            continue
        if framework.job_starving(job) and why_invalid(framework, job) is None:
            found.setdefault(job.queue.index, []).append(job)
    return found


def jobs_in_turn(framework: Framework, may_take: Callable[[Queue], bool]) -> Iterator[Job]:
    """Yield starving jobs in the order of service, until the session has made the most placements allowed.

    Nominated jobs come first, then all jobs of one queue, then of the next. Queues that may not take (``may_take``) are
    skipped.
    """
    session = framework.session
    starving = starving_jobs(framework)
    yield from _nominated(framework, starving, may_take)
    waiting = {index: framework.jobs_in_order(jobs) for index, jobs in starving.items()}
    queues: PriorityQueue[Queue] = PriorityQueue(
        framework.queue_key, [session.queue_list[index] for index in sorted(waiting)]
    )
    while queues:
        queue = queues.pop()
        if not may_take(queue):
            continue
        while waiting[queue.index]:
            if session.is_full():
                for jobs in waiting.values():
                    jobs.rest()  # jobs not tried must not inherit the result of equivalent jobs
                return
            yield waiting[queue.index].pop()


def _nominated(
    framework: Framework, starving: dict[int, list[Job]], may_take: Callable[[Queue], bool]
) -> Iterator[Job]:
    """Yield nominated jobs, so that they use their capacity before any other job can."""
    session = framework.session
    for job, _ in nominated_jobs(framework, [job for jobs in starving.values() for job in jobs]):
        if may_take(job.queue) and not session.is_full():
            yield job


def schedulable_tasks(framework: Framework, job: Job) -> list[Task]:
    """Return a job's pending, ungated tasks whose sub-jobs can be complete, in task order."""
    tasks = [task for task in job.pending() if task.status == TaskStatus.PENDING and not task.gated]
    if job.partition is not None:
        tasks = whole_with(framework, job.partition, tasks)
    return framework.in_task_order(tasks)


Search = Callable[[], Callable[[Task], object]]
"""Begins a search for victims and returns a function ``take(task)``, which finds a node for a task."""


def pipeline_with_evictions(framework: Framework, statement: Statement, search: Search) -> bool:
    """Pipeline a job's tasks where ``search`` finds capacity. Commit and return True if the job may wait for it.

    Otherwise roll back and return False: no pod is evicted. If tasks are in each other's way, tasks of roles below
    their minimum come first.
    """
    job = statement.job
    tasks = schedulable_tasks(framework, job)

    def attempt() -> bool:
        _find_places(framework, statement, tasks, search)
        if len(statement) and job.minds_roles and not framework.job_pipelined(job):
            statement.discard()
            missing_first = sorted(tasks, key=lambda task: not job.misses(task.role))
            if missing_first != tasks:
                _find_places(framework, statement, missing_first, search)
        return framework.job_pipelined(job)

    if evict_in_domains(framework, statement, job, tasks, attempt):
        statement.commit()
        return True
    statement.discard()
    return False


def _find_places(framework: Framework, statement: Statement, wanting: list[Task], search: Search) -> None:
    """Find nodes for a job's tasks, one by one, until the job is no longer starving.

    Each sub-job gets nodes for its whole size or for none of its tasks. Resources of a failed sub-job are available to
    the next one.
    """
    job = statement.job
    for sub_job, tasks in units(framework, job, wanting):
        if sub_job is None:
            _take_each(search(), tasks, lambda: framework.job_starving(job))
        else:
            _find_places_of(framework, statement, sub_job, tasks, search)


def _find_places_of(
    framework: Framework, statement: Statement, sub_job: SubJob, tasks: list[Task], search: Search
) -> None:
    save_point = statement.save()

    def lacks_tasks() -> bool:
        return framework.job_starving(sub_job.job) or not is_whole(framework, sub_job)

    def attempt() -> bool:
        _take_each(search(), tasks, lacks_tasks)
        return is_whole(framework, sub_job)

    if not evict_in_domains(framework, statement, sub_job, tasks, attempt):
        statement.undo(save_point)


def _take_each(take: Callable[[Task], object], tasks: list[Task], lacks_tasks: Callable[[], bool]) -> None:
    for task in tasks:
        if not lacks_tasks():
            return
        take(task)
