"""The fast core takes back for a queue what the slow reference takes, on random full clusters with several queues."""

from __future__ import annotations

import pytest

from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.reclaiming import reclaim_case


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_reclaims_as_the_reference(block: range) -> None:
    """The same pods go, for the same ones that wait."""
    wrong = {seed: found for seed in block if (found := differences(reclaim_case(seed)))}
    assert wrong == {}


def test_the_clusters_reclaim() -> None:
    """That the comparison is about something: in one of ten or more somebody goes, whatever divides the cluster."""
    gone: dict[str, int] = {}
    for seed in range(200):
        case = reclaim_case(seed)
        if decide(case.objects, case.conf, NOW).evictions:
            kind = next(name for name in ("proportion", "capacity", "drf") if f"name: {name}" in case.conf)
            gone[kind] = gone.get(kind, 0) + 1
    assert sum(gone.values()) >= 20
    assert set(gone) == {"proportion", "capacity", "drf"}
