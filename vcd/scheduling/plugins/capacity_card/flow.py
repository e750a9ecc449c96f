"""Whether demands for cards, each of which several cards may serve, fit together into what is left of each: a flow."""

from __future__ import annotations

from collections.abc import Mapping

from vcd.scheduling.plugins.capacity_card.annotations import Names


class Flow:
    """Amounts of cards given to demands by name, in whole numbers; ``left`` is what there is of each card.

    What was given once is never taken back, only moved to another of a demand's cards, so that demands that are served
    one after the other get as much together as any order of giving could give them.
    """

    def __init__(self, left: Mapping[str, int]) -> None:
        self._left = {card: amount for card, amount in left.items() if amount > 0}
        self._given: dict[Names, dict[str, int]] = {}

    def serve(self, names: Names, amount: int) -> int:
        """Give as much of ``amount`` as fits beside what was given before; what could not be given."""
        while amount > 0:
            path = self._path(names)
            if path is None:
                break
            amount -= self._push(names, path, amount)
        return amount

    def reached(self, names: Names) -> tuple[str, ...]:
        """The cards that demands by these names could have, were others moved: where one of them lacks, all of them
        are used up."""
        return tuple(sorted(self._search(names)))

    def _search(self, names: Names) -> dict[str, tuple[str, Names] | None]:
        """Cards in reach, and how: the card before, and the demand that would move from there."""
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
        """A card with some left and the moves that lead there from one of ``names``, last first; None: there is
        none."""
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
        """Give along a path; how much that was."""
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
    """Of demands those that compete, straight or through others, with one by ``names``, in a fixed order."""
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
