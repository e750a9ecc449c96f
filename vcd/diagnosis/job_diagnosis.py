"""The diagnosis of a waiting job at one session: one cause, its subject, and its quantities."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from vcd.diagnosis.group_wait import GroupWait
from vcd.diagnosis.limitcause import of_limit
from vcd.diagnosis.nodecause import is_of_nodes, of_nodes, of_shape
from vcd.diagnosis.waiting_job import Case, Served, as_given, in_order
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import Cause
from vcd.model.status import Phase, TaskStatus
from vcd.scheduling.framework.declared_reasons import cause_of, keeps_back
from vcd.scheduling.framework.registry import limits_of
from vcd.scheduling.session.views import Job

OF_THE_CASE = (Cause.FRAGMENTATION, Cause.CLUSTER_FULL, Cause.ORDER)
"""Causes that no reason states by itself: they result from all nodes and from all pods placed before the job."""


def diagnose(wait: GroupWait, served: Served) -> Diagnosis:
    """Return why a job waits at a session; ``served`` returns the pods that were placed while it waited."""
    if wait.job is None:  # its queue does not exist
        return by_itself(wait.reasons)
    case = Case(wait, wait.job, served)
    found = _diagnose_case(case)
    return found if case.funnel is None else msgspec.structs.replace(found, funnel=case.funnel.lines())


def diagnosed(wait: GroupWait, served: Served, failed: Callable[[Exception], None] = lambda _: None) -> Diagnosis:
    """Return the same as `diagnose`. If a plugin raises while nodes are examined again, call ``failed`` and return
    what the reasons state."""
    try:
        return diagnose(wait, served)
    except Exception as error:  # noqa: BLE001 - a plugin may fail here; its logged reason remains
        failed(error)
        given = by_itself(wait.reasons)
        words = f"{given.words} (evaluating the nodes again fails with {type(error).__name__}: {error})"
        return msgspec.structs.replace(given, words=words)


def by_itself(reasons: Collection[ev.Waiting]) -> Diagnosis:
    """Return the diagnosis that the reasons state, without examining nodes again."""
    return as_given(in_order(reasons)[0])


def pods_missing(job: Job) -> Diagnosis | None:
    """Return the diagnosis that fewer pods exist than a job's minimum, and which owner has to create them; None if
    enough exist."""
    if job.task_count >= job.min_available or job.record.group.status.phase == Phase.COMPLETED.text:
        return None
    owners = [one for one in job.record.group.metadata.owner_references if one.controller]
    owner = f"{owners[0].kind} {owners[0].name}" if owners else "whoever made the group"
    return Diagnosis(Cause.PODS_MISSING, {"owner": owner}, {"": {"pods": job.task_count, "minimum": job.min_available}})


def _all_exist(job: Job) -> bool:
    """Return whether as many pods of each role exist as the job needs."""
    roles = job.partition is None and job.roles_reach(tuple(TaskStatus), best_effort=True)
    return roles and job.task_count >= job.min_available


def _diagnose_case(case: Case) -> Diagnosis:
    if case.job.waiting_count and case.job.waiting_count >= case.missing:
        return case.diagnose_terminating()
    found = next(
        (found for reason in _blocking_reasons(case) if (found := _diagnose_reason(case, reason)) is not None), None
    )
    if found is not None:
        return found
    return as_given(case.reasons[0]) if case.funnel is None else of_nodes(case, case.funnel)


def _blocking_reasons(case: Case) -> list[ev.Waiting]:
    """Return the reasons that alone keep the job below its minimum; all reasons if none does."""
    reasons, least = [one for one in case.reasons if keeps_back(one)], max(case.job.min_available, 1)
    return [one for one in reasons if not one.tasks or case.job.task_count - one.tasks < least] or reasons


def _diagnose_reason(case: Case, reason: ev.Waiting) -> Diagnosis | None:
    cause, funnel = cause_of(reason), case.funnel
    if cause == Cause.GANG_INCOMPLETE:  # other pods of the job wait, and their reasons state why
        return None
    if reason.gate in ("enqueue", "queue"):
        if funnel is not None and funnel.never:
            return of_shape(case, funnel)
        limit = next((one for one in limits_of(reason) if one.is_short), None)
        if limit is not None:
            return of_limit(case, reason, limit)
    if reason.gate == "predicate" and funnel is not None and is_of_nodes(funnel, reason):
        return of_nodes(case, funnel)
    if cause == Cause.LEAVING:
        return case.diagnose_terminating()
    if cause == Cause.PODS_MISSING:
        found = pods_missing(case.job)
        if found is not None or _all_exist(case.job):  # pods that no node fits count as missing
            return found
    given = as_given(reason)
    return msgspec.structs.replace(given, subject={**_implied_subject(case.job, cause), **given.subject})


def _implied_subject(job: Job, cause: str) -> dict[str, str]:
    """Return the subject that reasons of some causes do not name: the job's queue, unsupported fields, the pods'
    gates."""
    if cause == Cause.QUEUE_CLOSED:
        return {"queue": job.queue.name}
    if cause == Cause.UNSUPPORTED:
        fields = [*job.unsupported, *(field for task in job.pending() for field in task.unsupported)]
        return {"field": ", ".join(dict.fromkeys(fields))}
    if cause == Cause.GATED:
        gates = [gate.name for task in job.pending() for gate in task.shape.spec.scheduling_gates]
        return {"gate": ", ".join(dict.fromkeys(gates))}
    return {}
