"""The cost of a session grows with what it has to do, and stays within its budget (``tests/cost/budgets.json``)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from bench.session import DEFAULT
from bench.steady import Scheduler, waiting_jobs
from tests.cost.budgets import Cost, measure, problems, read_budgets
from tests.cost.counting import calls_of
from tests.cost.shapes import SHAPES
from vcd.scheduling.framework import registry


@pytest.mark.parametrize("shape", SHAPES)
def test_a_session_calls_no_more_than_its_budget(shape: str) -> None:
    assert list(problems(measure(shape), read_budgets().get(shape))) == []


def test_the_plugin_of_the_page_costs_a_steady_session_at_most_a_fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    """An out-of-tree plugin written from docs/extending.md leaves equal jobs equivalent."""
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    module = ModuleType("my_rank")
    exec(found[1], vars(module))
    known = MappingProxyType({**registry.plugins(), "rank": module.RankPlugin})
    monkeypatch.setattr(registry, "plugins", lambda: known)

    def calls(conf: str) -> int:
        """The calls of a session of equal waiting jobs without a change, and of one with a newcomer."""
        scheduler = Scheduler(waiting_jobs(500, 20, 1, 1), conf)
        idle = calls_of(scheduler.decide).total()
        scheduler.create_job()
        return idle + calls_of(scheduler.decide).total()

    assert calls(f"{DEFAULT.rstrip()}\n  - name: rank\n") <= 1.2 * calls(DEFAULT)


def test_a_count_is_the_same_again() -> None:
    n, _, prepare = SHAPES["preempt"]
    prepare(n)()
    assert calls_of(prepare(n)) == calls_of(prepare(n))


@pytest.mark.parametrize(
    ("once", "twice", "budget", "words"),
    [
        (100, 200, [100, 200], []),
        (110, 220, [100, 200], []),
        (100, 231, [100, 231], ["calls grow too fast: shape 'reclaim', 100 at n=50, 231 at n=100"]),
        (100, 221, [100, 200], ["too many calls: shape 'reclaim', 221 at n=100, budget 200"]),
        (100, 200, None, ["no budget: shape 'reclaim'"]),
    ],
)
def test_what_is_too_dear_is_reported(once: int, twice: int, budget: list[int] | None, words: list[str]) -> None:
    found = list(problems(Cost("reclaim", Counter(f=once), Counter(f=twice)), budget))
    assert [problem[: len(start)] for problem, start in zip(found, words, strict=True)] == words
    assert all("python -m tests.cost" in problem for problem in found)
