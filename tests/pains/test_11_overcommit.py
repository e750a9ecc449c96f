"""Pain 11: overcommit is cluster-wide, so that low jobs block a high one they do not compete with (volcano #3670)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import flat, gang, node, priority_class, queue
from tests.laws.answering import Answering


def job(name: str, place: str, cpu: int, in_queue: str, priority: str, created: int) -> list[dict[str, Any]]:
    return flat(
        [
            gang(
                name,
                1,
                cpu=cpu,
                queue=in_queue,
                phase="Pending",
                minimum={"cpu": cpu},
                created=created,
                group_spec={"priorityClassName": priority},
                spec={"nodeSelector": {"kubernetes.io/hostname": place}},
            )
        ]
    )


def many_low_jobs() -> Answering:
    return Answering(
        [node("node-1", cpu=8), node("node-2", cpu=8), queue("q-low"), queue("q-high", weight=100)],
        [priority_class("low", 10), priority_class("high", 100)],
        *[job(f"low-{i}", "node-1", 1, "q-low", "low", i) for i in range(1000)],
    )


@pytest.mark.parametrize("cpu", [1, 8])
def test_a_high_job_runs_on_the_empty_node_behind_a_thousand_low_ones(cpu: int) -> None:
    world = many_low_jobs()
    world.rest()
    assert set(world.placed().values()) == {"node-1"}
    world.put(job("high", "node-2", cpu, "q-high", "high", 5000))
    world.rest()
    assert world.placed("high") == {"high-0": "node-2"}


def test_a_job_of_the_same_priority_is_still_kept_out() -> None:
    world = many_low_jobs()
    world.rest()
    world.put(job("late", "node-2", 8, "q-high", "low", 5000))
    world.rest()
    assert world.placed("late") == {}
    assert world.why("late")[0].plugin == "overcommit"


def test_a_high_job_of_the_same_queue_runs_too() -> None:
    world = many_low_jobs()
    world.rest()
    world.put(job("high", "node-2", 4, "q-low", "high", 5000))
    world.rest()
    assert world.placed("high") == {"high-0": "node-2"}
