"""The end of a session: groups' phases and counts, queues' usage, who waits for what (Volcano ``job_updater.go``)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vcd.model import events as ev
from vcd.model.quantity import QuantityError, format_resource
from vcd.model.requests import resource_values
from vcd.model.status import Phase, TaskStatus
from vcd.scheduling.nodes import Ints
from vcd.scheduling.session import Session
from vcd.scheduling.views import Job

UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
ROOT_QUEUE = "root"

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
    )


def _statements(session: Session) -> Iterable[ev.Statement]:
    kept = [statement for index in sorted(session.kept) for statement in session.kept[index]]
    for statement in (*session.statements, *kept):
        operations = statement.operations()
        if operations:
            yield ev.Statement(statement.job.key, statement.action, operations)


def _groups(session: Session) -> Iterable[ev.GroupStatus]:
    """Statuses that differ from what the groups show."""
    columns = session.jobs
    counts = columns.counts.copy()
    leaving = session.releasing_on_nodes()
    viewed = {job.index: job for job in session.viewed_jobs()}
    for job in viewed.values():
        if job.touched:
            leaving[job.index] += job.counts[TaskStatus.RELEASING] - counts[job.index, TaskStatus.RELEASING]
            counts[job.index] = job.counts
    scheduled = counts[:, _SCHEDULED].sum(axis=1) + leaving
    completed = counts[:, _COMPLETED].sum(axis=1)
    for index, record in enumerate(columns.records):
        job_view = viewed.get(index)
        shown = record.group.status
        phase = _phase(session, index, job_view, int(scheduled[index]), int(completed[index]), counts[index])
        status = ev.GroupStatus(
            record.group.key,
            phase.text,
            _new_condition(job_view),
            int(counts[index, TaskStatus.RUNNING]),
            int(counts[index, TaskStatus.SUCCEEDED]),
            int(counts[index, TaskStatus.FAILED]),
            shown.phase,
        )
        same = (status.phase, status.running, status.succeeded, status.failed) == (
            shown.phase,
            shown.running,
            shown.succeeded,
            shown.failed,
        )
        if not same or status.condition is not None:
            yield status


def _phase(session: Session, index: int, job: Job | None, scheduled: int, completed: int, counts: Ints) -> Phase:
    before = Phase(int(session.jobs.phase[index])) if job is None else job.phase
    unschedulable = job is not None and job.condition is not None and job.condition[0] == UNSCHEDULABLE
    if unschedulable and counts[TaskStatus.RUNNING]:
        return Phase.UNKNOWN
    if scheduled >= session.jobs.min_member[index]:
        return Phase.COMPLETED if scheduled == completed else Phase.RUNNING
    return Phase.INQUEUE if before is Phase.INQUEUE else Phase.PENDING


def _new_condition(job: Job | None) -> tuple[str, str, str, str] | None:
    """The condition set in this session, None where the group shows it already."""
    if job is None or job.condition is None:
        return None
    kind, status, reason, message = job.condition
    for shown in job.record.group.status.conditions:
        if shown.type == kind:
            same = (shown.status, shown.reason, shown.message) == (status, reason, message)
            return None if same else job.condition
    return job.condition


def _queues(session: Session) -> Iterable[ev.QueueUsage]:
    """Allocated resources of queues, their children's included, where they differ from what the queues show."""
    allocated = session.jobs.allocated.copy()
    for job in session.viewed_jobs():
        if job.touched:
            allocated[job.index] = job.allocated
    sums = np.zeros((len(session.queue_list), allocated.shape[1]), np.int64)
    np.add.at(sums, session.jobs.queue, allocated)
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
            yield ev.QueueUsage(queue.name, {name: format_resource(name, value) for name, value in amounts.items()})


def _with_children(session: Session, sums: Ints) -> Ints:
    if ROOT_QUEUE not in session.queues:
        return sums
    total = sums.copy()
    for queue in session.queue_list:
        name, seen = queue.name, {queue.name}
        while name != ROOT_QUEUE:
            name = session.queues[name].record.queue.spec.parent or ROOT_QUEUE
            if name in seen or name not in session.queues:
                break  # a circle or a missing parent: its own sums are all that is known
            seen.add(name)
            total[session.queues[name].index] += sums[queue.index]
    return total


def _waiting(session: Session) -> Iterable[ev.Waiting]:
    """Groups whose reasons for waiting are not what they were, those outside the session included."""
    snapshot = session.snapshot
    now = {job.key: tuple(job.why) for job in session.viewed_jobs() if job.why and _still_waits(job)}
    for key, record in snapshot.groups.items():
        name = session.queue_name_of(record)
        if name not in session.queues:
            now[key] = (ev.Waiting(key, "queue", "", f"queue {name} does not exist"),)
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
