"""Jobs that cannot start as a whole: missing best-effort tasks, gangs that are not ready, and pods larger than any
node.

Plugins count pending best-effort tasks as ready, because these request no resources. But if no node takes one of them,
the gang would be bound without it, and that task would never start.
"""

from __future__ import annotations

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import UNOFFERED
from vcd.model.status import UNSCHEDULABLE, Phase, TaskStatus
from vcd.scheduling.framework.answer_checks import FAILED, REJECTED
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.rules import plugin_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.shape_columns import unoffered

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
MINIMUM_NOT_OFFERED = ReasonCode(
    "minimum-not-offered",
    Cause.SHAPE,
    "no node offers {resources}, which minResources of the group asks for",
    mend="correct minResources, or add a node that offers the resource",
    field="spec.minResources",
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
    """Return pending best-effort tasks without a scheduling gate that no node can take because of its facts."""
    if not job.best_effort_pending or not len(framework.session.nodes):
        return []
    static = framework.evaluator.static
    best_effort = (task for task in job.pending() if task.best_effort and not task.gated)
    return [task for task in best_effort if not static(task).mask.any()]


def why_invalid(framework: Framework, job: Job) -> tuple[str, Reason] | None:
    """Return the plugin that rejects a job as invalid, and the reason; impossible best-effort tasks do not count."""
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
    """Note which plugin rejects as not ready a job that has enough placed tasks, unless a reason is noted already."""
    if job.why or not job.is_ready():
        return
    methods = framework.participants["job_ready"].methods
    plugin = next((plugin_of(method) for method in methods if not method(job)), None)
    if plugin is not None:
        job.note("gang", plugin.name, FAILED() if plugin.name in framework.guard.failed else REJECTED())
        framework.session.conditions.setdefault(job.index, (UNSCHEDULABLE, "True", "NotEnoughResources"))


def tell_of_large_pods(session: Session) -> None:
    """Note for each group that no node could hold which of its pods is too large, or how its minimum shows this.

    If there is no node, note that for each waiting group; otherwise plugins would report that its queue, or the
    cluster, is full.
    """
    facts = session.nodes.facts
    if not len(session.nodes):
        _note_no_node(session)
    for index in session.tried(np.flatnonzero(session.jobs.too_large)):
        job = session.job(index)
        pod = next((task for task in job.pending() if facts.too_large(task.request[None])[0]), None)
        needed = session.jobs.mean_minimum(index) if pod is None else pod.request
        over = needed > facts.largest
        if missing := _not_offered(session, job, pod, over & (facts.largest == 0)):
            job.note("predicate", "", NOT_OFFERED({"resources": missing}), task=pod)
            continue
        selected = over if over.any() else np.ones_like(over)
        amounts = session.told(np.flatnonzero(selected), needs=needed, largest_node=facts.largest * over)
        job.note("predicate", "", TOO_LARGE(amounts=amounts), task=pod)


def _not_offered(session: Session, job: Job, pod: Task | None, columns: Mask) -> str:
    """Return the names of the resources of some columns, and of requested resources that have no column."""
    names = [session.nodes.resources[column] for column in np.flatnonzero(columns).tolist()]
    if UNOFFERED in names:
        requests = (job.record.min_resources or {}) if pod is None else pod.shape.requests
        names[names.index(UNOFFERED)] = unoffered(session.nodes.column_of, requests)
    return " and ".join(names)


def why_not_admitted(session: Session, job: Job, refusal: Reason) -> Reason:
    """Return a plugin's refusal to admit a group, or that its minimum names a resource which no node offers: a plugin
    knows no names of such resources."""
    if not any(resource == UNOFFERED for _, resource, _ in refusal.amounts):
        return refusal
    return MINIMUM_NOT_OFFERED({"resources": unoffered(session.nodes.column_of, job.record.min_resources or {})})


def _note_no_node(session: Session) -> None:
    waiting = session.jobs.phase == Phase.PENDING
    for job in session.jobs_with_pending():
        waiting[job.index] = True
    for index in session.tried(np.flatnonzero(waiting)):
        session.job(index).note("predicate", "", NO_NODE())
