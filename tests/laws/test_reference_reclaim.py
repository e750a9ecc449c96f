"""The fast core takes back for a queue what the slow reference takes, on random full clusters with several queues."""

from __future__ import annotations

import pytest

from tests.laws.plans import without_effect
from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.reclaiming import reclaim_case

PARTS = (
    ("conformance", "unprotected", "reclaimable"),
    ("pdb", "unprotected", "reclaimable"),
    ("cdp", "unprotected", "reclaimable"),
    ("proportion", "preemptive"),
    ("proportion", "unprotected reclaimable", "reclaimable"),
    ("capacity", "preemptive"),
    ("capacity", "unprotected reclaimable", "reclaimable"),
    ("capacity", "victimQueueOrder"),
    ("drf", "reclaimable"),
)


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_reclaims_as_the_reference(block: range) -> None:
    """The same pods go, for the same ones that wait."""
    wrong = {seed: found for seed in block if (found := differences(reclaim_case(seed)))}
    assert wrong == {}


def test_the_clusters_reclaim() -> None:
    """That the comparison is about something: in one of four or more somebody goes."""
    assert sum(bool(decide(case.objects, case.conf, NOW).evictions) for case in map(reclaim_case, range(100))) >= 25


def test_each_part_decides_who_goes() -> None:
    """That the comparison is about all of it: without what one of the plugins says at a point others go, or more."""
    assert without_effect(reclaim_case, PARTS, range(300)) == {}
