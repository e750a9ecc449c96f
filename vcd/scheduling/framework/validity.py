"""A gang starts whole or not at all, its best-effort tasks included.

Plugins count pending best-effort tasks as ready, since they need no room. Beside a gang that is bound already one that
no node takes would never start.
"""

from __future__ import annotations

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

TOO_LARGE = ReasonCode(
    "larger-than-any-node",
    Cause.SHAPE,
    "a pod of the group is larger than any node",
    mend="ask for less for each pod, or add a larger node",
    nodes_help=True,
)


def unplaceable(framework: Framework, job: Job) -> list[Task]:
    """Pending best-effort tasks that by what is fixed about the nodes none takes; at a gate none is asked for."""
    if not job.best_effort_pending or not len(framework.session.nodes):
        return []
    static = framework.evaluator.static
    best_effort = (task for task in job.pending() if task.best_effort and not task.gated)
    return [task for task in best_effort if not static(task).mask.any()]


def why_invalid(framework: Framework, job: Job) -> tuple[str, Reason] | None:
    """Which plugin finds that a job cannot be placed at all, and why: it has not the tasks that it needs.

    Best-effort ones that no node takes, wherever other pods are, do not count.
    """
    refused = framework.job_valid(job)
    missing = [] if refused is not None else unplaceable(framework, job)
    if not missing:
        return refused
    for task in missing:
        job.moved((task,), TaskStatus.UNKNOWN)
    refused = framework.job_valid(job)
    for task in missing:
        job.moved((task,), TaskStatus.PENDING)
    job.is_broken = refused is not None
    return refused


def tell_of_large_pods(session: Session) -> None:
    """Note of each group that no node could hold which of its pods is too large, or by what its minimum tells so."""
    facts = session.nodes.facts
    for index in session.classes.leads(np.flatnonzero(session.jobs.too_large)):
        job = session.job(index)
        pod = next((task for task in job.pending() if facts.too_large(task.request[None])[0]), None)
        needed = session.jobs.mean_minimum(index) if pod is None else pod.request
        over = needed > facts.largest
        shown = over if over.any() else np.ones_like(over)
        amounts = session.told(np.flatnonzero(shown), needs=needed, largest_node=facts.largest * over)
        job.note("predicate", "", TOO_LARGE(amounts=amounts), task=pod)
