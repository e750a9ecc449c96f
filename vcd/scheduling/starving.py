"""Who may ask others to make room: starving jobs, and the tasks of theirs that want a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcd.model.status import TaskStatus
from vcd.scheduling.order import ordered_tasks

if TYPE_CHECKING:
    from vcd.scheduling.session import Session
    from vcd.scheduling.views import Job, Task


def starving_jobs(session: Session) -> dict[int, list[Job]]:
    """Admitted, valid, starving jobs of open queues, by the queue's index."""
    found: dict[int, list[Job]] = {}
    for job in session.jobs_with_pending():
        if job.is_pending() or not job.queue.is_open:
            continue
        if session.job_valid(job) is None and session.job_starving(job):
            found.setdefault(job.queue.index, []).append(job)
    return found


def wanting_tasks(session: Session, job: Job) -> list[Task]:
    """A job's pending tasks that no gate holds, the first to be placed first."""
    return ordered_tasks(
        session, [task for task in job.pending() if task.status == TaskStatus.PENDING and not task.gated]
    )
