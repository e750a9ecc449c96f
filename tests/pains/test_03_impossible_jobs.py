"""Pain 3: impossible jobs hold quota (volcano #4471, #5006)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import flat, gang, node, queue
from tests.laws.answering import Answering

TOO_LARGE = "a pod of the group is larger than the largest node"


def single(name: str, cpu: int, created: int) -> list[dict[str, Any]]:
    minimum = {"cpu": cpu}
    return flat([gang(name, 1, cpu=cpu, queue="q", phase="Pending", minimum=minimum, created=created)])


def small_cluster() -> list[dict[str, Any]]:
    return [*[node(f"n{i}", cpu=8) for i in range(3)], queue("q", capability={"cpu": "20"})]


@pytest.fixture
def world() -> Answering:
    world = Answering(small_cluster(), single("big-a", 9, 1), single("big-b", 9, 2), single("fits", 8, 3))
    world.rest()
    return world


def test_the_job_that_fits_runs(world: Answering) -> None:
    assert list(world.placed()) == ["fits-0"]


@pytest.mark.parametrize("name", ["big-a", "big-b"])
def test_an_impossible_job_says_that_no_node_is_large_enough(world: Answering, name: str) -> None:
    first = world.why(name)[0]
    assert first.reason == TOO_LARGE
    assert first.detail == {"needs cpu": "9", "largest node cpu": "8"}


@pytest.mark.parametrize("name", ["big-a", "big-b"])
def test_an_impossible_job_reserves_nothing(world: Answering, name: str) -> None:
    assert world.state.groups[f"default/{name}"].group.status.phase == "Pending"


def test_an_impossible_job_runs_once_a_node_is_large_enough(world: Answering) -> None:
    world.put(node("large", cpu=9))
    world.rest()
    assert world.placed("big") == {"big-a-0": "large"}
