"""Pods of a group that are placed together get the nodes that they would get one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.dsl import Manifest, gang, node, planned
from tests.topology.manifests import CONF, SOFT, hard, hyper_node, parent, racks
from vcd.api import PlanResult
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.search.candidates import Candidates

WEIGHTS = """  - name: binpack
    arguments: {binpack.weight: 3}
  - name: nodeorder
  - name: network-topology-aware
    arguments: {weight: %s}
"""


def cluster(rand: random.Random, *, nested: bool) -> Iterator[Manifest]:
    """Racks in spines and nodes outside, partly used, and gangs with limits, preferences or neither."""
    yield from racks([rand.randint(1, 4) for _ in range(4)], cpu=rand.choice((4, 8)))
    if not nested:
        yield hyper_node("also", rand.randint(1, 2), "r0-n0", "r1-n0", "out-0")
    if rand.random() < 0.5:
        yield parent("root", 3, "spine")
    yield from (node(f"out-{number}", cpu=8) for number in range(rand.randint(1, 3)))
    for number in range(6):
        size = rand.randint(1, 9)
        spec = rand.choice((hard(1), hard(2), SOFT, {}))
        placed = [f"r{number % 4}-n0"] if rand.random() < 0.3 else []
        cpu = rand.choice((1, 2))
        members = rand.randint(max(1, size - 1), size)
        phase = "Running" if placed else "Inqueue"
        yield from gang(f"g{number}", size, members=members, on=placed, phase=phase, group_spec=spec, cpu=cpu)


def decided(objects: list[Manifest], conf: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    result: PlanResult = planned(objects, conf=conf)
    return result.binds, {key: [why["reason"] for why in found] for key, found in result.why.items()}


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("weight", [1, 7])
def test_pods_placed_together_get_the_nodes_that_they_get_one_by_one(
    weight: int, nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = CONF.replace("  - name: network-topology-aware\n", WEIGHTS % weight)
    clusters = [list(cluster(random.Random(seed), nested=nested)) for seed in range(25)]
    batches: list[int] = []
    find = Candidates.best_in_turn

    def find_and_count(table: Candidates, count: int) -> list[int]:
        rows = find(table, count)
        batches.append(len(rows))
        return rows

    monkeypatch.setattr(Candidates, "best_in_turn", find_and_count)
    together = [decided(objects, conf) for objects in clusters]
    assert sum(batches) > 100
    monkeypatch.setattr(Framework, "many_at_once", False)
    batches.clear()
    assert together == [decided(objects, conf) for objects in clusters]
    assert batches == []
