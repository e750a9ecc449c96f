"""Law: failure is remembered but changes nothing (docs/laws.md, law 5)."""

from __future__ import annotations

import pytest

from tests.laws.histories import History, sessions
from tests.sizes import seeds
from vcd.model import events as ev

CLUSTERS = seeds(16, 120)
CYCLES, BATCHES = 10, 4


@pytest.mark.parametrize("batch", range(BATCHES))
def test_with_and_without_memory_the_plans_are_the_same(batch: int) -> None:
    for seed in CLUSTERS[batch::BATCHES]:
        with_memory, without = History(seed), History(seed, memory=False)
        for count, (kept, fresh) in enumerate(zip(with_memory.live(CYCLES), without.live(CYCLES), strict=True)):
            assert ev.encode_plan(kept) == ev.encode_plan(fresh), f"seed {seed}, cycle {count}"


def test_the_histories_do_something() -> None:
    """Random clusters on which nothing is bound after the first cycle would prove nothing."""
    later = 0
    for seed in range(20):
        history = History(seed)
        plans = list(history.live(CYCLES))
        assert len(list(sessions(history.log))) == CYCLES
        later += sum(len(statement.operations) for plan in plans[1:] for statement in plan.statements)
    assert later > 40
