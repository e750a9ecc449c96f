"""Pain 10: a queue exceeds its capability (volcano #1860, #3558, #921), also when it deserves more (#4292)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import flat, gang, node, queue
from tests.laws.answering import Answering


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_pod_that_does_not_fit_below_the_capability_waits(phase: str) -> None:
    world = Answering(
        node("n", cpu=32),
        queue("q", capability={"cpu": "10"}),
        gang("old", 1, on=["n"], cpu=9, queue="q", phase="Running", minimum={"cpu": 9}),
        gang("g", 1, cpu=10, queue="q", phase=phase, minimum={"cpu": 10}, created=3),
    )
    world.rest()
    assert list(world.placed()) == ["old-0"]
    assert world.why("g")[0].detail["asks cpu"] == "10"


def four_of_one_gpu(**options: Any) -> Answering:
    jobs = [gang(f"g{i}", 1, cpu=1, gpu=1, queue="q", created=i, **options) for i in range(4)]
    return Answering(node("n", cpu=32, gpu=8), queue("q", capability={"nvidia.com/gpu": "2"}), flat(jobs))


@pytest.mark.parametrize(
    "options", [{"phase": "Pending", "minimum": {"cpu": 1, "gpu": 1}}, {"phase": "Pending"}, {"phase": "Inqueue"}]
)
def test_for_each_job_that_ends_exactly_one_starts(options: dict[str, Any]) -> None:
    world = four_of_one_gpu(**options)
    world.rest()
    assert list(world.placed()) == ["g0-0", "g1-0"]
    world.finish("default/g0-0")
    world.rest()
    assert list(world.placed()) == ["g0-0", "g1-0", "g2-0"]


def test_a_queue_that_deserves_more_than_its_capability_stays_within_it() -> None:
    jobs = [gang(f"g{i}", 1, cpu=1, queue="q", phase="Pending", minimum={"cpu": 1}, created=i) for i in range(6)]
    over = queue("q", capability={"cpu": "2"}, deserved={"cpu": "4"})
    world = Answering(node("n", cpu=8), over, flat(jobs))
    world.rest()
    assert len(world.placed()) == 2


def test_a_queue_guaranteed_more_than_its_capability_stays_within_it() -> None:
    jobs = [gang(f"g{i}", 1, cpu=1, queue="q", phase="Pending", minimum={"cpu": 1}, created=i) for i in range(6)]
    over = queue("q", capability={"cpu": "2"}, guarantee={"resource": {"cpu": "4"}})
    world = Answering(node("n", cpu=8), over, flat(jobs))
    world.rest()
    assert len(world.placed()) == 2
