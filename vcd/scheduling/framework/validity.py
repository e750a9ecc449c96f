"""A gang starts whole or not at all, its best-effort tasks included.

Plugins count pending best-effort tasks as ready, since they need no room. Beside a gang that is bound already one that
no node takes would never start.
"""

from __future__ import annotations

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.requests import UNOFFERED
from vcd.model.status import UNSCHEDULABLE, Phase, TaskStatus
from vcd.scheduling.framework.checks import FAILED, REJECTED
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.rules import plugin_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.shapes import unoffered

TOO_LARGE = ReasonCode(
    "larger-than-any-node",
    Cause.SHAPE,
    "a pod of the group is larger than any node",
    mend="ask for less for each pod, or add a larger node",
    nodes_help=True,
)

NOT_OFFERED = ReasonCode(
    "resource-not-offered",
    Cause.SHAPE,
    "no node offers {resources}, which a pod of the group asks for",
    mend="add a node that offers the resource, or correct its name",
    nodes_help=True,
)
NO_NODE = ReasonCode(
    "no-node",
    Cause.UNSCHEDULABLE_NODE,
    "there is no node",
    mend="add nodes, or let this scheduler have some",
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


def note_not_ready(framework: Framework, job: Job) -> None:
    """Note which plugin keeps a job waiting of which enough tasks have capacity, unless these say why it waits."""
    if job.why or not job.is_ready():
        return
    methods = framework.participants["job_ready"].methods
    plugin = next((plugin_of(method) for method in methods if not method(job)), None)
    if plugin is not None:
        job.note("gang", plugin.name, FAILED() if plugin.name in framework.guard.failed else REJECTED())
        framework.session.conditions.setdefault(job.index, (UNSCHEDULABLE, "True", "NotEnoughResources"))


def tell_of_large_pods(session: Session) -> None:
    """Note of each group that no node could hold which of its pods is too large, or by what its minimum tells so.

    If there is no node, note that of each group that waits: plugins would say that its queue, or the cluster, is full.
    """
    facts = session.nodes.facts
    if not len(session.nodes):
        _tell_of_no_node(session)
    for index in session.tried(np.flatnonzero(session.jobs.too_large)):
        job = session.job(index)
        pod = next((task for task in job.pending() if facts.too_large(task.request[None])[0]), None)
        needed = session.jobs.mean_minimum(index) if pod is None else pod.request
        over = needed > facts.largest
        if missing := _not_offered(session, job, pod, over & (facts.largest == 0)):
            job.note("predicate", "", NOT_OFFERED({"resources": missing}), task=pod)
            continue
        shown = over if over.any() else np.ones_like(over)
        amounts = session.told(np.flatnonzero(shown), needs=needed, largest_node=facts.largest * over)
        job.note("predicate", "", TOO_LARGE(amounts=amounts), task=pod)


def _not_offered(session: Session, job: Job, pod: Task | None, columns: Mask) -> str:
    """Return the names of the resources of some columns, and of a pod's or group's requests without a column."""
    names = [session.nodes.resources[column] for column in np.flatnonzero(columns).tolist()]
    if UNOFFERED in names:
        asked = (job.record.min_resources or {}) if pod is None else pod.shape.requests
        names[names.index(UNOFFERED)] = unoffered(session.nodes.column_of, asked)
    return " and ".join(names)


def _tell_of_no_node(session: Session) -> None:
    waiting = session.jobs.phase == Phase.PENDING
    for job in session.jobs_with_pending():
        waiting[job.index] = True
    for index in session.tried(np.flatnonzero(waiting)):
        session.job(index).note("predicate", "", NO_NODE())
