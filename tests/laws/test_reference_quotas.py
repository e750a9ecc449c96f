"""The fast core equals the slow reference on random clusters with cards: which pod gets which, and which group waits.

``VCD_SEEDS`` asks for more blocks, or for a range of seeds, as `tests/sizes.py` says.
"""

from __future__ import annotations

import pytest

from tests.laws.plans import without_effect
from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import PLUGINS, Result, decide
from tests.reference.carded import carded_case, contested_case, lent_case
from tests.reference.clusters import RandomCase
from tests.reference.model import Job, total
from tests.reference.quotas import Cards, Demands
from tests.reference.values import Resource

RECLAIM = (
    ("capacity-card", "preemptive"),
    ("capacity-card", "unprotected reclaimable", "reclaimable"),
    ("capacity-card", "surplus"),
)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_hands_out_cards_as_the_reference(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(carded_case(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_frees_used_quotas_as_the_reference(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(contested_case(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_reclaims_what_is_lent_as_the_reference(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(lent_case(seed)))}
    assert wrong == {}


def test_entitlements_decide_what_is_reclaimed() -> None:
    """Each part of what the plugin has to say of reclaim changes the outcome of some cases."""
    assert without_effect(lent_case, RECLAIM, range(150)) == {}


def test_groups_of_low_priority_decide_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they can lose, and what is reserved for them, decides some cases; pods of some are evicted."""
    cases = [contested_case(seed) for seed in range(100)]
    before = [_outcome(case) for case in cases]
    evicted = sum(bool(decide(case.objects, case.conf, NOW).evictions) for case in cases)
    monkeypatch.setattr(Cards, "freed", lambda *_: {})
    nothing_freed = sum(one != _outcome(case) for one, case in zip(before, cases, strict=True))
    monkeypatch.undo()
    monkeypatch.setattr(Cards, "ahead", _ahead_of_all)
    all_reserve = sum(one != _outcome(case) for one, case in zip(before, cases, strict=True))
    assert evicted >= 20
    assert nothing_freed >= 5
    assert all_reserve >= 5


def _ahead_of_all(cards: Cards, job: Job) -> tuple[Demands, Resource]:
    """What all admitted groups may still take, as Volcano counts."""
    waiting, basic = cards.inqueue[job.queue], cards.waits[job.queue]
    return [each for _, demands in waiting for each in demands], total(amount for _, amount in basic)


def test_quotas_of_cards_decide_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the comparison is about something: without the plugin many clusters come out otherwise."""
    cases = [carded_case(seed) for seed in range(100)]
    with_quotas = [_outcome(case) for case in cases]
    monkeypatch.setitem(PLUGINS, "capacity-card", lambda session, arguments: None)
    assert sum(before != _outcome(case) for before, case in zip(with_quotas, cases, strict=True)) > 33


def _outcome(case: RandomCase) -> tuple[object, ...]:
    result: Result = decide(case.objects, case.conf, NOW)
    return result.binds, result.pipelined, result.phases
