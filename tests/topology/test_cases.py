"""Recorded clusters with HyperNodes, decided as Volcano decided them; the differences are listed here and in
docs/differences.md."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.parity.cases import NOW, Case, compare, recorded
from tests.parity.implementations import vcd

_DATA = Path(__file__).parents[1] / "data" / "topology" / "volcano.json.gz"
CASES = [recorded(raw["family"], raw) for raw in json.loads(gzip.decompress(_DATA.read_bytes()))]

_BINDS = ("binds", "bound_per_node")
_SAME_NUMBER = "another HyperNode of the same tier needs as few victims"
_EVEN = "the fewest HyperNodes get even shares of a group that no single one takes"
_STAY = "more pods of a placed group go to the closest HyperNode that holds its pods"
_ELASTIC = "of HyperNodes of one tier, the one that takes most of the group's pods comes first"
_UNKNOWN = "a group of which some pods run and that is unschedulable is Unknown"
DIFFERENCES: dict[str, tuple[tuple[str, ...], str]] = {
    "hn_deep-012": (("binds",), _EVEN),
    "hn_elastic-005": (_BINDS, _STAY),
    "hn_forest-002": (("binds",), _EVEN),
    "hn_gangreclaim_tight-006": (("evicted_per_job", "evictions"), _SAME_NUMBER),
    "hn_missing-000": (_BINDS, _EVEN),
    "hn_partial-000": (_BINDS, _STAY),
    "hn_partial-001": ((*_BINDS, "bound_per_job", "bound_total"), _STAY),
    "hn_partial-004": (_BINDS, _STAY),
    "hn_partial_subgroups-006": (("phases",), _UNKNOWN),
    "hn_preempt-000": (
        ("evicted_per_job", "evicted_total", "evictions", "pipelined_per_job"),
        "preempt serves groups with topology, and Volcano's leaves them out",
    ),
    "hn_subgroups_min-007": ((*_BINDS, "bound_per_job", "bound_total"), _ELASTIC),
    "hn_subgroups_min-012": (_BINDS, _ELASTIC),
}
"""The expectations that do not hold, by case, and why."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vcd_decides_as_volcano_except_for_listed_differences(case: Case) -> None:
    problems = compare(case, vcd(case.objects, case.conf, NOW, case.seed))
    keys, _ = DIFFERENCES.get(case.name, ((), ""))
    assert {problem.split(":")[0] for problem in problems} == set(keys), problems


def test_all_recorded_cases_are_there() -> None:
    assert len(CASES) == 60
    assert DIFFERENCES.keys() < {case.name for case in CASES}
