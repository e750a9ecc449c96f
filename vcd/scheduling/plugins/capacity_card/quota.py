"""The quota of cards as others see it: what a queue's annotation comes to, and what a reason says is short."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vcd.model.events import Waiting
from vcd.model.quantity import resource_value
from vcd.model.requests import CPU, MEMORY
from vcd.scheduling.framework.quotas import CAPABILITY, Amounts, QueueLimit, Quota
from vcd.scheduling.plugins.capacity_card.annotations import MILLI, QUOTA, SEPARATOR, read_quota
from vcd.scheduling.plugins.capacity_card.cards import cards_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

_SHORT = re.compile(
    r"Queue <(?P<queue>[^>]*)> has insufficient <(?P<card>[^>]*)> quota: requested <(?P<asks>[^>]*)>, "
    r"total would be <(?P<total>[^>]*)>, but capability is <(?P<limit>[^>]*)>"
)
"""How a quota that is too small is told: Volcano fixes the words, and they alone hold the numbers."""


class CardQuota(Quota):
    """Whole cards by model; a request of cards may come to any model that nodes have."""

    def read(self, text: str) -> Amounts:
        return read_quota(text)

    def written(self, amounts: Mapping[str, int]) -> str:
        return json.dumps({card: amount // MILLI for card, amount in amounts.items()})

    def counted(self, session: Session, jobs: Iterable[Job], requests: Mapping[str, int]) -> Amounts:
        cards = cards_of(session.nodes.facts)
        asked = sum(requests.get(name, 0) for name in cards.resources)
        return dict.fromkeys(cards.names, asked) if asked else {}

    def used(self, session: Session, task: Task, name: str, row: int) -> int:
        cards, names = cards_of(session.nodes.facts), name.split(SEPARATOR)
        pairs = zip(cards.resources, cards.columns, strict=True)
        return sum(int(task.amounts[at]) for resource, at in pairs if cards.card_at(resource, row) in names)


CARDS = CardQuota(QUOTA, "card quota", closed=True)


def limits_in_words(reason: Waiting) -> Iterator[QueueLimit]:
    """The limits that a reason of the plugin is about."""
    for found in _SHORT.finditer(reason.reason):
        card = found["card"]
        bound = CAPABILITY if card in (CPU, MEMORY) else CARDS.name
        asks, total, limit = amounts_told(card, [found[group] for group in ("asks", "total", "limit")])
        yield QueueLimit(found["queue"], bound, card, asks, total - asks, limit)


def amounts_told(card: str, texts: Sequence[str]) -> list[int]:
    """Amounts in the session's units: quantities, in older logs thousandths of cards and cpu.

    What an older log says is a thousand and more of each, which nobody asks for.
    """
    old = card != MEMORY and all(text.isdecimal() and int(text) % MILLI == 0 for text in texts)
    return [int(text) if old else resource_value(card, text) for text in texts]
