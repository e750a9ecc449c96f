"""Reduces a script that violates an invariant to the smallest one that still violates it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tests.simulation.script import Act, Script

T = TypeVar("T")

_DRAWS = 3
"""Seeds for each smaller script: without one act, everything is drawn in another order."""


def minimal(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return items of which none, nor any half, quarter ..., can be removed while it still ``fails`` (ddmin)."""
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
    """Shrinks a script; ``violated`` returns the invariants that a script violates.

    ``invariant`` has to be among them, and at most ``most`` scripts are run. ``told`` is called with each smaller
    script.
    """

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
        """Return a small script that violates the invariant, derived from a script that does."""
        while True:
            before, script = script, self._simplified(self._with_fewer_acts(script))
            if script == before or not self.left:
                return script

    def _tried(self, script: Script) -> Script | None:
        """Return the script under a seed with which it violates the invariant, or None."""
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
        """Reduce replicas, flags and lines of configuration, the length of the storm, and numbers."""
        again = True
        while again:
            again = False
            for candidate in simpler(script):
                if (found := self._tried(candidate)) is not None:
                    script, again = found, True
                    break
        return script


def simpler(script: Script) -> Iterator[Script]:
    """Yield scripts that differ in one thing, which is simpler. The calm keeps its length: a shorter one ends before
    rest."""
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
    """Yield an act's arguments with one smaller number or one empty object."""
    for place, value in enumerate(given):
        less: list[Any] = []
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            less = [1, value // 2] if value > 3 else [1]
        elif isinstance(value, dict) and value:
            less = [{}]
        for one in less:
            yield (*given[:place], one, *given[place + 1 :])
