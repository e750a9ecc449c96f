"""The end of a session: groups' phases and counts, queues' usage, who waits for what (Volcano ``job_updater.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from vcd.model import events as ev
from vcd.model.objects import Condition as ShownCondition
from vcd.model.quantity import QuantityError, format_resource
from vcd.model.requests import resource_values
from vcd.model.status import UNSCHEDULABLE, Phase, TaskStatus
from vcd.scheduling.session.session import ROOT_QUEUE, Condition, Session
from vcd.scheduling.session.views import Job
from vcd.state.sums import Ints, bounded, sums_by

_SCHEDULED = [TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.FAILED, TaskStatus.SUCCEEDED]
_COMPLETED = [TaskStatus.FAILED, TaskStatus.SUCCEEDED]


def plan_of(session: Session) -> ev.Plan:
    """The session's decision as a plan."""
    return ev.Plan(
        statements=tuple(_statements(session)),
        groups=tuple(_groups(session)),
        queues=tuple(_queues(session)),
        waiting=tuple(_waiting(session)),
        faults=session.faults,
        more=session.more,
        rounds=tuple(sorted(session.rounds)),
    )


def _statements(session: Session) -> Iterable[ev.Statement]:
    kept = [statement for index in sorted(session.kept) for statement in session.kept[index]]
    for statement in (*session.statements, *kept):
        operations = statement.operations()
        if operations:
            yield ev.Statement(statement.job.key, statement.action, operations)
    for task in session.ungated.values():
        yield ev.Statement(task.job.key, "allocate", (ev.Operation("ungate", task.key, task.uid),))


def _groups(session: Session) -> Iterable[ev.GroupStatus]:
    """Statuses that differ from what the groups show."""
    columns = session.jobs
    counts = columns.counts.copy()
    leaving = session.releasing_on_nodes()
    viewed = {job.index: job for job in session.viewed_jobs()}
    for job in viewed.values():
        if job.touched:
            counts[job.index] = job.counts
    phases = _phases(session, viewed, counts, leaving)
    conditions = session.conditions
    figures = counts[:, [TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED]].tolist()
    for index, (record, phase, (running, succeeded, failed)) in enumerate(
        zip(columns.records, phases, figures, strict=True)
    ):
        shown = record.group.status
        wanted = conditions.get(index)
        condition = None if wanted is None else _new_condition(wanted, shown.conditions)
        if (
            condition is not None
            or phase != shown.phase
            or running != shown.running
            or succeeded != shown.succeeded
            or failed != shown.failed
        ):
            yield ev.GroupStatus(record.group.key, phase, condition, running, succeeded, failed, shown.phase)


def _phases(session: Session, viewed: Mapping[int, Job], counts: Ints, leaving: Ints) -> list[str]:
    """Each group's phase at the end of the session, as the API writes it."""
    columns = session.jobs
    scheduled = counts[:, _SCHEDULED].sum(axis=1) + leaving
    completed = counts[:, _COMPLETED].sum(axis=1)
    phases = np.where(columns.phase == Phase.INQUEUE, Phase.INQUEUE, Phase.PENDING)
    for job in viewed.values():
        phases[job.index] = Phase.INQUEUE if job.phase is Phase.INQUEUE else Phase.PENDING
    ended = np.where(scheduled == completed, Phase.COMPLETED, Phase.RUNNING)
    phases = np.where(scheduled >= columns.min_member, ended, phases)
    for job in viewed.values():
        condition = session.conditions.get(job.index)
        if condition is not None and condition[0] == UNSCHEDULABLE and counts[job.index, TaskStatus.RUNNING]:
            phases[job.index] = Phase.UNKNOWN
    texts = [phase.text for phase in Phase]
    return [texts[phase] for phase in phases.tolist()]


def _new_condition(wanted: Condition, shown: Iterable[ShownCondition]) -> Condition | None:
    """The condition set in this session, None where the group shows it already."""
    kind, status, reason, message = wanted
    for each in shown:
        if each.type == kind:
            return None if each.status == status and each.reason == reason and each.message == message else wanted
    return wanted


def _queues(session: Session) -> Iterable[ev.QueueUsage]:
    """Allocated resources of queues, their children's and what pods without a group hold included, where they differ
    from what the queues show."""
    allocated = session.jobs.allocated.copy()
    for job in session.viewed_jobs():
        if job.touched:
            allocated[job.index] = job.allocated
    sums = sums_by(session.jobs.queue, allocated, len(session.queue_list))
    sums = bounded(sums + session.orphans.allocated)
    for queue, total in zip(session.queue_list, _with_children(session, sums), strict=True):
        shown = queue.record.queue.status.allocated
        amounts = {name: int(value) for name, value in zip(session.nodes.resources, total, strict=True) if value}
        try:
            known = resource_values(shown)
        except QuantityError:
            known = None  # what nobody can read is written anew
        # zero where the queue shows it, also of a resource that nothing has any more: the columns may have forgotten it
        amounts = {**dict.fromkeys(known or (), 0), **amounts}
        if amounts != known:
            yield ev.QueueUsage(queue.name, {name: format_resource(name, amounts[name]) for name in sorted(amounts)})


def _with_children(session: Session, sums: Ints) -> Ints:
    if ROOT_QUEUE not in session.queues:
        return sums
    total = sums.copy()
    for queue in session.queue_list:
        for above in session.lineage(queue)[1:]:
            total[above.index] = bounded(total[above.index] + sums[queue.index])
    return total


def _waiting(session: Session) -> Iterable[ev.Waiting]:
    """Groups whose reasons for waiting are not what they were, those outside the session included."""
    snapshot = session.snapshot
    now = {job.key: tuple(job.why) for job in session.viewed_jobs() if job.why and _still_waits(job)}
    strangers = snapshot.groups.items() if len(snapshot.groups) > len(session.jobs) else ()
    for key, record in strangers:
        name = session.queue_name_of(record)
        if name not in session.queues:
            refusal = session.why_no_queue(name)
            now[key] = (ev.Waiting(key, "queue", "", refusal.reason, detail=ev.by_key(refusal.detail)),)
    for key in sorted(now.keys() | snapshot.waiting.keys()):
        reasons = now.get(key, ())
        if reasons != snapshot.waiting.get(key, ()):
            yield from reasons or (ev.Waiting(key, ""),)


def _still_waits(job: Job) -> bool:
    """Whether some task of a job has no room at the end, or the group was not admitted."""
    counts = job.counts
    return bool(counts[TaskStatus.PENDING] or counts[TaskStatus.PIPELINED] or counts[TaskStatus.ALLOCATED]) or (
        job.is_pending() or not job.is_ready()
    )
