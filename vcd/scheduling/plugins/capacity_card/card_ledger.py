"""The ledger of capacity-card: cards by the pods' positions and requests (docs/semantics/capacity-card.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Pod
from vcd.model.resource_requests import CPU, MEMORY
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, Phase, TaskStatus
from vcd.scheduling.framework.guarantees import attainable
from vcd.scheduling.framework.ledger import QueueLedger, usage_by_queue
from vcd.scheduling.plugins.capacity_card.card_account import CardAccount, CardReservations, QuotaAmounts, add_to
from vcd.scheduling.plugins.capacity_card.card_annotations import REQUEST, CardError, Names, read_request
from vcd.scheduling.plugins.capacity_card.card_requests import CardRequest, card_request
from vcd.scheduling.plugins.capacity_card.node_cards import NO_CARD, NodeCards
from vcd.scheduling.plugins.capacity_card.pending_cards import PendingCards, card_name
from vcd.scheduling.session.job_columns import Flags, are_preemptable, elastic, inqueue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.interning import NO_ROW
from vcd.state.records import Shape
from vcd.state.sums import Ints, sum_of, sums_before, sums_by


class HeldCard(NamedTuple):
    """Cards allocated when the session begins. ``holder``: a job, or -1 - row of a pod whose group was deleted."""

    holder: int
    queue: int
    card: str
    amount: int


class CardLedger(QueueLedger[CardAccount]):
    """The accounts of all queues, for cpu and memory and for cards, and the requests of the session's pods.

    ``unlimited``: pods that request cards count no cpu and memory (cardUnlimitedCpuMemory).
    """

    def __init__(self, session: Session, cards: NodeCards, unlimited: bool, as_volcano: bool) -> None:
        super().__init__(session, [CardAccount(queue) for queue in session.queue_list], as_volcano)
        self._cards = cards
        self._unlimited = unlimited
        self._request = cache(partial(_request_for, cards, unlimited))
        self.held: list[HeldCard] = []
        self.within_minimum: list[HeldCard] = []
        """The portion of ``held`` that is not elastic."""
        self.above_members: list[HeldCard] = []
        """For groups that state no minimum of a card: the most that all pods except minMember hold of it."""
        self.unreadable: dict[int, str] = {}
        """Why the request annotation of a group without pods is unreadable, by job."""
        tasks = session.snapshot.tasks
        of_shape: npt.NDArray[np.bool_] = np.any(session.requests[:, cards.columns] > 0, axis=1)
        self._requests_cards = of_shape[tasks.shape] & (session.queue_of_row >= 0)
        of_jobs = self._requests_cards & (session.job_of_row >= 0)
        self.waiting = PendingCards(session, cards, of_jobs, self._request)
        self._hold_cards()
        self._queue_cards(of_jobs)
        self._fill_basic()
        self._hold_releasing()

    # --- requests -----------------------------------------------------------------------------------------------------

    def request_of(self, task: Task) -> CardRequest:
        return self._request(task.shape, card_name(task.pod), card_name(task.job.record.group))

    def _request_of_row(self, row: int) -> CardRequest:
        session, tasks = self._session, self._session.snapshot.tasks
        shape, job = session.snapshot.shapes[tasks.shape[row]], int(session.job_of_row[row])
        assert shape is not None
        inherited = card_name(session.jobs.records[job].group) if job >= 0 else None
        return self._request(shape, card_name(tasks.pods[row]), inherited)

    def card_pods(self, statuses: tuple[int, ...]) -> Ints:
        """Return the rows of pods in one of ``statuses`` that request cards."""
        return np.flatnonzero(self._requests_cards & np.isin(self._session.snapshot.tasks.status, statuses))

    def charged(self, request: CardRequest, row: int) -> list[tuple[str, int]]:
        """Return what a pod on a node uses, by the node's card, or by the first named card if that is unknown."""
        used = []
        for demand in request.demands:
            card = self._cards.card_at(demand.resource, row) or (demand.names[0] if demand.named else None)
            if card is not None:
                used.append((card, demand.amount))
        return used

    def demand(self, job: Job) -> dict[Names, int]:
        """Return the cards that a group's minimum still lacks: from its pods, or from its annotation if it has none."""
        return self._sums(job, self.waiting.needed) if job.task_count else self._annotated(job.index)

    def cards_of_minimum(self, job: Job) -> dict[Names, int]:
        """Return the cards of a group's minimum, even if neither pods nor an annotation name them yet.

        They are then any card of the resources that the group's minimum resources state.
        """
        demand = self.demand(job)
        if demand or job.task_count:
            return demand
        minimum = self._session.jobs.min_resources[job.index]
        pairs = zip(self._cards.resources, self._cards.columns, strict=True)
        return {self._cards.cards_of[resource]: int(minimum[at]) for resource, at in pairs if minimum[at]}

    def reserved(self, job: Job) -> dict[Names, int]:
        """Return what an admitted group reserves.

        That is its demand without pods behind a scheduling gate or that fit on no node; nothing if no node can take the
        group.
        """
        if not self.groups.reserves[job.index]:
            return {}
        return self._sums(job, self.waiting.reserved) if job.task_count else self._annotated(job.index)

    def _sums(self, job: Job, needed: dict[str, Ints]) -> dict[Names, int]:
        entries = self.waiting.of_job(job.index)
        sums: dict[Names, int] = {}
        for resource, amounts in needed.items():
            names = self.waiting.names[resource]
            for kind, amount in zip(self.waiting.kind[entries].tolist(), amounts[entries].tolist(), strict=True):
                if amount:
                    add_to(sums, {names[kind]: amount})
        for uncreated, amount in self.waiting.demand_of_uncreated(job.index):
            add_to(sums, {uncreated: amount})
        return sums

    def _annotated(self, job: int) -> dict[Names, int]:
        """Return the cards that a group's annotation requests; none without a readable one.

        The annotation only prevents creating pods too early, and each pod is checked later.
        """
        text = self._session.jobs.records[job].group.metadata.annotations.get(REQUEST)
        if text is None:
            return {}
        try:
            return read_request(text)
        except CardError as error:
            self.unreadable[job] = str(error)
            return {}

    def minimum(self, job: Job) -> tuple[int, int]:
        """Return a group's minimum of cpu and memory, as its queue counts them."""
        if self._unlimited and self._has_cards[job.index]:
            return 0, 0
        cpu, memory = self._session.jobs.min_resources[job.index, :2].tolist()
        return cpu, memory

    def freed(self, job: Job, all_of: Flags) -> QuotaAmounts:
        """Return what groups of lower priority than a job can lose in its queue, in addition to elastic resources.

        The groups in ``all_of`` lose also their minimum. The others retain it; if they state no minimum of a card, they
        retain as many pods as minMember.
        """
        jobs = self._session.jobs
        below = (jobs.queue == job.queue.index) & (jobs.priority < job.priority) & jobs.derived(are_preemptable)
        cards: dict[Names, int] = {}
        for parts, groups in ((self.within_minimum, all_of), (self.above_members, below & ~all_of)):
            for held in parts:
                if held.holder >= 0 and groups[held.holder]:
                    add_to(cards, {(held.card,): held.amount})
        counted = all_of & ~self._has_cards if self._unlimited else all_of
        cpu, memory = sum_of(np.minimum(jobs.allocated[counted, :2], jobs.min_resources[counted, :2])).tolist()
        return QuotaAmounts((cpu, memory), cards)

    def pod_of(self) -> dict[int, Pod]:
        """Return a pod that requests cards for each job, or by -1 - row if its group was deleted."""
        rows = np.flatnonzero(self._requests_cards)
        holders, first = np.unique(self._holders_of(rows), return_index=True)
        pods = self._session.snapshot.tasks.pods
        found = {each: pods[row] for each, row in zip(holders.tolist(), rows[first].tolist(), strict=True)}
        return {each: pod for each, pod in found.items() if pod is not None}

    def _holders_of(self, rows: Ints) -> Ints:
        jobs = self._session.job_of_row[rows].astype(np.int64)
        result: Ints = np.where(jobs >= 0, jobs, -1 - rows)
        return result

    # --- filling ------------------------------------------------------------------------------------------------------

    def _hold_cards(self) -> None:
        """Fill in allocated and elastic cards of queues, from the pods' nodes."""
        session, cards = self._session, self._cards
        tasks = session.snapshot.tasks
        rows = self.card_pods(ALLOCATED_STATUSES)
        holders, nodes = self._holders_of(rows), tasks.node[rows]
        there = nodes >= 0
        for resource, column in zip(cards.resources, cards.columns, strict=True):
            amounts = session.requests[tasks.shape[rows], column]
            codes = np.full(len(rows), NO_CARD, np.int32)
            codes[there] = cards.codes[resource][nodes[there]]
            self._hold(column, holders, codes, amounts)
            for position in np.flatnonzero((codes == NO_CARD) & (amounts > 0)).tolist():
                self._hold_unknown(resource, int(holders[position]), int(rows[position]))
        for held in self.held:
            allocated = self.accounts[held.queue].cards
            allocated[held.card] = allocated.get(held.card, 0) + held.amount

    def _hold(self, column: int, holders: Ints, codes: npt.NDArray[np.int32], amounts: Ints) -> None:
        known = (codes != NO_CARD) & (amounts > 0)
        width = max(1, len(self._cards.names))
        pairs, inverse = np.unique(holders[known] * width + codes[known], return_inverse=True)
        sums = sums_by(inverse, amounts[known], len(pairs))
        holder, code = np.divmod(pairs, width)
        names = [self._cards.names[number] for number in code.tolist()]
        queues = [self._queue_of(each) for each in holder.tolist()]
        self.held += map(HeldCard, holder.tolist(), queues, names, sums.tolist())
        # what a job holds above its minimum is elastic; the minimum uses up its cards in their order
        states = holder >= 0
        stated = self._session.jobs.min_resources[:, column]
        minimum = np.zeros_like(sums)
        minimum[states] = stated[holder[states]]
        retained = np.clip(minimum - sums_before(holder, sums), 0, sums)
        elastic = np.where(minimum > 0, sums - retained, 0)
        self.within_minimum += map(HeldCard, holder.tolist(), queues, names, (sums - elastic).tolist())
        above = self._above_members(holder, inverse, amounts[known]) * (minimum == 0)
        self.above_members += map(HeldCard, holder.tolist(), queues, names, above.tolist())
        for index in np.flatnonzero(elastic).tolist():
            spare = self.accounts[queues[index]].cards_elastic
            spare[names[index]] = spare.get(names[index], 0) + int(elastic[index])

    def _above_members(self, holder: Ints, pairs: Ints, amounts: Ints) -> Ints:
        """Return the most that all of a holder's pods except minMember can have of a card: the largest requests count.

        ``pairs`` gives the pair of holder and card for each pod.
        """
        jobs, grouped = self._session.jobs, holder >= 0
        ready = jobs.counts[:, list(READY_STATUSES)].sum(axis=1)
        spare = np.zeros_like(holder)
        spare[grouped] = np.maximum(ready - jobs.min_member, 0)[holder[grouped]]
        order = np.lexsort((-amounts, pairs))
        before = sums_before(pairs[order], np.ones(len(pairs), np.int64))
        is_spare = before < spare[pairs[order]]
        return sums_by(pairs[order], amounts[order] * is_spare, len(holder))

    def _queue_of(self, holder: int) -> int:
        return int(self._session.jobs.queue[holder] if holder >= 0 else self._session.queue_of_row[-1 - holder])

    def _hold_unknown(self, resource: str, holder: int, row: int) -> None:
        for demand in self._request_of_row(row).demands:
            if demand.resource == resource and demand.named:
                held = HeldCard(holder, self._queue_of(holder), demand.names[0], demand.amount)
                self.held.append(held)
                self.within_minimum.append(held)

    def _hold_releasing(self) -> None:
        """Add up what terminating pods hold on nodes."""
        session, tasks = self._session, self._session.snapshot.tasks
        releasing = (tasks.status == TaskStatus.RELEASING) & (tasks.node != NO_ROW) & (session.queue_of_row >= 0)
        for row in np.flatnonzero(releasing).tolist():
            request = self._request_of_row(row)
            account = self.accounts[session.queue_of_row[row]]
            account.releasing = [have + more for have, more in zip(account.releasing, request.basic, strict=True)]
            for card, amount in self.charged(request, int(tasks.node[row])):
                account.cards_releasing[card] = account.cards_releasing.get(card, 0) + amount

    def _queue_cards(self, requests_cards: npt.NDArray[np.bool_]) -> None:
        """Add up requests of cards, and note the groups that request cards at all."""
        session, jobs, waiting = self._session, self._session.jobs, self.waiting
        for account in self.accounts:
            account.cards_requested = {(card,): amount for card, amount in account.cards.items()}
        for resource in self._cards.resources:
            for queue, _, names, amount in self._sums_of(resource, waiting.requested[resource]):
                add_to(self.accounts[queue].cards_requested, {names: amount})
        has_cards = np.bincount(session.job_of_row[requests_cards], minlength=len(jobs)) > 0
        has_cards |= (jobs.min_resources[:, self._cards.columns] > 0).any(axis=1)
        without_pods = (jobs.counts.sum(axis=1) == 0) & ((jobs.phase == Phase.INQUEUE) | (jobs.phase == Phase.PENDING))
        for index in np.flatnonzero(without_pods).tolist():
            has_cards[index] |= bool(self._annotated(index))
        self._has_cards = has_cards

    # --- reservations -------------------------------------------------------------------------------------------------

    @cached_property
    def reservations(self) -> list[CardReservations]:
        """The cards that admitted groups may still take, by queue index; add newly admitted groups to it."""
        found = [CardReservations() for _ in self.accounts]
        jobs, waiting = self._session.jobs, self.waiting
        allocated_tasks = jobs.counts[:, list(ALLOCATED_STATUSES)].sum(axis=1)
        runs = jobs.states_minimum & (jobs.phase == Phase.RUNNING) & (allocated_tasks >= jobs.min_member)
        reserves = ((jobs.phase == Phase.INQUEUE) | runs) & self.groups.reserves
        for resource in self._cards.resources:
            needed = np.where(reserves[waiting.job], waiting.reserved[resource], 0)
            for queue, priority, names, amount in self._sums_of(resource, needed):
                found[queue].add(priority, {names: amount})
        priorities = jobs.priority.tolist()
        for index in np.flatnonzero(reserves & np.any(list(waiting.uncreated.values()), axis=0)).tolist():
            for names, amount in waiting.demand_of_uncreated(index):
                found[jobs.queue[index]].add(priorities[index], {names: amount})
        for index in np.flatnonzero(reserves & (jobs.counts.sum(axis=1) == 0) & (jobs.phase == Phase.INQUEUE)).tolist():
            found[jobs.queue[index]].add(priorities[index], self._annotated(index))
        return found

    def _inqueue(self) -> Ints:
        if not self._unlimited:
            return super()._inqueue()[:, :, :2]
        ranks, count = len(self._session.jobs.priorities), len(self.accounts)
        amounts = self.groups.derived(inqueue)[:, :2] * ~self._has_cards[:, None]
        return sums_by(self._by_priority(), amounts, count * ranks).reshape(count, ranks, 2)

    def _sums_of(self, resource: str, amounts: Ints) -> Iterator[tuple[int, int, Names, int]]:
        """Yield (queue, priority, acceptable cards, amount) for a resource."""
        waiting, jobs, width = self.waiting, self._session.jobs, max(1, len(self.waiting.kinds))
        chosen = np.flatnonzero(amounts)
        keys = self._by_priority()[waiting.job[chosen]] * width + waiting.kind[chosen]
        distinct, inverse = np.unique(keys, return_inverse=True)
        totals = sums_by(inverse, amounts[chosen], len(distinct))
        for key, total in zip(distinct.tolist(), totals.tolist(), strict=True):
            place, kind = divmod(key, width)
            queue, rank = divmod(place, len(jobs.priorities))
            yield queue, int(jobs.priorities[rank]), waiting.names[resource][kind], total

    def _by_priority(self) -> Ints:
        """Return a number for each job's queue and priority: queue * priorities + rank."""
        jobs = self._session.jobs
        ranks = np.searchsorted(jobs.priorities, jobs.priority)
        result: Ints = jobs.queue.astype(np.int64) * len(jobs.priorities) + ranks
        return result

    def _fill_basic(self) -> None:
        """Add up cpu and memory of queues, and set their limits."""
        jobs = self._session.jobs
        allocated, pending, above = (sums[:, :2].copy() for sums in usage_by_queue(self._session))
        if self._unlimited:
            above = sums_by(jobs.queue, jobs.derived(elastic)[:, :2] * ~self._has_cards[:, None], len(self.accounts))
            allocated -= self._of_card_pods(ALLOCATED_STATUSES)
            pending -= self._of_card_pods((TaskStatus.PENDING,))
        self.fill(allocated, pending, above)
        self.count_guarantees(lambda account: account.queue.is_open)
        left = self.left_to_each(self._session.nodes.total[:2].tolist())
        for account, amounts in zip(self.accounts, left, strict=True):
            account.settle(amounts)
        self.protect_guarantees(attainable(self._session, allocated))

    def _of_card_pods(self, statuses: tuple[int, ...]) -> Ints:
        """Return the cpu and memory of pods that request cards, by queue."""
        session, tasks = self._session, self._session.snapshot.tasks
        rows = self.card_pods(statuses)
        return sums_by(session.queue_of_row[rows], session.requests[tasks.shape[rows], :2], len(self.accounts))


def _request_for(
    cards: NodeCards, unlimited: bool, shape: Shape, own: str | None, inherited: str | None
) -> CardRequest:
    requests = shape.requests
    uses_cards = any(requests.get(name, 0) > 0 for name in cards.resources)
    counted = not (unlimited and uses_cards)
    basic = (requests.get(CPU, 0), requests.get(MEMORY, 0)) if counted else (0, 0)
    return card_request(requests, own, inherited, cards, basic)
