"""What one queue holds of cards, cpu and memory, and what it may (seed 004 s.2.2.4.1)."""

from __future__ import annotations

from collections.abc import Iterable

from vcd.model.quantity import format_resource
from vcd.model.requests import CPU, MEMORY
from vcd.scheduling.plugin import Refusal
from vcd.scheduling.plugins._card_requests import (
    CARD_NAME,
    QUOTA,
    CardError,
    CardRequest,
    Names,
    insufficient,
    read_quota,
)
from vcd.scheduling.views import Queue

BASIC = (CPU, MEMORY)
_SHOWN = 3
"""How many cards a reason names where any would do."""


class Account:
    """One queue: cards in thousandths by name, or by names that may stand for each other where no node is chosen yet;
    cpu (thousandths) and memory (bytes) as pairs. ``limit`` is the pair's capability, where none is set what the
    cluster has left; ``problem`` says why the quota cannot be read. ``leaving`` is what pods hold beside ``allocated``
    that are being deleted or evicted."""

    __slots__ = (
        "allocated",
        "basic_allocated",
        "basic_elastic",
        "basic_inqueue",
        "basic_leaving",
        "basic_request",
        "capability",
        "elastic",
        "guarantee",
        "inqueue",
        "leaving",
        "limit",
        "name",
        "problem",
        "quota",
        "request",
    )

    def __init__(self, queue: Queue) -> None:
        self.name = queue.name
        self.quota: dict[str, int] = {}
        self.problem: Refusal | None = None
        text = queue.record.queue.metadata.annotations.get(QUOTA)
        if text is not None:
            try:
                self.quota = read_quota(text)
            except CardError as error:
                self.problem = Refusal(f"annotation {QUOTA} of queue {queue.name}: {error}")
        record = queue.record
        self.capability = [max(record.capability.get(name, 0), 0) for name in BASIC]
        self.guarantee = [record.guarantee.get(name, 0) for name in BASIC]
        self.limit = [0, 0]
        self.allocated: dict[str, int] = {}
        self.leaving: dict[str, int] = {}
        self.elastic: dict[str, int] = {}
        self.inqueue: dict[Names, int] = {}
        self.request: dict[Names, int] = {}
        self.basic_allocated = [0, 0]
        self.basic_leaving = [0, 0]
        self.basic_elastic = [0, 0]
        self.basic_inqueue = [0, 0]
        self.basic_request = [0, 0]

    def left(self, card: str) -> int:
        """What of a card's quota is not used."""
        return self.quota.get(card, 0) - self.allocated.get(card, 0)

    def left_now(self, card: str) -> int:
        """What of a card's quota nobody holds, not even who is leaving."""
        return self.left(card) - self.leaving.get(card, 0)

    def leaves(self) -> bool:
        """Whether pods are leaving that hold some of this."""
        return any(self.basic_leaving) or any(self.leaving.values())

    def waits_for_basic(self, asked: Iterable[int]) -> bool:
        """Whether cpu or memory is there only once who is leaving has gone."""
        rows = zip(asked, self.basic_allocated, self.basic_leaving, self.limit, strict=True)
        return any(amount > 0 and have + leaving + amount > may for amount, have, leaving, may in rows)

    def share(self) -> float:
        """The largest part of a quota, or of a cpu or memory capability, that is used."""
        share = max([self.allocated.get(card, 0) / quota for card, quota in self.quota.items() if quota], default=0.0)
        for have, may in zip(self.basic_allocated, self.capability, strict=True):
            if may and have / may > share:
                share = have / may
        return share

    # --- gates --------------------------------------------------------------------------------------------------------

    def refuses(self, request: CardRequest) -> Refusal | None:
        """Why a pod does not fit, allocated + request <= capability in all that it asks for; None where it does."""
        refusal = self._refuses_basic(request.basic, self.basic_allocated)
        for ask in request.asks:
            if refusal is not None:
                return refusal
            if any(self.left(card) >= ask.amount for card in ask.names):
                continue
            refusal = self.problem or self._short_of(ask.names, ask.amount)
            if not ask.named:
                refusal = Refusal(f"{refusal.reason}; to ask for one card, name it in {CARD_NAME}", refusal.detail)
        return refusal

    def _short_of(self, names: Names, amount: int) -> Refusal:
        texts = [
            insufficient(self.name, card, amount, self.allocated.get(card, 0) + amount, self.quota.get(card, 0))
            for card in names
        ]
        more = [] if len(texts) <= _SHOWN else [f"and {len(texts) - _SHOWN} more"]
        return Refusal("; ".join(texts[:_SHOWN] + more))

    def admits(self, basic: Iterable[int], cards: dict[Names, int]) -> Refusal | None:
        """Why a group is not admitted: minimum + allocated + inqueue - elastic <= capability; None where it is.

        Of cards that may stand for each other, the sum is compared: a group's pods may take different ones.
        """
        promised = [
            have + waits - spare
            for have, waits, spare in zip(self.basic_allocated, self.basic_inqueue, self.basic_elastic, strict=True)
        ]
        refusal = self._refuses_basic(basic, promised)
        if refusal is not None:
            return refusal
        for names, amount in cards.items():
            total = amount + self._promised(names)
            may = sum(self.quota.get(card, 0) for card in names)
            if amount > 0 and total > may:
                return self.problem or Refusal(insufficient(self.name, "|".join(names), amount, total, may))
        return None

    def holds(self, basic: Iterable[int], cards: dict[Names, int]) -> Refusal | None:
        """Why several pods together do not fit beside what is allocated; None where they do."""
        refusal = self._refuses_basic(basic, self.basic_allocated)
        for names, amount in cards.items():
            total = amount + sum(self.allocated.get(card, 0) for card in names)
            may = sum(self.quota.get(card, 0) for card in names)
            if refusal is None and total > may:
                refusal = self.problem or Refusal(insufficient(self.name, "|".join(names), amount, total, may))
        return refusal

    def _promised(self, names: Names) -> int:
        have = sum(self.allocated.get(card, 0) - self.elastic.get(card, 0) for card in names)
        return have + sum(amount for waiting, amount in self.inqueue.items() if set(waiting) <= set(names))

    def _refuses_basic(self, asked: Iterable[int], before: Iterable[int]) -> Refusal | None:
        for name, amount, have, may in zip(BASIC, asked, before, self.limit, strict=True):
            if amount > 0 and have + amount > may:
                shown = (amount, have + amount, may)
                # memory is written with its unit: nobody reads bytes
                texts = shown if name == CPU else [format_resource(name, value) for value in shown]
                return Refusal(insufficient(self.name, name, *texts))
        return None


def add_to(sums: dict[Names, int], more: dict[Names, int]) -> None:
    """Add amounts by name to others."""
    for names, amount in more.items():
        sums[names] = sums.get(names, 0) + amount
