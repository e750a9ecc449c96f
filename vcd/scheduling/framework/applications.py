"""Admission of applications whose pods can use only a part of the nodes.

A Spark driver creates its executors after it has started. If drivers were admitted by the capacity of the whole
cluster, they could fill the few nodes that they and their executors may use, and no application would ever run
(volcano#2838). So an application is admitted only while it, and those admitted before it, can be complete on these
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import TERMINATED_STATUSES, TaskStatus
from vcd.model.wording import some
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.job_columns import inqueue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.holds import Hold, HoldKind
from vcd.state.sums import Ints, bounded, sum_of, sums_by

ADMIT_BY_NODES = Argument(
    "admitByNodesEnable",
    "bool",
    True,
    "Whether a group without all pods of its minResources needs enough resources on the nodes that its pods can use. "
    "Volcano counts the whole cluster. If groups that were admitted earlier lack nothing on these nodes, the group is "
    "always admitted.",
)
_NODES_RESERVED = ReasonCode(
    "nodes-reserved",
    Cause.ADMISSION,
    "the nodes that it may use are reserved for groups admitted before it: {owners}",
    nodes_help=True,
)
_HAS_ENDED = np.array([status in TERMINATED_STATUSES for status in TaskStatus], np.bool_)


class _Awaited(NamedTuple):
    """Admitted groups of one priority whose pods may use the same nodes.

    ``total`` is what they lack together, and is updated in place; ``lacks`` is what each lacks, by index.
    """

    nodes: Mask
    priority: int
    total: Ints
    lacks: dict[int, Ints]


class Applications:
    """What admitted groups lack of their minimum resources, by the nodes that their pods may use.

    A group counts until its pods have had its minimum resources. It does not count if its queue is not Open, if none of
    its pods can be placed, or if its minimum resources exceed its nodes: then no pod would use the reserved resources
    (docs/laws.md, law 8).
    """

    def __init__(self, session: Session, factor: float) -> None:
        self._session = session
        self._factor = factor
        self._reserving = demand_of(session).groups
        """The groups with what they reserve: nothing for pods that no node can take."""
        self._admitted: list[int] = []
        """Groups that this session admitted and that are not in ``_awaited`` yet."""
        self._awaited: dict[tuple[bytes, int], _Awaited] | None = None

    def admit(self, job: Job) -> None:
        """Count a group that this session admitted."""
        self._admitted.append(job.index)

    def refusal(self, job: Job) -> Reason | None:
        """Return why a group has to wait for other groups on its nodes; None if it can be admitted."""
        session, jobs = self._session, self._session.jobs
        needed = self._reserving.missing(job.index)
        if not (needed > jobs.pending[job.index]).any():
            return None  # it has all its pods, so they are placed together
        nodes = self._nodes_of(job.index)
        if nodes is None or nodes.all():
            return None
        ahead = [each for each in self._all() if each.priority >= job.priority and not (each.nodes & ~nodes).any()]
        if not ahead:
            return None
        awaited = sum_of(np.array([each.total for each in ahead], np.int64))
        usage = session.nodes.usage
        total, used = sum_of(session.nodes.facts.allocatable[nodes], axis=0), sum_of(usage.used[:, nodes], axis=1)
        limit = np.floor(total * self._factor - used)
        over = (needed > 0) & (awaited > 0) & (awaited + needed > limit)
        over[session.nodes.column_of["pods"]] = False
        if not over.any():
            return None
        amounts = session.told(np.flatnonzero(over), asks=needed, awaited=awaited, limit=limit)
        owners = sorted(jobs.keys[index] for each in ahead for index in each.lacks)
        return _NODES_RESERVED({"owners": some(owners)}, amounts=amounts)

    def holds(self) -> Iterator[Hold]:
        """Yield what is reserved for admitted groups that can use only a part of the nodes."""
        session = self._session
        for awaited in self._all():
            if awaited.nodes.all():
                continue
            for index, lacks in awaited.lacks.items():
                pairs = zip(session.nodes.resources, lacks.tolist(), strict=True)
                key = session.jobs.keys[index]
                yield Hold(HoldKind.ADMISSION, key, key, resources={name: amount for name, amount in pairs if amount})

    # --- what is awaited --------------------------------------------------------------------------------------------

    def _all(self) -> list[_Awaited]:
        if self._awaited is None:
            self._awaited = {}
            lacks = np.maximum(self._reserving.derived(inqueue) - self._requested_by_succeeded(), 0)
            lacks[~self._can_grow()] = 0
            for index in np.flatnonzero(lacks.any(axis=1)).tolist():
                self._count(self._awaited, index, lacks[index])
        for index in self._admitted:
            self._count(self._awaited, index, self._reserving.missing(index))
        self._admitted.clear()
        return list(self._awaited.values())

    def _count(self, found: dict[tuple[bytes, int], _Awaited], index: int, lacks: Ints) -> None:
        nodes = self._nodes_of(index)
        if nodes is None:
            return
        total = sum_of(self._session.nodes.facts.allocatable[nodes], axis=0)
        if (lacks > np.maximum(total - self._session.jobs.allocated[index], 0)).any():
            return  # it can never be complete
        priority = int(self._session.jobs.priority[index])
        awaited = found.setdefault((nodes.tobytes(), priority), _Awaited(nodes, priority, np.zeros_like(lacks), {}))
        awaited.total[:] = bounded(awaited.total + lacks)
        awaited.lacks[index] = lacks

    def _requested_by_succeeded(self) -> Ints:
        """Return what pods requested that have succeeded, as (groups, resources)."""
        jobs, tasks = self._session.jobs, self._session.snapshot.tasks
        rows = np.flatnonzero((jobs.of_row >= 0) & (tasks.status == TaskStatus.SUCCEEDED))
        return sums_by(jobs.of_row[rows], self._session.requests[tasks.shape[rows]], len(jobs))

    def _can_grow(self) -> Mask:
        """Return the groups with pods that can still be placed."""
        session, jobs, demand = self._session, self._session.jobs, demand_of(self._session)
        is_open = np.array([queue.is_open for queue in session.queue_list], np.bool_)
        excluded = np.bincount(demand.jobs[~demand.can_be_placed], minlength=len(jobs))
        stays_out = (excluded >= jobs.counts.sum(axis=1)) & (excluded > 0)
        result: Mask = is_open[jobs.queue] & ~stays_out
        return result

    def _nodes_of(self, index: int) -> Mask | None:
        """Return the nodes that some pod of a group may use; None if all its pods have ended or it has none."""
        rows = np.array(self._session.jobs.rows_of(index), np.int64)
        rows = rows[~_HAS_ENDED[self._session.snapshot.tasks.status[rows]]]
        return demand_of(self._session).feasibility.nodes_of(rows)
