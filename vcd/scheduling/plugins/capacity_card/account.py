"""One queue's cards, cpu and memory: what it holds, and its limits (docs/semantics/capacity-card.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.requests import CPU, MEMORY
from vcd.scheduling.plugins.capacity_card.annotations import CARD_NAME, QUOTA, CardError, Names, read_quota
from vcd.scheduling.plugins.capacity_card.flow import Flow, touching
from vcd.scheduling.plugins.capacity_card.requests import (
    INSUFFICIENT,
    UNREADABLE,
    CardDemand,
    CardRequest,
    amounts_of,
)
from vcd.scheduling.session.queues import Queue

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
    """What admitted groups of a queue may still take, by priority, so that lower priorities do not block a group."""

    def __init__(self) -> None:
        self._basic: dict[int, list[int]] = {}
        self._cards: dict[int, dict[Names, int]] = {}

    def add_basic(self, priority: int, amounts: Iterable[int]) -> None:
        before = self._basic.get(priority, [0, 0])
        self._basic[priority] = [have + more for have, more in zip(before, amounts, strict=True)]

    def add_cards(self, priority: int, cards: Mapping[Names, int]) -> None:
        """Reserve cards, by the acceptable names."""
        add_to(self._cards.setdefault(priority, {}), cards)

    def basic(self, least: int | None = None) -> list[int]:
        """Return the cpu and memory of groups of at least priority ``least``; of all groups if it is None."""
        rows = [amounts for priority, amounts in self._basic.items() if least is None or priority >= least]
        return [sum(column) for column in zip([0, 0], *rows, strict=True)]

    def cards(self, least: int | None = None) -> dict[Names, int]:
        """Return the same for cards."""
        sums: dict[Names, int] = {}
        for priority, cards in self._cards.items():
            if least is None or priority >= least:
                add_to(sums, cards)
        return sums


class CardAccount:
    """One queue's account.

    Cards are in thousandths by name, or by acceptable names if no node is chosen yet. Cpu (thousandths) and memory
    (bytes) are pairs. ``capability`` is None where the queue states none; ``limit`` has what the cluster has left
    there. ``problem`` is why the quota is unreadable. ``releasing`` is what terminating or evicted pods hold in
    addition to ``allocated``.
    """

    def __init__(self, queue: Queue) -> None:
        self.name = queue.name
        self.quota: dict[str, int] = {}
        self.problem: Reason | None = None
        text = queue.record.queue.metadata.annotations.get(QUOTA)
        if text is not None:
            try:
                self.quota = read_quota(text)
            except CardError as error:
                self.problem = UNREADABLE({"whose": f"annotation {QUOTA} of queue {queue.name}", "error": str(error)})
        record = queue.record
        self.capability = [record.capability.get(name) for name in BASIC]
        self.guarantee = [record.guarantee.get(name, 0) for name in BASIC]
        self.deserved = [record.deserved.get(name, 0) for name in BASIC]
        self.limit = [0, 0]
        self.allocated: dict[str, int] = {}
        self.releasing: dict[str, int] = {}
        self.elastic: dict[str, int] = {}
        self.request: dict[Names, int] = {}
        self.basic_allocated = [0, 0]
        self.basic_releasing = [0, 0]
        self.basic_elastic = [0, 0]
        self.basic_request = [0, 0]

    def most(self) -> list[float]:
        """Return the stated capability of cpu and memory; what it does not name is unlimited."""
        return [inf if may is None else may for may in self.capability]

    def settle(self, left: Iterable[int], counted: Iterable[int]) -> None:
        """Compute limits and deserved.

        ``left`` is what the guarantees of all queues leave of the cluster, ``counted`` the counted portion of the own.
        """
        real = [rest + own for rest, own in zip(left, counted, strict=True)]
        self.limit = [rest if may is None else may for rest, may in zip(real, self.capability, strict=True)]
        self.deserved = [
            max(min(stated, rest), own) for stated, rest, own in zip(self.deserved, real, self.guarantee, strict=True)
        ]

    def left(self, card: str) -> int:
        """Return the unused quota of a card."""
        return self.quota.get(card, 0) - self.allocated.get(card, 0)

    def affords(self, demand: CardDemand) -> bool:
        """Return whether quota is left of one of the acceptable cards."""
        for card in demand.names:  # noqa: SIM110 - called for every pod
            if self.left(card) >= demand.amount:
                return True
        return False

    def waits_for_card(self, card: str, amount: int) -> bool:
        """Return whether the quota of a card has this amount only after terminating pods are gone."""
        releasing = self.releasing.get(card, 0)
        return releasing > 0 and self.left(card) - releasing < amount

    def is_releasing(self) -> bool:
        """Return whether terminating pods hold any of this queue's resources."""
        return any(self.basic_releasing) or any(self.releasing.values())

    def waits_for_basic(self, requested: Iterable[int]) -> bool:
        """Return whether cpu or memory suffices only after terminating pods are gone."""
        rows = zip(requested, self.basic_allocated, self.basic_releasing, self.limit, strict=True)
        return any(
            min(amount, releasing) > 0 and have + releasing + amount > may for amount, have, releasing, may in rows
        )

    def share(self) -> float:
        """Return the largest allocated/deserved, where the quota is the deserved number of a card.

        A resource that is used and not deserved counts as 1.
        """
        parts = [_part(*pair) for pair in zip(self.basic_allocated, self.deserved, strict=True)]
        return max(parts + [_part(have, self.quota.get(card, 0)) for card, have in self.allocated.items()])

    # --- gates --------------------------------------------------------------------------------------------------------

    def refuses(self, request: CardRequest, count: int) -> Reason | None:
        """Return a reason if allocated + ``count`` requests exceed a limit, or may not all have the same choice of
        cards."""
        refusal = self._refuses_basic([amount * count for amount in request.basic], self.basic_allocated)
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
            amounts_of(card, demand.amount, self.allocated.get(card, 0) + demand.amount, self.quota.get(card, 0))
            for card in demand.names[:_MOST_NAMED]
        ]
        return INSUFFICIENT(names, chain.from_iterable(amounts))

    def admits(
        self, priority: int, requested: QuotaAmounts, freed: QuotaAmounts, reservations: CardReservations
    ) -> Reason | None:
        """Return a reason if minimum + allocated + inqueue - elastic - freed exceeds the capability.

        Interchangeable cards are checked together: all admitted demands and the minimum must fit.
        """
        ahead = reservations.basic(priority)
        rows = zip(self.basic_allocated, ahead, self.basic_elastic, freed.basic, strict=True)
        promised = [have + waits - spare - more for have, waits, spare, more in rows]
        spare_cards = dict(self.elastic)
        for (card,), amount in freed.cards.items():
            spare_cards[card] = spare_cards.get(card, 0) + amount
        refused = self._refuses_basic(requested.basic, promised)
        return refused or self._refuses_cards(requested.cards, reservations.cards(priority), spare_cards)

    def refuses_together(self, basic: Iterable[int], cards: Mapping[Names, int]) -> Reason | None:
        """Return a reason if several pods together do not fit in addition to what is allocated."""
        return self._refuses_basic(basic, self.basic_allocated) or self._refuses_cards(cards, {}, {})

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
        used = {card: self.allocated.get(card, 0) - elastic.get(card, 0) for card in sorted(named)}
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
