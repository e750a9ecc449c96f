"""Choosing volumes in columns, against choosing them node by node."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import node, session_of
from tests.predicates.storage import claim, volume
from tests.sizes import examples
from vcd.model.projection_codec import from_manifest
from vcd.scheduling.search.predicates import freevolumes
from vcd.scheduling.search.predicates.freevolumes import NONE, ClassVolumes

Manifest = dict[str, Any]

ZONES = "abcd"
NODES = [node(f"{zone}{i}", labels={"zone": zone}) for zone in ZONES for i in range(2)]
FACTS = session_of(*NODES).nodes.facts


def objects(manifests: list[Manifest]) -> list[Any]:
    return [from_manifest(manifest)[1] for manifest in manifests]


def naive(claims: list[tuple[int, str]], volumes: list[tuple[int, frozenset[str], str, str]]) -> list[list[str | None]]:
    """Per node the volume of each claim: node by node, claim by claim, volume by volume."""
    result = []
    for name in FACTS.names:
        taken: list[str | None] = []
        for i, (size, tier) in enumerate(claims):
            best: tuple[int, str] | None = None
            meant: str | None = None
            is_meant = False
            for j, (has, zones, label, owner) in enumerate(volumes):
                reached = not zones or name[0] in zones
                if has < size or f"v{j}" in taken:
                    continue
                if owner == f"c{i}" and not is_meant:
                    is_meant, meant = True, f"v{j}" if reached else None
                if not owner and reached and tier in ("", label) and (best is None or (has, f"v{j}") < best):
                    best = (has, f"v{j}")
            taken.append(meant if is_meant else (best[1] if best else None))
        result.append(taken)
    return result


@pytest.mark.parametrize("narrow", [0, 3, 64])
@settings(max_examples=examples(80), deadline=None)
@given(
    claims=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["", "gold"])), min_size=1, max_size=3),
    volumes=st.lists(
        st.tuples(
            st.integers(0, 4),
            st.frozensets(st.sampled_from(ZONES)),
            st.sampled_from(["gold", "iron"]),
            st.sampled_from(["", "", "", "c0", "c1", "stranger"]),
        ),
        max_size=6,
    ),
)
def test_columns_choose_as_node_by_node(
    narrow: int, claims: list[tuple[int, str]], volumes: list[tuple[int, frozenset[str], str, str]]
) -> None:
    made = [
        volume(f"v{j}", size=str(size), zones=tuple(sorted(zones)), labels={"tier": tier}, claim=owner)
        for j, (size, zones, tier, owner) in enumerate(volumes)
    ]
    asked = [
        claim(f"c{i}", size=str(size), **({"selector": {"matchLabels": {"tier": tier}}} if tier else {}))
        for i, (size, tier) in enumerate(claims)
    ]
    with patch.object(freevolumes, "_NARROW", narrow):
        columns = ClassVolumes(FACTS, objects(made))
        chosen: list[Any] = []
        for wanted in objects(asked):
            chosen.append(columns.choose(wanted, list(chosen)))
    found = [
        [None if numbers[row] == NONE else columns.names[numbers[row]] for numbers in chosen]
        for row in range(len(FACTS))
    ]
    assert found == naive(claims, volumes)


def test_an_assumed_volume_is_for_its_claim_alone_until_it_is_released() -> None:
    columns = ClassVolumes(FACTS, objects([volume("v")]))
    mine, other = objects([claim("mine"), claim("other")])
    columns.assume(0, "default/mine")
    assert (columns.choose(mine, []) == 0).all()
    assert (columns.choose(other, []) == NONE).all()
    columns.release(0, "default/mine")
    assert (columns.choose(other, []) == 0).all()


@pytest.mark.parametrize(
    "broken",
    [
        volume("v", size="much"),
        volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [{"operator": "Near"}]}]}}),
    ],
)
def test_a_volume_that_cannot_be_read_is_chosen_nowhere(broken: Manifest) -> None:
    columns = ClassVolumes(FACTS, objects([broken]))
    assert (columns.choose(objects([claim("c")])[0], []) == NONE).all()


def test_a_volume_that_is_being_deleted_is_chosen_nowhere() -> None:
    leaving = volume("v")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    columns = ClassVolumes(FACTS, objects([leaving]))
    assert columns.names == []
