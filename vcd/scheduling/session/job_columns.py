"""Values that sessions and plugins derive for all jobs at once (``GroupColumns.derived``): arrays of shape (jobs) or
(jobs, resources)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, Phase, TaskStatus
from vcd.state.group_columns import By, GroupColumns, Rows
from vcd.state.records import is_preemptable
from vcd.state.sums import Ints

Flags = npt.NDArray[np.bool_]

_READY, _ALLOCATED, _NOT_ENDED = (
    np.array([status in statuses for status in TaskStatus], np.int32)
    for statuses in (READY_STATUSES, ALLOCATED_STATUSES, set(TaskStatus) - {TaskStatus.SUCCEEDED, TaskStatus.FAILED})
)
"""1 for each status of the set, else 0: the product with counts by status is the number of tasks."""


def is_ready(jobs: GroupColumns, rows: Rows) -> Flags:
    """Return which jobs have enough tasks that are placed or request no resources."""
    have = jobs.counts[rows] @ _READY + jobs.best_effort_pending[rows]
    ready: Flags = have >= jobs.min_member[rows]
    return ready


def has_ended(jobs: GroupColumns, rows: Rows) -> Flags:
    """Return which jobs have only tasks that ended."""
    ended: Flags = jobs.counts[rows] @ _NOT_ENDED == 0
    return ended


def are_preemptable(jobs: GroupColumns, rows: Rows) -> Flags:
    """Return which groups permit the eviction of their pods."""
    return np.array([is_preemptable(record.group) for record in jobs.records_of(rows)], np.bool_)


def has_roles(jobs: GroupColumns, rows: Rows) -> Flags:
    """Return which groups state a minimum for each role (minTaskMember)."""
    return np.array([bool(record.group.spec.min_task_member) for record in jobs.records_of(rows)], np.bool_)


def elastic(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what jobs hold above their minimum resources."""
    above: Ints = np.maximum(jobs.allocated[rows] - jobs.min_resources[rows], 0)
    return above


def reserved_by_running(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what running groups with their minimum of tasks lack of their minimum resources (Volcano
    ``GetInqueueResource``)."""
    allocated = jobs.counts[rows] @ _ALLOCATED
    counted = jobs.states_minimum[rows] & (jobs.phase[rows] == Phase.RUNNING) & (allocated >= jobs.min_member[rows])
    return _missing(jobs, rows, counted)


def inqueue(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what admitted groups may still take of their minimum resources."""
    waits = jobs.states_minimum[rows] & (jobs.phase[rows] == Phase.INQUEUE)
    return _missing(jobs, rows, waits) + reserved_by_running(jobs, rows)


def _missing(jobs: GroupColumns, rows: Rows, counted: Flags) -> Ints:
    """Return what the counted groups lack of their minimum resources; usually few groups count."""
    found = np.zeros((len(rows), jobs.min_resources.shape[1]), np.int64)
    found[counted] = jobs.missing(rows[counted])
    return found


def inqueue_by_priority(jobs: GroupColumns, queues: int) -> Ints:
    """Return the sums of ``inqueue`` as (queues, ranks of priorities, resources)."""
    sums = jobs.sums(inqueue, By.QUEUE_AND_PRIORITY)
    return sums.reshape(queues, len(jobs.priorities), sums.shape[1])
