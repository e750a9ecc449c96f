"""What queues may reclaim under capacity-card: borrowed cards, and cpu and memory beyond what is deserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reference.evictions import Allowance
from tests.reference.model import ALLOCATED, Job, Queue, Task, total
from tests.reference.reclaims import _register
from tests.reference.session import Session
from tests.reference.values import CPU, MEMORY, Resource

if TYPE_CHECKING:
    from tests.reference.quotas import Cards, Demands

PLUGIN = "capacity-card"
BASIC = (CPU, MEMORY)


def deserved(cards: Cards, queue: str) -> dict[str, float]:
    """Cpu and memory that a queue deserves, at least its guarantee."""
    found = {}
    for name in BASIC:
        guarantee = cards.session.cluster.queues[queue].guarantee
        own = guarantee.get(name) if guarantee else 0
        found[name] = max(min(cards.stated(queue).get(name, 0), cards.real(queue, name)), own)
    return found


def _divided(cards: Cards) -> list[str]:
    """Which of cpu and memory some queue deserves any of; if none, pods without cards are left to other plugins."""
    return [name for name in BASIC if any(deserved(cards, queue)[name] > 0 for queue in cards.quota)]


def _lacks(cards: Cards, queue: str, asks: dict[str, float], ahead: Resource) -> bool:
    """Whether a queue may not reclaim for so much cpu and memory."""
    has, due = cards.allocated(queue), deserved(cards, queue)
    wanted = [name for name in _divided(cards) if asks[name] > 0]
    return not wanted or any(has.get(n, 0) + ahead.get(n) + asks[n] > due[n] for n in wanted)


class _Borrowed(Allowance):
    """[differs] Pods of which each card is beyond the quota, and pods without cards of queues that borrow."""

    def __init__(self, cards: Cards, as_volcano: bool) -> None:
        self._cards, self._as_volcano = cards, as_volcano
        self._gone: list[Task] = []

    def _left(self, queue: str) -> dict[str, float]:
        left = self._cards.allocated(queue)
        for task in self._gone:
            if self._cards.queue_of(task) == queue and task.status in ALLOCATED:
                for name, amount in _holds(self._cards, task).items():
                    left[name] -= amount
        return left

    def permits(self, task: Task) -> bool:
        cards, queue = self._cards, self._cards.session.cluster.jobs[task.job].queue
        left, used = self._left(queue), cards.used(task)
        if used:
            return all(left[card] - cards.quota[queue].get(card, 0) >= amount for (card,), amount in used)
        if self._as_volcano or not _divided(cards):
            return True
        holds, due = _holds(cards, task), deserved(cards, queue)
        guarantee = cards.session.cluster.queues[queue].guarantee or Resource()
        if any(holds[name] > 0 and left.get(name, 0) - holds[name] < guarantee.get(name) for name in BASIC):
            return False
        return any(holds[name] > 0 and left.get(name, 0) > due[name] for name in _divided(cards))

    def spend(self, task: Task) -> None:
        self._gone.append(task)


def _holds(cards: Cards, task: Task) -> dict[str, float]:
    found = dict(zip(BASIC, cards.asked(task).basic, strict=True))
    for (card,), amount in cards.used(task):
        found[card] = found.get(card, 0) + amount
    return found


def _surplus(cards: Cards, queue: str) -> Resource:
    """What reclaim could take of a queue at most."""
    has, due, quota = cards.allocated(queue), deserved(cards, queue), cards.quota[queue]
    tasks = [
        task
        for job in cards.session.cluster.jobs.values()
        for task in job.having(*ALLOCATED)
        if job.queue == queue and cards.asks_cards(task)
    ]
    going = set()
    for card, amount in has.items():
        left = amount - quota.get(card, 0)
        users = [(dict(cards.used(task)).get((card,), 0), task) for task in tasks]
        for amount, task in sorted(users, key=lambda user: (user[0], _amounts(user[1]))):
            if amount > 0:
                left -= amount
                if left < 0:
                    going.add(task.key)  # these stay
    found = total(task.request for task in tasks if task.key not in going and _is_known(cards, task))
    without = total(
        task.request
        for job in cards.session.cluster.jobs.values()
        for task in job.having(*ALLOCATED)
        if job.queue == queue and not cards.asks_cards(task)
    )
    over = {name: has.get(name, 0) - due[name] for name in _divided(cards)}
    if max(over.values(), default=0) > 0:
        limited = {name: min(without.get(name), max(over.get(name, without.get(name)), 0)) for name in BASIC}
        found.add(Resource(limited[CPU], limited[MEMORY], dict(without.scalars or {})))
    return found


def _amounts(task: Task) -> list[tuple[str, float]]:
    names = [CPU, MEMORY, *sorted(task.request.scalars or {})]
    return [(name, task.request.get(name)) for name in names]


def _is_known(cards: Cards, task: Task) -> bool:
    return all(cards.shelf.at(task.node, ask.resource) is not None for ask in cards.asked(task).asks)


def borrowing(cards: Cards, as_volcano: bool) -> None:
    """Reclaim serves queues within what they are entitled to, from queues beyond it."""
    session: Session = cards.session

    def preemptive(queue: Queue, task: Task) -> bool:
        asked = cards.asked(task)
        if not queue.open or asked.refused:
            return False
        has, limits = cards.allocated(queue.name), cards.limits(queue.name)
        basic = dict(zip(BASIC, asked.basic, strict=True))
        if any(amount > 0 and has.get(name, 0) + amount > limits[name] for name, amount in basic.items()):
            return False
        asks = [a for a in asked.asks if a.named or not cards.shelf.nameless(a.resource)]
        if not cards.serves(queue.name, [(ask.names, ask.amount) for ask in asks]):
            return False
        left_to_others = as_volcano or not _divided(cards)
        return bool(asks) or left_to_others or not _lacks(cards, queue.name, basic, Resource())

    def surplus(job: Job) -> dict[str, Resource] | None:
        ahead, waits = cards.ahead(job)
        wanted: Demands = cards.demand(job)
        if not wanted and not job.tasks:
            minimum = job.min_request
            wanted = [(cards.shelf.cards[r], minimum.get(r)) for r in cards.shelf.resources if minimum.get(r) > 0]
        if wanted:
            if not cards.serves(job.queue, wanted, ahead):
                return None
        elif _lacks(cards, job.queue, dict(zip(BASIC, cards.minimum(job), strict=True)), waits):
            return None
        return {name: _surplus(cards, name) for name in cards.quota}

    session.register("preemptive", PLUGIN, preemptive)
    session.register("surplus", PLUGIN, surplus)
    _register(session, PLUGIN, lambda asker: _Borrowed(cards, as_volcano))
