"""Diagnoses of limits: whether the cluster, the job's queue, a parent queue, or the holds of other queues refuse a
job."""

from __future__ import annotations

from collections.abc import Collection

from vcd.diagnosis.holders import amount_in, jobs_in
from vcd.diagnosis.waiting_job import Case
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import Cause
from vcd.model.status import Phase
from vcd.scheduling.framework.declared_reasons import cause_of, declared
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.quotas import OF_THE_CLUSTER, QueueLimit
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.state.holds import HoldKind


def of_limit(case: Case, reason: ev.Waiting, limit: QueueLimit) -> Diagnosis:
    """Return the diagnosis of a reason that states a limit."""
    queue, column = (
        case.session.queues.get(limit.queue, case.job.queue),
        case.session.nodes.column_of.get(limit.resource),
    )
    asks = limit.asks
    if asks is None:
        asks = 0 if column is None or case.funnel is None else int(case.funnel.task.request[column])
    # the reason concerns one pod at its turn, which counted places that other pods of the job had at the time
    if reason.gate == "queue":
        asks, limit = asks * case.missing, limit._replace(taken=amount_in(case.session, queue, limit.resource))
    if column is not None and _is_cluster_full(case, cause_of(reason), limit, column, asks):
        return _diagnose_order(case, limit, None, asks) or case.diagnose_full_cluster({column: asks})
    code = declared(reason.reason)
    field = "" if code is None else code.field.replace("{resource}", limit.resource)
    if cause_of(reason) == Cause.OTHERS_GUARANTEE and not limit.bound:
        return _diagnose_holds(case, reason.plugin, queue, limit._replace(asks=asks), field)
    amounts = {limit.resource: {"asks": asks, "has": limit.taken, "limit": limit.limit}}
    if limit.bound == OF_THE_CLUSTER:
        return Diagnosis(
            cause_of(reason), {"field": field, **_largest_reservation(case.session, None, limit.resource)}, amounts
        )
    found = _diagnose_order(case, limit, queue, asks)
    if found is not None:
        return found
    total = None if column is None or reason.gate != "enqueue" else int(case.session.nodes.total[column])
    is_total = total is not None and limit.limit >= total
    cause, names = _find_limit(case, cause_of(reason), queue, limit, field, is_total=is_total)
    if total is not None:  # groups reserve their minimum from their admission on
        reserved = max(limit.taken - amount_in(case.session, queue, limit.resource), 0)
        if reserved:
            names |= _largest_reservation(case.session, queue, limit.resource)
            amounts[limit.resource]["reserved"] = reserved
    return Diagnosis(cause, names, amounts)


def _is_cluster_full(case: Case, cause: str, limit: QueueLimit, column: int, asks: int) -> bool:
    """Return whether the cluster is full, although a queue's gate refused first: too few resources are idle, and the
    limit is elastic or not below the cluster's total.

    A queue reaches a limit with idle resources in the cluster through groups that are admitted and have no pods yet.
    """
    is_elastic = limit.bound == OF_THE_CLUSTER or cause in (Cause.QUEUE_DESERVED, Cause.OTHERS_GUARANTEE)
    is_limit = is_elastic or limit.limit >= int(case.session.nodes.total[column])
    return is_limit and case.idle_total(column) < asks


def _find_limit(
    case: Case, cause: str, queue: Queue, limit: QueueLimit, field: str, *, is_total: bool
) -> tuple[str, dict[str, str]]:
    """Return which limit a queue reached: guarantees of other queues, a capability of its own or of a parent, or what
    the reason states. With ``is_total``, the cluster's total limits the queue's admissions, too."""
    resource = limit.resource
    if cause == Cause.CARD_QUOTA:
        return cause, {"queue": queue.name, "field": field, "card": resource}
    other = _largest_guarantee(case.session, queue, limit)
    if other is not None:
        return Cause.OTHERS_GUARANTEE, {"queue": other.name, "field": f"spec.guarantee.resource.{resource}"}
    for one in case.session.lineage(queue):
        if one.record.capability.get(resource) == limit.limit:
            cause = Cause.QUEUE_CAPABILITY if one is case.job.queue else Cause.PARENT_LIMIT
            subject = {"queue": one.name, "field": f"spec.capability.{resource}"}
            return (Cause.ADMISSION if is_total else cause), subject
    return (Cause.ADMISSION, {"queue": queue.name}) if is_total else (cause, {"queue": queue.name, "field": field})


def _largest_guarantee(session: Session, queue: Queue, limit: QueueLimit) -> Queue | None:
    """Return the other queue with the largest guarantee of a resource if guarantees cause the limit: no capability is
    as low, and the limit is at least what all guarantees leave of the cluster."""
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


def _diagnose_holds(case: Case, plugin: str, queue: Queue, limit: QueueLimit, field: str) -> Diagnosis:
    """Return the diagnosis of a refusal because of holds for other queues: the queue with the largest hold, and the
    limit.

    The reason names all of these queues but no limit, which depends on the queue above both where they meet in the
    tree.
    """
    session, resource, asks = case.session, limit.resource, limit.asks or 0
    held = _held_for_others(session, plugin, queue, resource, field)
    if not held:  # the queue has used its hold since
        return Diagnosis(Cause.OTHERS_GUARANTEE, {"queue": queue.name, "field": field}, {resource: {"asks": asks}})
    owners = [session.queues[name] for name in held]
    subject = {"queue": max(held, key=lambda name: (held[name], name)), "field": field}
    column, amounts = session.nodes.column_of[resource], dict[str, int]()
    for above in [*session.lineage(queue)[1:], None]:  # the full queue above both, or the cluster
        below = [one for one in owners if above is None or above in session.lineage(one)]
        most = int(session.nodes.total[column]) if above is None else above.record.capability.get(resource, 0)
        if not below or not most:
            continue
        taken = amount_in(session, above, resource)
        held_back = sum(held[one.name] for one in below)
        amounts = {
            "asks": asks,
            "has": taken,
            "limit": max(min(most, taken + case.idle_total(column)) - held_back, 0),
        }
        if taken + asks > amounts["limit"]:
            limit = limit._replace(taken=taken, limit=amounts["limit"])
            found = _diagnose_order(case, limit, above, asks, but=owners)
            return found or Diagnosis(Cause.OTHERS_GUARANTEE, subject, {resource: amounts})
    return Diagnosis(Cause.OTHERS_GUARANTEE, subject, {resource: amounts})


def _held_for_others(session: Session, plugin: str, queue: Queue, resource: str, field: str) -> dict[str, int]:
    """Return what a plugin holds of a resource for other queues, by name: unused guarantees, or shares by weight that
    they deserve and can use."""
    own = {one.name for one in session.lineage(queue)}
    kind = HoldKind.SHARE if field == "spec.weight" else HoldKind.GUARANTEE
    holds = [hold for one in framework_of(session).plugins if one.name == plugin for hold in one.holds()]
    return {
        hold.owner: hold.resources[resource]
        for hold in holds
        if hold.kind == kind and hold.owner not in own and hold.resources.get(resource)
    }


def _largest_reservation(session: Session, queue: Queue | None, resource: str) -> dict[str, str]:
    """Return the job in a queue's subtree (None: of all jobs) that reserves most of a resource by being admitted."""
    jobs, column = session.jobs, session.nodes.column_of[resource]
    rows = jobs_in(session, queue)
    reserved = jobs.missing(rows)[:, column].copy()
    phases = session.views.phases.copy()
    for job in session.views.jobs():
        phases[job.index] = job.phase
    reserved[phases[rows] == Phase.PENDING] = 0
    row = int(reserved.argmax()) if len(reserved) else 0
    return {"holder": jobs.keys[rows[row]]} if len(reserved) and reserved[row] else {}


def _diagnose_order(
    case: Case, limit: QueueLimit, queue: Queue | None, asks: int, but: Collection[Queue] = ()
) -> Diagnosis | None:
    """Return the diagnosis that the job would fit below the limit without what other jobs in the queue's subtree got
    while it waited; None if it would not. Jobs of the queues ``but`` do not count, since their holds are theirs in any
    case."""
    column = case.session.nodes.column_of.get(limit.resource)
    given: dict[str, int] = {}
    for task in case.placed_while_waiting() if column is not None else ():
        if task.job.queue not in but and (queue is None or queue in case.session.lineage(task.job.queue)):
            given[task.job.key] = given.get(task.job.key, 0) + int(task.request[column])
    if limit.taken - sum(given.values()) + asks > limit.limit or not any(given.values()):
        return None
    return case.diagnose_order(given)
