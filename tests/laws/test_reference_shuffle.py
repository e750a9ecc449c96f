"""The fast core lets leave whom the slow reference lets leave, where nodes are ours by the hour (tdm, shuffle)."""

from __future__ import annotations

import pytest

from tests.laws.plans import without_effect
from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.shuffling import shuffle_case


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_shuffles_as_the_reference(block: range) -> None:
    """The same pods leave, and the same ones come, on ordinary nodes and on those of open and closed zones."""
    wrong = {seed: found for seed in block if (found := differences(shuffle_case(seed)))}
    assert wrong == {}


def test_the_clusters_shuffle() -> None:
    """That the comparison is about something: in one of ten or more somebody leaves, and in some one comes."""
    results = [decide(case.objects, case.conf, NOW) for case in map(shuffle_case, range(100))]
    assert sum(bool(result.evictions) for result in results) >= 10
    assert sum(bool(result.binds) for result in results) >= 5


def test_each_part_of_tdm_matters() -> None:
    """That the comparison is about all of it: without what tdm says at a point some clusters come out otherwise."""
    points = ("predicate", "nodeOrder", "jobOrder", "jobPipelined", "jobStarving", "preemptable", "victimTasks")
    assert without_effect(shuffle_case, [("tdm", point) for point in points], range(300)) == {}
