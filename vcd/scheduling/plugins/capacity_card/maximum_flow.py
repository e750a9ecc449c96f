"""Checks whether demands with interchangeable cards fit together into what is left of each card: a maximum flow."""

from __future__ import annotations

from collections.abc import Mapping

from vcd.scheduling.plugins.capacity_card.card_annotations import Names


class Flow:
    """Assigns amounts of cards to demands, in whole numbers. ``left`` is what remains of each card.

    Later demands may move earlier ones to other acceptable cards, but never reduce them. So demands that are served in
    sequence get as much together as in any other order.
    """

    def __init__(self, left: Mapping[str, int]) -> None:
        self._left = {card: amount for card, amount in left.items() if amount > 0}
        self._given: dict[Names, dict[str, int]] = {}

    def serve(self, names: Names, amount: int) -> int:
        """Assign as much of ``amount`` as fits in addition to earlier demands; return the remainder."""
        while amount > 0:
            path = self._path(names)
            if path is None:
                break
            amount -= self._push(names, path, amount)
        return amount

    def reached(self, names: Names) -> tuple[str, ...]:
        """Return the cards that demands for ``names`` could get if others were moved.

        If such a demand is not met, all of these cards are used up.
        """
        return tuple(sorted(self._search(names)))

    def _search(self, names: Names) -> dict[str, tuple[str, Names] | None]:
        """Return the reachable cards, each with the card before it and the demand that would move from there."""
        found: dict[str, tuple[str, Names] | None] = dict.fromkeys(names)
        waiting = list(found)
        for card in waiting:
            for other, given in self._given.items():
                if given.get(card):
                    for next_card in other:
                        if next_card not in found:
                            found[next_card] = (card, other)
                            waiting.append(next_card)
        return found

    def _path(self, names: Names) -> list[tuple[str, Names | None]] | None:
        """Return the moves from one of ``names`` to a card with some left, last move first; None if there are none."""
        found = self._search(names)
        end = next((card for card in found if self._left.get(card)), None)
        if end is None:
            return None
        path: list[tuple[str, Names | None]] = []
        step = found[end]
        while step is not None:
            before, mover = step
            path.append((end, mover))
            end, step = before, found[before]
        return [*path, (end, None)]

    def _push(self, names: Names, path: list[tuple[str, Names | None]], amount: int) -> int:
        """Assign along a path; return the amount."""
        amount = min(amount, self._left[path[0][0]])
        moves = [(card, mover, path[place + 1][0]) for place, (card, mover) in enumerate(path) if mover is not None]
        for _, mover, source in moves:
            amount = min(amount, self._given[mover][source])
        self._left[path[0][0]] -= amount
        for card, mover, source in moves:
            given = self._given[mover]
            given[source] -= amount
            given[card] = given.get(card, 0) + amount
        given = self._given.setdefault(names, {})
        given[path[-1][0]] = given.get(path[-1][0], 0) + amount
        return amount


def touching(demands: Mapping[Names, int], names: Names) -> dict[Names, int]:
    """Return the demands that compete with one for ``names``, directly or through others, sorted."""
    cards, rest, found = set(names), sorted(demands), dict[Names, int]()
    grown = True
    while grown:
        grown = False
        for other in rest:
            if other not in found and not cards.isdisjoint(other):
                found[other] = demands[other]
                cards.update(other)
                grown = True
    return {other: found[other] for other in sorted(found)}
