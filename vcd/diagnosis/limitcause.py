"""Whose limit keeps a job out: the cluster's, its queue's, that of a queue above, or what is kept for others."""

from __future__ import annotations

import numpy as np

from vcd.diagnosis.case import Case, Diagnosis
from vcd.diagnosis.holders import amount_in, held_in
from vcd.model import events as ev
from vcd.model.reasons import Cause
from vcd.model.status import Phase
from vcd.scheduling.framework.quotas import OF_THE_CLUSTER, QueueLimit
from vcd.scheduling.framework.reasons import cause_of, declared
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.state.sums import sum_of


def of_limit(case: Case, reason: ev.Waiting, limit: QueueLimit) -> Diagnosis:
    """The cause of a reason that tells of a limit."""
    queue, column = (
        case.session.queues.get(limit.queue, case.job.queue),
        case.session.nodes.column_of.get(limit.resource),
    )
    asks = limit.asks
    if asks is None:
        asks = 0 if column is None or case.funnel is None else int(case.funnel.task.request[column])
    if reason.gate == "queue":  # a pod's turn, beside what other pods of the job had for the moment
        asks, limit = asks * case.missing, limit._replace(taken=amount_in(case.session, queue, limit.resource))
    if column is not None and _is_the_clusters(case.session, cause_of(reason), limit, column, asks):
        return _overtaken(case, limit, None, asks) or _cluster_full(case.session, limit.resource, column, asks)
    code = declared(reason.reason)
    field = "" if code is None else code.field.replace("{resource}", limit.resource)
    amounts = {limit.resource: {"asks": asks, "has": limit.taken, "limit": limit.limit}}
    if limit.bound == OF_THE_CLUSTER:
        return Diagnosis(cause_of(reason), {"field": field, **_reserver(case.session, limit.resource)}, amounts)
    found = _overtaken(case, limit, queue, asks)
    if found is not None:
        return found
    cause, names = _whose(case, cause_of(reason), queue, limit, field)
    return Diagnosis(cause, names, amounts)


def _is_the_clusters(session: Session, cause: str, limit: QueueLimit, column: int, asks: int) -> bool:
    """Whether it is the cluster that is full, though a queue's gate says so first: too little is free where a limit
    follows what others ask for, or the queue may have all that there is."""
    is_elastic = limit.bound == OF_THE_CLUSTER or cause == Cause.QUEUE_DESERVED
    if is_elastic and _free(session, column) < asks:
        return True
    return limit.bound != OF_THE_CLUSTER and limit.limit >= int(session.nodes.total[column])


def _cluster_full(session: Session, resource: str, column: int, asks: int) -> Diagnosis:
    held = held_in(session, None, resource)
    amounts = {"asks": asks, "free": _free(session, column), "total": int(session.nodes.total[column])}
    return Diagnosis(Cause.CLUSTER_FULL, {"holder": held[0].job} if held else {}, {resource: amounts})


def _free(session: Session, column: int) -> int:
    return int(sum_of(np.maximum(session.nodes.usage.idle[column], 0)))


def _whose(case: Case, cause: str, queue: Queue, limit: QueueLimit, field: str) -> tuple[str, dict[str, str]]:
    """Whose limit a queue runs into: others' guarantees, a capability of its own or of a queue above it, or what the
    reason says."""
    resource = limit.resource
    if cause == Cause.CARD_QUOTA:
        return cause, {"queue": queue.name, "field": field, "card": resource}
    other = _guaranteed(case.session, queue, limit)
    if other is not None:
        return Cause.OTHERS_GUARANTEE, {"queue": other.name, "field": f"spec.guarantee.resource.{resource}"}
    for one in case.session.lineage(queue):
        if one.record.capability.get(resource) == limit.limit:
            cause = Cause.QUEUE_CAPABILITY if one is case.job.queue else Cause.PARENT_LIMIT
            return cause, {"queue": one.name, "field": f"spec.capability.{resource}"}
    return cause, {"queue": queue.name, "field": field}


def _guaranteed(session: Session, queue: Queue, limit: QueueLimit) -> Queue | None:
    """The other queue to which most of a resource is guaranteed, where it is guarantees that make a limit: no
    capability that is stated does, and all that they leave of the cluster is not more."""
    mine, resource = session.lineage(queue), limit.resource
    others = [one for one in session.queue_list if one not in mine and one.record.guarantee.get(resource)]
    stated = [one.record.capability.get(resource, 0) for one in mine]
    column = session.nodes.column_of.get(resource)
    if not others or column is None or any(0 < most <= limit.limit for most in stated):
        return None
    apart = [one for one in others if not any(above in others for above in session.lineage(one)[1:])]
    left = int(session.nodes.total[column]) - sum(one.record.guarantee[resource] for one in apart)
    if limit.limit < left:
        return None
    return max(others, key=lambda one: (one.record.guarantee[resource], one.name))


def _reserver(session: Session, resource: str) -> dict[str, str]:
    """Who reserved most of a resource by being admitted."""
    jobs, column = session.jobs, session.nodes.column_of[resource]
    reserved = jobs.missing(np.arange(len(jobs)))[:, column].copy()
    phases = session.views.phases.copy()
    for job in session.views.jobs():
        phases[job.index] = job.phase
    reserved[phases == Phase.PENDING] = 0
    row = int(reserved.argmax()) if len(reserved) else 0
    return {"holder": jobs.keys[row]} if len(reserved) and reserved[row] else {}


def _overtaken(case: Case, limit: QueueLimit, queue: Queue | None, asks: int) -> Diagnosis | None:
    """Whether what others of a queue, and of those below it, were given while it waited would let it in."""
    column = case.session.nodes.column_of.get(limit.resource)
    given: dict[str, int] = {}
    for task in case.placed_meanwhile() if column is not None else ():
        if queue is None or queue in case.session.lineage(task.job.queue):
            given[task.job.key] = given.get(task.job.key, 0) + int(task.request[column])
    if limit.taken - sum(given.values()) + asks > limit.limit or not any(given.values()):
        return None
    return case.overtaken(given)
