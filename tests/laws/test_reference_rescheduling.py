"""rescheduling equals the slow reference on random samples, which the daemon would have in its log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.test_reference import blocks
from tests.laws.test_reference_usage import plan_with_sample
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase
from tests.reference.rebalancing import rebalance_case


def wrong(case: RandomCase) -> dict[str, Any]:
    """What the two decide differently."""
    slow, fast = decide(case.objects, case.conf, NOW), plan_with_sample(case)
    pairs = {
        "evictions": (slow.evictions, sorted(fast["evict"])),
        "binds": (slow.binds, fast["bind"]),
        "pipelined": (slow.pipelined, fast["pipeline"]),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_reschedules_as_the_reference(block: range) -> None:
    """The same pods leave the busy nodes, and nobody where no round is due."""
    assert {seed: found for seed in block if (found := wrong(rebalance_case(seed)))} == {}


def test_the_samples_move_pods() -> None:
    """That the comparison is about something: in one of eight or more somebody leaves."""
    results = [decide(case.objects, case.conf, NOW) for case in map(rebalance_case, range(150))]
    assert sum(bool(result.evictions) for result in results) >= 19
