"""A gang starts whole or not at all, its best-effort tasks included.

Plugins count pending best-effort tasks as ready, since they need no room. Beside a gang that is bound already one that
no node takes would never start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcd.model.status import TaskStatus

if TYPE_CHECKING:
    from vcd.scheduling.framework.plugin import Refusal
    from vcd.scheduling.session.session import Session
    from vcd.scheduling.session.views import Job


def why_invalid(session: Session, job: Job) -> tuple[str, Refusal] | None:
    """Which plugin finds that a job cannot be placed at all, and why: it has not the tasks that it needs.

    Best-effort ones that no node takes, wherever other pods are, do not count.
    """
    refused = session.job_valid(job)
    if refused is not None or not job.best_effort_pending or not job.unplaceable():
        return refused
    for task in job.unplaceable():
        job.moved(task, TaskStatus.UNKNOWN)
    refused = session.job_valid(job)
    for task in job.unplaceable():
        job.moved(task, TaskStatus.PENDING)
    job.is_broken = refused is not None
    return refused
