"""enqueue: admit pending groups whose minimum resources the plugins find room for (seed 001 s.1, seed 003 s.5.1)."""

from __future__ import annotations

from vcd.model.status import Phase
from vcd.scheduling.action import Action
from vcd.scheduling.actions.allocate import not_supported
from vcd.scheduling.order import PriorityQueue
from vcd.scheduling.plugin import Refusal
from vcd.scheduling.session import Session
from vcd.scheduling.views import Job, Queue


class EnqueueAction(Action):
    """Groups in phase Pending become Inqueue, queue by queue and job by job in the plugins' order.

    A group that states no minimum resources is admitted at once. One that no node could ever hold is not admitted,
    so that it reserves nothing (docs/differences.md).
    """

    name = "enqueue"

    def execute(self, session: Session) -> None:
        jobs: dict[int, PriorityQueue[Job]] = {}
        pending: dict[int, list[Job]] = {}
        for index in (session.jobs.phase == Phase.PENDING).nonzero()[0].tolist():
            job = session.job(index)
            if job.is_pending():
                pending.setdefault(job.queue.index, []).append(job)
        for queue_index, waiting in pending.items():
            jobs[queue_index] = PriorityQueue(session.job_key, waiting)
        queues: PriorityQueue[Queue] = PriorityQueue(
            session.queue_key, [session.queue_list[index] for index in sorted(jobs)]
        )
        while queues:
            queue = queues.pop()
            if not jobs[queue.index]:
                continue
            self._admit(session, jobs[queue.index].pop())
            queues.push(queue)

    @staticmethod
    def _admit(session: Session, job: Job) -> None:
        if job.record.unsupported:
            session.note(job, "unsupported", "", not_supported(job.record.unsupported))
            return
        if job.record.min_resources is not None:
            too_large = _larger_than_any_node(session, job)
            if too_large is not None:
                session.note(job, "enqueue", "enqueue", too_large)
                return
            rejected = session.job_enqueueable(job)
            if rejected is not None:
                session.note(job, "enqueue", *rejected)
                return
        session.job_enqueued(job)
        job.phase = Phase.INQUEUE


def _larger_than_any_node(session: Session, job: Job) -> Refusal | None:
    """When even the mean of the minimum over its pods is above the largest node, some pod fits nowhere."""
    largest = session.nodes.largest
    members = max(1, job.min_available)
    a_pod = -(-session.jobs.min_resources[job.index] // members)
    over = a_pod > largest
    over[session.nodes.column_of["pods"]] = False
    if not over.any():
        return None
    return Refusal(
        "a pod of the group is larger than the largest node",
        {
            **{f"needs {name}": text for name, text in session.amounts(a_pod * over).items()},
            **{f"largest node {name}": text for name, text in session.amounts(largest * over).items()},
        },
    )
