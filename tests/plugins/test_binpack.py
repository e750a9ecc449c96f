"""binpack: the formula, its arguments, and what it leads to."""

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
from vcd.scheduling.session.statement import Statement

GPU = "nvidia.com/gpu"
Manifest = dict[str, Any]


def opened(*objects: Manifest, **arguments: Any) -> Session:
    given_ = {f"binpack.{key}": value for key, value in arguments.items()}
    return session_of(*objects, conf=with_arguments("binpack", given_))


def packed(*objects: Manifest, **arguments: Any) -> dict[str, float]:
    return points(opened(*objects, **arguments), "binpack")


def test_the_score_is_how_full_the_node_would_be() -> None:
    session = packed(node("n", cpu=8, memory="8Gi"), pod("a", on="n", cpu=2), pod("p", cpu=2, memory="2Gi"))
    assert session == {"n": (4 / 8 + 2 / 8) / 2 * 100}


def test_the_plugins_weight_multiplies_it() -> None:
    assert packed(node("n", cpu=8), pod("p", cpu=2), weight=5) == {"n": 125}


def test_resources_count_by_their_weights() -> None:
    found = packed(node("n", cpu=8, memory="8Gi"), pod("p", cpu=2, memory="4Gi"), cpu=3, memory=1)
    assert found == {"n": pytest.approx((0.25 * 3 + 0.5) / 4 * 100)}


def test_listed_resources_are_weighed() -> None:
    arguments = {"cpu": 1, "resources": f"{GPU}, example.com/foo", f"resources.{GPU}": 3}
    found = packed(node("n", cpu=8, gpu=4), pod("p", cpu=2, gpu=2), **arguments)
    assert found == {"n": pytest.approx((0.25 + 0.5 * 3) / 4 * 100)}


def test_a_listed_resource_without_a_weight_has_weight_one() -> None:
    assert packed(node("n", cpu=8, gpu=4), pod("p", cpu=2, gpu=2), resources=GPU) == {"n": (0.25 + 0.5) / 2 * 100}


def test_resources_that_are_not_listed_do_not_count() -> None:
    found = packed(node("n", cpu=8, gpu=4), pod("p", cpu=2, gpu=4), **{f"resources.{GPU}": 3})
    assert found == {"n": 25}


def test_negative_weights_of_resources_mean_one() -> None:
    node_and_pod = (node("n", cpu=8, memory="8Gi"), pod("p", cpu=2, memory="4Gi"))
    assert packed(*node_and_pod, cpu=-3, memory=-1) == packed(*node_and_pod)


def test_a_weight_of_zero_leaves_a_resource_out() -> None:
    assert packed(node("n", cpu=8, memory="8Gi"), pod("p", cpu=2, memory="4Gi"), memory=0) == {"n": 25}


def test_a_resource_that_would_not_fit_makes_it_zero() -> None:
    session = packed(node("n", cpu=8, memory="8Gi"), pod("a", on="n", memory="6Gi"), pod("p", cpu=2, memory="4Gi"))
    assert session == {"n": 0}


def test_a_resource_that_the_node_lacks_adds_nothing_but_its_weight() -> None:
    session = opened(node("n", cpu=8), node("m", cpu=8, gpu=4), pod("p", cpu=2, gpu=2), resources=GPU)
    assert points(session, "binpack") == {"n": 12.5, "m": 37.5}


def test_pods_that_wait_for_room_do_not_count() -> None:
    session = opened(node("n", cpu=8), pod("a", cpu=4), pod("b", cpu=2))
    first = pending(session, "a")
    Statement(session.trial, "allocate", first.job).pipeline([first], [0])
    assert points(session, "binpack", "b") == {"n": 25}


def test_a_pod_that_asks_for_nothing_weighed_is_not_rated() -> None:
    assert not rated(opened(node("n", gpu=1), pod("p", gpu=1)), "binpack")


def test_a_plugin_of_weight_zero_rates_nothing() -> None:
    assert framework_of(opened(node("n"), pod("p", cpu=1), weight=0)).evaluator.scores == ()


def test_pods_fill_the_fuller_node_first() -> None:
    nodes = [node(f"n{i}") for i in range(4)]
    result = planned(*nodes, pod("running", on="n2", cpu=1), gang("g", 4, cpu=1), conf=with_arguments("binpack"))
    assert set(result.binds.values()) == {"n2"}


amounts = st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(amounts, amounts), min_size=1, max_size=5),
    own=amounts,
    weights=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)),
    factor=st.integers(1, 10),
)
def test_the_columns_are_the_formula(
    rows: list[tuple[tuple[int, ...], tuple[int, ...]]], own: tuple[int, ...], weights: tuple[int, ...], factor: int
) -> None:
    objects: list[Manifest] = []
    for i, (used, room) in enumerate(rows):
        objects.append(node(f"n{i}", cpu=room[0], memory=str(room[1]), gpu=room[2]))
        objects.append(pod(f"used{i}", on=f"n{i}", cpu=used[0], memory=str(used[1]), gpu=used[2]))
    arguments = {"cpu": weights[0], "memory": weights[1], "resources": GPU, f"resources.{GPU}": weights[2]}
    session = opened(*objects, pod("p", cpu=own[0], memory=str(own[1]), gpu=own[2]), weight=factor, **arguments)
    expected = [naive(used, own, room, weights) * float(100 * factor) for used, room in rows]
    assert list(points(session, "binpack").values()) == expected


def naive(used: tuple[int, ...], own: tuple[int, ...], room: tuple[int, ...], weights: tuple[int, ...]) -> float:
    """The formula with plain numbers, in units that do not change quotients."""
    score, total = 0.0, 0
    for has_used, wanted, has, weight, unit in zip(used, own, room, weights, (1000, 1, 1000), strict=True):
        if not wanted:
            continue
        if has and weight:
            if has_used + wanted > has:
                return 0.0
            score += (has_used + wanted) * unit * float(weight) / (has * unit)
        total += weight
    return score / total if total else score
