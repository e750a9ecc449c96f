"""Pain 8: two gangs that each hold half of the cluster (volcano #3373)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, node
from tests.laws.answering import Answering

ALONE = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"kind": "wide"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
}
ONE_PER_NODE = {"by room": {"cpu": 5}, "by anti-affinity": {"cpu": 1, "spec": ALONE, "labels": {"kind": "wide"}}}


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@pytest.mark.parametrize("pods", ONE_PER_NODE.values(), ids=ONE_PER_NODE)
def test_of_two_gangs_that_need_every_node_one_runs_whole(pods: dict[str, Any], phase: str) -> None:
    minimum = {"cpu": 100 * pods["cpu"]}
    gangs = [gang(name, 100, phase=phase, minimum=minimum, **pods) for name in ("a", "b")]
    world = Answering([node(f"n{i}", cpu=8) for i in range(100)], *gangs)
    world.rest()
    assert {name: len(world.placed(name)) for name in ("a", "b")} == {"a": 100, "b": 0}
    assert world.why("b")


def test_the_second_gang_runs_when_the_first_one_ends() -> None:
    gangs = [gang(name, 10, phase="Pending", minimum={"cpu": 50}, cpu=5) for name in ("a", "b")]
    world = Answering([node(f"n{i}", cpu=8) for i in range(10)], *gangs)
    world.rest()
    world.finish(*[f"default/a-{i}" for i in range(10)])
    world.rest()
    assert len(world.placed("b")) == 10
