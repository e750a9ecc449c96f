"""The fast core equals the slow reference on random clusters with cards: which pod gets which, and which group waits.

``VCD_SEEDS`` asks for more blocks, or for a range of seeds, as `tests/sizes.py` says.
"""

from __future__ import annotations

import pytest

from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import PLUGINS, Result, decide
from tests.reference.carded import carded_case
from tests.reference.clusters import RandomCase


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_hands_out_cards_as_the_reference(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(carded_case(seed)))}
    assert wrong == {}


def test_quotas_of_cards_decide_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the comparison is about something: without the plugin many clusters come out otherwise."""
    cases = [carded_case(seed) for seed in range(100)]
    with_quotas = [_outcome(case) for case in cases]
    monkeypatch.setitem(PLUGINS, "capacity-card", lambda session, arguments: None)
    assert sum(before != _outcome(case) for before, case in zip(with_quotas, cases, strict=True)) > 33


def _outcome(case: RandomCase) -> tuple[object, ...]:
    result: Result = decide(case.objects, case.conf, NOW)
    return result.binds, result.pipelined, result.phases
