"""A job that waits at the end of a session, and the pod of it for which the nodes are examined."""

from __future__ import annotations

import msgspec

from vcd.model import events as ev
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task


class GroupWait(msgspec.Struct, frozen=True):
    """A group that waits at the end of a session, with its reasons."""

    group: str
    session: Session
    reasons: tuple[ev.Waiting, ...]

    @property
    def job(self) -> Job | None:
        """The job in the session; None if its queue does not exist."""
        index = self.session.jobs.index(self.group)
        return None if index is None else self.session.job(index)


def task_without_node(job: Job, wait: GroupWait) -> Task | None:
    """Return the job's pod that found no node according to the reasons; None if no reason concerns nodes."""
    named = [key for reason in wait.reasons if reason.gate == "predicate" for key in reason.pods]
    pending = {task.key: task for task in job.pending() if task.status == TaskStatus.PENDING}
    return next((pending[key] for key in named if key in pending), None)


def pending_task(session: Session, job: Job) -> Task | None:
    """Return the job's first pod, in task order, that has no place at the end of a session."""
    pending = [task for task in job.pending() if task.status == TaskStatus.PENDING]
    return framework_of(session).in_task_order(pending)[0] if pending else None


def waiting_task(wait: GroupWait, job: Job) -> Task | None:
    """Return the pod for which the nodes are examined: the one that found no node, else the first without a node."""
    return task_without_node(job, wait) or pending_task(wait.session, job)
