"""Room that was made for a task is kept for it: by this scheduler's memory, or as the API server shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vcd.model.status import TaskStatus

if TYPE_CHECKING:
    from vcd.scheduling.session import Session
    from vcd.scheduling.views import Job, Task


def is_promised(session: Session, task: Task) -> bool:
    """Whether a pending task is nominated to a node that is there and takes it, now or when room is freed."""
    if task.key not in session.snapshot.nominated or task.status != TaskStatus.PENDING or task.gated:
        return False
    row = session.nominated_node(task)
    return row is not None and session.pre_predicate(task) is None and session.candidates(task).passes(row)


def promised_jobs(session: Session, jobs: Iterable[Job]) -> list[Job]:
    """Those of the jobs that hold such a promise, queue by queue, the first to be served first."""
    if not session.snapshot.nominated:
        return []
    found = [job for job in jobs if any(is_promised(session, task) for task in job.pending())]
    return sorted(found, key=lambda job: (job.queue.index, session.job_key(job)))
