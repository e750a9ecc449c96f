"""Scores by how much of a node is used, against kube-scheduler's formulas in plain integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import node, pod, session_of
from tests.predicates.asking import pending, with_arguments
from tests.scores.rating import named, points, rated
from tests.sizes import examples
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]

MI = 2**20
ALL = with_arguments("nodeorder", {"mostrequested.weight": 1})


def opened(*objects: Manifest) -> Session:
    return session_of(*objects, conf=ALL)


# --- the formulas, one node at a time ---------------------------------------------------------------------------------


def naive_mean(requested: list[int], room: list[int], least: bool) -> int:
    """kube-scheduler's leastResourceScorer and mostResourceScorer for equal weights."""
    total = count = 0
    for asked, has in zip(requested, room, strict=True):
        if has:
            free = 0 if asked > has else has - asked
            total += (free if least else min(asked, has)) * 100 // has
            count += 1
    return total // count if count else 0


def naive_evenness(requested: list[int], room: list[int]) -> int:
    """kube-scheduler's balancedResourceScore."""
    parts = [min(asked / has, 1.0) for asked, has in zip(requested, room, strict=True) if has]
    if len(parts) == 2:
        deviation = abs((parts[0] - parts[1]) / 2)
    elif len(parts) > 2:
        mean = sum(parts) / len(parts)
        squares = 0.0
        for part in parts:
            squares += (part - mean) * (part - mean)
        deviation = math.sqrt(squares / len(parts))
    else:
        deviation = 0.0
    return int((1 - deviation) * 100.0)


def naive_balanced(used: list[int], own: list[int], room: list[int]) -> int:
    after = naive_evenness([u + o for u, o in zip(used, own, strict=True)], room)
    return 50 + (50 + after - naive_evenness(used, room)) // 2


amount = st.integers(0, 16_000)
used_and_room = st.tuples(amount, amount, st.integers(0, 8), amount, amount, st.integers(0, 8))


def cluster(rows: list[tuple[int, ...]], own: tuple[int, int, int]) -> Session:
    """Nodes with cpu (milli), memory (Mi) and GPUs used and in all, and a pod to be placed."""
    objects = []
    for i, (cpu, memory, gpu, all_cpu, all_memory, all_gpu) in enumerate(rows):
        objects.append(node(f"n{i}", cpu=f"{all_cpu}m", memory=f"{all_memory}Mi", gpu=all_gpu))
        objects.append(pod(f"used{i}", on=f"n{i}", cpu=f"{cpu}m", memory=f"{memory}Mi", gpu=gpu))
    return opened(*objects, pod("p", cpu=f"{own[0]}m", memory=f"{own[1]}Mi", gpu=own[2]))


@settings(max_examples=examples(80), deadline=None)
@given(rows=st.lists(used_and_room, min_size=1, max_size=6), own=st.tuples(amount, amount, st.integers(0, 2)))
def test_the_columns_are_the_formulas(rows: list[tuple[int, ...]], own: tuple[int, int, int]) -> None:
    session = cluster(rows, own)
    least = [naive_mean([r[0] + own[0], (r[1] + own[1]) * MI], [r[3], r[4] * MI], True) for r in rows]
    most = [naive_mean([r[0] + own[0], (r[1] + own[1]) * MI], [r[3], r[4] * MI], False) for r in rows]
    assert list(points(session, "leastrequested").values()) == least
    assert list(points(session, "mostrequested").values()) == most
    if any(own):
        three = 3 if own[2] else 2
        balanced = [
            naive_balanced(
                [r[0], r[1] * MI, r[2]][:three], [own[0], own[1] * MI, own[2]][:three], [r[3], r[4] * MI, r[5]][:three]
            )
            for r in rows
        ]
        assert list(points(session, "balancedresource").values()) == balanced


@given(room=st.integers(1, 2**53 // 100 - 1), part=st.floats(0, 1))
def test_rounding_down_a_float_quotient_is_the_integer_quotient(room: int, part: float) -> None:
    free = int(room * part)
    assert math.floor(free * 100.0 / float(room)) == free * 100 // room


# --- what counts ------------------------------------------------------------------------------------------------------


def test_the_emptier_node_is_better() -> None:
    session = opened(node("n", cpu=10, memory="10Gi"), pod("p", cpu=1, memory="2Gi"))
    assert points(session, "leastrequested") == {"n": 85}


def test_the_fuller_node_is_better() -> None:
    session = opened(node("n", cpu=10, memory="10Gi"), pod("p", cpu=1, memory="2Gi"))
    assert points(session, "mostrequested") == {"n": 15}


def test_containers_that_ask_for_nothing_count_100m_and_200mi() -> None:
    session = opened(node("n", cpu=1, memory="1000Mi"), pod("p"))
    assert points(session, "leastrequested") == {"n": (90 + 80) // 2}


def test_pod_level_requests_of_the_rated_pod_are_overlooked_by_least_requested() -> None:
    level = {"resources": {"requests": {"cpu": "4", "memory": "4Gi"}}}
    session = opened(node("n", cpu=10, memory="10Gi"), pod("p", cpu=1, memory="2Gi", spec=level))
    assert points(session, "leastrequested") == {"n": 85}


def test_pod_level_requests_of_pods_on_the_node_count() -> None:
    level = {"resources": {"requests": {"cpu": "4", "memory": "4Gi"}}}
    running = pod("running", on="n", cpu=1, memory="1Gi", spec=level)
    session = opened(node("n", cpu=10, memory="10Gi"), running, pod("p", cpu=1, memory="1Gi"))
    assert points(session, "leastrequested") == {"n": 50}


def test_pods_that_wait_for_room_count() -> None:
    session = opened(node("n", cpu=10, memory="10Gi"), pod("a", cpu=5, memory="5Gi"), pod("b", cpu=1, memory="1Gi"))
    first = pending(session, "a")
    Statement(session.trial, "allocate", first.job).pipeline([first], [0])
    assert points(session, "leastrequested", "b") == {"n": 40}
    assert points(session, "balancedresource", "b") == {"n": 75}


def test_a_resource_that_the_node_lacks_is_left_out_of_the_mean() -> None:
    session = opened(node("n", cpu=10, memory="0"), node("m", cpu=0, memory="0"), pod("p", cpu=1, memory="1Gi"))
    assert points(session, "leastrequested") == {"n": 90, "m": 0}


def test_more_requested_than_there_is_counts_as_all_of_it() -> None:
    session = opened(node("n", cpu=1, memory="1Gi"), pod("p", cpu=2, memory="2Gi"))
    assert points(session, "leastrequested") == {"n": 0}
    assert points(session, "mostrequested") == {"n": 100}


def test_oversubscribed_room_is_not_seen() -> None:
    listed = node("n", cpu=10, memory="10Gi")
    listed["metadata"]["annotations"] = {"volcano.sh/oversubscription-cpu": "10000"}
    session = opened(listed, node("m", cpu=10, memory="10Gi"), pod("p", cpu=1, memory="1Gi"))
    assert points(session, "leastrequested") == {"n": 90, "m": 90}


def test_a_pod_that_evens_out_the_node_is_welcome() -> None:
    busy_cpu = pod("a", on="n", cpu=8, memory="2Gi")
    session = opened(
        node("n", cpu=10, memory="10Gi"), node("m", cpu=10, memory="10Gi"), busy_cpu, pod("p", cpu=0, memory="6Gi")
    )
    assert points(session, "balancedresource") == {"n": 90, "m": 60}


def test_a_pod_that_asks_for_nothing_is_not_rated_for_balance() -> None:
    session = opened(node("n", gpu=1), pod("p"))
    assert not rated(session, "balancedresource")


def test_gpus_count_only_when_the_pod_asks_for_them() -> None:
    running = pod("a", on="n", cpu=5, memory="5Gi", gpu=4)
    both = [node("n", cpu=10, memory="10Gi", gpu=4), running]
    without = points(opened(*both, pod("p", cpu=1, memory="1Gi")), "balancedresource")
    with_gpu = points(opened(*both, pod("p", cpu=1, memory="1Gi", gpu=1)), "balancedresource")
    assert without == {"n": 75}
    assert with_gpu == {"n": naive_balanced([5000, 5, 4], [1000, 1, 1], [10_000, 10, 4])}


@pytest.mark.parametrize("name", ["leastrequested", "mostrequested", "balancedresource"])
@pytest.mark.parametrize("gpu", [0, 1])
def test_rows_are_rated_one_by_one_as_all_together(name: str, gpu: int) -> None:
    rows = [(i * 100, i * 300, i % 3, 4000 + i * 500, 8000 - i * 100, i % 4) for i in range(12)]
    session = cluster(rows, (500, 1000, gpu))
    score, task, usage = named(session, name), pending(session), session.nodes.usage
    together = score.raw(task, usage)
    some = np.array([7, 2, 11], np.intp)
    assert score.raw(task, usage.take(some)).tolist() == together[some].tolist()
    assert [score.raw(task, usage.take(np.array([row])))[0] for row in range(12)] == together.tolist()
