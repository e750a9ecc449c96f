"""The card quota for the framework: reading and writing the annotation, and limits in reasons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from vcd.model.events import Waiting
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.quotas import CAPABILITY, Amounts, QueueLimit, Quota
from vcd.scheduling.plugins.capacity_card.card_annotations import MILLI, QUOTA, SEPARATOR, read_quota
from vcd.scheduling.plugins.capacity_card.node_cards import cards_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task


class CardQuota(Quota):
    """Whole cards by model. A request of cards may use any model that nodes have."""

    def read(self, text: str) -> Amounts:
        return read_quota(text)

    def written(self, amounts: Mapping[str, int]) -> str:
        return json.dumps({card: amount // MILLI for card, amount in amounts.items()})

    def counted(self, session: Session, jobs: Iterable[Job], requests: Mapping[str, int]) -> Amounts:
        cards = cards_of(session.nodes.facts)
        requested = sum(requests.get(name, 0) for name in cards.resources)
        return dict.fromkeys(cards.names, requested) if requested else {}

    def used(self, session: Session, task: Task, name: str, row: int) -> int:
        cards, names = cards_of(session.nodes.facts), name.split(SEPARATOR)
        pairs = zip(cards.resources, cards.columns, strict=True)
        return sum(int(task.amounts[at]) for resource, at in pairs if cards.card_at(resource, row) in names)


CARDS = CardQuota(QUOTA, "card quota", closed=True)


def limits_of(reason: Waiting) -> Iterator[QueueLimit]:
    """Yield the limits that a reason of the plugin reports."""
    stated = reason.reason
    if isinstance(stated, str):
        return
    demands, total = stated.amounts_of("asks"), stated.amounts_of("total")
    for name, limit in stated.amounts_of("limit").items():
        bound = CAPABILITY if name in (CPU, MEMORY) else CARDS.name
        yield QueueLimit(dict(stated.names)["queue"], bound, name, demands[name], total[name] - demands[name], limit)
