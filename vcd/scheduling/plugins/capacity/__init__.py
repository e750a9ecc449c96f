"""capacity: hold queues to deserved, guarantee and capability, flat or in a tree (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np

from vcd.model.objects import ROOT_QUEUE
from vcd.model.reasons import MEND_NAMED, Amount, Cause, Reason, ReasonCode
from vcd.scheduling.eviction.victim_search import EvictionContext
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.freeable_resources import COUNT_VICTIMS, FreeableByEviction
from vcd.scheduling.framework.guarantees import attainable
from vcd.scheduling.framework.ledger import QueueLedger, usage_by_queue
from vcd.scheduling.framework.order import PRIORITY, Label, labelled, plain, yes_or_no
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.queueaccounts import UNLIMITED, Resources
from vcd.scheduling.framework.shares import HAS_DESERVED, VOLCANO_SHARES, Attempts, KeepsShares, contradictions
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer, victim_rule
from vcd.scheduling.plugins.capacity.capacity_accounts import (
    Account,
    Reservations,
    request_of,
    set_flat_limits,
    set_wishes,
)
from vcd.scheduling.plugins.capacity.queue_tree import Rank, Standing, check_amounts, link, set_limits
from vcd.scheduling.plugins.capacity.reclaimable import Reclaim
from vcd.scheduling.session.gauges import Gauge, queue_gauge, resource_gauges_of
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import QUEUE_ADMISSION_GATE
from vcd.state.sums import Ints

_BEYOND_CAPABILITY = ReasonCode(
    "queue-capability",
    Cause.QUEUE_CAPABILITY,
    "queue has no room within its capability",
    field="spec.capability.{resource}",
)
_BEYOND_PARENTS_CAPABILITY = ReasonCode(
    "parent-capability",
    Cause.PARENT_LIMIT,
    "parent queue {parent} has no room within its capability",
    field="spec.capability.{resource}",
)
_INSUFFICIENT = ReasonCode(
    "queue-capability-admission",
    Cause.QUEUE_CAPABILITY,
    "queue resource quota insufficient",
    field="spec.capability.{resource}",
)
_INSUFFICIENT_IN_PARENT = ReasonCode(
    "parent-capability-admission",
    Cause.PARENT_LIMIT,
    "queue resource quota insufficient in parent queue {parent}",
    field="spec.capability.{resource}",
)
_GUARANTEED = ReasonCode(
    "capacity-guarantee",
    Cause.OTHERS_GUARANTEE,
    "what is left is guaranteed to other queues",
    field="spec.guarantee.resource.{resource}",
)
_MISCONFIGURED = ReasonCode(
    "queue-misconfigured", Cause.INVALID, "queue {queue} is misconfigured", mend=MEND_NAMED, field="spec.parent"
)
_NOT_A_LEAF = ReasonCode(
    "queue-not-a-leaf",
    Cause.INVALID,
    "queue {queue} is not a leaf: submit to a queue below it",
    mend="name a queue below it in the PodGroup's spec.queue",
    field="spec.queue",
)

ANCESTOR_RECLAIM_LEVEL = Argument(
    "ancestorReclaimLevel",
    "int",
    0,
    "How many levels of ancestors reclaim considers in a hierarchy. At 1, tasks of a queue are reclaimed only if its "
    "parent, unless it is also the reclaiming queue's parent, has more than it deserves, too; at 2 also its "
    "grandparent, and so on; at 0 or below, only the queue itself counts.",
)


def _shares(value: Rank | Standing) -> str:
    """Format a queue's share; in a hierarchy with the shares of its ancestors before it, from the top."""
    ranks = value.ranks if isinstance(value, Standing) else (value,)
    return " > ".join(f"{plain(share)}{' (deserves nothing)' if nothing else ''}" for share, nothing in ranks)


_PARENT = Label("parent", "has no children", "has children", yes_or_no)
_BORROWS = Label("borrows", "stays within what it deserves", "borrows", yes_or_no)
_SHARE = Label("share", "smaller share", "larger share", _shares)
_ANCESTORS = Label("ancestors", "nearer in the tree", "farther in the tree", PRIORITY.shown)


class CapacityPlugin(KeepsShares):
    """Hold queues to the quantities in their spec. Queues may borrow what others do not use, until it is reclaimed.

    - `deserved` is what a queue can reclaim; what it has beyond is borrowed. It is never below `guarantee`, which is
      reserved for the queue even without jobs. If the queue takes no work (it is not Open, or it is misconfigured),
      only the allocated portion of its guarantee counts. `capability` is never exceeded, including `pods`.
    - real capability = min(capability, total - guarantees of all + own guarantee). Several queues together do not get
      what others are guaranteed and do not use, either.
    - share = the largest allocated/deserved, 1 for a queue that deserves nothing. Queues are ordered by
      `spec.priority`, then queues that stay within deserved before those that borrow, then by share, then queues that
      deserve something first.
    - A group is admitted if minResources + allocated + inqueue - elastic <= real capability. Inqueue excludes pods
      behind scheduling gates and groups of lower priority, and resources that preempt could free for the group count as
      free.
    - A queue may reclaim for tasks with which it stays within deserved in some resource that they request.
    - A victim of reclaim holds some resource that the reclaiming task lacks, and its queue has more than it deserves of
      some resource that the victim holds. The victims' queues retain their guarantees.

    With `enableHierarchy: true`, queues form a tree by `spec.parent` below the queue `root`. Only leaves take work.
    What they hold counts for all ancestors, and every limit applies to all ancestors. A capability that is not given is
    the parent's. Queues are ordered by the share of the first ancestors in which they differ, leaves first, and victims
    come from the queue that is nearest in the tree. A group with which its queue stays within deserved is admitted
    although others borrowed its parents' resources: reclaim recovers them. A parent's guarantee can be recovered by any
    queue below it. A misconfigured queue takes no work, nor do queues below it; the others continue. Misconfigured
    means that the parent does not exist, that parents form a cycle, that capability exceeds the parent's, or that
    children deserve or are guaranteed more than their parent. An Event on the queue reports this, and also a queue that
    can never have what it deserves because of its own capability.

    allocate removes the scheduling gate `scheduling.volcano.sh/queue-allocation-gate` from a pod once its queue has
    capacity for it, if the pod has the annotation of that name with value "true" and no other gate. The pod then holds
    its quota until it has a node. This needs the permission to patch pods, which `deploy/components/queue-gates`
    grants.

    Source: Volcano ``plugins/capacity``.
    """

    name = "capacity"
    protects = True
    arguments = (
        ANCESTOR_RECLAIM_LEVEL,
        VOLCANO_SHARES,
        COUNT_VICTIMS,
        Argument(
            "capacity.DynamicResourceAllocationEnable",
            "bool",
            False,
            "Whether devices of ResourceClaims count.",
            without_effect="ResourceClaims are not supported; pods that have one wait",
        ),
        Argument(
            "capacity.DRAConsumableCapacityEnable",
            "bool",
            False,
            "Whether what ResourceClaims share counts.",
            without_effect="ResourceClaims are not supported; pods that have one wait",
        ),
    )
    keys = (QUEUE_ADMISSION_GATE,)
    queue_fields = ("capability", "deserved", "guarantee", "priority", "parent?enableHierarchy")
    ledger: QueueLedger[Account]

    def open(self, session: Session) -> None:
        self._session = session
        self._hierarchy = self.flags.get("enableHierarchy", False)
        self._level = max(self.values["ancestorReclaimLevel"], 0) if self._hierarchy else 0
        self._resources = resources = Resources(session)
        self._accounts = [Account(queue, resources) for queue in session.queue_list]
        self.barred: dict[str, str] = {}
        """Why queues take no work, by name, with the remedy."""
        if self._hierarchy:
            self.barred = link(self._accounts, session.snapshot.bad_queues)
            check_amounts(self._accounts, resources, self.barred)
        self.ledger = QueueLedger(session, self._accounts, self.values[VOLCANO_SHARES.key])
        usage = usage_by_queue(session)
        self.ledger.fill(*usage)
        self.ledger.count_guarantees(lambda account: account.takes_work(self.barred))
        if self._hierarchy:
            set_limits(self._accounts, resources)
        else:
            set_flat_limits(self.ledger, resources)
        most = [account.real_capability for account in self._accounts]
        self.ledger.protect_guarantees(attainable(session, usage[0]), most, without=ROOT_QUEUE)
        for account in self._accounts:
            account.settle(resources)
        self._defers_borrowing = set_wishes(self._accounts, session)
        # computed once per session, as in Volcano: charging one queue must not move its siblings within a heap
        self._above = [
            [(above.name, _rank(above)) for above in reversed(account.lineage[1:]) if above.name != ROOT_QUEUE]
            for account in self._accounts
        ]
        self._reclaim = Reclaim(self._accounts, resources, session.nodes, self._level)
        self._freeable = FreeableByEviction(session, self.values[COUNT_VICTIMS.key])
        self._attempts = Attempts(session)
        self._reservations = Reservations(self._accounts)
        self._reservations.open(session)

    # --- orders -----------------------------------------------------------------------------------------------------

    @labelled(PRIORITY, _PARENT, _BORROWS, _SHARE)
    def queue_order(self, queue: Queue) -> tuple[Any, ...]:
        """Order by `spec.priority`, then leaves first, then queues that stay within deserved, then by share.

        In a tree, the shares of the first ancestors in which two queues differ are compared.
        """
        account = self._accounts[queue.index]
        first = (-queue.record.queue.spec.priority, bool(account.children), self._defers_borrowing and account.borrows)
        if account.children or not self._hierarchy:
            return (*first, _rank(account))
        names, ranks = zip(*self._above[queue.index], (account.name, _rank(account)), strict=True)
        return (*first, Standing(names, ranks))

    @labelled(_ANCESTORS)
    def victim_queue_order(self, queue: Queue, preemptor: Queue) -> int:
        """Order queues with more ancestors in common with the preemptor's queue first."""
        chain = self._accounts[preemptor.index].lineage
        return -sum(above in chain[1:] for above in self._accounts[queue.index].lineage[1:])

    # --- gates ------------------------------------------------------------------------------------------------------

    def allocatable(self, queue: Queue, task: Task, count: int) -> Reason | None:
        """Return a reason if the tasks would exceed their queue's or an ancestor's capability, or use others'
        guarantees."""
        amounts = [amount * count for amount in task.amounts]
        refusal = (
            self._refuses(queue)
            or self._over(queue, amounts, task, count)
            or self.ledger.refusal(_GUARANTEED, queue, amounts)
        )
        if refusal is None and task.gated:
            self._reservations.reserve(task)  # its gate will be removed: its quota is reserved from now on
        return refusal

    def preemptive(self, queue: Queue, tasks: list[Task]) -> Reason | None:
        """Return a reason if the queue may not reclaim for the tasks.

        It may if it stays within its real capability, and in some requested resource within deserved (its own, or that
        of an ancestor within ``ancestorReclaimLevel``) or within the guarantee of any ancestor.
        """
        refusal = self._refuses(queue)
        if refusal is not None:
            return refusal
        account = self._accounts[queue.index]
        request = request_of(tasks)
        wanted = [column for column in self._resources.compared if request[column]]
        allocated, most = account.allocated, account.real_capability
        over = [column for column in wanted if allocated[column] + request[column] > most[column]]
        if over:
            held = self._attempts.told(tasks[0].job, over, allocated)
            return self._refusal(_BEYOND_CAPABILITY, account, over, request, held)
        for entitled, due in self._entitlements(account):
            for column in wanted:
                if entitled.allocated[column] + request[column] <= due[column]:
                    return None
        held = self._attempts.told(tasks[0].job, wanted, allocated)
        return self._refusal(HAS_DESERVED, account, wanted, request, held, "deserved")

    def _entitlements(self, account: Account) -> Iterator[tuple[Account, list[int]]]:
        """Yield a queue's account and its ancestors', each with what the queue can reclaim of it."""
        for depth, entitled in enumerate(account.lineage):
            if entitled.name != ROOT_QUEUE or entitled is account:
                yield entitled, self._entitlement(entitled, depth)

    def _entitlement(self, account: Account, depth: int) -> list[int]:
        """Return what a queue ``depth`` levels below can reclaim.

        That is what is deserved within ``ancestorReclaimLevel``, and the guarantee above it.
        """
        return account.deserved if depth <= self._level else account.guarantee

    def _refuses(self, queue: Queue) -> Reason | None:
        """Return why a queue takes no work at all, if so."""
        if not queue.is_open:
            return queue.why_closed()
        if not self._hierarchy:
            return None
        problem = self.barred.get(queue.name)
        if problem is not None:
            return _MISCONFIGURED({"queue": queue.name, "problem": problem})
        children = self._accounts[queue.index].children
        if children:
            names = ", ".join(sorted(child.name for child in children))
            return _NOT_A_LEAF({"queue": queue.name, "child queues": names})
        return None

    def _over(self, queue: Queue, amounts: Sequence[int], task: Task, count: int) -> Reason | None:
        """Return a reason if ``count`` tasks, which request ``amounts``, would exceed a limit of their queue or of an
        ancestor. Only a single task may use the quota that is reserved for it."""
        for account in self._accounts[queue.index].lineage:
            allocated, limits = account.allocated, account.limits
            if account.reserved is None:
                for column, amount in enumerate(amounts):
                    if amount and allocated[column] + amount > limits[column]:
                        break
                else:
                    continue
            reserved = account.reserved or [0] * len(amounts)
            own = amounts if count == 1 and self._reservations.holds(task) else [0] * len(amounts)
            others = [amount - mine for amount, mine in zip(reserved, own, strict=True)]
            over = [
                column
                for column, amount in enumerate(amounts)
                if amount and allocated[column] + others[column] + amount > limits[column]
            ]
            if over:
                code = _BEYOND_CAPABILITY if account.queue is queue else _BEYOND_PARENTS_CAPABILITY
                held = self._attempts.told(task.job, over, allocated)
                reserved_amounts = self._session.told(over, reserved=others)  # for pods whose gate was removed
                return self._refusal(code, account, over, amounts, held, more=reserved_amounts)
        return None

    def _refusal(
        self,
        code: ReasonCode,
        account: Account,
        columns: Sequence[int],
        request: Sequence[int],
        held: Sequence[Amount],
        bound: str = "capability",
        more: Sequence[Amount] = (),
    ) -> Reason:
        limits = account.deserved if bound == "deserved" else account.limits
        finite = [0 if limit >= UNLIMITED else limit for limit in limits]
        amounts = [*self._session.told(columns, asks=request), *held, *self._session.told(columns, **{bound: finite})]
        names = {"queue": account.name, **({"parent": account.name} if code.cause is Cause.PARENT_LIMIT else {})}
        return code(names, [*amounts, *more])

    # --- admission --------------------------------------------------------------------------------------------------

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Permit if the group's minimum stays within the real capability of its queue and all ancestors."""
        refusal = self._refuses(job.queue)
        if refusal is not None:
            return refusal
        if job.record.min_resources is None:
            return Vote.PERMIT
        needed: list[int] = self._session.jobs.min_resources[job.index].tolist()
        freeable = self._freeable.minimum_held(job).tolist()
        chain = self.ledger.admitting[job.queue.index].lineage
        for depth, account in enumerate(chain):
            ahead = account.inqueue.ahead(job.priority)
            after = [
                need + have + others - spare - freed
                for need, have, others, spare, freed in zip(
                    needed, account.allocated, ahead, account.elastic, freeable, strict=True
                )
            ]
            over = [
                column
                for column in self._resources.compared
                if needed[column]
                and after[column] > account.real_capability[column]
                and not self._can_recover(chain[:depth], column, needed[column], account, job.priority)
            ]
            if over:
                code = _INSUFFICIENT_IN_PARENT if depth else _INSUFFICIENT
                return self._refusal(code, account, over, needed, self._session.told(over, would_hold=after))
        return Vote.PERMIT

    def _can_recover(self, below: tuple[Account, ...], column: int, need: int, account: Account, priority: int) -> bool:
        """Return whether a queue below a full ancestor stays within what it can reclaim.

        Then it recovers what others borrowed of the ancestor's resources (Volcano #4817).
        """
        for depth, entitled in enumerate(below):
            holds = need + entitled.allocated[column] + entitled.inqueue.ahead(priority)[column]
            if holds <= self._entitlement(entitled, depth)[column] and holds <= account.real_capability[column]:
                return True
        return False

    def stays_within_share(self, job: Job) -> bool:
        """Return whether the queue could reclaim for a group (see ``preemptive``)."""
        needed = self._session.jobs.min_resources[job.index].tolist()
        return any(
            entitled.allocated[column] + entitled.inqueue.ahead(job.priority)[column] + needed[column] <= due[column]
            for entitled, due in self._entitlements(self.ledger.admitting[job.queue.index])
            for column in self._resources.compared
            if needed[column]
        )

    def surplus(self, queue: Queue) -> Ints:
        """Return what queues hold above deserved; resources that a queue does not deserve count in full."""
        return np.array([account.surplus() for account in self._accounts], np.int64)

    # --- victims ----------------------------------------------------------------------------------------------------

    @victim_rule("tasks of queues above their deserved share, until these queues reach it or their guarantee")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> Allowance:
        """Permit victims of queues that hold more than they deserve, until they reach it; guarantees are retained."""
        return self._reclaim.allowance(reclaimer.job.queue, reclaimer.amounts, reclaimer.floor.tolist())

    @victim_rule("for gangreclaim, tasks of queues above their deserved share; for gangpreempt, all tasks")
    def unified_evictable(self, context: EvictionContext | None, tasks: list[Task]) -> VictimsAnswer:
        """Permit the same victims for gangreclaim; all candidates for gangpreempt."""
        if context is None or context.kind != "gangreclaim":
            return tasks
        wanted = context.wanted.tolist()
        return self._reclaim.allowance(context.job.queue, wanted, None)

    # --- accounts ---------------------------------------------------------------------------------------------------

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Update what the queue and its ancestors hold."""
        self.ledger.charge(tasks[0].job.queue, tasks[0].amounts, sign * len(tasks))
        for task in tasks:
            self._reservations.moved(task, sign)

    # --- reporting --------------------------------------------------------------------------------------------------

    def problems(self) -> Iterator[Problem]:
        """Yield queues that take no work, and queues with limits that contradict each other."""
        for name, text in self.barred.items():
            yield Problem("Queue", name, f"the queue takes nothing: {text}")
        for queue in self._session.queue_list:
            stated = {"deserved": queue.record.deserved, "guarantee.resource": queue.record.guarantee}
            yield from contradictions(queue, self._resources, stated)

    def gauges(self) -> Iterator[Gauge]:
        """Return Volcano's queue metrics, and the guarantees."""
        names = self._resources.names
        for account in self.ledger.admitting:
            queue = account.name
            series: dict[str, Sequence[float]] = {
                "allocated": account.allocated,
                "request": account.request,
                "inqueue": account.inqueue.total(),
                "deserved": account.deserved,
                "guarantee": account.guarantee,
                "capability": [inf if limit >= UNLIMITED else limit for limit in account.capability],
                "real_capability": [inf if limit >= UNLIMITED else limit for limit in account.real_capability],
            }
            yield from resource_gauges_of(account.queue, names, series)
            yield queue_gauge("share", queue, account.share)
            yield queue_gauge("overused", queue, float(account.share > 1))


def _rank(account: Account) -> Rank:
    """Order by share, smallest first; at equal shares, queues that deserve something first."""
    return (account.share, not account.deserves_any)
