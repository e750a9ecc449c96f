"""Which nodes a pod that asks for cards may go to, and which it would rather have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vcd.scheduling.candidates import static_key
from vcd.scheduling.nodes import Usage
from vcd.scheduling.plugin import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.plugins._card_account import Account
from vcd.scheduling.plugins._card_nodes import NO_CARD, NodeCards
from vcd.scheduling.plugins._card_requests import Ask, CardRequest, insufficient
from vcd.scheduling.predicates.node import at_rows
from vcd.scheduling.session import Session
from vcd.scheduling.views import Task

BEST = 100.0
DECAY = 0.5
"""Points of the first card named, and by how much each further one has less."""
_SPARE_BITS = 12

RequestOf = Callable[[Task], CardRequest]


class CardModel(Predicate):
    """A node's card is one that the pod names and, where several would do, one of which its queue has quota left.

    Of a pod that names one card the queue's gate has asked for quota already; it only must not land on another card,
    which would be charged instead.
    """

    name = "CardModel"
    reason = "node(s) had other cards"
    depends = Depends.PODS  # with the quota left it moves at each placement of the queue

    def __init__(self, session: Session, cards: NodeCards, accounts: Sequence[Account], request_of: RequestOf) -> None:
        self._session = session
        self._cards = cards
        self._accounts = accounts
        self._request_of = request_of
        self._kept_apart: dict[object, bool] = {}

    def applies(self, task: Task) -> bool:
        """Not where a pod's node affinity, as the document has it, keeps it on the one card that it names."""
        asks = self._request_of(task).asks
        return any(not ask.named or len(ask.names) > 1 or self._may_stray(task, ask) for ask in asks)

    def _may_stray(self, task: Task, ask: Ask) -> bool:
        key = (static_key(task), ask)
        found = self._kept_apart.get(key)
        if found is None:
            others = self._cards.others(ask.resource, ask.names)
            found = bool(others.any()) and bool((others & self._session.evaluator.static(task).mask).any())
            self._kept_apart[key] = found
        return found

    def mask(self, task: Task, usage: Usage) -> Mask:
        account = self._accounts[task.job.queue.index]
        result: Mask | None = None
        for ask in self._request_of(task).asks:
            names = ask.names if len(ask.names) == 1 and ask.named else _affordable(account, ask)
            passed = self._cards.mask(ask.resource, names, not ask.named)
            result = passed if result is None else result & passed
        assert result is not None  # it applies to what asks for cards only
        return at_rows(result, usage)

    def hopeless(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """No eviction turns a card into another; one may bring quota back."""
        possible = np.ones_like(failed)
        for ask in self._request_of(task).asks:
            possible &= at_rows(self._cards.mask(ask.resource, ask.names, not ask.named), usage)
        result: Mask = failed & ~possible
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[str, int]:
        account = self._accounts[task.job.queue.index]
        counts: dict[str, int] = {}
        for ask in self._request_of(task).asks:
            codes = at_rows(self._cards.codes[ask.resource], usage)
            affordable = _affordable(account, ask)
            for card in ask.names:
                code = self._cards.code_of.get(card, NO_CARD)
                nodes = int((failed & (codes == code)).sum()) if code != NO_CARD and card not in affordable else 0
                if nodes:
                    total = account.allocated.get(card, 0) + ask.amount
                    counts[insufficient(account.name, card, ask.amount, total, account.quota.get(card, 0))] = nodes
            others = int((failed & ~at_rows(self._cards.mask(ask.resource, ask.names, not ask.named), usage)).sum())
            if others:
                reason = f"node(s) had no card <{'|'.join(ask.names)}>"
                counts[reason] = counts.get(reason, 0) + others
        return counts


def _affordable(account: Account, ask: Ask) -> tuple[str, ...]:
    return tuple([card for card in ask.names if account.left(card) >= ask.amount])


class CardClasses:
    """Numbers for the kinds of tasks that find different nodes though their specs are equal: by the cards named and,
    where the queue's quota chooses among them, by queue."""

    def __init__(self, model: CardModel, request_of: RequestOf) -> None:
        self._model = model
        self._request_of = request_of
        self._numbers: dict[object, int] = {}
        self._last: tuple[Task | None, int] = (None, 0)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, queue: int, request: CardRequest) -> int:
        """The number of a kind; 0 for what asks for no cards."""
        if not request.asks:
            return 0
        single = all(ask.named and len(ask.names) == 1 for ask in request.asks)
        key = (-1 if single else queue, tuple([(ask.resource, ask.names, ask.named) for ask in request.asks]))
        return self._numbers.setdefault(key, len(self._numbers) + 1)

    def of(self, task: Task) -> int:
        """The number of a task's kind; 0 where every node it can reach is as good to all such tasks."""
        last, number = self._last
        if last is not task:
            applies = self._model.applies(task)
            number = self.add(task.job.queue.index, self._request_of(task)) if applies else 0
            self._last = (task, number)
        return number

    def bits(self) -> list[_ClassBit]:
        """Parts that keep the kinds' tables apart."""
        return [_ClassBit(self, bit) for bit in range(len(self).bit_length() + _SPARE_BITS)]


class _ClassBit(Predicate):
    """Passes everywhere. That it applies or not is one bit of a task's class, so that tasks which differ in annotation
    or queue alone do not share a table of candidates."""

    name = "CardClass"
    reason = ""
    depends = Depends.PODS

    def __init__(self, classes: CardClasses, bit: int) -> None:
        self._classes = classes
        self._bit = 1 << bit

    def applies(self, task: Task) -> bool:
        return bool(self._classes.of(task) & self._bit)

    def mask(self, task: Task, usage: Usage) -> Mask:
        return np.ones(len(usage), np.bool_)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[str, int]:
        return {}


class CardOrder(Score):
    """The cards that a pod names in its order: 100 for the first, half of it for each further one."""

    name = "CardOrder"
    depends = Depends.PODS  # on the annotation, which is no part of a shape

    def __init__(self, cards: NodeCards, request_of: RequestOf, weight: float) -> None:
        super().__init__(weight)
        self._cards = cards
        self._request_of = request_of
        self._points: dict[tuple[str, tuple[str, ...]], Scores] = {}

    def applies(self, task: Task) -> bool:
        return self._request_of(task).preference is not None

    def raw(self, task: Task, usage: Usage) -> Scores:
        ask = self._request_of(task).preference
        assert ask is not None
        key = (ask.resource, ask.names)
        points = self._points.get(key)
        if points is None:
            table = np.zeros(len(self._cards.names) + 1)
            for rank, card in enumerate(ask.names):
                code = self._cards.code_of.get(card, NO_CARD)
                if code != NO_CARD:
                    table[code] = BEST * DECAY**rank
            points = self._points[key] = table[self._cards.codes[ask.resource]]
        return at_rows(points, usage)
