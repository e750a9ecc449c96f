"""[differs] A job that can make no room has what jobs of lower priority wait for in its queue, if pods go for it."""

from __future__ import annotations

from collections.abc import Callable

from tests.reference.model import Job, Task
from tests.reference.session import Session

Wait = list[tuple[Task, str, str, bool]]
"""What a job had: each task with its node, its status, and whether it waited for good."""


def displacing(session: Session, job: Job, attempt: Callable[[], bool]) -> bool:
    """Try again without the last of the jobs that wait, then without the last two, four, and so on."""
    jobs, count = _below(session, job), 0
    while count < len(jobs):
        count = max(1, 2 * count)
        waits = [(other, _withdraw(session, other)) for other in jobs[:count]]
        succeeds = attempt()
        for other, wait in reversed(waits):
            _restore(session, other, wait, all_of_it=not succeeds)
        if succeeds:
            return True
    return False


def _below(session: Session, job: Job) -> list[Job]:
    """The jobs that may be displaced, the last first."""
    found = [
        other
        for _, other in sorted(session.cluster.jobs.items())
        if other.queue == job.queue
        and other.priority < job.priority
        and session.jobs_in_order([other, job])[0] is job
        and other.having("Pipelined")
        and other.key not in session.evicting
        and (session.job_ready(other) or not other.having("Bound", "Binding", "Running"))
    ]
    return list(reversed(session.jobs_in_order(found)))


def _withdraw(session: Session, job: Job) -> Wait:
    held = [task for task in job.tasks if task.status in ("Pipelined", "Allocated")]
    wait = [(task, task.node, task.status, task in session.waiting) for task in held]
    wait.sort(key=lambda each: (not each[3], session.placed.index(each[0])))
    for task, _, _, stays in reversed(wait):
        session.displace(task)
        if stays:
            session.waiting.remove(task)
    return wait


def _restore(session: Session, job: Job, wait: Wait, all_of_it: bool) -> None:
    """Let a job wait as before, as far as it fits; not at all if that is less than its minimum."""
    again = []
    queue = session.cluster.queues[job.queue]
    for task, name, status, stays in wait:
        node = session.cluster.nodes[name]
        if all_of_it or (session.takes_waiting(task, node) and session.allocatable(queue, task)):
            session.place(task, node, status)
            again.append(task)
            session.waiting += [task] if stays else []
    if not (all_of_it or session.job_ready(job) or session.job_pipelined(job)):
        for task in reversed(again):
            session.displace(task)
            if task in session.waiting:
                session.waiting.remove(task)
