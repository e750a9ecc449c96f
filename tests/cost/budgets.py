"""Counts against the recorded budgets (``budgets.json``): how much may be called at n and at 2n."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cost.counting import Calls, calls_of
from tests.cost.shapes import SHAPES

FILE = Path(__file__).with_name("budgets.json")
COMMAND = "python -m tests.cost"
SLACK = 1.1
"""A count may be above its budget by a tenth."""
_NAMED = 3
"""So many functions are named where a count is too large."""


class Cost(NamedTuple):
    """The calls of a shape at n and at 2n."""

    shape: str
    once: Calls
    twice: Calls

    @property
    def totals(self) -> tuple[int, int]:
        """All calls at n and at 2n."""
        return self.once.total(), self.twice.total()

    @property
    def growth(self) -> float:
        """How many times the calls at n those at 2n are."""
        once, twice = self.totals
        return twice / once


def measure(shape: str) -> Cost:
    """Count a shape. A session before it, of a tenth of the size, fills the caches of modules and of the policy."""
    n, _, prepare = SHAPES[shape]
    prepare(max(1, n // 10))()
    return Cost(shape, calls_of(prepare(n)), calls_of(prepare(2 * n)))


def read_budgets() -> dict[str, list[int]]:
    """Return the budgets at n and 2n by shape; empty where none are recorded."""
    budgets: dict[str, list[int]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return budgets


def write_budgets(costs: list[Cost]) -> None:
    """Record counts as budgets, and drop the budgets of shapes that are gone."""
    budgets = {**read_budgets(), **{cost.shape: list(cost.totals) for cost in costs}}
    lines = [f"  {json.dumps(name)}: {budgets[name]}" for name in SHAPES if name in budgets]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def problems(cost: Cost, budget: list[int] | None) -> Iterator[str]:
    """Yield what is wrong with a count, each with what to do about it."""
    n, limit, _ = SHAPES[cost.shape]
    once, twice = cost.totals
    remedy = f"see {COMMAND} {cost.shape!r}"
    if cost.growth > limit:
        yield (
            f"calls grow too fast: shape {cost.shape!r}, {once:,} at n={n}, {twice:,} at n={2 * n}, "
            f"{cost.growth:.2f} times, limit {limit}, most of it in {_growing(cost)}; {remedy}"
        )
    if budget is None:
        yield f"no budget: shape {cost.shape!r}; record it by {COMMAND} --write {cost.shape!r}"
        return
    for size, count, allowed in zip((n, 2 * n), cost.totals, budget, strict=True):
        if count > allowed * SLACK:
            yield (
                f"too many calls: shape {cost.shape!r}, {count:,} at n={size}, budget {allowed:,} "
                f"({count / allowed - 1:+.0%}, limit {SLACK - 1:+.0%}); {remedy}, "
                f"or accept the cost by {COMMAND} --write {cost.shape!r}"
            )


def _growing(cost: Cost) -> str:
    more = cost.twice.copy()
    more.subtract(cost.once)
    return ", ".join(f"{function} ({count:+,})" for function, count in more.most_common(_NAMED))
