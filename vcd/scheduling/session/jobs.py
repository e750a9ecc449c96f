"""The session's jobs in columns: what plugins that look at all of them sum up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vcd.model.objects import PodGroup
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, STATUSES, TaskStatus
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.reasons import Refusal
from vcd.state.records import Shape, has_foreign_gate, has_queue_gate, opts_into_queue_gate
from vcd.state.sums import sums_by

if TYPE_CHECKING:
    from vcd.scheduling.session.session import Session

_S = TaskStatus
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)
_HOLDABLE = [int(status) for status in (*READY_STATUSES, TaskStatus.PENDING)]
_VOLCANO_JOBS = "batch.volcano.sh/"


class JobColumns:
    """The session's jobs in order of key: one row a group whose queue exists.

    ``counts`` (jobs, statuses); ``allocated``, ``pending``, ``min_resources`` (jobs, resources), where ``pending`` sums
    the requests of pending tasks; ``states_minimum`` whether minResources is given; ``queue`` is a row of
    ``Session.queue_list``.

    ``too_large`` marks groups that no node could hold: of whose pods too few for the minimum are as small as a node,
    or, before a Volcano Job has pods, whose mean pod is larger than any. ``reservable`` (jobs, resources) is what an
    admitted group's minimum counts as, ``missing`` the same beside what it holds: without pods that a foreign
    scheduling gate holds or that are larger than any node, and nothing of a group that no node could hold, or that
    asks for what is not supported: of one that does not ``reserves``.
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
        self._sum_up(session, count)
        self._judge_sizes(session)

    def _sum_up(self, session: Session, count: int) -> None:
        tasks = session.snapshot.tasks
        job, status = session.job_of_row, tasks.status.astype(np.int64)
        member = job >= 0
        job, status, shape = job[member], status[member], tasks.shape[member]
        self.counts = np.bincount(job * STATUSES + status, minlength=count * STATUSES).reshape(count, STATUSES)
        allocated = np.isin(status, _ALLOCATED)
        self.allocated = _sum_requests(session.requests, job, shape, allocated, count)
        rows = np.flatnonzero(member)[status == _S.PENDING]  # few beside those that run
        job, shape = session.job_of_row[rows], tasks.shape[rows]
        best_effort = session.shape_flags(_needs_no_room)[shape]
        too_large = session.nodes.too_large(session.requests)[shape]
        held_back = too_large | waiting_in_vain(session, rows)
        self._too_large_pending = np.bincount(job[too_large], minlength=count)
        self.best_effort_pending = np.bincount(job[best_effort], minlength=count)
        self.pending = _sum_requests(session.requests, job, shape, np.ones(len(rows), np.bool_), count)
        self._held_back = _sum_requests(session.requests, job, shape, held_back, count)

    def _judge_sizes(self, session: Session) -> None:
        possible = self.counts[:, _HOLDABLE].sum(axis=1) - self._too_large_pending
        self.too_large = (self._too_large_pending > 0) & (possible < np.maximum(self.min_member, 1))
        mean = self.mean_minimum(slice(None))
        unborn = (self.counts.sum(axis=1) == 0) & (mean > session.nodes.largest).any(axis=1) & (len(session.nodes) > 0)
        for index in np.flatnonzero(unborn).tolist():
            self.too_large[index] = _is_of_volcano_job(self.records[index].group)
        unsupported = np.array([bool(record.unsupported) for record in self.records], np.bool_)
        self.reserves = ~(self.too_large | unsupported)
        reserves = self.reserves[:, None]
        self.reservable = np.maximum(self.min_resources - self._held_back, 0) * reserves
        missing = np.maximum(self.min_resources - self.allocated, 0)
        self.missing = np.maximum(missing - self._held_back, 0) * reserves

    def mean_minimum(self, index: int | slice) -> Ints:
        """What a pod of the minimum asks for on average, rounded up."""
        members = np.maximum(self.min_member[index], 1)
        return -(-self.min_resources[index] // members[..., None])

    def __len__(self) -> int:
        return len(self.keys)


def tell_of_large_pods(session: Session) -> None:
    """Note of each group that no node could hold which of its pods is too large, or by what its minimum tells so."""
    nodes = session.nodes
    for index in np.flatnonzero(session.jobs.too_large).tolist():
        job = session.job(index)
        pod = next((task for task in job.pending() if nodes.too_large(task.request[None])[0]), None)
        needed = session.jobs.mean_minimum(index) if pod is None else pod.request
        over = needed > nodes.largest
        detail = {
            **{f"needs {name}": text for name, text in session.amounts(needed * (over if over.any() else 1)).items()},
            **{f"largest node {name}": text for name, text in session.amounts(nodes.largest * over).items()},
        }
        session.note(job, "predicate", "", Refusal("a pod of the group is larger than any node", detail), task=pod)


def _is_of_volcano_job(group: PodGroup) -> bool:
    """Whether a group's minimum is the sum of what minMember pods ask for, as the controller of Volcano Jobs writes
    it: others, such as Spark's, write what all of their pods together need."""
    owners = group.metadata.owner_references
    return any(owner.kind == "Job" and owner.api_version.startswith(_VOLCANO_JOBS) for owner in owners)


def _needs_no_room(shape: Shape) -> bool:
    """Whether pending tasks of a shape count as ready: they ask for nothing, and nothing holds them."""
    return shape.best_effort and not (shape.unsupported or shape.spec.scheduling_gates)


def has_gate(shape: Shape) -> bool:
    """Whether a field that is not supported, or a gate that is not the queue's own, holds tasks of a shape."""
    return bool(shape.unsupported) or has_foreign_gate(shape.spec)


def waiting_in_vain(session: Session, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Of tasks, by row, those that `has_gate` is true of, or that wait at their queue's gate and do not ask for it to
    be lifted: what nobody lets through holds no quota."""
    tasks = session.snapshot.tasks
    shapes = tasks.shape[rows]
    held = session.shape_flags(has_gate)[shapes]
    at_queue = session.shape_flags(lambda shape: has_queue_gate(shape.spec))[shapes]
    for index in np.flatnonzero(at_queue & ~held).tolist():
        pod = tasks.pods[rows[index]]
        held[index] = pod is not None and not opts_into_queue_gate(pod)
    return held


def _sum_requests(
    requests: Ints, job: Ints, shape: npt.NDArray[np.int32], chosen: npt.NDArray[np.bool_], count: int
) -> Ints:
    return sums_by(job[chosen], requests[shape[chosen]], count)
