"""Scores by labels and taints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, node, planned, pod, session_of
from tests.predicates.asking import pending, with_arguments
from tests.scores.rating import points, rated
from tests.sizes import examples
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session

Manifest = dict[str, Any]


def opened(*objects: Manifest) -> Session:
    return session_of(*objects, conf=with_arguments("nodeorder"))


def preferring(*terms: tuple[int, Manifest]) -> Manifest:
    """A pod that prefers nodes by weight and one expression each."""
    preferred = [{"weight": weight, "preference": {"matchExpressions": [need]}} for weight, need in terms]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return pod("p", spec={"affinity": affinity}, cpu=1)


def zone_in(*zones: str) -> Manifest:
    return {"key": "zone", "operator": "In", "values": list(zones)}


def soft(number: int) -> Manifest:
    return {"key": f"soft{number}", "value": "x", "effect": "PreferNoSchedule"}


# --- preferred node affinity ------------------------------------------------------------------------------------------


ZONED = [node(zone, labels={"zone": zone}) for zone in "abc"]


@pytest.mark.parametrize(
    ("terms", "feasible", "expected"),
    [
        # the highest sum of weights is 100
        ([(30, zone_in("a", "b")), (15, zone_in("b"))], None, {"a": 66, "b": 100, "c": 0}),
        ([(30, zone_in("a")), (90, zone_in("b"))], {"a", "c"}, {"a": 100, "c": 0}),
        ([(30, zone_in("a"))], {"c"}, {"c": 0}),
    ],
    ids=["sum", "of feasible nodes", "no match"],
)
def test_weights_of_matching_terms_add_up(
    terms: list[tuple[int, Manifest]], feasible: set[str] | None, expected: dict[str, float]
) -> None:
    assert points(opened(*ZONED, preferring(*terms)), "nodeaffinity", feasible=feasible) == expected


@pytest.mark.parametrize(
    "asks",
    [preferring((0, zone_in("a"))), preferring((5, {"key": "zone", "operator": "Near"})), pod("p")],
    ids=["weight 0", "cannot be read", "no preference"],
)
def test_nodes_are_not_rated(asks: Manifest) -> None:
    assert not rated(opened(node("n"), asks), "nodeaffinity")


def test_a_preferred_term_without_requirements_matches_no_node() -> None:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": {}}]}}
    session = opened(node("n"), pod("p", spec={"affinity": affinity}))
    assert points(session, "nodeaffinity") == {"n": 0}


@settings(max_examples=examples(50), deadline=None)
@given(
    weights=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    matches=st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=5),
)
def test_node_affinity_is_the_integer_formula(weights: list[int], matches: list[set[int]]) -> None:
    nodes = [node(f"n{i}", labels={f"l{label}": "" for label in labels}) for i, labels in enumerate(matches)]
    terms = [(weight, {"key": f"l{i}", "operator": "Exists"}) for i, weight in enumerate(weights)]
    raw = [sum(weight for i, weight in enumerate(weights) if i in labels) for labels in matches]
    expected = [100 * value // max(raw) if max(raw) else 0 for value in raw]
    assert list(points(opened(*nodes, preferring(*terms)), "nodeaffinity").values()) == expected


# --- soft taints ------------------------------------------------------------------------------------------------------


def test_fewer_soft_taints_are_better() -> None:
    nodes = [node(f"n{i}", taints=[soft(j) for j in range(i)]) for i in range(4)]
    session = opened(*nodes, pod("p"))
    assert points(session, "tainttoleration") == {"n0": 100, "n1": 67, "n2": 34, "n3": 0}


@pytest.mark.parametrize(
    ("effect", "taints", "expected"),
    [("PreferNoSchedule", [soft(1)], {"n": 100, "m": 0}), ("NoSchedule", [], {"n": 0, "m": 100})],
)
def test_soft_taints_do_not_count_if_their_effect_is_tolerated(
    effect: str, taints: list[Manifest], expected: dict[str, float]
) -> None:
    tolerant = pod("p", spec={"tolerations": [{"key": "soft0", "operator": "Exists", "effect": effect}]})
    session = opened(node("n", taints=[soft(0)]), node("m", taints=taints), tolerant)
    assert points(session, "tainttoleration") == expected


def test_where_no_feasible_node_has_one_all_get_100() -> None:
    session = opened(node("n", taints=[soft(0)]), node("m"), pod("p"))
    assert points(session, "tainttoleration", feasible={"m"}) == {"m": 100}


def test_without_soft_taints_nodes_are_not_rated() -> None:
    hard = {"key": "hard", "effect": "NoSchedule"}
    assert not rated(opened(node("n", taints=[hard]), pod("p")), "tainttoleration")


def test_tolerations_that_cannot_be_read_rate_nothing() -> None:
    broken = pod("p", spec={"tolerations": [{"operator": "Like"}]})
    session = opened(node("n", taints=[soft(0)]), node("m"), broken)
    assert not rated(session, "tainttoleration")
    assert framework_of(session).candidates(pending(session)).best() is not None


def test_a_preferred_term_below_zero_weighs_as_much_as_it_says() -> None:
    """Where no node has more than 0 kube-scheduler's ``DefaultNormalizeScore`` leaves the points as they are."""
    preferred = {"weight": -50, "preference": {"matchExpressions": [{"key": "z", "operator": "In", "values": ["a"]}]}}
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}}
    conf = """
actions: allocate
tiers:
- plugins:
  - name: gang
  - name: nodeorder
    arguments: {leastrequested.weight: 1, balancedresource.weight: 0, nodeaffinity.weight: 1}
"""
    emptier, fuller = node("emptier", labels={"z": "a"}), node("fuller")
    runs = gang("runs", 1, on=["fuller"], cpu=2, memory=8)
    plan = planned(emptier, fuller, runs, gang("waits", 1, cpu=1, memory=1, spec=spec), conf=conf)
    assert plan.binds == {"default/waits-0": "fuller"}
