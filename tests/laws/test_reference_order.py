"""Where room is made before it is given out the fast core decides as the slow reference: reclaim or preempt first."""

from __future__ import annotations

import pytest

from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import actions, decide
from tests.reference.ordering import ordering_case


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_gives_out_room_that_was_made_as_the_reference(block: range) -> None:
    """The same pods go, the same ones wait, and those that wait for idle room are bound."""
    wrong = {seed: found for seed in block if (found := differences(ordering_case(seed)))}
    assert wrong == {}


def test_room_is_made_and_idle_room_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the comparison is about something: in one of ten or more somebody goes, and in one of twenty or more it
    matters that who waits for idle room is taken back."""
    cases = [ordering_case(seed) for seed in range(200)]
    results = [decide(case.objects, case.conf, NOW) for case in cases]
    assert sum(bool(result.evictions) for result in results) >= 20
    monkeypatch.setattr(actions, "unpipeline_idle", lambda session, is_mine: None)
    others = [decide(case.objects, case.conf, NOW) for case in cases]
    assert sum(one != other for one, other in zip(results, others, strict=True)) >= 10
