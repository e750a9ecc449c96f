"""proportion: the cluster divided among queues by weight (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vcd.model.reasons import Amount, Cause, Reason, ReasonCode
from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.order import PRIORITY, SHARE, labelled
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer, lets_go
from vcd.scheduling.plugins.proportion.reachable import Reach
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.gauges import Gauge, queue_gauge, resource_gauges
from vcd.scheduling.session.jobs import elastic, inqueue_by_priority
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import Shape
from vcd.state.sums import Ints, bounded, plus, sum_of, sums_by

_OVERUSED = ReasonCode("queue-overused", Cause.QUEUE_DESERVED, "queue is overused", field="spec.weight")
_BEYOND_DESERVED = ReasonCode(
    "queue-deserved", Cause.QUEUE_DESERVED, "queue has no room within what it deserves", field="spec.weight"
)
_BEYOND_CAPABILITY = ReasonCode(
    "queue-deserved-admission",
    Cause.QUEUE_CAPABILITY,
    "queue resource quota insufficient",
    field="spec.capability.{resource}",
)
_OTHERS_PART = ReasonCode("others-part", Cause.OTHERS_GUARANTEE, "queues keep their part of what can be had")

Amounts = npt.NDArray[np.float64]

TOLERANCE = 0.1
"""Amounts closer than this are equal (Volcano ``api.minResource``)."""
UNLIMITED = float("inf")
_ALLOCATED = tuple(int(status) for status in ALLOCATED_STATUSES)
_PLACED = (*_ALLOCATED, int(TaskStatus.PIPELINED))


class _Share:
    """One queue's account; amounts are float64 in the order of the session's resources.

    ``deserved`` by weight, never above ``real_capability``; ``elastic`` is what jobs hold above their minimum;
    ``inqueue`` what admitted jobs may still take of theirs, one row per priority of jobs, ascending.
    """

    def __init__(self, queue: Queue, width: int) -> None:
        self.queue = queue
        self.weight = max(queue.weight, 0)  # a negative one would take the others' share from them
        self.allocated: list[int] = [0] * width
        self.deserved: Amounts = np.zeros(width)
        self.deserved_list: list[float] = []
        self.share = 0.0
        self.request: Amounts
        self.elastic: Amounts
        self.inqueue: Amounts
        self.capability: Amounts
        self.real_capability: Amounts
        self.guarantee: Amounts


class _Pool:
    """All nodes but those ``beyond`` a pod, which others of ours can have and it cannot (None: there are none): what
    each queue holds there, and its part of what can be had of them."""

    __slots__ = ("beyond", "held", "parts")

    def __init__(self, beyond: Mask | None, held: dict[int, list[int]], parts: dict[int, list[float]]) -> None:
        self.beyond = beyond
        self.held = held
        self.parts = parts


class ProportionPlugin(KeepsAccounts):
    """Divides the cluster among the queues that have jobs.

    - real capability = min(capability, total - guarantees of all + own guarantee);
    - deserved grows by remaining x weight / weights of unsatisfied queues, round by round, up to real capability and
      the queue's request, and is never below its guarantee;
    - share = the largest allocated/deserved; queues with the smaller share come first, `spec.priority` before that;
    - a queue that has its deserved amount in all resources is overused, and no task goes beyond deserved;
    - a group is admitted while minResources + allocated + inqueue - elastic stays within the real capability, where
      inqueue leaves out groups of lower priority than the one that asks (docs/differences.md);
    - a queue's part is what it deserves of what our pods can have: without what others' pods hold, nodes that none of
      ours tolerates, and what is left of nodes by requests of one size; tasks of queues above their part may be
      reclaimed, no others, whatever tier the plugin is in, and only for tasks that bring no queue above its own. For a
      task that does not tolerate nodes which others of ours do, all of this is counted without those.

    Source: Volcano ``plugins/proportion``.
    """

    name = "proportion"
    treats_alike = True
    protects = True

    def open(self, session: Session) -> None:
        """Make up the queues' accounts."""
        self._session = session
        self._width = len(session.nodes.resources)
        self._pods = session.nodes.column_of["pods"]
        self._total: Amounts = session.nodes.total.astype(np.float64)
        self._named = [
            column
            for column, name in enumerate(session.nodes.resources)
            if self._total[column] > 0 or name in ("cpu", "memory")
        ]
        jobs = session.jobs
        indices = sorted({*np.flatnonzero(np.bincount(jobs.queue)).tolist(), *session.orphans.queues.tolist()})
        self._shares: dict[int, _Share] = {index: _Share(session.queue_list[index], self._width) for index in indices}
        self._fill_accounts(session)
        for index, deserved in self._divided(self._total).items():
            self._shares[index].deserved = deserved
        for account in self._shares.values():
            self._update_share(account)
        self._pools: dict[bytes, _Pool] = {}
        self._pool_of_shape: dict[Shape, _Pool] = {}
        self._kept: dict[int, _Kept] = {}
        """By the index of a job that would reclaim."""

    # --- accounts ---------------------------------------------------------------------------------------------------

    def _fill_accounts(self, session: Session) -> None:
        jobs = session.jobs
        allocated = bounded(jobs.sums("allocated") + session.orphans.allocated)
        pending, above = jobs.sums("pending"), jobs.sums(elastic)
        self._priorities = jobs.priorities
        reserved_by = inqueue_by_priority(jobs, len(session.queue_list))
        guarantees = {queue.index: self._amounts(queue.record.guarantee) for queue in session.queue_list}
        reserved = sum(guarantees.values(), np.zeros(self._width))
        for index, account in self._shares.items():
            account.allocated = allocated[index].tolist()
            account.request = (allocated[index] + pending[index]).astype(np.float64)
            account.elastic = above[index].astype(np.float64)
            account.inqueue = reserved_by[index].astype(np.float64)
            account.guarantee = guarantees[index]
            account.capability = self._capability(account.queue)
            rest = np.maximum(self._total - reserved, 0) + account.guarantee
            account.real_capability = np.minimum(rest, account.capability)

    def _amounts(self, values: dict[str, int], default: float = 0.0) -> Amounts:
        result = np.full(self._width, default)
        for name, value in values.items():
            result[self._session.nodes.column_of[name]] = value
        return result

    def _capability(self, queue: Queue) -> Amounts:
        """What is not given is unlimited; so is cpu or memory of zero (Volcano's source)."""
        result = self._amounts(queue.record.capability, UNLIMITED)
        for name in ("cpu", "memory"):
            column = self._session.nodes.column_of[name]
            if result[column] <= 0:
                result[column] = UNLIMITED
        return result

    # --- deserved ---------------------------------------------------------------------------------------------------

    def _divided(self, total: Amounts, has: Ints | None = None, wants: Ints | None = None) -> dict[int, Amounts]:
        """What each queue gets of a total: rounds of remaining x weight / total weight until all are satisfied or
        nothing remains. What queues have and want elsewhere is not divided."""
        indices, accounts = list(self._shares), list(self._shares.values())
        none = np.zeros((len(indices), self._width), np.int64)
        has, wants = none if has is None else has[indices], none if wants is None else wants[indices]
        request, most, least = (
            np.array([getattr(account, name) for account in accounts]).reshape(none.shape) - has
            for name in ("request", "real_capability", "guarantee")
        )
        request -= wants
        least = np.maximum(least, 0)
        parts, remaining = none.astype(np.float64), total
        left = list(range(len(accounts)))  # those that are not satisfied
        while True:
            weights = sum(accounts[place].weight for place in left)
            if weights == 0:
                break
            before, old = remaining, parts[left]
            grown = old + remaining * np.array([[accounts[place].weight / weights] for place in left])
            parts[left] = part = np.maximum(np.minimum(np.minimum(grown, most[left]), request[left]), least[left])
            satisfied = (request[left] < part + TOLERANCE).all(axis=1) | (part == old).all(axis=1)
            gained, lost = (np.cumsum(np.maximum(more, 0), axis=0)[-1] for more in (part - old, old - part))
            remaining = np.maximum(remaining + lost - gained, 0)
            if self._is_empty(remaining) or bool(np.all(remaining == before)):
                break
            left = [place for place, done in zip(left, satisfied.tolist(), strict=True) if not done]
        return dict(zip(indices, parts, strict=True))

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self._session)

    def _pool(self, task: Task) -> _Pool:
        """What queues keep when this task would reclaim, and what its own may reclaim up to."""
        pool = self._pool_of_shape.get(task.shape)
        if pool is None:
            beyond = self._reach.beyond(task)
            key = b"" if beyond is None else beyond.tobytes()
            pool = self._pools.get(key) or self._pools.setdefault(key, self._pool_without(beyond))
            self._pool_of_shape[task.shape] = pool
        return pool

    def _pool_without(self, beyond: Mask | None) -> _Pool:
        nodes = np.ones(len(self._session.nodes), np.bool_) if beyond is None else ~beyond
        has, wants = np.zeros((2, len(self._session.queue_list), self._width), np.int64)
        if beyond is not None:
            self._count_elsewhere(beyond, has, wants)
        held = np.array([account.allocated for account in self._shares.values()], np.int64).reshape(-1, self._width)
        held -= has[list(self._shares)]
        total = np.minimum(self._reach.total(sum_of(held), nodes), self._total)
        parts = {
            index: np.minimum(part, np.maximum(self._shares[index].deserved - has[index], 0)).tolist()
            for index, part in self._divided(total, has, wants).items()
        }
        if beyond is None:
            return _Pool(None, {index: account.allocated for index, account in self._shares.items()}, parts)
        return _Pool(beyond, dict(zip(self._shares, held.tolist(), strict=True)), parts)

    def _count_elsewhere(self, nodes: Mask, has: Ints, wants: Ints) -> None:
        """Add up, by queue, what is held on some nodes, and what is wanted by pods that no other node takes."""
        session = self._session
        tasks, queues = session.snapshot.tasks, session.queue_of_row
        there = np.isin(tasks.status, _ALLOCATED) & (tasks.node >= 0) & (queues >= 0) & nodes[tasks.node]
        never_here = self._reach.stays_out(~nodes)
        for rows, sums in ((there, has), (never_here, wants)):
            sums += sums_by(queues[rows], session.requests[tasks.shape[rows]], len(sums))
        for task in dict.fromkeys(session.views.moves):
            gains = (task.status in _PLACED) - (tasks.status[task.row] in _PLACED)
            if gains and nodes[task.node]:
                has[task.job.queue.index] += gains * task.request
                if never_here[task.row]:
                    wants[task.job.queue.index] -= gains * task.request

    def _is_empty(self, amounts: Amounts) -> bool:
        return all(amount < TOLERANCE for column, amount in enumerate(amounts) if column != self._pods)

    def _update_share(self, account: _Share) -> None:
        if not account.deserved_list:
            account.deserved_list = account.deserved.tolist()
        share = 0.0
        for column in self._named:
            have, deserved = account.allocated[column], account.deserved_list[column]
            part = have / deserved if deserved else float(have > 0)
            if part > share:
                share = part
        account.share = share

    # --- points -----------------------------------------------------------------------------------------------------

    @labelled(PRIORITY, SHARE)
    def queue_order(self, queue: Queue) -> tuple[int, float]:
        """Higher `spec.priority` first, then the smaller share."""
        account = self._shares.get(queue.index)
        return (-queue.record.queue.spec.priority, 0.0 if account is None else account.share)

    def overused(self, queue: Queue) -> Reason | None:
        """A queue that has all it deserves gets nothing more."""
        account = self._shares[queue.index]
        allocated, deserved = account.allocated, account.deserved_list
        for column in self._named:
            if deserved[column] >= allocated[column] + TOLERANCE:
                return None
        return _OVERUSED(amounts=self._quantities(account, range(self._width)))

    def allocatable(self, queue: Queue, task: Task) -> Reason | None:
        """Whether a task stays within what its queue deserves, in the resources that it asks for."""
        return self._within(queue, task.amounts)

    def allocatable_together(self, queue: Queue, task: Task, count: int) -> bool:
        """Whether tasks like one stay within it together."""
        return self._within(queue, [amount * count for amount in task.amounts]) is None

    def preemptive(self, queue: Queue, tasks: list[Task]) -> Reason | None:
        """Whether tasks together stay within what the queue deserves."""
        return self._within(queue, sum_of(np.array([task.request for task in tasks])).tolist())

    def _within(self, queue: Queue, request: Sequence[int]) -> Reason | None:
        if not queue.is_open:
            return queue.why_closed()
        account = self._shares[queue.index]
        allocated, deserved = account.allocated, account.deserved_list
        most_pods = account.capability[self._pods]  # Volcano lets pods slip; never exceeded here (docs/laws.md, law 7)
        over = [
            column
            for column, amount in enumerate(request)
            if amount > 0 and allocated[column] + amount > (most_pods if column == self._pods else deserved[column])
        ]
        if not over:
            return None
        return _BEYOND_DESERVED(amounts=self._session.told(over, asks=request) + self._quantities(account, over))

    def _quantities(self, account: _Share, columns: Iterable[int]) -> list[Amount]:
        deserved = [int(amount) for amount in account.deserved_list]
        return self._session.told(columns, deserved=deserved, allocated=account.allocated)

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Whether the group's minimum stays within the queue's real capability."""
        queue = job.queue
        if not queue.is_open:
            return queue.why_closed()
        if job.record.min_resources is None:
            return Vote.PERMIT
        account = self._shares[queue.index]
        needed = self._session.jobs.min_resources[job.index]
        ahead = account.inqueue[self._rank(job) :].sum(axis=0)
        after = needed + np.array(account.allocated) + ahead - account.elastic
        over = (needed > 0) & (after > account.real_capability)
        over[self._pods] = False
        if not over.any():
            return Vote.PERMIT
        capability = np.where(np.isinf(account.real_capability), 0, account.real_capability)
        columns = np.flatnonzero(over)
        return _BEYOND_CAPABILITY(
            amounts=self._session.told(columns, asks=needed, would_hold=after, capability=capability)
        )

    def job_enqueued(self, job: Job) -> None:
        """Count what an admitted group may take."""
        if job.record.min_resources is not None:
            self._shares[job.queue.index].inqueue[self._rank(job)] += self._session.jobs.reservable(job.index)

    def _rank(self, job: Job) -> int:
        return int(np.searchsorted(self._priorities, job.priority))

    @lets_go("tasks of queues that hold more than their part of what can be had, as long as they do")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> VictimsAnswer:
        """Tasks of queues that hold more than their part of what can be had, as long as they do.

        Nobody, for a task with which its own queue would hold more than its part.
        """
        index, pool = reclaimer.job.queue.index, self._pool(reclaimer)
        held, part = pool.held[index], pool.parts[index]
        kept = self._kept.get(reclaimer.job.index) or self._kept.setdefault(reclaimer.job.index, _Kept(reclaimer.job))
        for column, amount in enumerate(reclaimer.amounts):
            if amount and column != self._pods and held[column] + amount >= part[column] + TOLERANCE:
                for task in tasks:
                    kept.add(task.job.queue.name)
                return []
        return _AbovePart(pool, kept)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """The queue holds more, or less."""
        task = tasks[0]
        index = task.job.queue.index
        account = self._shares[index]
        account.allocated[:] = plus(account.allocated, task.amounts, sign * len(rows))
        for pool in self._pools.values():
            if pool.beyond is not None:
                times = sign * sum(not pool.beyond[row] for row in rows)
                pool.held[index][:] = plus(pool.held[index], task.amounts, times)
        self._update_share(account)

    def close(self, session: Session) -> None:
        """Jobs that found nobody to make room tell whose room was not for them, in one reason."""
        for job in session.jobs_with_pending() if self._kept else ():
            told = [one for one in job.why if one.plugin == self.name and _is_others_part(one.reason)]
            if told:
                job.why[:] = [one for one in job.why if one not in told]
                names = {name for one in told if isinstance(one.reason, Reason) for _, name in one.reason.names}
                if not job.waiting_count:
                    job.note("queue", self.name, _OTHERS_PART({"queues": ", ".join(sorted(names))}))

    # --- gauges -----------------------------------------------------------------------------------------------------

    def gauges(self) -> Iterator[Gauge]:
        """Volcano's queue series."""
        resources = self._session.nodes.resources
        for queue in self._session.queue_list:
            account = self._shares.get(queue.index)
            none: Sequence[float] = [0.0] * self._width
            for series, values in (
                ("allocated", none if account is None else account.allocated),
                ("request", none if account is None else account.request.tolist()),
                ("inqueue", none if account is None else account.inqueue.sum(axis=0).tolist()),
                ("deserved", none if account is None else account.deserved_list),
            ):
                yield from resource_gauges(series, queue.name, resources, values)
            yield queue_gauge("weight", queue.name, queue.weight)
            yield queue_gauge("share", queue.name, 0.0 if account is None else account.share)
            overused = account is not None and self.overused(queue) is not None
            yield queue_gauge("overused", queue.name, float(overused))
            if account is not None:
                for series, limits in (
                    ("capability", account.capability),
                    ("real_capability", account.real_capability),
                ):
                    yield from resource_gauges(series, queue.name, resources, limits.tolist())


class _Kept:
    """The queues that kept tasks from a job that would reclaim: each is among the job's reasons at once, as these are
    true of those, too, for which it is tried."""

    __slots__ = ("_job", "_told")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._told: set[str] = set()

    def add(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._job.note("queue", ProportionPlugin.name, _OTHERS_PART({"queues": name}))


def _is_others_part(reason: Reason | str) -> bool:
    return isinstance(reason, Reason) and reason.code == _OTHERS_PART.name


class _AbovePart(Allowance):
    """Tasks of queues that hold more than their part of anything, each that goes leaving its queue less. ``kept`` gets
    the names of those whose tasks stay."""

    tells = True

    def __init__(self, pool: _Pool, kept: _Kept) -> None:
        self._pool = pool
        self._kept = kept
        self._left: dict[int, list[int]] = {}

    def permits(self, task: Task) -> bool:
        index = task.job.queue.index
        held = self._left.get(index, self._pool.held[index])
        for have, part in zip(held, self._pool.parts[index], strict=True):  # noqa: SIM110 - called for every task
            if have >= part + TOLERANCE:
                return True
        return False

    def keeps(self, task: Task) -> None:
        self._kept.add(task.job.queue.name)

    def spend(self, task: Task) -> None:
        index = task.job.queue.index
        held = self._left.get(index, self._pool.held[index])
        self._left[index] = [have - amount for have, amount in zip(held, task.amounts, strict=True)]
