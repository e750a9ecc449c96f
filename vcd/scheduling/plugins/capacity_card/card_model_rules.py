"""The filter and the score of nodes for pods that request cards."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.capacity_card.card_account import CardAccount
from vcd.scheduling.plugins.capacity_card.card_requests import INSUFFICIENT, CardDemand, CardRequest, amounts_of
from vcd.scheduling.plugins.capacity_card.gang_card_needs import GangRests
from vcd.scheduling.plugins.capacity_card.node_cards import NO_CARD, NodeCards
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
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
    reads = Reads.QUEUE
    keys = ()

    _session: Session
    _cards: NodeCards
    _accounts: Sequence[CardAccount]
    _request_of: RequestOf
    _rests: GangRests
    _may_stray_by_kind: dict[object, bool] = field(default_factory=dict, init=False)

    def applies(self, task: Task) -> bool:
        """Return False if node affinity restricts the pod to the one card that it names, which is the usual case."""
        for demand in self._request_of(task).demands:
            if not demand.named or len(demand.names) > 1 or self._may_stray(task, demand):
                return True
        return False

    def _may_stray(self, task: Task, demand: CardDemand) -> bool:
        evaluator = framework_of(self._session).evaluator
        key = (evaluator.keys.fixed_key(task), demand)
        found = self._may_stray_by_kind.get(key)
        if found is None:
            others = self._cards.others(demand.resource, demand.names)
            found = bool(others.any()) and bool((others & evaluator.static(task).mask).any())
            self._may_stray_by_kind[key] = found
        return found

    def key_of(self, task: Task) -> Hashable:
        """Return the named cards, with the queue if its quota limits the choice, or the job if its other pods do."""
        demands = self._request_of(task).demands
        named = tuple([(demand.resource, demand.names, demand.named) for demand in demands])
        if all(demand.named and len(demand.names) == 1 for demand in demands):
            return None, named
        return (task.job.key, named) if self._rests.limits_choice(task.job) else (task.job.queue.name, named)

    def stable_for(self, task: Task, count: int) -> bool:
        """Return whether all pods have the same choice of cards, and need not leave cards to the rest of the job."""
        account = self._accounts[task.job.queue.index]
        return account.preserves_choice(self._request_of(task), count) and not self._rests.limits_choice(task.job)

    def mask(self, task: Task, usage: Usage) -> Mask:
        account = self._accounts[task.job.queue.index]
        result: Mask | None = None
        for demand in self._request_of(task).demands:
            names = demand.names
            if len(names) > 1 or not demand.named:
                names = self._rests.cards_for_rest(task.job, account, demand, _affordable(account, demand))
            passed = self._cards.mask(demand.resource, names, not demand.named)
            result = passed if result is None else result & passed
        assert result is not None  # applies() is true only for pods that request cards
        return at_rows(result, usage)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Exclude nodes with other cards: an eviction can free quota, but not change a node's card."""
        possible = np.ones_like(failed)
        for demand in self._request_of(task).demands:
            possible &= at_rows(self._cards.mask(demand.resource, demand.names, not demand.named), usage)
        result: Mask = failed & ~possible
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        account = self._accounts[task.job.queue.index]
        counts: dict[Reason, int] = {}
        for demand in self._request_of(task).demands:
            codes = at_rows(self._cards.codes[demand.resource], usage)
            affordable = _affordable(account, demand)
            for card in demand.names:
                code = self._cards.code_of.get(card, NO_CARD)
                nodes = int((failed & (codes == code)).sum()) if code != NO_CARD and card not in affordable else 0
                if nodes:
                    total = account.cards.get(card, 0) + demand.amount
                    amounts = amounts_of(card, demand.amount, total, account.quota.get(card, 0))
                    counts[INSUFFICIENT({"queue": account.name}, amounts)] = nodes
            others = int(
                (failed & ~at_rows(self._cards.mask(demand.resource, demand.names, not demand.named), usage)).sum()
            )
            if others:
                reason = _NO_CARD({"cards": "|".join(demand.names)})
                counts[reason] = counts.get(reason, 0) + others
        return counts


def _affordable(account: CardAccount, demand: CardDemand) -> tuple[str, ...]:
    return tuple([card for card in demand.names if account.left(card) >= demand.amount])


class CardOrder(Score):
    """Scores nodes by the order of the cards that a pod names: 100 for the first, half of that for each further one."""

    name = "CardOrder"
    reads = Reads.FACTS
    keys = ()

    def __init__(self, cards: NodeCards, request_of: RequestOf, weight: float) -> None:
        super().__init__(weight)
        self._cards = cards
        self._request_of = request_of
        self._points: dict[tuple[str, tuple[str, ...]], Scores] = {}

    def applies(self, task: Task) -> bool:
        return self._request_of(task).preference is not None

    def key_of(self, task: Task) -> Hashable:
        demand = self._request_of(task).preference
        assert demand is not None
        return demand.resource, demand.names

    def raw(self, task: Task, usage: Usage) -> Scores:
        demand = self._request_of(task).preference
        assert demand is not None
        key = (demand.resource, demand.names)
        points = self._points.get(key)
        if points is None:
            table = np.zeros(len(self._cards.names) + 1)
            for rank, card in enumerate(demand.names):
                code = self._cards.code_of.get(card, NO_CARD)
                if code != NO_CARD:
                    table[code] = BEST * DECAY**rank
            points = self._points[key] = table[self._cards.codes[demand.resource]]
        return at_rows(points, usage)
