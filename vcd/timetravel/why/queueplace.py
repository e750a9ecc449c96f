"""The position of a waiting job in its queue, and what the queue has of its deserved share."""

from __future__ import annotations

import msgspec

from vcd.diagnosis.group_wait import pending_task
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.text.amounts import main_resource, number
from vcd.timetravel.queuestatistics import queue_statistics
from vcd.timetravel.why.order_explanation import waiting_in_order

BEFORE = 3
"""Jobs ahead that are named, at most."""


class QueuePlace(msgspec.Struct, frozen=True):
    """A job's ``position`` (1 is served first) among the ``waiting`` jobs of its queue.

    ``before`` has the jobs directly ahead with their priorities, the nearest last. ``allocated`` and ``deserved``
    (None: no plugin counts it) are the queue's quantities of the job's main ``resource``.
    """

    position: int
    waiting: int
    before: list[tuple[str, int]]
    resource: str
    allocated: str
    deserved: str | None


def place_in_queue(session: Session, job: Job) -> QueuePlace | None:
    """Return a job's position in its queue at the end of a session; None if it does not wait any more."""
    waiting, task = waiting_in_order(session, job.queue), pending_task(session, job)
    if job not in waiting:
        return None
    at, resource = waiting.index(job), main_resource({} if task is None else task.shape.requests)
    amounts = queue_statistics(session)[job.queue.name].amounts
    deserved = amounts.get("deserved", {}).get(resource)
    return QueuePlace(
        at + 1,
        len(waiting),
        [(one.key, one.priority) for one in waiting[max(at - BEFORE, 0) : at]],
        resource,
        number(resource, amounts.get("allocated", {}).get(resource, 0)),
        None if deserved is None else number(resource, deserved),
    )
