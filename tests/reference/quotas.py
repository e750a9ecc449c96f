"""capacity-card: quotas of queues for each model of card, counted anew whenever they are asked for."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from tests.reference.borrowing import borrowing, deserved
from tests.reference.config import Arguments
from tests.reference.lending import attainable, lose_any, lose_minimum, nowhere, reserving, takes_guaranteed
from tests.reference.model import (
    ALLOCATED,
    CARD_NAME,
    READY,
    Job,
    Node,
    Queue,
    Task,
    annotations_of,
    quantities,
    total,
)
from tests.reference.session import PERMIT, REJECT, PredicateFailure, Session
from tests.reference.values import CPU, MEMORY, Resource

QUOTA, REQUEST = "volcano.sh/card.quota", "volcano.sh/card.request"
QUEUE_NAMES = ("volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
MPS, MIG = "nvidia.com/gpu.shared", "nvidia.com/mig-"
BASIC = (CPU, MEMORY)
Names = tuple[str, ...]
Demands = list[tuple[Names, float]]


@dataclass(frozen=True)
class Ask:
    """Some of one card resource, and the cards that will do; not ``named`` where the user said nothing of them."""

    resource: str
    amount: float
    names: Names
    named: bool


@dataclass(frozen=True)
class Asked:
    """What a pod asks for; ``refused`` says why it can have none, ``missing`` that no node has such a card."""

    asks: tuple[Ask, ...] = ()
    basic: tuple[float, float] = (0, 0)
    refused: str = ""
    missing: str = ""


class _Shelf:
    """Which card a node's resource stands for."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.nodes = nodes
        self.found = {name: self._of(node) for name, node in sorted(nodes.items())}
        self.resources = sorted({resource for cards in self.found.values() for resource in cards})
        self.cards = {
            resource: tuple(sorted({cards[resource] for cards in self.found.values() if resource in cards}))
            for resource in self.resources
        }
        self.models = {name: (_model(node) or ("",))[0] for name, node in nodes.items()}

    def _of(self, node: Node) -> dict[str, str]:
        cards = {}
        model = _model(node)
        for product, vendor, gib, replicas in [model] if model is not None else []:
            for resource in node.allocatable.scalars or {}:
                if resource == MPS:
                    cards[resource] = f"{product}/mps-{gib}g*1/{replicas}"
                elif resource.startswith(MIG):
                    cards[resource] = f"{product}/mig-{resource.removeprefix(MIG)}-mixed"
                elif resource.startswith(f"{vendor}/"):
                    cards[resource] = product
        return cards

    def at(self, node: str, resource: str) -> str | None:
        """The card of a node; where it lost its resource, what others of its model offer under it."""
        if node not in self.nodes:
            return None
        if resource in self.found[node]:
            return self.found[node][resource]
        alike = [name for name, model in self.models.items() if model and model == self.models[node]]
        return next((self.found[name][resource] for name in sorted(alike) if resource in self.found[name]), None)

    def nameless(self, resource: str) -> bool:
        """Whether some node has some of a resource, and nobody knows of which card."""
        return any(
            node.allocatable.get(resource) > 0 and self.at(name, resource) is None for name, node in self.nodes.items()
        )


def _model(node: Node) -> tuple[str, str, int, str] | None:
    """Product, vendor, memory in GiB and replicas of a node's cards."""
    marks = node.labels
    for key in sorted(marks):
        if key.endswith(".product") and marks.get(key.removesuffix(".product") + ".memory"):
            size = int(marks[key.removesuffix(".product") + ".memory"])
            return marks[key], key.partition("/")[0], round(size / 1024), marks.get("nvidia.com/gpu.replicas", "")
    return None


class Cards:
    """The cards of a cluster and what queues have of them."""

    def __init__(self, session: Session, unlimited: bool, as_volcano: bool) -> None:
        self.session, self.unlimited, self.as_volcano = session, unlimited, as_volcano
        self.shelf = _Shelf(session.cluster.nodes)
        self.quota = {name: _listed(queue) for name, queue in session.cluster.queues.items()}
        self.elastic: dict[str, dict[str, float]] = {name: {} for name in self.quota}
        self.inqueue: dict[str, list[tuple[Job, Demands]]] = {name: [] for name in self.quota}
        """Cards that admitted groups may still take."""
        self.waits: dict[str, list[tuple[Job, Resource]]] = {name: [] for name in self.quota}
        """The same of cpu and memory."""
        self.spare: dict[str, list[float]] = {name: [0, 0] for name in self.quota}
        for _, job in sorted(session.cluster.jobs.items()):
            self._load(job)
        self.held_first = {name: self.allocated(name) for name in self.quota}

    # -- what pods ask for ------------------------------------------------

    def asked(self, task: Task) -> Asked:
        request = {name: task.request.get(name) for name in self.shelf.resources if task.request.get(name) > 0}
        basic = (0.0, 0.0) if request and self.unlimited else (task.request.cpu, task.request.memory)
        job = self.session.cluster.jobs.get(task.job)
        own = annotations_of(task.pod).get(CARD_NAME)
        text = own or (annotations_of(job.group).get(CARD_NAME) if job is not None else None)
        names: Names = ()
        resource = refused = missing = ""
        if text and (own or request):
            names = tuple(dict.fromkeys(part.strip() for part in text.split("|")))
            resource, refused = self._resource(names, sorted(request))
            missing = "" if set(names) & self._known() else "no node has such a card"
        asks = [
            Ask(name, amount, names, True) if name == resource else Ask(name, amount, self.shelf.cards[name], False)
            for name, amount in sorted(request.items())
        ]
        return Asked(tuple(asks), basic, refused, missing)

    def _known(self) -> set[str]:
        return {card for cards in self.shelf.cards.values() for card in cards}

    def _resource(self, names: Names, requested: list[str]) -> tuple[str, str]:
        """The one resource of all cards that any node shows, and what is wrong with them."""
        known = [name for name in names if name in self._known()]
        if not known:
            return (requested[0], "") if len(requested) == 1 else ("", "no such card")
        serve = [r for r in self.shelf.resources if all(name in self.shelf.cards[r] for name in known)]
        if not serve:
            return "", "cards of different resources"
        wanted = [resource for resource in serve if resource in requested]
        return (wanted[0], "") if wanted else ("", "does not ask for the resource of its card")

    # -- what queues have -------------------------------------------------

    def queue_of(self, task: Task) -> str | None:
        """The queue that a pod counts against; of one whose group is gone the one that it names itself."""
        job = self.session.cluster.jobs.get(task.job)
        if job is not None:
            return job.queue
        name = next((annotations_of(task.pod)[key] for key in QUEUE_NAMES if annotations_of(task.pod).get(key)), None)
        return name if task.job and name in self.quota else None

    def used(self, task: Task) -> Demands:
        """The cards of a placed pod: those of its node, else the first that it names."""
        found: Demands = []
        for ask in self.asked(task).asks:
            card = self.shelf.at(task.node, ask.resource) or (ask.names[0] if ask.named else None)
            if card is not None:
                found.append(((card,), ask.amount))
        return found

    def held(self, queue: str, *statuses: str) -> dict[str, float]:
        """By card, cpu and memory what a queue's pods in these statuses have."""
        found: dict[str, float] = {}
        for _, task in sorted(self.session.cluster.tasks.items()):
            if task.status in statuses and self.queue_of(task) == queue:
                basic = zip(((CPU,), (MEMORY,)), self.asked(task).basic, strict=True)
                for (name,), amount in [*self.used(task), *basic]:
                    found[name] = found.get(name, 0) + amount
        return found

    def allocated(self, queue: str) -> dict[str, float]:
        return self.held(queue, *ALLOCATED, "Pipelined")

    def leaving(self, queue: str) -> dict[str, float]:
        """What pods that are being deleted have as long as they are on a node."""
        found: dict[str, float] = {}
        for task in self.session.cluster.tasks.values():
            if task.status == "Releasing" and task.node in self.session.cluster.nodes and self.queue_of(task) == queue:
                basic = zip(((CPU,), (MEMORY,)), self.asked(task).basic, strict=True)
                for (name,), amount in [*self.used(task), *basic]:
                    found[name] = found.get(name, 0) + amount
        return found

    def left(self, queue: str) -> dict[str, float]:
        """Of each card with a quota or without, what of it is not used."""
        has = self.allocated(queue)
        return {card: self.quota[queue].get(card, 0) - has.get(card, 0) for card in {*has, *self.quota[queue]}}

    def limits(self, queue: str) -> dict[str, float]:
        """Cpu and memory that a queue may have: its capability, else what guarantees leave, its own included."""
        queues = self.session.cluster.queues
        stated = (queues[queue].manifest.get("spec") or {}).get("capability") or {}
        capability = queues[queue].capability
        return {
            name: capability.get(name) if capability is not None and name in stated else self.real(queue, name)
            for name in BASIC
        }

    def real(self, queue: str, name: str) -> float:
        everything = total(node.allocatable for _, node in sorted(self.session.cluster.nodes.items())).get(name)
        return max(everything - sum(self.kept(other).get(name) for other in self.quota), 0) + self.kept(queue).get(name)

    def stated(self, queue: str) -> dict[str, float]:
        """Cpu and memory that a queue's `deserved` states."""
        return _resources((self.session.cluster.queues[queue].manifest.get("spec") or {}).get("deserved"))

    def serves(self, queue: str, demands: Demands, before: Demands | None = None) -> bool:
        """Whether what is left of a queue's quota serves demands, in addition to those ``before``."""
        left, before = self.left(queue), before or []
        served = _most(before + demands, left) - _most(before, left)
        return served == sum(amount for _, amount in demands)

    def kept(self, queue: str) -> Resource:
        """[differs] What others have to leave of a queue's guarantee: of one without placements, what it held first."""
        found = self.session.cluster.queues[queue]
        guarantee = found.guarantee or Resource()
        if self.as_volcano:
            return guarantee
        stated = (found.manifest.get("spec") or {}).get("capability") or {}
        most = {name: found.capability.get(name) for name in BASIC if found.capability is not None and name in stated}
        guarantee = Resource(*(min(guarantee.get(name), most.get(name, math.inf)) for name in BASIC))
        if found.open:
            return guarantee
        return Resource(*(min(guarantee.get(name), self.held_first[queue].get(name, 0)) for name in BASIC))

    # -- what groups need -------------------------------------------------

    def _minimum(self, job: Job, resource: str) -> float:
        return 0 if job.min_resources is None else job.min_request.get(resource)

    def demand(self, job: Job, without: bool = False) -> Demands:
        """The cards that a group's minimum still wants, ``without`` those of pods that cannot come yet."""
        if not job.tasks:
            return _stated(annotations_of(job.group).get(REQUEST))
        found: Demands = []
        for resource in self.shelf.resources:
            found += self._demand_of(job, resource, without)
        return found

    def _demand_of(self, job: Job, resource: str, without: bool) -> Demands:
        """Of one resource: the smallest pods first, until the minimum is reached, in cards or in pods."""
        users = [task for task in job.having("Pending") if self.asks_cards(task)]
        wants = {task.key: [a for a in self._counting(task) if a.resource == resource] for task in users}
        users.sort(key=lambda task: _rank(self._counting(task)))
        barred = [task for task in users if without and (task.too_large or task.holds_nothing)]
        users = barred + [task for task in users if task not in barred]
        others = len(job.having(*READY)) + len(job.having("Pending")) - len(users)
        pods = max(job.min_available - others, 0)
        stated = self._minimum(job, resource)
        cards = max(stated - job.allocated.get(resource), 0)
        found: Demands = []
        for task in users:
            amount = sum(ask.amount for ask in wants[task.key])
            part = min(amount, cards) if stated > 0 else (amount if pods > 0 else 0)
            cards, pods = cards - part, pods - 1
            if part > 0 and task not in barred:
                found.append((wants[task.key][0].names, part))
        return found + self._yet_to_come(job, resource)

    def _yet_to_come(self, job: Job, resource: str) -> Demands:
        """What of a stated minimum nobody asks for yet, while pods are missing: of the cards that those there name."""
        if len(job.having(*READY)) + len(job.having("Pending")) >= job.min_available:
            return []
        asks = [a for task in job.having("Pending") for a in self._counting(task) if a.resource == resource]
        lacks = self._minimum(job, resource) - job.allocated.get(resource) - sum(ask.amount for ask in asks)
        ways = {ask.names for ask in asks}
        if lacks <= 0 or not ways:
            return []
        names = ways.pop() if len(ways) == 1 else tuple(sorted({card for way in ways for card in way}))
        return [(names, lacks)]

    def asks_cards(self, task: Task) -> bool:
        return any(task.request.get(name) > 0 for name in self.shelf.resources)

    def _counting(self, task: Task) -> list[Ask]:
        """What a pod wants of its queue's quota: nothing where it can have none, or take what is nobody's quota."""
        asked = self.asked(task)
        if asked.refused:
            return []
        return [ask for ask in asked.asks if ask.named or not self.shelf.nameless(ask.resource)]

    def has_cards(self, job: Job) -> bool:
        if any(self.asks_cards(task) for task in job.tasks):
            return True
        if any(self._minimum(job, resource) > 0 for resource in self.shelf.resources):
            return True
        return not job.tasks and bool(_stated(annotations_of(job.group).get(REQUEST)))

    def minimum(self, job: Job) -> tuple[float, float]:
        if self.unlimited and self.has_cards(job):
            return 0, 0
        return job.min_request.cpu, job.min_request.memory

    def _parts(self, job: Job) -> Iterator[tuple[str, float, float]]:
        """Cards that a group has, and what of them its minimum keeps: all where that states none."""
        for resource in self.shelf.resources:
            minimum = self._minimum(job, resource)
            has: dict[str, float] = {}
            for task in job.having(*ALLOCATED):
                card = self.shelf.at(task.node, resource)
                if card is not None and task.request.get(resource) > 0:
                    has[card] = has.get(card, 0) + task.request.get(resource)
            rest = minimum
            for card in sorted(has):
                kept = min(has[card], rest) if minimum > 0 else has[card]
                rest -= kept
                yield card, has[card], kept

    def freed(self, whole: list[Job], lower: list[Job]) -> dict[str, float]:
        """[differs] Of cards, cpu and memory what groups have of their minimum that can lose it as a ``whole``; of
        cards of which others of ``lower`` priority state no minimum, what they have with all pods but minMember: the
        most of each."""
        found: dict[str, float] = {}
        for job in lower:
            for resource in self.shelf.resources if job not in whole else ():
                for card, amount in self._above_members(job, resource):
                    found[card] = found.get(card, 0) + amount
        for job in whole:
            for card, _, kept in self._parts(job):
                found[card] = found.get(card, 0) + kept
            for task in job.having(*ALLOCATED):
                for ask in self.asked(task).asks:
                    if self.shelf.at(task.node, ask.resource) is None and ask.named:
                        found[ask.names[0]] = found.get(ask.names[0], 0) + ask.amount
            if not (self.unlimited and self.has_cards(job)):
                for name in BASIC:
                    found[name] = found.get(name, 0) + min(job.allocated.get(name), job.min_request.get(name))
        return found

    def _above_members(self, job: Job, resource: str) -> Iterator[tuple[str, float]]:
        if self._minimum(job, resource) > 0:
            return
        spare = max(len(job.having(*READY)) - job.min_available, 0)
        has: dict[str, list[float]] = {}
        for task in job.having(*ALLOCATED):
            card = self.shelf.at(task.node, resource)
            if card is not None:
                has.setdefault(card, []).append(task.request.get(resource))
        for card, amounts in has.items():
            yield card, sum(sorted(amounts, reverse=True)[:spare])

    def _load(self, job: Job) -> None:
        """What a group has above its minimum, and what it was admitted for and has not."""
        for card, has, kept in self._parts(job):
            spare = self.elastic[job.queue]
            spare[card] = spare.get(card, 0) + has - kept
        counted = not (self.unlimited and self.has_cards(job))
        if counted:
            above = job.allocated.minus_floor(job.min_request)
            self.spare[job.queue] = [have + above.get(n) for n, have in zip(BASIC, self.spare[job.queue], strict=True)]
        runs = job.phase == "Running" and len(job.having(*ALLOCATED)) >= job.min_available
        if job.phase == "Inqueue" or (runs and job.min_resources is not None):
            if not job.too_large and (job.tasks or job.phase == "Inqueue"):
                self.inqueue[job.queue].append((job, self.demand(job, without=True)))
            if counted and job.min_resources is not None:
                self.waits[job.queue].append((job, job.outstanding()))

    def ahead(self, job: Job) -> tuple[Demands, Resource]:
        """[differs] What admitted groups of at least a group's priority may still take."""

        def counts(other: Job) -> bool:
            return other.priority >= job.priority or not self.session.pains

        never = frozenset[str]() if self.as_volcano else nowhere(self.session)[1]
        waiting = [(other, demands) for other, demands in self.inqueue[job.queue] if other.key not in never]
        cards = [each for other, demands in waiting if counts(other) for each in demands]
        basic = [(other, amount) for other, amount in self.waits[job.queue] if counts(other)]
        if self.as_volcano:
            return cards, total(other.without_gated(amount) for other, amount in basic)
        return cards, total(reserving(self.session, other, amount) for other, amount in basic)

    def enqueued(self, job: Job) -> None:
        if not job.too_large:
            self.inqueue[job.queue].append((job, self.demand(job, without=True)))
        if job.min_resources is not None and any(self.minimum(job)):
            self.waits[job.queue].append((job, job.min_request.clone()))


def capacity_card(session: Session, arguments: Arguments) -> None:
    """Queues have a quota for each model of card, which their pods never exceed."""
    as_volcano = not session.pains or arguments.boolean("volcanoSharesEnable", False)
    cards = Cards(session, arguments.boolean("cardUnlimitedCpuMemory", False), as_volcano)
    whole = attainable(session, [_basic_of(cards.allocated(name)) for name in cards.quota])
    weight = arguments.number("nodeOrderWeight", 1.0)

    def order(left: Queue, right: Queue) -> int:
        if left.priority != right.priority:
            return right.priority - left.priority
        first, second = share(left), share(right)
        return (first > second) - (first < second)

    def share(queue: Queue) -> Fraction:
        has, due = cards.allocated(queue.name), dict(cards.quota[queue.name])
        due.update(deserved(cards, queue.name))
        return max(
            (
                Fraction(has.get(name, 0)) / Fraction(due[name]) if due.get(name, 0) > 0 else Fraction(1)
                for name in {*has, *due}
                if due.get(name, 0) > 0 or has.get(name, 0) > 0
            ),
            default=Fraction(0),
        )

    def enqueueable(job: Job) -> int:
        queue = job.queue
        if not session.cluster.queues[queue].open:
            return REJECT
        has, limits = cards.allocated(queue), cards.limits(queue)
        freed = cards.freed(lose_minimum(session, job, arguments), lose_any(session, job, arguments))
        before, waits = cards.ahead(job)
        for place, (name, asks) in enumerate(zip(BASIC, cards.minimum(job), strict=True)):
            promised = has.get(name, 0) + waits.get(name) - cards.spare[queue][place] - freed.get(name, 0)
            if asks > 0 and asks + promised > limits[name]:
                return REJECT
        left = cards.left(queue)
        for card, amount in [*cards.elastic[queue].items(), *freed.items()]:
            left[card] = left.get(card, 0) + amount
        mine = cards.demand(job)
        gets = _most(before + mine, left) - _most(before, left)
        return PERMIT if gets == sum(amount for _, amount in mine) else REJECT

    def allocatable(queue: Queue, task: Task) -> bool:
        asked = cards.asked(task)
        if not queue.open or asked.refused:
            return False
        has, limits, left = cards.allocated(queue.name), cards.limits(queue.name), cards.left(queue.name)
        if any(a > 0 and has.get(n, 0) + a > limits[n] for n, a in zip(BASIC, asked.basic, strict=True)):
            return False
        if not as_volcano and takes_guaranteed(
            {name: cards.kept(name) for name in cards.quota},
            {name: _basic_of(cards.allocated(name)) for name in cards.quota},
            queue.name,
            Resource(*asked.basic),
            whole,
        ):
            return False
        return all(
            any(left.get(card, 0) >= ask.amount for card in ask.names)
            for ask in asked.asks
            if ask.named or not cards.shelf.nameless(ask.resource)
        )

    def pre_predicate(task: Task) -> None:
        asked = cards.asked(task)
        if asked.refused or asked.missing:
            raise PredicateFailure(asked.refused or asked.missing)

    def predicate(task: Task, node: Node) -> list[str]:
        asked, queue = cards.asked(task), session.cluster.jobs[task.job].queue
        left = cards.left(queue)
        for ask in asked.asks:
            card = cards.shelf.at(node.name, ask.resource)
            if card is None:
                if ask.named or node.allocatable.get(ask.resource) <= 0:
                    return ["node(s) have another card"]
                continue
            if card not in ask.names:
                return ["node(s) have another card"]
            if (len(ask.names) > 1 or not ask.named) and card not in choice(task, ask, left):
                return ["no quota left for the card"]
        return [] if at_once(asked, queue, node) or not task.request.fits(node.idle) else ["the quota is being freed"]

    def choice(task: Task, ask: Ask, left: dict[str, float]) -> list[str]:
        """Cards with quota left for the task, rather those with which the rest of its gang fits, too."""
        job = session.cluster.jobs[task.job]
        free = [card for card in ask.names if left.get(card, 0) >= ask.amount]
        alive = len(job.tasks) - len(job.having("Failed", "Unknown"))
        if job.min_available < alive:
            return free
        rest = [
            (other.names, other.amount)
            for one in job.having("Pending")
            if one is not task
            for other in cards._counting(one)
        ]
        wanted = sum(amount for _, amount in rest)
        keeping = [card for card in free if _most(rest, {**left, card: left[card] - ask.amount}) == wanted]
        return keeping or free

    def at_once(asked: Asked, queue: str, node: Node) -> bool:
        """Whether nothing of the quota that it would take is still held by who is leaving, or it waits in any case."""
        if session.may_wait:
            return True
        leaving, has, limits = cards.leaving(queue), cards.allocated(queue), cards.limits(queue)
        for name, amount in zip(BASIC, asked.basic, strict=True):
            if amount > 0 and leaving.get(name, 0) and has.get(name, 0) + leaving[name] + amount > limits[name]:
                return False
        for ask in asked.asks:
            card = cards.shelf.at(node.name, ask.resource)
            if leaving.get(card or "", 0) and cards.left(queue).get(card or "", 0) - leaving[card or ""] < ask.amount:
                return False
        return True

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        ask = next((a for a in cards.asked(task).asks if a.named and len(a.names) > 1), None)
        if ask is None:
            return {}
        found = {}
        for node in nodes:
            card = cards.shelf.at(node.name, ask.resource)
            found[node.name] = 100.0 * 0.5 ** ask.names.index(card) * weight if card in ask.names else 0.0
        return found

    session.register("kind", "capacity-card", lambda task: annotations_of(task.pod).get(CARD_NAME))
    session.register("queueOrder", "capacity-card", order)
    session.register("jobEnqueueable", "capacity-card", enqueueable)
    session.register("jobEnqueued", "capacity-card", cards.enqueued)
    session.register("allocatable", "capacity-card", allocatable)
    session.register("prePredicate", "capacity-card", pre_predicate)
    session.register("predicate", "capacity-card", predicate)
    session.register("nodeOrder", "capacity-card", score)
    if session.pains:
        borrowing(cards, as_volcano)


def _listed(queue: Queue) -> dict[str, float]:
    text = annotations_of(queue.manifest).get(QUOTA)
    return {} if text is None else {name: amount * 1000 for name, amount in json.loads(text).items()}


def _resources(raw: dict[str, str] | None) -> dict[str, float]:
    items = Resource.of(quantities(raw))
    return {name: items.get(name) for name in BASIC}


def _stated(text: str | None) -> Demands:
    try:
        stated = json.loads(text or "{}")
    except ValueError:
        return []
    return [(tuple(names.split("|")), amount * 1000) for names, amount in stated.items()]


def _basic_of(amounts: dict[str, float]) -> Resource:
    return Resource(*(amounts.get(name, 0) for name in BASIC))


def _rank(asks: Iterable[Ask]) -> tuple[float, list[tuple[str, Names, float]]]:
    asks = list(asks)
    return sum(ask.amount for ask in asks), [(ask.resource, ask.names, ask.amount) for ask in asks]


def _most(demands: Demands, left: dict[str, float]) -> float:
    """How much of demands can be served: whichever cards are the narrow ones, these hold what they have, and others
    must serve what does not insist on them."""
    cards = sorted({card for names, _ in demands for card in names})
    return min(
        sum(max(left.get(card, 0), 0) for card in narrow)
        + sum(amount for names, amount in demands if not set(names) <= set(narrow))
        for count in range(len(cards) + 1)
        for narrow in itertools.combinations(cards, count)
    )
