"""[differs] Applications on a part of the nodes: admitted by what these nodes have (docs/differences.md)."""

from __future__ import annotations

from tests.reference import lending
from tests.reference.config import Arguments
from tests.reference.model import ALLOCATED, Job, total
from tests.reference.session import Session
from tests.reference.values import Resource

ENDED = ("Succeeded", "Failed")


def short_on_nodes(session: Session, job: Job, arguments: Arguments, factor: float) -> list[str]:
    """Return the resources of which the nodes that a job's pods may use have too little for it and those before it."""
    if not (session.pains and arguments.boolean("admitByNodesEnable", True)):
        return []
    asks, nodes = lending.reserving(session, job, job.outstanding()), _nodes_of(session, job)
    pending = total(task.request for task in job.having("Pending"))
    is_whole = all(asks.get(name) <= pending.get(name) for name in asks.names())
    if is_whole or len(nodes) in (0, len(session.node_order)):
        return []
    never = lending.never_placed(session)
    ahead = Resource()
    for _, other in sorted(session.cluster.jobs.items()):
        theirs = _nodes_of(session, other)
        if other.priority >= job.priority and theirs and theirs <= nodes:
            ahead.add(_lacks(session, other, theirs, never))
    chosen = [session.cluster.nodes[name] for name in sorted(nodes)]
    limit = total(node.allocatable for node in chosen).multiply(factor).sub(total(node.used for node in chosen))
    short = ahead.clone().add(asks).exceeding_requested(limit, asks)
    return [name for name in short if ahead.get(name) > 0]


def _nodes_of(session: Session, job: Job) -> set[str]:
    tasks = [task for task in job.tasks if task.status not in ENDED]
    return {node.name for node in session.node_order if any(session._takes(task, node) for task in tasks)}


def _lacks(session: Session, job: Job, nodes: set[str], never: set[str]) -> Resource:
    """What an admitted group still lacks of its minimum; nothing if it can get no more pods, or never be whole."""
    runs = job.phase == "Running" and len(job.having(*ALLOCATED)) >= job.min_available
    if job.min_resources is None or not (job.phase == "Inqueue" or runs):
        return Resource()
    if not session.cluster.queues[job.queue].open or all(task.key in never for task in job.tasks):
        return Resource()
    had = total(task.request for task in job.having("Succeeded"))
    lacks = lending.reserving(session, job, job.outstanding()).minus_floor(had)
    whole = total(session.cluster.nodes[name].allocatable for name in sorted(nodes)).minus_floor(job.allocated)
    return Resource() if any(lacks.get(name) > whole.get(name) for name in lacks.names()) else lacks
