"""deviceshare equals the slow reference on random cards: binds, phases, and the cards that are written to pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.plans import planned_annotations, without
from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.cards import IDS, INDEX
from tests.reference.clusters import RandomCase
from tests.reference.shared import shared_case


def wrong(case: RandomCase) -> dict[str, Any]:
    """What the two decide differently, the cards of bound pods included."""
    found: dict[str, Any] = differences(case)
    slow, fast = decide(case.objects, case.conf, NOW).annotations, planned_annotations(case)
    for key in sorted({*slow, *fast}):
        pair = [{name: marks.get(key, {}).get(name) for name in (IDS, INDEX)} for marks in (slow, fast)]
        if pair[0] != pair[1]:
            found.setdefault("annotations", {})[key] = pair
    return found


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_hands_out_cards_as_the_reference(block: range) -> None:
    assert {seed: found for seed in block if (found := wrong(shared_case(seed)))} == {}


def test_the_cards_matter() -> None:
    """That the comparison is about something: without the plugin many clusters come out otherwise."""
    cases = [shared_case(seed) for seed in range(100)]
    results = [decide(case.objects, case.conf, NOW) for case in cases]
    others = [decide(case.objects, without(case.conf, "deviceshare"), NOW) for case in cases]
    assert sum(one.binds != other.binds for one, other in zip(results, others, strict=True)) >= 30
    assert sum(IDS in marks for result in results for marks in result.annotations.values()) >= 50
    assert sum("[" in marks.get(IDS, "") for result in results for marks in result.annotations.values()) >= 10
