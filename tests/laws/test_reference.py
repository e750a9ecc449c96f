"""The fast core equals the slow reference on random clusters: binds, evictions, pipelined pods and phases.

Which predicates, scores, plugins, actions and flags are on comes from the case. ``VCD_SEEDS`` asks for more blocks, or
for a range of seeds: ``VCD_SEEDS=100000`` takes the seeds below it, ``VCD_SEEDS=5000:6000`` those from 5000 on.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import vcd
from tests import sizes
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase, random_case
from tests.reference.crowded import crowded_case, waiting_case
from tests.reference.wider import wide_case

BLOCK = 50
COMPARED = ("binds", "pipelined", "phases")
Decided = dict[str, dict[str, tuple[Any, Any]]]


def blocks() -> list[range]:
    """Return the seeds on which fast core and reference are compared, in blocks: each block is one test."""
    return sizes.blocks(30, 1000, BLOCK)


def differences(case: RandomCase) -> Decided:
    """What the two decide differently: by kind of outcome and object, reference first."""
    slow, fast = decide(case.objects, case.conf, NOW), vcd.plan(case.objects, case.conf, NOW)
    found = {}
    for kind in COMPARED:
        left, right = getattr(slow, kind), getattr(fast, kind)
        keys = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
        if keys:
            found[kind] = {key: (left.get(key), right.get(key)) for key in keys}
    gone = sorted(set(slow.evictions) ^ set(fast.evictions))
    if gone:
        found["evictions"] = {key: (key in slow.evictions, key in fast.evictions) for key in gone}
    return found


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_decides_as_the_reference(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(random_case(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_decides_as_the_reference_with_further_plugins(block: range) -> None:
    wrong = {seed: found for seed in block if (found := differences(wide_case(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_makes_room_as_the_reference(block: range) -> None:
    """On full clusters: the same pods go, for the same ones that come."""
    wrong = {seed: found for seed in block if (found := differences(crowded_case(seed)))}
    assert wrong == {}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_displaces_waiting_jobs_as_the_reference(block: range) -> None:
    """On full clusters on which jobs wait for terminating pods."""
    wrong = {seed: found for seed in block if (found := differences(waiting_case(seed)))}
    assert wrong == {}


def test_waiting_jobs_are_displaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the comparison is about something: of two hundred clusters some are decided otherwise without it."""
    monkeypatch.setattr("tests.reference.evictions.displacing", lambda *_: False)
    monkeypatch.setattr("tests.reference.gangs.displacing", lambda *_: False)
    assert sum(bool(differences(case)) for case in map(waiting_case, range(200))) >= 3


def test_the_full_clusters_evict() -> None:
    """That the comparison is about something: in one of twenty or more somebody goes."""
    evicting = (case for case in map(crowded_case, range(200)) if decide(case.objects, case.conf, NOW).evictions)
    assert len(list(islice(evicting, 10))) == 10


def test_the_cases_place_wait_and_refuse() -> None:
    """That the comparison is about something: of a hundred clusters many bind, some wait, some are refused."""
    results = [decide(case.objects, case.conf, NOW) for case in map(random_case, range(100))]
    assert sum(bool(result.binds) for result in results) > 40
    assert sum(bool(result.pipelined) for result in results) > 5
    assert {phase for result in results for phase in result.phases.values()} == {
        "Pending",
        "Inqueue",
        "Running",
        "Unknown",
        "Completed",
    }
