"""overcommit: admit groups up to a multiple of the cluster's resources (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import Phase
from vcd.scheduling.framework.applications import ADMIT_BY_NODES, Applications
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.freeable_resources import COUNT_VICTIMS, FreeableByEviction
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.queueaccounts import Inqueue, Resources
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.job_columns import reserved_by_running
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.group_columns import By, GroupColumns, Rows
from vcd.state.holds import Hold
from vcd.state.sums import Ints, sum_of

_OVERUSED = ReasonCode(
    "cluster-reserved", Cause.ADMISSION, "resource in cluster is overused", nodes_help=True, field="overcommit-factor"
)

DEFAULT_FACTOR = 1.2


class OvercommitPlugin(Plugin):
    """Admit a group if admitted + its minResources <= total x overcommit-factor - used.

    Admitted is the sum of minResources over Inqueue groups, and of what Running groups still lack of theirs, less pods
    behind a scheduling gate and pods that no node can take (``framework/demand.py``). Groups of lower priority than the
    group do not count, so they cannot block it. A group with which its queue stays within its guarantee is always
    admitted: reclaim recovers what other queues borrowed of that guarantee (docs/differences.md). Resources that
    preempt could free for the group count as free, and resources that reclaim could free if its queue stays within its
    share. An application whose pods may use a part of the nodes only must fit on these nodes, too (``Applications``).
    Only requested resources are compared. Source: Volcano ``plugins/overcommit``.
    """

    name = "overcommit"
    keys = ()
    arguments = (
        Argument(
            "overcommit-factor",
            "float",
            DEFAULT_FACTOR,
            "How many times the cluster's resources may be admitted; below 1 it means the default.",
            default_below=1,
        ),
        COUNT_VICTIMS,
        ADMIT_BY_NODES,
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        self.factor: float = arguments["overcommit-factor"]

    def open(self, session: Session) -> None:
        self._session = session
        self._by_nodes = self.values[ADMIT_BY_NODES.key]
        self._freeable = FreeableByEviction(session, self.values[COUNT_VICTIMS.key])
        nodes = session.nodes
        self._free = nodes.total * self.factor - sum_of(nodes.usage.used, axis=1)
        self._resources = Resources(session)

    @cached_property
    def _jobs(self) -> GroupColumns:
        """The groups with what they reserve.

        Read it only after the predicates are known: a group whose pods no node can take reserves nothing.
        """
        return demand_of(self._session).groups

    @cached_property
    def _inqueue(self) -> Inqueue:
        """The admitted resources of the whole cluster."""
        jobs, found = self._jobs, Inqueue(self._resources.width)
        for priority, amounts in zip(jobs.priorities.tolist(), jobs.sums(_admitted, By.PRIORITY).tolist(), strict=True):
            found.add(priority, amounts)
        return found

    @cached_property
    def _guaranteed(self) -> dict[int, Ints]:
        """Guaranteed resources that are neither allocated nor admitted, by index of queues with a guarantee."""
        taken = self._jobs.sums("allocated") + self._jobs.sums(_admitted)
        return {
            queue.index: np.array(self._resources.amounts(queue.record.guarantee)) - taken[queue.index]
            for queue in self._session.queue_list
            if queue.record.guarantee
        }

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Permit if the group's minimum fits, else return what is short."""
        if job.record.min_resources is None:
            return Vote.PERMIT
        needed = self._session.jobs.min_resources[job.index]
        if self._is_guaranteed(job, needed):
            return Vote.PERMIT
        ahead = self._inqueue.ahead(job.priority)
        free = self._free + self._freeable.held(job)
        if self._over(needed, ahead, free).any():
            free = free + self._freeable.reclaimable(job)
        over = self._over(needed, ahead, free)
        if not over.any():
            return self._refused_by_nodes(job) or Vote.PERMIT
        limit = np.floor(free)
        amounts = self._session.told(np.flatnonzero(over), asks=needed, admitted=ahead, limit=limit)
        return _OVERUSED(amounts=amounts)

    def _over(self, needed: Ints, ahead: Sequence[int], free: npt.NDArray[np.floating[Any]]) -> Mask:
        """Return a mask of the resources that are short. The number of pods is never compared."""
        over: Mask = (needed > 0) & (needed + np.array(ahead) > free)
        over[self._resources.pods] = False
        return over

    def job_enqueued(self, job: Job) -> None:
        if job.record.min_resources is not None:
            minimum = self._jobs.reservable(job.index)
            if self._by_nodes:
                self._applications().admit(job)
            self._inqueue.add(job.priority, minimum.tolist())
            if job.queue.index in self._guaranteed:
                self._guaranteed[job.queue.index] -= minimum

    def holds(self) -> Iterable[Hold]:
        """Return holds for what admitted groups lack whose pods may use a part of the nodes only."""
        return self._applications().holds() if self._by_nodes else ()

    def _refused_by_nodes(self, job: Job) -> Reason | None:
        return self._applications().refusal(job) if self._by_nodes else None

    def _applications(self) -> Applications:
        session = self._session
        return session.provided(Applications, lambda: Applications(session, self.factor))

    def _is_guaranteed(self, job: Job, needed: Ints) -> bool:
        left = self._guaranteed.get(job.queue.index)
        return left is not None and bool(needed.any()) and not ((needed > 0) & (needed > left)).any()


def _admitted(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what each group counts as admitted."""
    inqueue = jobs.states_minimum[rows] & (jobs.phase[rows] == Phase.INQUEUE)
    return np.where(inqueue[:, None], jobs.reservable(rows), 0) + reserved_by_running(jobs, rows)
