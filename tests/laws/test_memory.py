"""Law: failure is remembered but changes nothing (docs/laws.md, law 5)."""

from __future__ import annotations

from tests.laws.histories import History
from tests.sizes import seeds
from vcd.model import events as ev

CLUSTERS = seeds(10, 120)
CYCLES = 10


def test_with_and_without_memory_the_plans_are_the_same() -> None:
    later = 0
    for seed in CLUSTERS:
        with_memory, without = History(seed), History(seed, memory=False)
        for count, (kept, fresh) in enumerate(zip(with_memory.live(CYCLES), without.live(CYCLES), strict=True)):
            assert ev.encode_plan(kept) == ev.encode_plan(fresh), f"seed {seed}, cycle {count}"
            later += sum(len(statement.operations) for statement in kept.statements) if count else 0
    assert later > len(CLUSTERS), "after the first cycle nothing is decided that memory could change"
