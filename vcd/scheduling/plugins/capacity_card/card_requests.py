"""A pod's request of cards, from its resource requests and its annotation, and why it cannot be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from vcd.model.reasons import MEND_NAMED, Amount, Cause, Reason, ReasonCode
from vcd.scheduling.plugins.capacity_card.card_annotations import CARD_NAME, QUOTA, CardError, Names, names_in
from vcd.scheduling.plugins.capacity_card.node_cards import NodeCards

UNREADABLE = ReasonCode("card-unreadable", Cause.INVALID, "{whose}: {error}", mend=MEND_NAMED)
_NOWHERE = ReasonCode("card-nowhere", Cause.SHAPE, "{whose}: {error}", mend=MEND_NAMED)
INSUFFICIENT = ReasonCode(
    "card-quota",
    Cause.CARD_QUOTA,
    "Queue <{queue}> has insufficient <{resource}> quota: requested <{asks}>, total would be <{total}>, but capability "
    "is <{limit}>",
    field=f"metadata.annotations[{QUOTA}]",
)


class CardDemand(msgspec.Struct, frozen=True):
    """An amount of one card resource, and the acceptable cards in order of preference.

    If ``named`` is False, the user named none: every card of the resource will do, also on a node of unknown model.
    """

    resource: str
    amount: int
    names: Names
    named: bool


@dataclass(frozen=True, slots=True, eq=False)
class CardRequest:
    """A pod's request: cards, and cpu and memory as its queue counts them.

    ``refusal`` is why it cannot be served at all. ``missing`` is set if no node has any of the named cards.
    ``preference`` is the demand with several named cards, if there is one.
    """

    demands: tuple[CardDemand, ...]
    basic: tuple[int, int]
    refusal: Reason | None = None
    missing: Reason | None = None
    preference: CardDemand | None = field(init=False)

    def __post_init__(self) -> None:
        several = (demand for demand in self.demands if demand.named and len(demand.names) > 1)
        object.__setattr__(self, "preference", next(several, None))


def card_request(
    requests: Mapping[str, int], own: str | None, inherited: str | None, cards: NodeCards, basic: tuple[int, int]
) -> CardRequest:
    """Return the request of a pod with resource requests ``requests``, and its own or its group's annotation."""
    requested = {name: requests[name] for name in cards.resources if requests.get(name, 0) > 0}
    text = own or inherited
    names: Names = ()
    resource = refusal = missing = None
    if text and (own or requested):
        whose = f"annotation {CARD_NAME} of the {'pod' if own else 'pod group'}"
        try:
            names = names_in(text)
            resource = _resource(names, tuple(requested), cards)
        except CardError as error:
            refusal = UNREADABLE({"whose": whose, "error": str(error), CARD_NAME: text})
        if names and not any(name in cards.resources_of for name in names):
            missing = _NOWHERE({"whose": whose, "error": _no_node_has(names), CARD_NAME: text})
    demands = tuple(
        CardDemand(name, amount, names, True)
        if name == resource
        else CardDemand(name, amount, cards.cards_of[name], False)
        for name, amount in requested.items()
    )
    return CardRequest(demands, basic, refusal, missing)


def _no_node_has(names: Names) -> str:
    return f"no node has card <{'|'.join(names)}>; name one that the nodes' labels show"


def _resource(names: Names, requested: Sequence[str], cards: NodeCards) -> str:
    """Return the resource of the named cards that nodes have. Raises CardError unless one resource serves them all."""
    known = [name for name in names if name in cards.resources_of]
    if not known:
        if len(requested) == 1:
            return requested[0]  # nodes with such a card may be added
        raise CardError(_no_node_has(names))
    shared = set(cards.resources_of[known[0]]).intersection(*(cards.resources_of[name] for name in known))
    if not shared:
        resources = ", ".join(f"<{name}> is {' or '.join(cards.resources_of[name])}" for name in known)
        raise CardError(
            f"cards of different resources cannot stand for each other: {resources}; name cards of one resource"
        )
    wanted = sorted(shared & set(requested))
    if not wanted:
        raise CardError(f"the pod asks for no {' or '.join(sorted(shared))}, the resource of card <{known[0]}>")
    return wanted[0]


def amounts_of(resource: str, requested: int, total: int, capability: int) -> list[Amount]:
    """Return the requested amount, what the queue would hold with it, and its limit, as amounts of a reason."""
    return [("asks", resource, requested), ("total", resource, total), ("limit", resource, capability)]
