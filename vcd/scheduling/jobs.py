"""The session's jobs in columns: what plugins that look at all of them sum up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Pod
from vcd.model.status import ALLOCATED_STATUSES, STATUSES, TaskStatus
from vcd.scheduling.nodes import Ints
from vcd.state.records import Shape, has_foreign_gate

if TYPE_CHECKING:
    from vcd.scheduling.session import Session

_S = TaskStatus
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)


class JobColumns:
    """The session's jobs in order of key: one row a group whose queue exists.

    ``counts`` (jobs, statuses); ``allocated``, ``pending``, ``gated``, ``min_resources`` (jobs, resources), where
    ``pending`` sums the requests of pending tasks, ``gated`` of those that a foreign scheduling gate holds;
    ``states_minimum`` whether minResources is given; ``queue`` is a row of ``Session.queue_list``.
    """

    def __init__(self, session: Session, group_keys: list[str]) -> None:
        snapshot = session.snapshot
        self.keys = group_keys
        self.records = [snapshot.groups[key] for key in group_keys]
        self.index_of = {key: index for index, key in enumerate(group_keys)}
        count, width = len(group_keys), len(snapshot.resources)
        column_of = session.nodes.column_of
        self.phase = np.array([record.phase for record in self.records], np.int8)
        self.min_member = np.array([record.group.spec.min_member for record in self.records], np.int64)
        default, number_of = snapshot.settings.default_queue, {queue.name: queue.index for queue in session.queue_list}
        self.queue = np.array([number_of[record.group.spec.queue or default] for record in self.records], np.int32)
        self.priority = session.priorities_of(self.records)
        self.states_minimum = np.array([record.min_resources is not None for record in self.records], np.bool_)
        self.min_resources = np.zeros((count, width), np.int64)
        for index, record in enumerate(self.records):
            for name, value in (record.min_resources or {}).items():
                self.min_resources[index, column_of[name]] = value
        self._sum_up(session, count, width)
        held = [index for index, record in enumerate(self.records) if record.unsupported]
        # such a group takes nothing more, so that it has nothing reserved
        self.min_resources[held] = np.minimum(self.min_resources[held], self.allocated[held])

    def _sum_up(self, session: Session, count: int, width: int) -> None:
        tasks = session.snapshot.tasks
        job, status = session.job_of_row, tasks.status.astype(np.int64)
        member = job >= 0
        job, status, shape = job[member], status[member], tasks.shape[member]
        self.counts = np.bincount(job * STATUSES + status, minlength=count * STATUSES).reshape(count, STATUSES)
        pending = status == _S.PENDING
        best_effort = session.shape_flags(lambda shape: shape.best_effort)[shape]
        gated = session.shape_flags(lambda shape: has_gate(shape))[shape] & pending
        self.best_effort_pending = np.bincount(job[pending & best_effort], minlength=count)
        allocated = np.isin(status, _ALLOCATED)
        self.allocated = _sum_requests(session.requests, job, shape, allocated, count, width)
        self.pending = _sum_requests(session.requests, job, shape, pending, count, width)
        self.gated = _sum_requests(session.requests, job, shape, gated, count, width)

    def __len__(self) -> int:
        return len(self.keys)


def has_gate(shape: Shape) -> bool:
    """Whether a field that is not supported, or a gate that is not the queue's own, holds tasks of a shape."""
    gates = shape.spec.scheduling_gates
    return bool(shape.unsupported) or (bool(gates) and has_foreign_gate(Pod(spec=shape.spec)))


def _sum_requests(
    requests: Ints, job: Ints, shape: npt.NDArray[np.int32], chosen: npt.NDArray[np.bool_], count: int, width: int
) -> Ints:
    job, shape = job[chosen], shape[chosen]
    sums = np.zeros((count, width), np.int64)
    for column in range(width):
        sums[:, column] = np.bincount(job, weights=requests[shape, column], minlength=count)
    return sums
