"""capacity-card: hold queues to quotas of accelerator cards by model (docs/semantics/capacity-card.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from msgspec.structs import replace

from vcd.model.events import Waiting
from vcd.model.objects import Object, Pod
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.victim_search import EvictionContext
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.freeable_resources import COUNT_VICTIMS, FreeableByEviction
from vcd.scheduling.framework.order import PRIORITY, SHARE, labelled
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.quotas import QueueLimit
from vcd.scheduling.framework.shares import VOLCANO_SHARES, KeepsShares
from vcd.scheduling.framework.victims import Allowance, VictimsAnswer, victim_rule
from vcd.scheduling.plugins.capacity_card.card_account import BASIC, CardAccount, CardReservations, QuotaAmounts, add_to
from vcd.scheduling.plugins.capacity_card.card_annotations import CARD_NAME, MILLI, QUOTA, REQUEST, Names
from vcd.scheduling.plugins.capacity_card.card_ledger import CardLedger
from vcd.scheduling.plugins.capacity_card.card_model_rules import CardModel, CardOrder
from vcd.scheduling.plugins.capacity_card.card_quota import CARDS, limits_of
from vcd.scheduling.plugins.capacity_card.card_requests import CardRequest
from vcd.scheduling.plugins.capacity_card.entitlements import BeyondEntitlement, Entitlements
from vcd.scheduling.plugins.capacity_card.gang_card_needs import GangRests
from vcd.scheduling.plugins.capacity_card.node_cards import cards_of
from vcd.scheduling.plugins.capacity_card.releasing_quota import QuotaFreed
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.session.gauges import Gauge, queue_gauge, resource_gauges
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import GroupRecord
from vcd.state.sums import Ints, plus

_GUARANTEED = ReasonCode(
    "card-guarantee",
    Cause.OTHERS_GUARANTEE,
    "what is left is guaranteed to other queues",
    field="spec.guarantee.resource.{resource}",
)
_VOLCANO_SHARES = replace(
    VOLCANO_SHARES,
    doc=f"{VOLCANO_SHARES.doc} Deserved shares do not limit reclaim: the other plugins decide about pods without "
    "cards.",
)

SERVICE = "volcano.sh/service.type"
ONLINE, OFFLINE = "online", "offline"
_PLACED_IN_TRIAL = (TaskStatus.PENDING, TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
"""The possible statuses of a task after a trial placement or its rollback. An eviction, or its rollback, gives other
statuses."""


class CapacityCardPlugin(KeepsShares):
    """Hold queues to a quota for each model of card, and to limits of cpu and memory. Queues are flat.

    - A queue's annotation `volcano.sh/card.quota` (`{"NVIDIA-H200": 3}`) is its quota. It is also the queue's guarantee
      and deserved number of cards. Cards that it does not list have quota 0. Cpu and memory are limited by
      `capability`, where 0 means none. If it is not set, the limit is what the guarantees of all queues leave of the
      cluster, plus the queue's own. Several queues together do not get what others are guaranteed of these and do not
      use. If a queue is not Open, only the allocated portion of its guarantee counts.
    - A node's model is its label `<vendor>/<kind>.product` (with `.memory`). Its allocatable gives the number of cards:
      whole cards under the vendor's resource, MPS shares as `<product>/mps-<GiB>g*1/<replicas>`, MIG slices as
      `<product>/mig-<profile>-mixed`. Resources that are not cards have no limit.
    - A pod or its group names the card in `volcano.sh/card.name`. `A|B` accepts either and prefers the first. All named
      cards must belong to one resource, which the pod requests. A card that no node has cannot be assigned. A pod that
      names no card accepts any card of the resource.
    - A group is admitted if minimum + allocated + inqueue - elastic <= capability. Interchangeable cards are checked
      together. Inqueue excludes groups of lower priority, and resources that preempt could free for the group count as
      free. The minimum of cards is the number that minResources states for their resource, of the cards that the pods
      name (pods still to be created name the same). If it states none, the minimum is the smallest request of as many
      pods as minMember lacks. Before pods exist, the annotation `volcano.sh/card.request` gives the minimum; if it is
      unreadable, it counts as none.
    - A pod is placed while allocated + request <= capability, on a node with a card that it names. Of several named
      cards it gets one with quota left, with which the rest of its gang still fits. Its use is charged to the card of
      its node, so no quota is ever exceeded. Resources of terminating pods, and of pods whose group was deleted, are
      free only when the pods are gone. A pod in phase Unknown counts against no queue, as with other quotas.
    - A node with the i-th named card scores 100 x 0.5^i x `nodeOrderWeight`, counted from 0. Queues are ordered by
      `spec.priority`, then by the smaller share, the largest allocated/deserved.

    Quotas may exceed the cluster in sum, and a cluster may shrink: then pods wait, and none is evicted. Because the
    quota is the guarantee, reclaim takes cards only from queues above their quota, after it was lowered. Pods without
    cards are reclaimed from queues that hold more cpu or memory than they deserve, for queues that stay within what
    they deserve. An unreadable quota causes no evictions. Pods of a Job count as offline, all others as online. The
    label `volcano.sh/service.type` (`online`, `offline`) on pod or group overrides this. Gauges of `volcano_*` are in
    thousandths of a card, those of `vcd_*` in cards.

    See docs/semantics/capacity-card.md for details. Source: Volcano ``plugins/capacity-card``.
    """

    name = "capacity-card"
    protects = True
    arguments = (
        Argument("cardUnlimitedCpuMemory", "bool", False, "Whether pods that request cards count no cpu and memory."),
        _VOLCANO_SHARES,
        COUNT_VICTIMS,
        Argument("nodeOrderWeight", "float", 1.0, "Weight of the order in which a pod names cards.", minimum=0),
    )
    keys = (QUOTA, REQUEST, CARD_NAME, SERVICE)
    series = (
        ("vcd_queue_card_quota", "Cards of a model that a queue may have."),
        ("vcd_queue_card_guarantee", "Cards of a model that are reserved for a queue."),
        ("vcd_queue_card_allocated", "Cards of a model that a queue's tasks have."),
        ("vcd_queue_card_elastic", "Cards of a model that a queue's jobs have above their minimums."),
        ("vcd_cards_total", "Cards of a model in the cluster."),
        ("vcd_cards_allocated", "Cards of a model that tasks have, by online and offline services."),
        ("vcd_cards_leaving", "Cards of a model that terminating pods still have."),
        ("vcd_cards_requested", "Cards of a model that tasks have and request, by online and offline services."),
        ("vcd_card_nodes_unidentified", "Nodes with cards whose labels do not state the model."),
    )
    quotas = (CARDS,)
    queue_fields = ("capability", "deserved", "guarantee", "priority")
    limits_zero = True
    ledger: CardLedger

    def open(self, session: Session) -> None:
        self._session = session
        self._cards = cards_of(session.nodes.facts)
        self.ledger = CardLedger(
            session, self._cards, self.values["cardUnlimitedCpuMemory"], self.values[VOLCANO_SHARES.key]
        )
        self._queues = self.ledger.accounts
        self._entitlements = Entitlements(session, self._cards, self.ledger)
        self._divides_basic = self._entitlements.divide_basic and not self.values[VOLCANO_SHARES.key]
        self._freeable = FreeableByEviction(session, self.values[COUNT_VICTIMS.key])
        self._freed_for: dict[tuple[int, int], QuotaAmounts] = {}
        self._rests = GangRests(self.ledger.waiting)
        self._requests: dict[int, CardRequest] = {}
        self._moved: dict[tuple[int, str], int] = {}

    def _request(self, task: Task) -> CardRequest:
        request = self._requests.get(task.row)
        if request is None:
            request = self._requests[task.row] = self.ledger.request_of(task)
        return request

    # --- gates --------------------------------------------------------------------------------------------------------

    @labelled(PRIORITY, SHARE)
    def queue_order(self, queue: Queue) -> tuple[int, float]:
        """Order queues by `spec.priority`, highest first, then by share, smallest first."""
        return (-queue.record.queue.spec.priority, self._queues[queue.index].share())

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Permit if the group's minimum stays within the queue's quota and capability, else return a reason."""
        if not job.queue.is_open:
            return job.queue.why_closed()
        account = self.ledger.admitting[job.queue.index]
        requested = QuotaAmounts(self.ledger.minimum(job), self.ledger.demand(job))
        reservations = self.ledger.reservations[job.queue.index]
        return account.admits(job.priority, requested, self._freed(job), reservations) or Vote.PERMIT

    def _freed(self, job: Job) -> QuotaAmounts:
        """Return what preempt could free for a group in its queue, in addition to elastic resources."""
        if not self._freeable.may_preempt(job):
            return QuotaAmounts()
        key = (job.queue.index, job.priority)
        if key not in self._freed_for:
            self._freed_for[key] = self.ledger.freed(job, self._freeable.lose_minimum(job))
        return self._freed_for[key]

    def job_enqueued(self, job: Job) -> None:
        """Count what an admitted group reserves."""
        self.ledger.reservations[job.queue.index].add(job.priority, self.ledger.reserved(job))
        if any(self.ledger.minimum(job)):
            super().job_enqueued(job)

    def allocatable(self, queue: Queue, task: Task, count: int) -> Reason | None:
        """Return a reason if the pods would exceed their queue's quota or capability, or if they may not all have the
        same choice of cards."""
        if not queue.is_open:
            return queue.why_closed()
        request = self._request(task)
        if request.refusal is not None:
            return request.refusal
        refused = self._queues[queue.index].refuses(self._without_nameless(request), count)
        if refused is not None:
            return request.missing or refused
        return self.ledger.refusal(_GUARANTEED, queue, [amount * count for amount in request.basic])

    def _without_nameless(self, request: CardRequest) -> CardRequest:
        """Return the request without what a node of unknown model can serve, because no quota is charged for it."""
        nameless = self._cards.has_nameless
        for demand in request.demands:
            if not demand.named and nameless[demand.resource]:
                demands = tuple(demand for demand in request.demands if demand.named or not nameless[demand.resource])
                return CardRequest(demands, request.basic)
        return request

    def pre_predicate(self, task: Task) -> Reason | None:
        """Return a reason if no node can serve the cards that the pod names."""
        request = self._request(task)
        return request.refusal or request.missing

    def preemptive(self, queue: Queue, tasks: list[Task]) -> Reason | None:
        """Return a reason if the queue may not reclaim for the tasks.

        Together they must stay within its quota and capability, and tasks without cards within deserved cpu and memory.
        """
        account = self._queues[queue.index]
        cards: dict[Names, int] = {}
        basic = without_cards = [0, 0]
        for task in tasks:
            request = self._request(task)
            if request.refusal is not None:
                return request.refusal
            demands = self._without_nameless(request).demands
            add_to(cards, {demand.names: demand.amount for demand in demands})
            basic = plus(basic, request.basic, 1)
            without_cards = without_cards if demands else plus(without_cards, request.basic, 1)
        if not queue.is_open:
            return queue.why_closed()
        refusal = account.refuses_together(basic, cards)
        if refusal is None and self._divides_basic and (any(without_cards) or not cards):
            return self._entitlements.refuses(account, without_cards)
        return refusal

    def stays_within_share(self, job: Job) -> bool:
        """Return whether the queue could reclaim for a group (see ``preemptive``)."""
        account, reservations = self.ledger.admitting[job.queue.index], self.ledger.reservations[job.queue.index]
        cards = self.ledger.cards_of_minimum(job)
        if cards:
            return account.has_quota_left(cards, reservations.ahead(job.priority))
        basic = self.ledger.minimum(job)
        return self._entitlements.refuses(account, basic, account.inqueue.ahead(job.priority)) is None

    def surplus(self, queue: Queue) -> Ints:
        """Return what queues hold beyond their quotas of cards, and beyond what they deserve of cpu and memory."""
        return self._entitlements.surplus()

    # --- victims ------------------------------------------------------------------------------------------------------

    @victim_rule(
        "pods with cards beyond their queue's quota only, and pods without cards of queues that borrow cpu or memory"
    )
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> Allowance:
        """Permit pods that use only cards beyond their queue's quota, and pods without cards of queues that borrow.

        A queue borrows if it holds more cpu or memory than it deserves. It retains its guarantee.
        """
        entitlements = self._entitlements if self._divides_basic else None
        return BeyondEntitlement(self.ledger, self._request, entitlements)

    @victim_rule("for gangreclaim as for reclaimable; for gangpreempt all tasks")
    def unified_evictable(self, context: object, tasks: list[Task]) -> VictimsAnswer:
        """Permit the same for gangreclaim; all candidates for gangpreempt."""
        if not isinstance(context, EvictionContext) or context.kind != "gangreclaim" or not tasks:
            return tasks
        return self.reclaimable(tasks[0], tasks)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def predicates(self) -> Iterable[Predicate]:
        """Return the filter for quota of terminating pods, and if nodes have cards, the filter for a node's card."""
        freed = QuotaFreed(self._cards, self._queues, self._request)
        if not self._cards.resources:
            return (freed,)
        return (CardModel(self._session, self._cards, self._queues, self._request, self._rests), freed)

    def node_order(self) -> Iterable[Score]:
        """Return the score for the order in which pods name cards."""
        weight = self.values["nodeOrderWeight"]
        return (CardOrder(self._cards, self._request, weight),) if weight and self._cards.resources else ()

    # --- what happens -------------------------------------------------------------------------------------------------

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Update what the queue holds of cards, cpu and memory, and of the quota that is releasing."""
        task = tasks[0]
        account = self._queues[task.job.queue.index]
        request = self._request(task)
        is_eviction = task.status not in _PLACED_IN_TRIAL  # an eviction or its rollback
        self.ledger.charge(task.job.queue, request.basic, sign * len(rows))
        if is_eviction:
            account.releasing = plus(account.releasing, request.basic, -sign * len(rows))
        else:
            self._rests.change(task.job, request, sign * len(rows))
        for row in rows if request.demands else ():
            for card, amount in self.ledger.charged(request, row):
                account.cards[card] = account.cards.get(card, 0) + sign * amount
                if is_eviction:
                    account.cards_releasing[card] = account.cards_releasing.get(card, 0) - sign * amount
                moved = (task.job.index, card)
                self._moved[moved] = self._moved.get(moved, 0) + sign * amount

    @classmethod
    def limits_of_reason(cls, reason: Waiting) -> Iterator[QueueLimit]:
        """Return the quotas and limits that the plugin's reasons report as short."""
        return limits_of(reason)

    def problems(self) -> Iterator[Problem]:
        """Yield unreadable quotas and requests."""
        for queue in self._session.queue_list:
            problem = self._queues[queue.index].problem
            if problem is not None:
                yield Problem("Queue", queue.name, problem.words)
        for job, error in self.ledger.unreadable.items():
            text = f"annotation {REQUEST}: {error}; it counts as none"
            yield Problem("PodGroup", self._session.jobs.keys[job], text)

    # --- gauges -------------------------------------------------------------------------------------------------------

    def gauges(self) -> Iterator[Gauge]:
        """Return quotas and usage by queue and card, the cluster's cards, and their usage by kind of service."""
        for queue in self._session.queue_list:
            yield from _queue_gauges(self.ledger.admitting[queue.index], self.ledger.reservations[queue.index])
        for card, total in self._cards.total.items():
            yield Gauge("vcd_cards_total", (("card", card),), total / MILLI)
            releasing = sum(account.cards_releasing.get(card, 0) for account in self._queues)
            yield Gauge("vcd_cards_leaving", (("card", card),), releasing / MILLI)
        for resource, nodes in self._cards.nameless.items():
            yield Gauge("vcd_card_nodes_unidentified", (("resource", resource),), float(nodes.sum()))
        yield from self._service_gauges()

    def _service_gauges(self) -> Iterator[Gauge]:
        service_of = cache(partial(_service_of, self._session.jobs.records, self.ledger.pod_of()))
        nothing = {(card, service): 0 for card in self._cards.names for service in (ONLINE, OFFLINE)}
        began = [(held.holder, held.card, held.amount) for held in self.ledger.held]
        moved = [(job, card, amount) for (job, card), amount in self._moved.items()]
        requested = [(job, "|".join(names), amount) for job, names, amount in self.ledger.waiting.of_jobs()]
        for name, parts in (("vcd_cards_allocated", began + moved), ("vcd_cards_requested", began + requested)):
            sums = dict(nothing)
            for holder, card, amount in parts:
                key = (card, service_of(holder))
                sums[key] = sums.get(key, 0) + amount
            for (card, service), amount in sums.items():
                yield Gauge(name, (("card", card), ("service", service)), amount / MILLI)


def _queue_gauges(account: CardAccount, reservations: CardReservations) -> Iterator[Gauge]:
    label = ("queue_name", account.name)
    cards = sorted({*account.quota, *account.cards})
    quota = [account.quota.get(card, 0) for card in cards]
    used = [account.cards.get(card, 0) for card in cards]
    for series, basic, amounts in (
        ("allocated", account.allocated, used),
        ("deserved", account.deserved, quota),
        ("capability", account.capability, quota),  # infinity is not exported
        ("real_capability", account.limit, quota),
    ):
        yield from resource_gauges(series, account.name, (*BASIC, *cards), (*basic, *amounts))
    for series, basic, sums in (
        ("request", account.request, account.cards_requested),
        ("inqueue", account.inqueue.total(), reservations.total()),
    ):
        names = sorted({*((card,) for card in cards), *sums})
        texts = ["|".join(parts) for parts in names]
        amounts = [sums.get(parts, 0) for parts in names]
        yield from resource_gauges(series, account.name, (*BASIC, *texts), (*basic, *amounts))
    yield queue_gauge("share", account.name, account.share())
    for card, may, have in zip(cards, quota, used, strict=True):
        labels = (label, ("card", card))
        yield Gauge("vcd_queue_card_quota", labels, may / MILLI)
        yield Gauge("vcd_queue_card_guarantee", labels, may / MILLI)
        yield Gauge("vcd_queue_card_allocated", labels, have / MILLI)
        yield Gauge("vcd_queue_card_elastic", labels, account.cards_elastic.get(card, 0) / MILLI)


def _service_of(records: Sequence[GroupRecord], pods: Mapping[int, Pod], holder: int) -> str:
    """Return whether a job, or a pod whose group was deleted (``HeldCard.holder``), is online or offline.

    The label of its group decides, else of its pods, else whether a Job owns them.
    """
    pod = pods.get(holder)
    objects: list[Object] = [*([records[holder].group] if holder >= 0 else []), *([] if pod is None else [pod])]
    for obj in objects:
        for marks in (obj.metadata.labels, obj.metadata.annotations):
            if marks.get(SERVICE) in (ONLINE, OFFLINE):
                return marks[SERVICE]
    is_job = any(owner.kind == "Job" for obj in objects for owner in obj.metadata.owner_references)
    return OFFLINE if is_job else ONLINE
