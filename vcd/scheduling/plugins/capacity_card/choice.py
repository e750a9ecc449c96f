"""The filter and the score of nodes for pods that request cards."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.capacity_card.account import Account
from vcd.scheduling.plugins.capacity_card.cards import NO_CARD, NodeCards
from vcd.scheduling.plugins.capacity_card.requests import INSUFFICIENT, Ask, CardRequest, amounts_of
from vcd.scheduling.plugins.capacity_card.rest import GangRests
from vcd.scheduling.search.parts import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.search.predicates.node import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_NO_CARD = ReasonCode("no-card", Cause.DEVICE, "node(s) had no card <{cards}>", nodes_help=True)

BEST = 100.0
DECAY = 0.5
"""Score of the first named card, and the factor for each further one."""

RequestOf = Callable[[Task], CardRequest]


@dataclass(eq=False)
class CardModel(Predicate):
    """Accepts nodes with a card that the pod names.

    If the pod names several, the card must have quota left for the pod, and for the rest of its gang.
    For a pod that names one card, ``allocatable`` has checked the quota already. Such a pod only must not be placed on
    another card, which would then be charged instead.
    """

    name = "CardModel"
    reason = ReasonCode("other-cards", Cause.DEVICE, "node(s) had other cards", nodes_help=True)()
    depends = Depends.QUEUE

    _session: Session
    _cards: NodeCards
    _accounts: Sequence[Account]
    _request_of: RequestOf
    _rests: GangRests
    _kept_apart: dict[object, bool] = field(default_factory=dict, init=False)

    def applies(self, task: Task) -> bool:
        """Return False if node affinity restricts the pod to the one card that it names, which is the usual case."""
        for ask in self._request_of(task).asks:
            if not ask.named or len(ask.names) > 1 or self._may_stray(task, ask):
                return True
        return False

    def _may_stray(self, task: Task, ask: Ask) -> bool:
        evaluator = framework_of(self._session).evaluator
        key = (evaluator.kinds.static_key(task), ask)
        found = self._kept_apart.get(key)
        if found is None:
            others = self._cards.others(ask.resource, ask.names)
            found = bool(others.any()) and bool((others & evaluator.static(task).mask).any())
            self._kept_apart[key] = found
        return found

    def kind_of(self, task: Task) -> Hashable:
        """Return the named cards, with the queue if its quota limits the choice, or the job if its other pods do."""
        asks = self._request_of(task).asks
        named = tuple([(ask.resource, ask.names, ask.named) for ask in asks])
        if all(ask.named and len(ask.names) == 1 for ask in asks):
            return None, named
        return (task.job.key, named) if self._rests.minds(task.job) else (task.job.queue.name, named)

    def stands_still(self, task: Task, count: int) -> bool:
        """Return whether all pods have the same choice of cards, and need not leave cards to the rest of the job."""
        account = self._accounts[task.job.queue.index]
        return account.keeps_choice(self._request_of(task), count) and not self._rests.minds(task.job)

    def mask(self, task: Task, usage: Usage) -> Mask:
        account = self._accounts[task.job.queue.index]
        result: Mask | None = None
        for ask in self._request_of(task).asks:
            names = ask.names
            if len(names) > 1 or not ask.named:
                names = self._rests.keeping(task.job, account, ask, _affordable(account, ask))
            passed = self._cards.mask(ask.resource, names, not ask.named)
            result = passed if result is None else result & passed
        assert result is not None  # applies() is true only for pods that request cards
        return at_rows(result, usage)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Exclude nodes with other cards: an eviction can free quota, but not change a node's card."""
        possible = np.ones_like(failed)
        for ask in self._request_of(task).asks:
            possible &= at_rows(self._cards.mask(ask.resource, ask.names, not ask.named), usage)
        result: Mask = failed & ~possible
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        account = self._accounts[task.job.queue.index]
        counts: dict[Reason, int] = {}
        for ask in self._request_of(task).asks:
            codes = at_rows(self._cards.codes[ask.resource], usage)
            affordable = _affordable(account, ask)
            for card in ask.names:
                code = self._cards.code_of.get(card, NO_CARD)
                nodes = int((failed & (codes == code)).sum()) if code != NO_CARD and card not in affordable else 0
                if nodes:
                    total = account.allocated.get(card, 0) + ask.amount
                    amounts = amounts_of(card, ask.amount, total, account.quota.get(card, 0))
                    counts[INSUFFICIENT({"queue": account.name}, amounts)] = nodes
            others = int((failed & ~at_rows(self._cards.mask(ask.resource, ask.names, not ask.named), usage)).sum())
            if others:
                reason = _NO_CARD({"cards": "|".join(ask.names)})
                counts[reason] = counts.get(reason, 0) + others
        return counts


def _affordable(account: Account, ask: Ask) -> tuple[str, ...]:
    return tuple([card for card in ask.names if account.left(card) >= ask.amount])


class CardOrder(Score):
    """Scores nodes by the order of the cards that a pod names: 100 for the first, half of that for each further one."""

    name = "CardOrder"

    def __init__(self, cards: NodeCards, request_of: RequestOf, weight: float) -> None:
        super().__init__(weight)
        self._cards = cards
        self._request_of = request_of
        self._points: dict[tuple[str, tuple[str, ...]], Scores] = {}

    def applies(self, task: Task) -> bool:
        return self._request_of(task).preference is not None

    def kind_of(self, task: Task) -> Hashable:
        ask = self._request_of(task).preference
        assert ask is not None
        return ask.resource, ask.names

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
