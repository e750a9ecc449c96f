"""Demand: which pending pods some node could take if it were empty.

Queue plugins divide resources by what queues ask for. A pod that no node can ever take must not count: what it asks
for would stay idle for as long as it waits. Only the nodes' facts decide here (labels, taints, allocatable), never what
runs on them: a pod that waits because the cluster is full still counts.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from vcd.model.status import READY_STATUSES, Phase, TaskStatus
from vcd.scheduling.framework.framework import Framework, framework_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task, Views
from vcd.state.groups import scheduling_gated
from vcd.state.records import Shape
from vcd.state.sums import Ints, sum_of, sums_by

_READY = np.array([status in READY_STATUSES for status in TaskStatus], np.int64)
_HAVE = np.array([status in (*READY_STATUSES, TaskStatus.PIPELINED) for status in TaskStatus], np.int64)
_MANY = 1 << 40
"""More pods than any cluster has."""


def demand_of(session: Session) -> Demand:
    """Return the session's demand, computed when it is first needed. Needs an opened framework."""
    return session.provided(Demand, lambda: Demand(framework_of(session)))


class Demand:
    """The pending pods of a session's jobs as it began, one entry each.

    ``rows`` are rows of the snapshot's tasks, ``jobs`` the jobs' indices (ascending). ``can_be_placed`` is False for a
    pod of a queue that is not Open, behind a scheduling gate, with fields that are not supported, with claims that are
    refused, or that no node could take if it were empty; and, where a plugin waits for whole gangs, for all pods of a
    job of which too few can be placed for its minimum.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._session = session = framework.session
        self.rows, self.jobs = session.views.pending.rows, session.views.pending.jobs
        self._shapes = session.snapshot.tasks.shape[self.rows]
        self._examples = Views(session.snapshot, session.queue_list, session.backing_off)
        """Tasks that are only looked at: the session knows its own by who asked for them."""
        self.can_be_placed = self._is_free() & self._has_node()
        self._never = np.zeros(len(session.job_of_row), np.bool_)
        self._never[self.rows[~self.can_be_placed]] = True

    def excluded(self) -> Ints:
        """Return the requests of pods that cannot be placed, as (queues, resources)."""
        never = ~self.can_be_placed
        requests = self._session.requests[self._shapes[never]]
        return sums_by(self._session.jobs.queue[self.jobs[never]], requests, len(self._session.queue_list))

    def is_excluded(self, task: Task) -> bool:
        """Return whether a pending task cannot be placed."""
        return bool(self._never[task.row])

    def without(self, rows: Mask) -> Mask:
        """Return some rows of tasks without those of pods that cannot be placed."""
        result: Mask = rows & ~self._never
        return result

    def usable(self, unused: Ints) -> dict[int, Ints]:
        """Return what of ``unused`` resources (queues, resources) each queue's admitted jobs can still use, by queue.

        A job can use them if what it needs to go on (the rest of its minimum, or one pod) fits. The sum is bounded by
        what is idle, or being freed, on the nodes that these jobs' pods can have. Follows the session's placements.
        """
        session = self._session
        waits = self.can_be_placed & self._still_pending()
        counts = np.bincount(self.jobs[waits], minlength=len(session.jobs))
        chosen = np.flatnonzero((counts > 0) & (self._phases() != Phase.PENDING))
        asks = sums_by(self.jobs[waits], session.requests[self._shapes[waits]], len(session.jobs))[chosen]
        pending, queues = counts[chosen], session.jobs.queue[chosen]
        needed = np.clip(session.jobs.min_member[chosen] - self._have()[chosen], 1, pending)
        whole, rest = np.divmod(asks, pending[:, None])
        wish = whole * needed[:, None] - (-rest * needed[:, None] // pending[:, None])
        wish[:, session.nodes.column_of["pods"]] = 0
        fits = ((wish <= unused[queues]) | (wish == 0)).all(axis=1) & wish.any(axis=1)
        found: dict[int, Ints] = {}
        for queue in np.unique(queues[fits]).tolist():
            mine = fits & (queues == queue)
            pods = np.flatnonzero(waits & np.isin(self.jobs, chosen[mine]))
            distinct = pods[np.unique(self._shapes[pods], return_index=True)[1]]
            found[queue] = np.minimum(np.minimum(sum_of(asks[mine]), unused[queue]), self._idle_for(distinct))
        return found

    def release(self) -> None:
        """Let go of tasks, which refer to their jobs."""
        self._examples.release()

    def _example(self, at: int) -> Task:
        return self._examples.task(int(self.rows[at]))

    # --- what can be placed -----------------------------------------------------------------------------------------

    def _is_free(self) -> Mask:
        """Return which pods nothing but nodes keeps from being placed."""
        session = self._session
        is_open = np.array([queue.is_open for queue in session.queue_list], np.bool_)
        held = scheduling_gated(session.snapshot, self.rows) | session.jobs.unsupported[self.jobs]
        free: Mask = is_open[session.jobs.queue[self.jobs]] & ~held
        return free

    def _has_node(self) -> Mask:
        most = self._most_together()
        result: Mask = most > 0
        if not self._framework.participants["job_ready"].methods:
            return result
        session, free = self._session, result & self._is_free()
        jobs = session.jobs
        possible = np.bincount(self.jobs[free], minlength=len(jobs))
        tight = free & (most < possible[self.jobs])
        pairs = self.jobs[tight] * len(session.snapshot.shapes) + self._shapes[tight]
        _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
        surplus = np.maximum(counts - most[tight][first], 0)
        possible -= np.bincount(self.jobs[tight][first], surplus, minlength=len(jobs)).astype(np.int64)
        whole = possible + jobs.counts @ _READY >= jobs.min_member
        result &= whole[self.jobs]
        return result

    def _most_together(self) -> Ints:
        """Return for each pod how many like it the nodes could take together if they were empty."""
        session, tasks = self._session, self._session.snapshot.tasks
        has_claims = session.shape_flags(_names_volumes)[self._shapes]
        namespaces = len(session.snapshot.namespaces) + 1
        kinds = self._shapes * np.int64(namespaces) + np.where(has_claims, tasks.namespace[self.rows] + 1, 0)
        _, first, of = np.unique(kinds, return_index=True, return_inverse=True)
        known: dict[Shape, int] = session.nodes.facts.cached(
            ("pods together", self._framework.evaluator.versions), dict
        )
        now: dict[Shape, int] = {}
        found = np.zeros(len(first), np.int64)
        for place, at in enumerate(first.tolist()):
            shape = cast(Shape, session.snapshot.shapes[int(self._shapes[at])])
            if has_claims[at]:
                task = session.task(int(self.rows[at]))
                found[place] = 0 if self._is_refused(task) else self._count(task)
                continue
            count = known.get(shape)
            found[place] = now[shape] = self._count(self._example(at)) if count is None else count
        known.clear()  # shapes that no pod has any more are not kept
        known.update(now)
        result: Ints = found[of]
        return result

    def _is_refused(self, task: Task) -> bool:
        """Return whether the claims that a task names are refused; those made for each pod are not looked at."""
        is_own = any(volume.ephemeral is not None for volume in task.shape.spec.volumes)
        return not is_own and self._framework.pre_predicate(task) is not None

    def _count(self, task: Task) -> int:
        """Return how many pods like a task fit on the empty nodes that facts allow."""
        facts = self._session.nodes.facts
        mask = self._framework.evaluator.static(task).mask
        sizes, of = facts.cached("size classes", lambda: np.unique(facts.allocatable, axis=0, return_inverse=True))
        nodes = np.bincount(of.ravel()[mask], minlength=len(sizes))
        asked = np.flatnonzero(task.request > 0)
        asked = asked[asked != self._session.nodes.column_of["pods"]]  # Volcano compares no places for pods here
        if not len(asked):
            return _MANY if mask.any() else 0
        each = (sizes[:, asked] // task.request[asked]).min(axis=1)
        return min(int((np.minimum(each, _MANY) * nodes).sum()), _MANY)

    # --- as things are now ------------------------------------------------------------------------------------------

    def _still_pending(self) -> Mask:
        session = self._session
        status = session.snapshot.tasks.status.copy()
        for task in session.views.moves:
            status[task.row] = task.status
        status[list(session.backing_off)] = TaskStatus.UNKNOWN  # a pod that backs off keeps nothing from others
        result: Mask = status[self.rows] == TaskStatus.PENDING
        return result

    def _phases(self) -> Ints:
        session = self._session
        phases = session.views.phases.astype(np.int64)
        for job in session.views.jobs():
            phases[job.index] = job.phase
        for lead, others in session.classes.followers():
            phases[others] = phases[lead]
        return phases

    def _have(self) -> Ints:
        """Return how many pods of each job have, or wait for, a place."""
        session = self._session
        have: Ints = session.jobs.counts @ _HAVE
        for job in session.views.jobs():
            if job.touched:
                have[job.index] = job.ready_count + job.waiting_count
        return have

    def _idle_for(self, places: Ints) -> Ints:
        """Return what is idle, or being freed, on the nodes that some of the pods can have, by resource."""
        session, evaluator = self._session, self._framework.evaluator
        mask = np.zeros(len(session.nodes), np.bool_)
        for at in places.tolist():
            mask |= evaluator.static(self._example(at)).mask
            if mask.all():
                break
        return sum_of(np.maximum(session.nodes.usage.future_idle[:, mask], 0), axis=1)


def _names_volumes(shape: Shape) -> bool:
    return bool(shape.spec.volumes)
