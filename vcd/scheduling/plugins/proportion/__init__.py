"""proportion: divide the cluster among queues by weight (docs/semantics/plugins.md).

Accounts are computed lazily, because they depend on ``demand_of``, which needs the predicates of all plugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.freeable_resources import COUNT_VICTIMS, FreeableByEviction
from vcd.scheduling.framework.guarantees import attainable
from vcd.scheduling.framework.ledger import QueueLedger, allocated_by_queue, usage_by_queue
from vcd.scheduling.framework.order import PRIORITY, SHARE, labelled
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.queueaccounts import UNLIMITED, QueueAccount, Resources
from vcd.scheduling.framework.shares import VOLCANO_SHARES, Attempts, KeepsShares, contradictions
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer, victim_rule
from vcd.scheduling.plugins.proportion.reachable_resources import Reach
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.gauges import Gauge, queue_gauge, resource_gauges_of
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.holds import Hold, HoldKind
from vcd.state.records import Shape
from vcd.state.sums import Ints, plus, sum_of, sums_by

_OVERUSED = ReasonCode("queue-overused", Cause.QUEUE_DESERVED, "queue is overused", field="spec.weight")
_BEYOND_DESERVED = ReasonCode(
    "queue-deserved", Cause.QUEUE_DESERVED, "queue has no room within what it deserves", field="spec.weight"
)
_LENT_TO_CAPABILITY = ReasonCode(
    "queue-capability",
    Cause.QUEUE_CAPABILITY,
    "queue has no room within its capability",
    field="spec.capability.{resource}",
)
_BEYOND_CAPABILITY = ReasonCode(
    "queue-deserved-admission",
    Cause.QUEUE_CAPABILITY,
    "queue resource quota insufficient",
    field="spec.capability.{resource}",
)
_LENT = ReasonCode(
    "others-share",
    Cause.OTHERS_GUARANTEE,
    "what is left is kept for what other queues deserve and can use",
    field="spec.weight",
)
_GUARANTEED = ReasonCode(
    "others-guarantee",
    Cause.OTHERS_GUARANTEE,
    "what is left is guaranteed to other queues",
    field="spec.guarantee.resource.{resource}",
)
_OTHERS_PART = ReasonCode("others-part", Cause.OTHERS_GUARANTEE, "queues keep their part of what can be had")

Amounts = npt.NDArray[np.float64]

TOLERANCE = 0.1
"""Amounts closer than this are equal (Volcano ``api.minResource``)."""
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)
_PLACED = (*_ALLOCATED, int(TaskStatus.PIPELINED))


class _Share(QueueAccount):
    """One queue's account with its share.

    ``deserved`` is the queue's share by weight, at most ``real_capability``, which is the capability less other queues'
    reserved guarantees. ``demand`` is ``request`` without pods that no node can take.
    """

    capability: list[int]

    def __init__(self, queue: Queue, resources: Resources) -> None:
        record = queue.record
        super().__init__(queue, resources.amounts(record.guarantee), resources.capability(record.capability))
        self.weight = max(queue.weight, 0)  # a negative weight would reduce the other queues' shares
        self.real_capability = self.capability
        self.demand = [0] * resources.width
        self.has_excluded = False
        self.deserved = [0.0] * resources.width
        self.share = 0.0


class _Pool:
    """The nodes that a pod may use, with each queue's allocated resources and part of them.

    ``beyond`` are the nodes that other pods of this scheduler may use and this pod may not; None if there are none.
    """

    __slots__ = ("beyond", "held", "parts")

    def __init__(self, beyond: Mask | None, held: dict[int, list[int]], parts: dict[int, list[float]]) -> None:
        self.beyond = beyond
        self.held = held
        self.parts = parts


class _Loan:
    """Resources that can be lent in an allocate action.

    ``free`` is idle or releasing and usable by pods of this scheduler. ``reserved`` is the portion of it that other
    queues deserve and can use, by the queue's index.
    """

    def __init__(self, free: list[int], reserved: dict[int, list[int]]) -> None:
        self.free = free
        self._reserved = reserved
        self._sum: list[int] = [sum(column) for column in zip([0] * len(free), *reserved.values(), strict=True)]

    def reserved_for_others(self, index: int, column: int) -> int:
        """Return what is reserved for queues other than ``index``."""
        own = self._reserved[index][column] if index in self._reserved else 0
        return self._sum[column] - own

    def owners(self, index: int, columns: list[int]) -> list[int]:
        """Return the other queues with reservations in any of ``columns``."""
        return [
            other for other, reserved in self._reserved.items() if other != index and any(reserved[c] for c in columns)
        ]


class ProportionPlugin(KeepsShares):
    """Divide the cluster among the queues that have jobs, by weight.

    - real capability = min(capability, total - guarantees of all + own guarantee).
    - Deserved grows by remaining x weight / weights of unsatisfied queues, round by round, up to the real capability
      and the queue's request. It is never below the guarantee, and the queues together deserve at most the total.
    - A queue's request excludes pods that no node can ever take (``framework/demand.py``), and all pods of queues that
      are not Open.
    - After allocate has served all queues within deserved, it lends the remaining resources to pending jobs, except
      what other queues deserve and can use, or are guaranteed. Reclaim takes lent resources back.
    - Of the guarantee of a queue that is not Open, only the allocated portion counts: the queue gets no placements.
    - share = the largest allocated/deserved. Queues are ordered by `spec.priority`, then by the smaller share.
    - A queue that has its deserved quantity of all resources is overused. No task is placed beyond deserved.
    - A group is admitted if minResources + allocated + inqueue - elastic <= real capability. Inqueue excludes groups of
      lower priority, and resources that preempt could free for the group count as free (docs/differences.md).
    - A queue's part is its deserved share of what pods of this scheduler can have: without resources of other
      schedulers' pods, nodes that none of these pods tolerates, and remainders that are too small for their requests.
      Only tasks of queues above their part may be reclaimed, whichever tier decides, and only for a task with which its
      own queue stays within its part. For a task that does not tolerate nodes which others do, all of this is
      computed without these nodes.

    Source: Volcano ``plugins/proportion``.
    """

    name = "proportion"
    keys = ()
    protects = True
    arguments = (VOLCANO_SHARES, COUNT_VICTIMS)
    queue_fields = ("weight", "capability", "guarantee", "priority")

    def open(self, session: Session) -> None:
        self._session = session
        self._resources = resources = Resources(session)
        self._width, self._pods = resources.width, resources.pods
        self._total: Amounts = session.nodes.total.astype(np.float64)
        self._named = [column for column, amount in enumerate(resources.total) if amount > 0 or column in (0, 1)]
        self._as_volcano: bool = self.values[VOLCANO_SHARES.key]
        self._attainable = attainable(session, allocated_by_queue(session))
        self._freeable = FreeableByEviction(session, self.values[COUNT_VICTIMS.key])
        self._attempts = Attempts(session)
        self._loan: _Loan | None = None
        """What can be lent; None outside the lending phase of allocate."""
        self._pools: dict[bytes, _Pool] = {}
        self._pool_of_shape: dict[Shape, _Pool] = {}
        self._protected: dict[int, _ProtectedQueues] = {}
        """By the index of the reclaiming job."""
        self._parts_by_requester: dict[int, dict[int, Amounts]] = {}

    # --- accounts ---------------------------------------------------------------------------------------------------

    @cached_property
    def ledger(self) -> QueueLedger[_Share]:
        """The accounts of all queues, created when they are first needed."""
        session, resources = self._session, self._resources
        ledger = QueueLedger(session, [_Share(queue, resources) for queue in session.queue_list], self._as_volcano)
        ledger.fill(*usage_by_queue(session))
        ledger.count_guarantees(lambda account: account.queue.is_open)
        for account, left in zip(ledger.accounts, ledger.left_to_each(resources.total), strict=True):
            account.real_capability = [min(pair) for pair in zip(left, account.capability, strict=True)]
        ledger.protect_guarantees(self._attainable)
        return ledger

    @cached_property
    def _shares(self) -> dict[int, _Share]:
        """The accounts of queues that have jobs or pods, by index."""
        session, accounts = self._session, self.ledger.admitting
        indices = sorted({*np.flatnonzero(np.bincount(session.jobs.queue)).tolist(), *session.orphans.queues.tolist()})
        shares = {index: accounts[index] for index in indices}
        none = np.zeros((len(accounts), self._width), np.int64)
        never = none if self._as_volcano else demand_of(session).excluded()
        for account, excluded in zip(accounts, never.tolist(), strict=True):
            account.demand = plus(account.request, excluded, -1)
            account.has_excluded = any(excluded)
        for index, deserved in self._divided(shares, self._total).items():
            shares[index].deserved = deserved.tolist()
            self._update_share(shares[index])
        return shares

    # --- deserved ---------------------------------------------------------------------------------------------------

    def _divided(
        self, shares: dict[int, _Share], total: Amounts, has: Ints | None = None, wants: Ints | None = None
    ) -> dict[int, Amounts]:
        """Divide a total among queues: rounds of remaining x weight / total weight until all are satisfied.

        ``has`` and ``wants`` are allocated and pending resources outside this total; they are subtracted.
        """
        indices, accounts = list(shares), list(shares.values())
        none = np.zeros((len(indices), self._width), np.int64)
        has, wants = none if has is None else has[indices], none if wants is None else wants[indices]
        request, most, least = (
            np.array([getattr(account, name) for account in accounts], np.float64).reshape(none.shape) - has
            for name in ("demand", "real_capability", "counted_guarantee")
        )
        request -= wants
        least = np.maximum(least, 0)
        weights = [account.weight for account in accounts]
        if self._as_volcano:
            return dict(zip(indices, self._rounds(weights, total, request, most, least), strict=True))
        used = np.minimum(least, np.maximum(request, 0))
        rest = np.maximum(total - (least - used).sum(axis=0) - self._guaranteed_to_others(shares), 0)
        parts = self._rounds(weights, rest, request, most, used)
        above = parts - used
        sums = above.sum(axis=0)
        available = np.maximum(rest - used.sum(axis=0), 0)
        factors = np.divide(available, sums, out=np.ones_like(sums), where=sums > available)
        return dict(zip(indices, np.maximum(used + above * factors, least), strict=True))

    def _guaranteed_to_others(self, shares: dict[int, _Share]) -> Amounts:
        """Return the guarantees of queues without jobs and pods."""
        others = [account for account in self.ledger.accounts if account.queue.index not in shares]
        return sum((np.array(account.counted_guarantee, np.float64) for account in others), np.zeros(self._width))

    def _rounds(self, weight_of: list[int], total: Amounts, request: Amounts, most: Amounts, least: Amounts) -> Amounts:
        """Divide a total by weight, round by round (Volcano's formula); one row per queue."""
        parts, remaining = np.zeros(request.shape), total
        left = list(range(len(weight_of)))  # the queues that are not satisfied
        while True:
            weights = sum(weight_of[place] for place in left)
            if weights == 0:
                break
            before, old = remaining, parts[left]
            grown = old + remaining * np.array([[weight_of[place] / weights] for place in left])
            parts[left] = part = np.maximum(np.minimum(np.minimum(grown, most[left]), request[left]), least[left])
            satisfied = (request[left] < part + TOLERANCE).all(axis=1) | (part == old).all(axis=1)
            gained, lost = (np.cumsum(np.maximum(more, 0), axis=0)[-1] for more in (part - old, old - part))
            remaining = np.maximum(remaining + lost - gained, 0)
            if self._is_empty(remaining) or bool(np.all(remaining == before)):
                break
            left = [place for place, done in zip(left, satisfied.tolist(), strict=True) if not done]
        return parts

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self._session)

    def _pool(self, task: Task) -> _Pool:
        """Return the nodes that a reclaiming task may use, with the queues' parts of them."""
        pool = self._pool_of_shape.get(task.shape)
        if pool is None:
            beyond = self._reach.beyond(task)
            pool = self._pool_of_shape[task.shape] = self._pool_without(beyond)
        return pool

    def _pool_without(self, beyond: Mask | None) -> _Pool:
        key = b"" if beyond is None else beyond.tobytes()
        return self._pools.get(key) or self._pools.setdefault(key, self._make_pool(beyond))

    def _make_pool(self, beyond: Mask | None) -> _Pool:
        nodes = np.ones(len(self._session.nodes), np.bool_) if beyond is None else ~beyond
        has, wants = np.zeros((2, len(self._session.queue_list), self._width), np.int64)
        if beyond is not None:
            self._count_elsewhere(beyond, has, wants)
        held = np.array([account.allocated for account in self._shares.values()], np.int64).reshape(-1, self._width)
        held -= has[list(self._shares)]
        total = np.minimum(self._reach.total(sum_of(held), nodes), self._total)
        parts = {
            index: np.minimum(part, np.maximum(self._shares[index].deserved - has[index], 0)).tolist()
            for index, part in self._divided(self._shares, total, has, wants).items()
        }
        if beyond is None:
            return _Pool(None, {index: account.allocated for index, account in self._shares.items()}, parts)
        return _Pool(beyond, dict(zip(self._shares, held.tolist(), strict=True)), parts)

    def _count_elsewhere(self, nodes: Mask, has: Ints, wants: Ints) -> None:
        """Add up, by queue, what is allocated on ``nodes``, and requests of pending pods that only these nodes take."""
        session = self._session
        tasks, queues = session.snapshot.tasks, session.queue_of_row
        there = np.isin(tasks.status, _ALLOCATED) & (tasks.node >= 0) & (queues >= 0) & nodes[tasks.node]
        excluded = self._reach.excluded_from(~nodes)
        if not self._as_volcano:
            excluded = demand_of(session).without(excluded)  # these pods are in no queue's request
        for rows, sums in ((there, has), (excluded, wants)):
            sums += sums_by(queues[rows], session.requests[tasks.shape[rows]], len(sums))
        for task in dict.fromkeys(session.views.moves):
            gains = (task.status in _PLACED) - (tasks.status[task.row] in _PLACED)
            if gains and nodes[task.node]:
                has[task.job.queue.index] += gains * task.request
                if excluded[task.row]:
                    wants[task.job.queue.index] -= gains * task.request

    def _is_empty(self, amounts: Amounts) -> bool:
        return all(amount < TOLERANCE for column, amount in enumerate(amounts) if column != self._pods)

    def _update_share(self, account: _Share) -> None:
        share = 0.0
        for column in self._named:
            have, deserved = account.allocated[column], account.deserved[column]
            part = have / deserved if deserved else float(have > 0)
            if part > share:
                share = part
        account.share = share

    # --- points -----------------------------------------------------------------------------------------------------

    @labelled(PRIORITY, SHARE)
    def queue_order(self, queue: Queue) -> tuple[int, float]:
        """Order queues by `spec.priority`, highest first, then by share, smallest first."""
        account = self._shares.get(queue.index)
        return (-queue.record.queue.spec.priority, 0.0 if account is None else account.share)

    def overused(self, queue: Queue) -> Reason | None:
        """Return a reason if the queue has all that it deserves.

        A queue with pods that no node can take is checked for each task instead: such a pod has to report why no node
        takes it, not its queue's limit.
        """
        account = self._shares[queue.index]
        if self._loan is not None or account.has_excluded:
            return None
        allocated, deserved = account.allocated, account.deserved
        for column in self._named:
            if deserved[column] >= allocated[column] + TOLERANCE:
                return None
        due = [int(amount) for amount in deserved]
        return _OVERUSED(amounts=self._session.told(range(self._width), deserved=due, allocated=allocated))

    def allocatable(self, queue: Queue, task: Task, count: int) -> Reason | None:
        """Return a reason if the tasks would exceed what their queue deserves of a requested resource.

        A task that no node can take has no share. Only the capability applies to it, so that its reasons name the
        nodes.
        """
        account, amounts = self._shares[queue.index], [amount * count for amount in task.amounts]
        if account.has_excluded and demand_of(self._session).is_excluded(task):
            return self._beyond(queue, task.job, amounts, account.real_capability)
        return self._within(queue, task.job, amounts)

    def preemptive(self, queue: Queue, tasks: list[Task]) -> Reason | None:
        """Return a reason if the tasks together would exceed what the queue deserves."""
        request = sum_of(np.array([task.request for task in tasks])).tolist()
        return self._beyond(queue, tasks[0].job, request, self._shares[queue.index].deserved)

    def lend(self, begins: bool) -> bool:
        """Begin or end lending; return whether there is anything to lend."""
        self._loan = None
        if begins and not self._as_volcano:
            everywhere = np.ones(len(self._session.nodes), np.bool_)
            if (np.delete(self._session.nodes.usage.future_idle, self._pods, axis=0) <= 0).all():
                return False  # the usual case of a full cluster; it saves computing the reachable resources
            free = self._reach.total(np.zeros(self._width, np.int64), everywhere).tolist()
            if any(amount for column, amount in enumerate(free) if column != self._pods):
                self._loan = _Loan(free, self._reserved_shares())
        return self._loan is not None

    def _reserved_shares(self) -> dict[int, list[int]]:
        """Return the portion of each queue's part that is not allocated and that its pods can use, by queue index."""
        unused = np.zeros((len(self._session.queue_list), self._width), np.int64)
        for index, part in self._pool_without(None).parts.items():
            unused[index] = np.maximum(np.floor(part) - self._shares[index].allocated, 0)
        found = demand_of(self._session).usable(unused)
        return {index: reserved.tolist() for index, reserved in found.items()}

    def holds(self) -> Iterator[Hold]:
        """Return the resources reserved for queues: unused guarantees, and unused shares that their pods can use."""
        yield from super().holds()
        for index, reserved in self._reserved_shares().items():
            named = {name: amount for name, amount in zip(self._resources.names, reserved, strict=True) if amount}
            yield Hold(HoldKind.SHARE, self._session.queue_list[index].name, resources=named)

    def _within(self, queue: Queue, job: Job, request: Sequence[int]) -> Reason | None:
        account, loan = self._shares[queue.index], self._loan
        # lent resources are limited by the capability, or else by others' guarantees: ``real_capability`` does not
        # distinguish these two
        most = account.deserved if loan is None else account.capability
        refusal = self._beyond(queue, job, request, most) or self.ledger.refusal(_GUARANTEED, queue, request)
        if refusal is not None or loan is None:
            return refusal
        short = [
            column
            for column, amount in enumerate(request)
            if amount
            and column != self._pods
            and (others := loan.reserved_for_others(queue.index, column)) > 0
            and amount > loan.free[column] - others
        ]
        if short:
            names = [self._session.queue_list[index].name for index in loan.owners(queue.index, short)]
            return _LENT({"queues": ", ".join(names)}, self._session.told(short, asks=request))
        return self._beyond(queue, job, request, account.real_capability)

    def _beyond(self, queue: Queue, job: Job, request: Sequence[int], most: Sequence[float]) -> Reason | None:
        if not queue.is_open:
            return queue.why_closed()
        account = self._shares[queue.index]
        allocated = account.allocated
        most_pods = account.capability[self._pods]  # Volcano does not limit pods here; vcd does (docs/laws.md, law 7)
        over = [
            column
            for column, amount in enumerate(request)
            if amount > 0 and allocated[column] + amount > (most_pods if column == self._pods else most[column])
        ]
        if not over:
            return None
        limits, deserved = account.capability, account.deserved
        if most is limits and any(deserved[column] < limits[column] < UNLIMITED for column in over):
            capabilities = [0 if limit == UNLIMITED else limit for limit in limits]
            amounts = [*self._attempts.told(job, over, allocated), *self._session.told(over, capability=capabilities)]
            return _LENT_TO_CAPABILITY({"queue": queue.name}, self._session.told(over, asks=request) + amounts)
        amounts = self._session.told(over, asks=request, deserved=[int(amount) for amount in deserved])
        return _BEYOND_DESERVED(amounts=amounts + self._attempts.told(job, over, allocated))

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Permit if the group's minimum stays within the queue's real capability, else return a reason."""
        queue = job.queue
        if not queue.is_open:
            return queue.why_closed()
        if job.record.min_resources is None:
            return Vote.PERMIT
        account = self._shares[queue.index]
        needed = self._session.jobs.min_resources[job.index]
        ahead = account.inqueue.ahead(job.priority)
        after = needed + np.array(account.allocated) + ahead - account.elastic - self._freeable.minimum_held(job)
        over = (needed > 0) & (after > account.real_capability)
        over[self._pods] = False
        if not over.any():
            return Vote.PERMIT
        limits = account.real_capability
        amounts = self._session.told(np.flatnonzero(over), asks=needed, would_hold=after, capability=limits)
        return _BEYOND_CAPABILITY(amounts=amounts)

    def stays_within_share(self, job: Job) -> bool:
        """Return whether the queue could reclaim for a group. The group's pods may not exist yet."""
        index = job.queue.index
        needed = self._session.jobs.min_resources[job.index]
        ahead = self._shares[index].inqueue.ahead(job.priority)
        after = needed + np.array(self._shares[index].allocated) + ahead
        over = (needed > 0) & (after >= self._parts_if_it_requests_all(index)[index] + TOLERANCE)
        over[self._pods] = False
        return not over.any()

    def surplus(self, queue: Queue) -> Ints:
        """Return what queues hold above their parts if ``queue`` requested all that it may have."""
        found = np.zeros((len(self._session.queue_list), self._width), np.int64)
        for index, part in self._parts_if_it_requests_all(queue.index).items():
            found[index] = np.maximum(np.floor(self._shares[index].allocated - part), 0)
        return found

    def _parts_if_it_requests_all(self, index: int) -> dict[int, Amounts]:
        """Return each queue's part if the queue at ``index`` requested all that it may have."""
        if index not in self._parts_by_requester:
            requesting = copy(self._shares[index])
            requesting.demand = requesting.real_capability
            self._parts_by_requester[index] = self._divided({**self._shares, index: requesting}, self._reachable_total)
        return self._parts_by_requester[index]

    @cached_property
    def _reachable_total(self) -> Amounts:
        """What pods of this scheduler hold, and what else of the cluster they could have."""
        held = np.array([account.allocated for account in self._shares.values()], np.int64).reshape(-1, self._width)
        everywhere = np.ones(len(self._session.nodes), np.bool_)
        return np.minimum(self._reach.total(sum_of(held), everywhere), self._total)

    @victim_rule("tasks of queues above their share of the usable resources, until these queues reach it")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> VictimsAnswer:
        """Permit victims of queues above their part, until they reach it.

        Return no victims for a task with which its own queue would exceed its part.
        """
        index, pool = reclaimer.job.queue.index, self._pool(reclaimer)
        held, part = pool.held[index], pool.parts[index]
        protected = self._protected.get(reclaimer.job.index) or self._protected.setdefault(
            reclaimer.job.index, _ProtectedQueues(reclaimer.job)
        )
        for column, amount in enumerate(reclaimer.amounts):
            if amount and column != self._pods and held[column] + amount >= part[column] + TOLERANCE:
                for task in tasks:
                    protected.add(task.job.queue.name)
                return []
        return _AbovePart(pool, protected)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Update what the queue holds."""
        task = tasks[0]
        index = task.job.queue.index
        account = self._shares[index]
        self.ledger.charge(task.job.queue, task.amounts, sign * len(rows))
        if self._loan is not None:
            self._loan.free = plus(self._loan.free, task.amounts, -sign * len(rows))
        for pool in self._pools.values():
            if pool.beyond is not None:
                times = sign * sum(not pool.beyond[row] for row in rows)
                pool.held[index][:] = plus(pool.held[index], task.amounts, times)
        self._update_share(account)

    def close(self, session: Session) -> None:
        """Merge each pending job's reasons about other queues' parts into one, unless the job is pipelined."""
        for job in session.jobs_with_pending() if self._protected else ():
            noted = [one for one in job.why if one.plugin == self.name and _is_others_part(one.reason)]
            if noted:
                job.why[:] = [one for one in job.why if one not in noted]
                names = {name for one in noted if isinstance(one.reason, Reason) for _, name in one.reason.names}
                if not job.waiting_count:
                    job.note("queue", self.name, _OTHERS_PART({"queues": ", ".join(sorted(names))}))

    # --- reporting --------------------------------------------------------------------------------------------------

    def problems(self) -> Iterator[Problem]:
        """Yield queues that are guaranteed more than their own capability, or whose capability limits nothing."""
        for queue in self._session.queue_list:
            yield from contradictions(queue, self._resources, {"guarantee.resource": queue.record.guarantee})

    # --- gauges -----------------------------------------------------------------------------------------------------

    def gauges(self) -> Iterator[Gauge]:
        """Return Volcano's queue metrics."""
        resources = self._session.nodes.resources
        for queue in self._session.queue_list:
            account = self._shares.get(queue.index)
            none: Sequence[float] = [0.0] * self._width
            series: dict[str, Sequence[float]] = dict.fromkeys(("allocated", "request", "inqueue", "deserved"), none)
            if account is not None:
                series = {
                    "allocated": account.allocated,
                    "request": account.request,
                    "inqueue": account.inqueue.total(),
                    "deserved": account.deserved,
                    "capability": [inf if limit >= UNLIMITED else limit for limit in account.capability],
                    "real_capability": account.real_capability,
                }
            yield from resource_gauges_of(queue, resources, series)
            yield queue_gauge("weight", queue.name, queue.weight)
            yield queue_gauge("share", queue.name, 0.0 if account is None else account.share)
            overused = account is not None and self.overused(queue) is not None
            yield queue_gauge("overused", queue.name, float(overused))


class _ProtectedQueues:
    """The queues whose parts protected candidates from a reclaiming job.

    Each is noted on the job at once, because the reasons also apply to the equivalent jobs that are not tried.
    """

    __slots__ = ("_job", "_noted")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._noted: set[str] = set()

    def add(self, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._job.note("queue", ProportionPlugin.name, _OTHERS_PART({"queues": name}))


def _is_others_part(reason: Reason | str) -> bool:
    return isinstance(reason, Reason) and reason.code == _OTHERS_PART.name


class _AbovePart(Allowance):
    """Permits victims of queues that hold more than their part of any resource, until they reach it.

    ``protected`` gets the names of queues whose tasks are protected.
    """

    records_refusals = True

    def __init__(self, pool: _Pool, protected: _ProtectedQueues) -> None:
        self._pool = pool
        self._protected = protected
        self._left: dict[int, list[int]] = {}

    def permits(self, task: Task) -> bool:
        index = task.job.queue.index
        held = self._left.get(index, self._pool.held[index])
        for have, part in zip(held, self._pool.parts[index], strict=True):  # noqa: SIM110 - called for every task
            if have >= part + TOLERANCE:
                return True
        return False

    def spare(self, task: Task) -> None:
        self._protected.add(task.job.queue.name)

    def spend(self, task: Task) -> None:
        index = task.job.queue.index
        held = self._left.get(index, self._pool.held[index])
        self._left[index] = [have - amount for have, amount in zip(held, task.amounts, strict=True)]
