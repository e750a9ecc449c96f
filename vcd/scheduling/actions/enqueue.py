"""enqueue: admit pending groups whose minimum resources the plugins accept (docs/semantics/actions.md)."""

from __future__ import annotations

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import Phase
from vcd.model.wording import rfc3339
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.job_validity import why_not_admitted
from vcd.scheduling.framework.order import PriorityQueue
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job

_MEND = "take the field away, or give the pods to a scheduler that knows it"
_FIELD_UNSUPPORTED = ReasonCode("field-unsupported", Cause.UNSUPPORTED, "{fields} is not supported", mend=_MEND)
_FIELDS_UNSUPPORTED = ReasonCode("fields-unsupported", Cause.UNSUPPORTED, "{fields} are not supported", mend=_MEND)
_HELD_BACK = ReasonCode(
    "namespace-held-back",
    Cause.OUTSIDE,
    "pods of this namespace are bound by another scheduler, so vcd holds the namespace back until {until}",
    mend="stop what binds them, or give its pods another spec.schedulerName",
)


class EnqueueAction(Action):
    """Move groups from Pending to Inqueue, queue by queue and job by job in the plugins' order.

    A group without minimum resources is admitted at once if its queue is open. A group that fits no node is admitted
    like any other, so that its pods are created and a node for them can be added; it reserves nothing
    (docs/differences.md).
    """

    name = "enqueue"
    follows_order = True

    def execute(self, framework: Framework) -> None:
        session = framework.session
        pending: dict[int, list[Job]] = {}
        for index in session.tried(np.flatnonzero(session.jobs.phase == Phase.PENDING)):
            job = session.job(index)
            if job.is_pending():
                pending.setdefault(job.queue.index, []).append(job)
        jobs = {index: framework.jobs_in_order(waiting) for index, waiting in pending.items()}
        queues: PriorityQueue[Queue] = PriorityQueue(
            framework.queue_key, [session.queue_list[index] for index in sorted(jobs)]
        )
        while queues:
            queue = queues.pop()
            if not jobs[queue.index]:
                continue
            self._admit(framework, jobs[queue.index].pop())
            queues.push(queue)

    @staticmethod
    def _admit(framework: Framework, job: Job) -> None:
        session = framework.session
        if not may_be_admitted(session, job):
            return
        if job.record.min_resources is not None:
            rejected = framework.job_enqueueable(job)
            if rejected is not None:
                plugin, reason = rejected
                job.note("enqueue", plugin, why_not_admitted(session, job, reason))
                return
        framework.job_enqueued(job)
        session.trial.decisions += 1
        job.phase = Phase.INQUEUE


def may_be_admitted(session: Session, job: Job) -> bool:
    """Whether a pending group may be admitted, whatever plugins decide; note why not.

    It may not if it requires unsupported fields, its namespace is held back, or its queue is not open.
    """
    if job.unsupported:
        job.note("unsupported", "", unsupported_reason(job.unsupported))
        return False
    if until := session.namespace_held_until(job.namespace):
        job.note("gated", "", namespace_hold_reason(until))
        return False
    if not job.queue.is_open:
        job.note("enqueue", "", job.queue.why_closed())
    return job.queue.is_open


def namespace_hold_reason(until: int) -> Reason:
    """Return why pods wait: another scheduler binds pods of their namespace."""
    return _HELD_BACK({"until": rfc3339(until)})


def unsupported_reason(fields: tuple[str, ...]) -> Reason:
    """Return why pods wait: their object uses unsupported fields."""
    return (_FIELD_UNSUPPORTED if len(fields) == 1 else _FIELDS_UNSUPPORTED)({"fields": " and ".join(fields)})
