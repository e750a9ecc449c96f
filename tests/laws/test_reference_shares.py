"""The fast core shares as the slow reference does: what counts as request, what is lent, which guarantees are kept.

``VCD_SEEDS`` asks for more blocks, or for a range of seeds, as in ``test_reference``.
"""

from __future__ import annotations

import pytest

from tests import sizes
from tests.laws.sharing import borrowed_case, shares_case
from tests.laws.test_reference import BLOCK, differences
from tests.parity.cases import NOW
from tests.reference import actions, decide, lending
from tests.reference.values import Resource


def blocks() -> list[range]:
    """Return more seeds than other tests compare: the clusters are small."""
    return sizes.blocks(100, 300, BLOCK)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_shares_as_the_reference(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(shares_case(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("block", blocks()[:2], ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_admits_as_the_reference_beside_reclaim(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(borrowed_case(seed)))}
    assert wrong == {}


def test_what_reclaim_could_free_decides_some_case(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [borrowed_case(seed) for seed in range(20)]
    before = [decide(case.objects, case.conf, NOW).phases for case in cases]
    monkeypatch.setattr(lending, "reclaimable", lambda *asked: Resource())
    assert before != [decide(case.objects, case.conf, NOW).phases for case in cases]


@pytest.mark.parametrize(
    ("module", "name", "without"),
    [
        (actions, "_lend", lambda session: None),
        (lending, "never_placed", lambda session: set()),
        (lending, "takes_guaranteed", lambda *asked: False),
        (lending, "usable", lambda *asked: {}),
        (lending, "reserved", lambda session, queue, volcano: queue.guarantee or Resource()),
    ],
)
def test_each_rule_decides_some_case(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, without: object
) -> None:
    """That the comparison is about all of it: without one of the rules, some clusters come out otherwise."""
    cases = [shares_case(seed) for seed in (26, *range(160, 180), 2442, 2801)]
    before = [decide(case.objects, case.conf, NOW).binds for case in cases]
    monkeypatch.setattr(module, name, without)
    assert before != [decide(case.objects, case.conf, NOW).binds for case in cases]
