"""The cards that other pods of a gang still need: a pod with a choice must not take the only card of another pod."""

from __future__ import annotations

from functools import cache, partial

from vcd.scheduling.plugins.capacity_card.card_account import CardAccount
from vcd.scheduling.plugins.capacity_card.card_annotations import Names
from vcd.scheduling.plugins.capacity_card.card_requests import CardDemand, CardRequest
from vcd.scheduling.plugins.capacity_card.maximum_flow import Flow
from vcd.scheduling.plugins.capacity_card.pending_cards import PendingCards
from vcd.scheduling.session.views import Job


class GangRests:
    """The pending demands of gangs whose pods accept different, overlapping sets of cards; updated with placements."""

    def __init__(self, waiting: PendingCards) -> None:
        self._waiting = waiting
        self._rest_of = cache(partial(_overlapping, waiting))
        several = any(len(demand.names) > 1 for kind in waiting.kinds for demand in kind.demands)
        self._jobs = frozenset(waiting.with_several_ways() if several else ())

    def limits_choice(self, job: Job) -> bool:
        """Return whether a pod's choice of card can take the only acceptable card of another pod of its job."""
        return self._of(job.index) is not None

    def change(self, job: Job, request: CardRequest, sign: int) -> None:
        """Update the demands when a pending pod is placed (1), or its placement is rolled back (-1)."""
        rest = self._of(job.index)
        if rest is not None:
            for demand in request.demands:
                rest[demand.names] = rest.get(demand.names, 0) - sign * demand.amount

    def cards_for_rest(self, job: Job, account: CardAccount, demand: CardDemand, cards: Names) -> Names:
        """Return the ``cards`` with which the rest of a gang that needs all of its pods still fits.

        All of them, if none fits or the gang needs fewer pods.
        """
        rest = self._of(job.index)
        if rest is None or job.min_available < job.valid_count:
            return cards
        demands = {names: amount for names, amount in rest.items() if amount > 0}
        demands[demand.names] = demands.get(demand.names, demand.amount) - demand.amount
        return tuple([card for card in cards if _fits(account, demands, card, demand.amount)]) or cards

    def _of(self, job: int) -> dict[Names, int] | None:
        return self._rest_of(job) if job in self._jobs else None  # demands for one set of cards cannot conflict


def _overlapping(waiting: PendingCards, job: int) -> dict[Names, int] | None:
    entries = waiting.of_job(job)
    sums: dict[Names, int] = {}
    for resource, amounts in waiting.requested.items():
        names = waiting.names[resource]
        for kind, amount in zip(waiting.kind[entries].tolist(), amounts[entries].tolist(), strict=True):
            if amount:
                sums[names[kind]] = sums.get(names[kind], 0) + amount
    ways = [set(names) for names in sums]
    overlap = any(first & second for place, first in enumerate(ways) for second in ways[:place])
    return sums if overlap else None


def _fits(account: CardAccount, demands: dict[Names, int], taken: str, amount: int) -> bool:
    cards = {card: account.left(card) for names in demands for card in names}
    cards[taken] = account.left(taken) - amount
    flow = Flow(cards)
    return not any(flow.serve(names, more) for names, more in sorted(demands.items()))
