"""One queue's cards, cpu and memory: what it holds, and its limits (docs/semantics/capacity-card.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.queueaccounts import QueueAccount
from vcd.scheduling.plugins.capacity_card.card_annotations import CARD_NAME, QUOTA, CardError, Names, read_quota
from vcd.scheduling.plugins.capacity_card.card_requests import (
    INSUFFICIENT,
    UNREADABLE,
    CardDemand,
    CardRequest,
    amounts_of,
)
from vcd.scheduling.plugins.capacity_card.maximum_flow import Flow, touching
from vcd.scheduling.session.queue_view import Queue

_INSUFFICIENT_BASIC = ReasonCode(
    "card-queue-capability", Cause.QUEUE_CAPABILITY, INSUFFICIENT.words, field="spec.capability.{resource}"
)
_INSUFFICIENT_TOGETHER = ReasonCode(
    "card-quota-together",
    Cause.CARD_QUOTA,
    f"{INSUFFICIENT.words}, for {{together}} together",
    field=INSUFFICIENT.field,
)

BASIC = (CPU, MEMORY)
_MOST_NAMED = 3
"""The number of cards that a reason names if any of several would do."""


class QuotaAmounts(NamedTuple):
    """Cpu and memory, and cards by the acceptable names."""

    basic: Sequence[int] = (0, 0)
    cards: Mapping[Names, int] = {}


class CardReservations:
    """Cards that admitted groups may still take, by the acceptable names and the groups' priority.

    It is for cards what ``Inqueue`` is for cpu and memory.
    """

    def __init__(self) -> None:
        self._of_priority: dict[int, dict[Names, int]] = {}

    def add(self, priority: int, cards: Mapping[Names, int]) -> None:
        """Count an admitted group."""
        add_to(self._of_priority.setdefault(priority, {}), cards)

    def ahead(self, priority: float) -> dict[Names, int]:
        """Return the sum over groups of at least ``priority``."""
        sums: dict[Names, int] = {}
        for known, cards in self._of_priority.items():
            if known >= priority:
                add_to(sums, cards)
        return sums

    def total(self) -> dict[Names, int]:
        """Return the sum over all groups."""
        return self.ahead(-inf)


class CardAccount(QueueAccount):
    """One queue's account: of cpu (thousandths) and memory (bytes), and of cards.

    Cards are in thousandths by name, or by acceptable names if no node is chosen yet. ``limit`` is the capability of
    cpu and memory; if the queue states none, what the cluster has left. ``problem`` is why the quota is unreadable.
    ``releasing`` is what terminating or evicted pods hold in addition to ``allocated``.
    """

    def __init__(self, queue: Queue) -> None:
        record = queue.record
        most = [record.capability.get(name, inf) for name in BASIC]
        super().__init__(queue, [record.guarantee.get(name, 0) for name in BASIC], most)
        self.quota: dict[str, int] = {}
        self.problem: Reason | None = None
        text = record.queue.metadata.annotations.get(QUOTA)
        if text is not None:
            try:
                self.quota = read_quota(text)
            except CardError as error:
                self.problem = UNREADABLE({"whose": f"annotation {QUOTA} of queue {queue.name}", "error": str(error)})
        self.deserved = [record.deserved.get(name, 0) for name in BASIC]
        self.limit = [0, 0]
        self.cards: dict[str, int] = {}
        self.cards_releasing: dict[str, int] = {}
        self.cards_elastic: dict[str, int] = {}
        self.cards_requested: dict[Names, int] = {}
        self.releasing = [0, 0]

    def settle(self, left: Sequence[int]) -> None:
        """Compute limits and deserved. ``left`` is what the guarantees of other queues leave of the cluster."""
        stated = self.queue.record.capability
        self.limit = [stated.get(name, rest) for name, rest in zip(BASIC, left, strict=True)]
        self.deserved = [
            max(min(stated, rest), own) for stated, rest, own in zip(self.deserved, left, self.guarantee, strict=True)
        ]

    def left(self, card: str) -> int:
        """Return the unused quota of a card."""
        return self.quota.get(card, 0) - self.cards.get(card, 0)

    def affords(self, demand: CardDemand) -> bool:
        """Return whether quota is left of one of the acceptable cards."""
        for card in demand.names:  # noqa: SIM110 - called for every pod
            if self.left(card) >= demand.amount:
                return True
        return False

    def waits_for_card(self, card: str, amount: int) -> bool:
        """Return whether the quota of a card has this amount only after terminating pods are gone."""
        releasing = self.cards_releasing.get(card, 0)
        return releasing > 0 and self.left(card) - releasing < amount

    def is_releasing(self) -> bool:
        """Return whether terminating pods hold any of this queue's resources."""
        return any(self.releasing) or any(self.cards_releasing.values())

    def waits_for_basic(self, requested: Iterable[int]) -> bool:
        """Return whether cpu or memory suffices only after terminating pods are gone."""
        rows = zip(requested, self.allocated, self.releasing, self.limit, strict=True)
        return any(
            min(amount, releasing) > 0 and have + releasing + amount > may for amount, have, releasing, may in rows
        )

    def share(self) -> float:
        """Return the largest allocated/deserved, where the quota is the deserved number of a card.

        A resource that is used and not deserved counts as 1.
        """
        parts = [_part(*pair) for pair in zip(self.allocated, self.deserved, strict=True)]
        return max(parts + [_part(have, self.quota.get(card, 0)) for card, have in self.cards.items()])

    # --- gates --------------------------------------------------------------------------------------------------------

    def refuses(self, request: CardRequest, count: int) -> Reason | None:
        """Return a reason if allocated + ``count`` requests exceed a limit, or may not all have the same choice of
        cards."""
        refusal = self._refuses_basic([amount * count for amount in request.basic], self.allocated)
        for demand in request.demands:
            if refusal is not None:
                return refusal
            if self.affords(demand) and (count == 1 or self.preserves_choice(request, count)):
                continue
            refusal = self.problem or self._short_of(demand)
        return refusal

    def preserves_choice(self, request: CardRequest, count: int) -> bool:
        """Return whether ``count`` pods in sequence have the same choice of cards, whatever each of them gets."""
        taken: dict[str, int] = {}
        for demand in request.demands:
            for card in demand.names:
                taken[card] = taken.get(card, 0) + demand.amount * (count - 1)
        for demand in request.demands:
            for card in demand.names:
                if 0 <= self.left(card) - demand.amount < taken[card]:
                    return False
        return True

    def _short_of(self, demand: CardDemand) -> Reason:
        names = {"queue": self.name}
        if len(demand.names) > _MOST_NAMED:
            names["and"] = f"{len(demand.names) - _MOST_NAMED} more cards"
        if not demand.named:
            names["or"] = f"name one card in {CARD_NAME}"
        amounts = [
            amounts_of(card, demand.amount, self.cards.get(card, 0) + demand.amount, self.quota.get(card, 0))
            for card in demand.names[:_MOST_NAMED]
        ]
        return INSUFFICIENT(names, chain.from_iterable(amounts))

    def admits(
        self, priority: int, requested: QuotaAmounts, freed: QuotaAmounts, reservations: CardReservations
    ) -> Reason | None:
        """Return a reason if minimum + allocated + inqueue - elastic - freed exceeds the capability.

        Interchangeable cards are checked together: all admitted demands and the minimum must fit.
        """
        ahead = self.inqueue.ahead(priority)
        rows = zip(self.allocated, ahead, self.elastic, freed.basic, strict=True)
        promised = [have + waits - spare - more for have, waits, spare, more in rows]
        spare_cards = dict(self.cards_elastic)
        for (card,), amount in freed.cards.items():
            spare_cards[card] = spare_cards.get(card, 0) + amount
        refused = self._refuses_basic(requested.basic, promised)
        return refused or self._refuses_cards(requested.cards, reservations.ahead(priority), spare_cards)

    def refuses_together(self, basic: Iterable[int], cards: Mapping[Names, int]) -> Reason | None:
        """Return a reason if several pods together do not fit in addition to what is allocated."""
        return self._refuses_basic(basic, self.allocated) or self._refuses_cards(cards, {}, {})

    def has_quota_left(self, cards: Mapping[Names, int], reserved: Mapping[Names, int]) -> bool:
        """Return whether cards fit into the quota with what is allocated and what is reserved."""
        return self._refuses_cards(cards, reserved, {}) is None

    def _refuses_cards(
        self, cards: Mapping[Names, int], reserved: Mapping[Names, int], elastic: Mapping[str, int]
    ) -> Reason | None:
        """Return a reason if demands do not fit with what is allocated and reserved, whichever cards these get."""
        wanted = {names: cards[names] for names in sorted(cards) if cards[names] > 0}
        if not wanted:
            return None
        before = touching(reserved, tuple(card for names in wanted for card in names))
        named = {card for names in (*before, *wanted) for card in names}
        used = {card: self.cards.get(card, 0) - elastic.get(card, 0) for card in sorted(named)}
        flow = Flow({card: self.quota.get(card, 0) - have for card, have in used.items()})
        for names, amount in before.items():
            flow.serve(names, amount)
        for names, amount in wanted.items():
            if flow.serve(names, amount):
                together = flow.reached(names)
                total = sum(used[card] for card in together) + sum(
                    more
                    for demands in (before, wanted)
                    for others, more in demands.items()
                    if set(others) <= set(together)
                )
                may = sum(self.quota.get(card, 0) for card in together)
                if self.problem is not None:
                    return self.problem
                amounts = amounts_of("|".join(names), amount, total, may)
                if set(together) == set(names):
                    return INSUFFICIENT({"queue": self.name}, amounts)
                return _INSUFFICIENT_TOGETHER({"queue": self.name, "together": "|".join(together)}, amounts)
        return None

    def _refuses_basic(self, requested: Iterable[int], before: Iterable[int]) -> Reason | None:
        for name, amount, have, may in zip(BASIC, requested, before, self.limit, strict=True):
            if amount > 0 and have + amount > may:
                return _INSUFFICIENT_BASIC({"queue": self.name}, amounts_of(name, amount, have + amount, may))
        return None


def _part(have: int, deserved: int) -> float:
    return have / deserved if deserved > 0 else float(have > 0)


def add_to(sums: dict[Names, int], more: Mapping[Names, int]) -> None:
    for names, amount in more.items():
        sums[names] = sums.get(names, 0) + amount
