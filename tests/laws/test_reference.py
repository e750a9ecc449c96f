"""The fast core equals the slow reference on random clusters of many families.

Which predicates, scores, plugins, actions and flags are on comes from the case. ``VCD_SEEDS`` asks for more blocks, or
for a range of seeds: ``VCD_SEEDS=100000`` takes the seeds below it, ``VCD_SEEDS=5000:6000`` those from 5000 on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import sizes
from tests.laws.compared import Differences, operations, outcomes, with_cards, with_cpus
from tests.laws.sharing import borrowed_case, shares_case
from tests.reference.carded import carded_case, contested_case, lent_case
from tests.reference.clusters import RandomCase, random_case
from tests.reference.crowded import crowded_case, waiting_case
from tests.reference.extended import extended_case
from tests.reference.ganging import gang_case
from tests.reference.machines import machine_case
from tests.reference.ordering import ordering_case
from tests.reference.rebalancing import rebalance_case
from tests.reference.reclaiming import reclaim_case
from tests.reference.sampled import sampled_case
from tests.reference.shared import shared_case
from tests.reference.shuffling import shuffle_case
from tests.reference.wider import wide_case

BLOCK = 50
FAMILIES: tuple[tuple[Callable[[int], RandomCase], Callable[[RandomCase], Differences]], ...] = (
    (random_case, outcomes),
    (wide_case, outcomes),
    (crowded_case, outcomes),
    (waiting_case, outcomes),
    (gang_case, outcomes),
    (reclaim_case, outcomes),
    (ordering_case, outcomes),
    (shuffle_case, outcomes),
    (carded_case, outcomes),
    (contested_case, outcomes),
    (lent_case, outcomes),
    (shares_case, outcomes),
    (borrowed_case, outcomes),
    (shared_case, with_cards),
    (machine_case, with_cpus),
    (sampled_case, operations),
    (rebalance_case, operations),
    (extended_case, operations),
)
"""Random clusters, and what of their outcome is compared; `test_reference_matters` shows what decides them."""
SMALL = (shares_case, borrowed_case)
"""Families of small clusters, of which more seeds are compared."""


def compared() -> list[Any]:
    """Return each family with the blocks of seeds that are compared: each block is one test."""
    return [
        pytest.param(case_of, differences, block, id=f"{case_of.__name__}-{block.start}-{block.stop - 1}")
        for case_of, differences in FAMILIES
        for block in (sizes.blocks(40, 300, BLOCK) if case_of in SMALL else sizes.blocks(16, 1000, BLOCK))
    ]


@pytest.mark.parametrize(("case_of", "differences", "block"), compared())
def test_the_fast_core_decides_as_the_reference(
    case_of: Callable[[int], RandomCase], differences: Callable[[RandomCase], Differences], block: range
) -> None:
    assert {seed: found for seed in block if (found := differences(case_of(seed)))} == {}
