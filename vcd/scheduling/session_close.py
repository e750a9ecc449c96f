"""Builds the plan at the end of a session: phases and counts of groups, usage of queues, reasons.

Corresponds to Volcano's ``job_updater.go``. The plan has only what differs from the status that was last observed, so
its cost grows with changes. The daemon writes the status (``vcd/daemon/reporting``); this module only states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model import events as ev
from vcd.model.objects import ROOT_QUEUE
from vcd.model.objects import Condition as ObservedCondition
from vcd.model.quantity import QuantityError, format_resource
from vcd.model.resource_requests import resource_values
from vcd.model.status import READY_STATUSES, STATUSES, UNSCHEDULABLE, Phase, TaskStatus, condition_of
from vcd.scheduling.framework.answer_checks import REJECTED
from vcd.scheduling.session.queue_view import with_descendants
from vcd.scheduling.session.reason_templates import (
    Condition,
    number_of,
    open_reasons,
    pods_of,
    reasons_of,
    shown_reasons,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.group_columns import NO_GROUP, Counts, GroupColumns, Rows
from vcd.state.records import GroupRecord
from vcd.state.sums import Ints, bounded, changed, sums_by
from vcd.state.turns_taken import decides

_COUNTED = [TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED]
_TEXTS = [phase.text for phase in Phase]
_NUMBERS = {text: number for number, text in enumerate(_TEXTS)}
_NO_PHASE = -1
"""The phase number of a group whose status has no known phase."""
_NO_PODS = (0,) * STATUSES
_REJECTED = REJECTED()
Phases = npt.NDArray[np.int8]
_Reasons = Mapping[str, tuple[ev.Waiting, ...]]
"""Reasons by group; empty for a group that does not wait."""


def plan_of(session: Session) -> ev.Plan:
    """Return the session's decision as a plan."""
    without_queue = dict(_groups_without_queue(session))
    plan = ev.Plan(
        statements=tuple(_statements(session)),
        groups=(*_groups(session), *_groups_placed_by_others(session, without_queue)),
        queues=tuple(_queues(session)),
        waiting=tuple(_waiting(session, without_queue)),
        faults=session.faults,
        more=session.more or bool(session.lapsed),
        rounds=tuple(sorted(session.rounds)),
        lapsed=tuple(session.lapsed),
        turns=session.turns.taken,
    )
    if session.turns.ends and decides(plan):  # jobs at the start of a round may use what its last session made possible
        plan = msgspec.structs.replace(plan, more=True)
    return plan


def _statements(session: Session) -> Iterable[ev.Statement]:
    pipelined = [statement for index in sorted(session.trial.pipelined) for statement in session.trial.pipelined[index]]
    for statement in (*session.trial.statements, *pipelined):
        operations = statement.operations()
        if operations:
            yield ev.Statement(statement.job.key, statement.action, operations)
    for task in session.ungated.values():
        yield ev.Statement(task.job.key, "allocate", (ev.Operation("ungate", task.key, task.uid),))


def _groups(session: Session) -> list[ev.GroupStatus]:
    """Return the statuses that differ from the observed status of the groups."""
    columns, later = session.jobs, session.later()
    viewed = [job for job in session.views.jobs() if not later[job.index]]
    observed, (condition_numbers, conditions) = columns.derived(_observed_status), _conditions(session)
    candidates = (observed[:, 4] > 0) | (session.views.phases != columns.phase) | (condition_numbers > 0)
    candidates[[job.index for job in viewed]] = True
    candidates &= ~later
    indices = np.flatnonzero(candidates)
    counts, releasing = columns.counts[indices], session.releasing_on_nodes()[indices]
    phase = session.views.phases[indices]
    touched = [job for job in viewed if job.touched]
    phase[_places(indices, viewed)] = [job.phase for job in viewed]
    counts[_places(indices, touched)] = np.array([job.counts for job in touched], np.int32).reshape(-1, STATUSES)
    phases = _phases_at_end(phase, counts, releasing, columns.min_member[indices])
    new_conditions = session.conditions
    unready = _places(
        indices,
        [job for job in viewed if job.index in new_conditions and new_conditions[job.index][0] == UNSCHEDULABLE],
    )
    phases[unready[counts[unready, TaskStatus.RUNNING] > 0]] = Phase.UNKNOWN
    numbers = _status_numbers(phases, counts)
    differs = (numbers != observed[indices, :4]).any(axis=1) | (condition_numbers[indices] > 0)
    indices, numbers = indices[differs], numbers[differs]
    before = observed[indices, 0]
    was = list(map(_TEXTS.__getitem__, before.tolist()))
    for place in np.flatnonzero(before == _NO_PHASE).tolist():
        was[place] = columns.records[indices[place]].group.status.phase
    return list(
        map(
            ev.GroupStatus,
            map(columns.keys.__getitem__, indices.tolist()),
            map(_TEXTS.__getitem__, numbers[:, 0].tolist()),
            map(conditions.__getitem__, condition_numbers[indices].tolist()),
            *numbers[:, 1:].T.tolist(),
            was,
        )
    )


def _groups_placed_by_others(session: Session, without_queue: _Reasons) -> Iterator[ev.GroupStatus]:
    """Yield the statuses of groups without a queue that no longer wait, and whose condition is still Unschedulable."""
    for key, reasons in without_queue.items() if session.settled else ():
        status = session.snapshot.groups[key].group.status
        last = condition_of(UNSCHEDULABLE, status.conditions)
        if not reasons and last is not None and last.status == "True":
            _, settled = session.settled[0]
            counts = (status.running, status.succeeded, status.failed)
            yield ev.GroupStatus(key, status.phase, (*settled, ""), *counts, status.phase)


def _places(indices: Rows, jobs: list[Job]) -> Rows:
    return np.searchsorted(indices, [job.index for job in jobs])


def _conditions(session: Session) -> tuple[Ints, list[tuple[str, str, str, str] | None]]:
    """Return new conditions: each job's index into the list (0: none), and the list.

    A condition is new if the group does not have it yet. Its message is empty in a plan.
    """
    columns = session.jobs
    numbers, conditions = np.zeros(len(columns), np.int64), list[tuple[str, str, str, str] | None]([None])
    unsettled = np.ones(len(columns), np.bool_)
    for jobs, settled in session.settled:
        numbers[unsettled & jobs & ~columns.derived(_HasCondition(settled))] = len(conditions)
        conditions.append((*settled, ""))
        unsettled &= ~jobs
    for index, condition in (*session.conditions.items(), *_conditions_of_followers(session)):
        new = _new_condition(condition, columns.records[index].group.status.conditions)
        numbers[index] = len(conditions) if new else 0
        conditions.append(None if new is None else (*new, ""))
    return numbers, conditions


def _conditions_of_followers(session: Session) -> Iterator[tuple[int, Condition]]:
    """Yield the conditions of jobs represented by an equivalent job, if they do not have them yet."""
    columns = session.jobs
    for lead, others in session.classes.followers():
        condition = session.conditions.get(lead)
        if condition is not None:
            for index in others[~columns.derived(_HasCondition(condition))[others]].tolist():
                yield index, condition


def _phases_at_end(phase: Phases, counts: Counts, releasing: Counts, min_member: Ints) -> Phases:
    completed = counts[:, TaskStatus.FAILED] + counts[:, TaskStatus.SUCCEEDED]
    scheduled = counts[:, TaskStatus.RUNNING] + counts[:, TaskStatus.BOUND] + completed + releasing
    ended = np.where(scheduled == completed, Phase.COMPLETED, Phase.RUNNING)
    # a completed group whose pods were deleted needs nothing: as Pending it would be admitted and reserve again
    stays = (phase == Phase.INQUEUE) | ((phase == Phase.COMPLETED) & (counts.sum(axis=1) == 0))
    waits = np.where(stays, phase, Phase.PENDING)
    return np.where(scheduled >= min_member, ended, waits).astype(np.int8)


def _status_numbers(phases: Phases, counts: Counts) -> Counts:
    """Return what groups have in their status besides conditions: phase number, running, succeeded and failed."""
    numbers = np.empty((len(phases), 4), np.int32)
    numbers[:, 0] = phases
    numbers[:, 1:] = counts[:, _COUNTED]
    return numbers


def _observed_status(columns: GroupColumns, indices: Rows) -> Counts:
    """Return the status that groups have now, and whether it would change without a decision."""
    counts = columns.counts[indices]
    phases = _phases_at_end(columns.phase[indices], counts, columns.releasing[indices], columns.min_member[indices])
    statuses = [record.group.status for record in columns.records_of(indices)]
    observed = np.empty((len(indices), 5), np.int32)
    observed[:, 0] = [_NUMBERS.get(each.phase, _NO_PHASE) for each in statuses]
    observed[:, 1] = [each.running for each in statuses]
    observed[:, 2] = [each.succeeded for each in statuses]
    observed[:, 3] = [each.failed for each in statuses]
    observed[:, 4] = (observed[:, :4] != _status_numbers(phases, counts)).any(axis=1)
    return observed


class _HasCondition(msgspec.Struct, frozen=True):
    """Whether groups have a condition already."""

    condition: Condition

    def __call__(self, columns: GroupColumns, indices: Rows) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(indices), np.bool_)
        conditions = [record.group.status.conditions for record in columns.records_of(indices)]
        for place, observed in enumerate(conditions):
            if observed:
                found[place] = _new_condition(self.condition, observed) is None
        return found


def _new_condition(wanted: Condition, observed: Sequence[ObservedCondition]) -> Condition | None:
    """Return the condition set in this session, or None if the group has it already."""
    kind, status, reason = wanted
    found = condition_of(kind, observed)
    return None if found is not None and (found.status, found.reason) == (status, reason) else wanted


def _queues(session: Session) -> Iterable[ev.QueueUsage]:
    """Yield allocated resources of queues where they differ from the observed status.

    The sum includes child queues and pods without a group.
    """
    jobs = session.jobs
    sums = jobs.sums("allocated")
    moved = [job for job in session.views.jobs() if job.touched]
    if moved:
        indices, count = [job.index for job in moved], len(session.queue_list)
        now = np.array([job.allocated for job in moved], np.int64)
        queues, before = jobs.queue[indices], jobs.allocated[indices]
        found = changed(sums, sums_by(queues, before, count), sums_by(queues, now, count))
        if found is None:
            allocated = jobs.allocated.copy()
            allocated[indices] = now
            found = sums_by(jobs.queue, allocated, count)
        sums = found
    sums = bounded(sums + session.orphans.allocated)
    for queue, total in zip(session.queue_list, _with_children(session, sums), strict=True):
        observed = queue.record.queue.status.allocated
        amounts = {name: int(value) for name, value in zip(session.nodes.resources, total, strict=True) if value}
        try:
            known = resource_values(observed)
        except QuantityError:
            known = None  # an invalid value is overwritten
        # zero if the queue lists it, also for a resource that no node has any more: it may have no column
        amounts = {**dict.fromkeys(known or (), 0), **amounts}
        if amounts != known:
            yield ev.QueueUsage(queue.name, {name: format_resource(name, amounts[name]) for name in sorted(amounts)})


def _with_children(session: Session, sums: Ints) -> Ints:
    if ROOT_QUEUE not in session.queues:
        return sums
    lineages = [[above.index for above in session.lineage(queue)] for queue in session.queue_list]
    return with_descendants(sums, lineages)


def _waiting(session: Session, without_queue: _Reasons) -> Iterable[ev.Waiting]:
    """Yield the reasons of groups whose reasons changed, groups outside the session included."""
    columns, observed = session.jobs, session.snapshot.waiting
    now = {job.index: _reasons_of(job) for job in session.views.jobs() if job.why and _still_waits(job)}
    observed_numbers = columns.derived(shown_reasons)
    candidates = observed_numbers != 0
    candidates[list(now)] = True
    candidates &= ~session.turns.aside  # not tried in this session: their reasons are those of their own turn
    candidates &= ~session.classes.follows  # equivalent jobs get the reasons of their representative below
    found = {columns.keys[index]: now.get(index, ()) for index in np.flatnonzero(candidates).tolist()}
    for lead, others in session.classes.followers():
        if session.turns.aside[lead]:
            continue
        why = now.get(lead, ())
        reasons = open_reasons(why, pods_of(columns, lead)) if why else ()
        for index in others[observed_numbers[others] != number_of(reasons)].tolist():
            found[columns.keys[index]] = reasons_of(reasons, columns.keys[index], pods_of(columns, index))
    found.update(without_queue)
    for key in sorted(found):
        if found[key] != observed.get(key, ()):
            yield from found[key] or (ev.Waiting(key, ""),)


def _reasons_of(job: Job) -> tuple[ev.Waiting, ...]:
    """Return what was noted for a job, without "the plugin rejects it" where that plugin stated why."""
    stated = {(one.gate, one.plugin) for one in job.why if one.reason != _REJECTED}
    return tuple(one for one in job.why if one.reason != _REJECTED or (one.gate, one.plugin) not in stated)


def _groups_without_queue(session: Session) -> Iterator[tuple[str, tuple[ev.Waiting, ...]]]:
    """Yield the groups whose queue does not exist; those that wait with that as the reason, the others without one."""
    snapshot = session.snapshot
    if len(snapshot.groups) == len(session.jobs):
        return
    counts = _counts_outside(session)
    for key, record in snapshot.groups.items():
        name = session.queue_name_of(record)
        if name in session.queues:
            continue
        waits = _waits_outside(record, counts.get(key, _NO_PODS))
        yield key, (ev.Waiting(key, "queue", "", session.why_no_queue(name)),) if waits else ()


def _counts_outside(session: Session) -> dict[str, Sequence[int]]:
    """Return the number of pods by status, of each key of a group that is not part of the session."""
    tasks = session.snapshot.tasks
    rows = np.flatnonzero((session.job_of_row == NO_GROUP) & (tasks.job >= 0))
    numbers, places = np.unique(tasks.job[rows], return_inverse=True)
    counts = np.zeros((len(numbers), STATUSES), np.int64)
    np.add.at(counts, (places, tasks.status[rows]), 1)
    return dict(zip(map(str, session.snapshot.job_keys.at(numbers.tolist())), counts.tolist(), strict=True))


def _waits_outside(record: GroupRecord, counts: Sequence[int]) -> bool:
    """Return whether a group outside the session waits; `_still_waits` is the same for jobs."""
    if record.phase is Phase.COMPLETED:
        return bool(counts[TaskStatus.PENDING])
    ready = sum(counts[status] for status in READY_STATUSES)
    return bool(counts[TaskStatus.PENDING]) or record.phase is Phase.PENDING or ready < record.group.spec.min_member


def _still_waits(job: Job) -> bool:
    """Whether some task of a job is not placed at the end, or the group was not admitted."""
    counts = job.counts
    return bool(counts[TaskStatus.PENDING] or counts[TaskStatus.PIPELINED] or counts[TaskStatus.ALLOCATED]) or (
        job.is_pending() or not job.is_ready()
    )
