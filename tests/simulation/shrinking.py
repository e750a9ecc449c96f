"""Reduces a script that violates an invariant to the smallest one that still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tests.simulation.script import Act, Script

T = TypeVar("T")

_DRAWS = 3
"""Seeds under which a smaller script is tried: with an act less, all that is drawn comes in another order."""


def minimal(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Items of which none, nor any half, quarter ... of them, can be left out while it still ``fails`` (Zeller's
    ddmin)."""
    left, parts = list(items), 2
    while left:
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            rest = [*left[:start], *left[start + size :]]
            if fails(rest):
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left


class Shrinker:
    """Shrinks by what ``violated`` says: the invariants that a script violates. ``invariant`` has to be among them, and
    no more than ``most`` scripts are run. ``told`` is handed each smaller one that was found."""

    def __init__(
        self,
        violated: Callable[[Script], Sequence[str]],
        invariant: str,
        most: int,
        told: Callable[[Script], None] = lambda _: None,
    ) -> None:
        self.invariant = invariant
        self.left = most
        self._violated = violated
        self._told = told

    def shrunk(self, script: Script) -> Script:
        """A small script that violates the invariant, of one that does."""
        while True:
            before, script = script, self._simplified(self._with_fewer_acts(script))
            if script == before or not self.left:
                return script

    def _tried(self, script: Script) -> Script | None:
        """The script under a seed with which it violates the invariant; None where it is under none of some."""
        for seed in range(script.seed, script.seed + _DRAWS):
            if not self.left:
                return None
            self.left -= 1
            found = replace(script, seed=seed)
            if self.invariant in self._violated(found):
                self._told(found)
                return found
        return None

    def _with_fewer_acts(self, script: Script) -> Script:
        smallest = script

        def fails(acts: Sequence[Act]) -> bool:
            nonlocal smallest
            found = self._tried(replace(smallest, acts=tuple(acts)))
            smallest = found or smallest
            return found is not None

        minimal(script.acts, fails)
        return smallest

    def _simplified(self, script: Script) -> Script:
        """Fewer replicas, flags and lines of configuration, a shorter storm, smaller numbers."""
        again = True
        while again:
            again = False
            for candidate in simpler(script):
                if (found := self._tried(candidate)) is not None:
                    script, again = found, True
                    break
        return script


def simpler(script: Script) -> Iterator[Script]:
    """Scripts that differ in one thing, which is simpler. The calm stays as it is: in a shorter one nothing would come
    to rest."""
    for count in range(1, script.replicas):
        yield replace(script, replicas=count)
    if script.flags:
        yield replace(script, flags={})
    for name in script.flags:
        yield replace(script, flags={flag: values for flag, values in script.flags.items() if flag != name})
    if script.conf:
        yield replace(script, conf="")
    last = max([act.at for act in script.acts], default=0.0) + 1.0
    if last < script.storm:
        yield replace(script, storm=float(round(last + 0.5)))
    for place, act in enumerate(script.acts):
        for given in _simpler_givens(act.given):
            acts = (*script.acts[:place], replace(act, given=given), *script.acts[place + 1 :])
            yield replace(script, acts=acts)


def _simpler_givens(given: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """What an act is given, with a number that is smaller or an object that is empty."""
    for place, value in enumerate(given):
        less: list[Any] = []
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            less = [1, value // 2] if value > 3 else [1]
        elif isinstance(value, dict) and value:
            less = [{}]
        for one in less:
            yield (*given[:place], one, *given[place + 1 :])
