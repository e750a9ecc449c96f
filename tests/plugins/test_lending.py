"""Shares beyond Volcano's formula: demand that no node can take, what is lent, guarantees against several borrowers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, planned, queue
from tests.laws.returning import Returning
from tests.plugins.opened import conf
from tests.world import World

FLAT = conf("gang", "predicates", "proportion", actions="allocate")
VOLCANO = conf("gang", "predicates", "proportion", actions="allocate", arguments={"volcanoSharesEnable": True})
RECLAIM = conf("gang", "predicates", "proportion", actions="allocate, reclaim")
BY_SPEC = conf("gang", "predicates", "capacity", actions="allocate")
BY_SPEC_AS_VOLCANO = conf("gang", "predicates", "capacity", actions="allocate", arguments={"volcanoSharesEnable": True})


def jobs(name: str, count: int, size: int = 1, **options: Any) -> list[Manifest]:
    """Jobs of pods with one GPU each in the queue of their name."""
    asks = {"cpu": 1, "memory": 1, "gpu": 1, **options}
    return [m for i in range(count) for m in gang(f"{name}-{i}", size, queue=name, created=i, **asks)]


def elastic(name: str, size: int, **options: Any) -> list[Manifest]:
    """One job without a minimum, whose pods may be taken one by one."""
    return jobs(name, 1, size=size, members=0, **options)


def bound(*objects: Any, conf: str = FLAT) -> dict[str, int]:
    """How many pods of each queue are bound."""
    found: dict[str, int] = {}
    for key in planned(*objects, conf=conf).binds:
        name = key.partition("/")[2].split("-")[0]
        found[name] = found.get(name, 0) + 1
    return found


QUEUES = [queue("x"), queue("y"), queue("z")]

NEVER: dict[str, list[Manifest]] = {
    "larger than any node": jobs("z", 2, gpu=9),
    "no such node": jobs("z", 4, spec={"nodeSelector": {"no": "such"}}),
    "an untolerated taint": jobs("z", 4, spec={"nodeSelector": {"kubernetes.io/hostname": "tainted"}}),
    "a missing claim": jobs(
        "z", 4, spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}
    ),
    "a scheduling gate": jobs("z", 4, spec={"schedulingGates": [{"name": "wait"}]}),
    "a gang that has no nodes together": jobs("z", 1, size=4, gpu=5),
    "a gang without all of its pods": list(gang("z", 3, members=9, queue="z", cpu=1, gpu=1)),
}


@pytest.mark.parametrize("never", NEVER)
def test_what_no_node_can_take_leaves_its_share_to_the_others(never: str) -> None:
    nodes = [node("a", gpu=4), node("b", gpu=5), node("tainted", gpu=8, taints=[{"key": "t", "effect": "NoSchedule"}])]
    objects = [*nodes, *QUEUES, jobs("x", 9), jobs("y", 9), NEVER[never]]
    assert sum(bound(*objects).values()) == 9


def test_a_closed_queue_leaves_its_share_to_the_others() -> None:
    objects = [node("n", gpu=8), queue("x"), queue("y"), queue("z", state="Closed")]
    assert bound(*objects, jobs("x", 9), jobs("y", 9), jobs("z", 9)) == {"x": 4, "y": 4}


def test_what_waits_because_the_cluster_is_full_keeps_its_share() -> None:
    """The only node that takes z's pods is full of x's: z still deserves half of the cluster, and reclaims it."""
    late = jobs("z", 4, spec={"nodeSelector": {"kubernetes.io/hostname": "a"}})
    world = World(node("a", gpu=4), node("b", gpu=4), queue("x"), queue("z"), elastic("x", 9), conf=RECLAIM)
    world.cycle()
    world.put(*late)
    for _ in range(8):
        world.cycle()
    assert set(world.placed("z").values()) == {"a"} and len(world.placed("z")) == 4
    assert len(world.evicted) == 4


@pytest.mark.parametrize(("gpus", "queues", "total"), [(8, 3, 8), (7, 3, 7), (5, 4, 5), (2, 3, 2)])
def test_remainders_are_lent(gpus: int, queues: int, total: int) -> None:
    names = "xyzw"[:queues]
    objects = [node("n", cpu=64, gpu=gpus), *map(queue, names), *[jobs(name, 9) for name in names]]
    found = bound(*objects)
    assert sum(found.values()) == total
    assert max(found.values()) - min(found.get(name, 0) for name in names) <= 1


def test_volcanos_formula_lends_nothing_and_counts_everything() -> None:
    names = "xyz"
    objects = [node("n", cpu=64, gpu=8), *map(queue, names), *[jobs(name, 9) for name in names]]
    assert sum(bound(*objects, conf=VOLCANO).values()) == 6
    objects = [node("n", gpu=9), *QUEUES, jobs("x", 9), jobs("y", 9), NEVER["no such node"]]
    assert sum(bound(*objects, conf=VOLCANO).values()) < 9


@pytest.mark.parametrize(("size", "lent"), [(4, 0), (5, 3)])
def test_what_another_queue_deserves_and_can_use_is_not_lent(size: int, lent: int) -> None:
    """y deserves 4.67 of 8 GPUs, of which x holds 4 and s 1. A gang of 4 of y waits, and what is idle stays so; a gang
    of 5 is more than y deserves, and x gets it."""
    queues = [queue("s"), queue("x"), queue("y", weight=2)]
    held = [m for i in range(4) for m in gang(f"x-h{i}", 1, queue="x", on=["n"], phase="Running", gpu=1)]
    held += gang("s", 1, queue="s", on=["n"], phase="Running", gpu=1)
    found = bound(node("n", cpu=64, gpu=8), *queues, held, jobs("x", 9), jobs("y", 1, size=size))
    assert found.get("x", 0) == lent


def test_what_was_lent_comes_back_once() -> None:
    """x borrows all of the cluster; y comes and takes its half. No pod is evicted after that."""
    world = Returning(node("n", cpu=64, gpu=8), queue("x"), queue("y"), elastic("x", 12), conf=RECLAIM)
    world.cycles(2)
    world.put(*jobs("y", 12))
    world.cycles(16)
    assert len(world.placed("x")) == len(world.placed("y")) == 4
    assert sorted(world.evictions.values()) == [1] * 4


def borrowers(conf: str, **guarantee: Any) -> dict[str, int]:
    """Two queues that ask for all of 9 GPUs beside one that is guaranteed some and asks for nothing."""
    kept = queue("g", guarantee={"resource": guarantee}, deserved=guarantee)
    return bound(node("n", cpu=64, gpu=9), queue("x"), queue("y"), kept, jobs("x", 9), jobs("y", 9), conf=conf)


@pytest.mark.parametrize("conf", [FLAT, BY_SPEC])
def test_the_sum_of_unused_guarantees_stays_free(conf: str) -> None:
    assert sum(borrowers(conf, **{"nvidia.com/gpu": "3"}).values()) == 6
    assert sum(borrowers(conf, **{"memory": "1Gi"}).values()) == 9  # which they leave anyway


@pytest.mark.parametrize("conf", [VOLCANO, BY_SPEC_AS_VOLCANO])
def test_volcano_keeps_guarantees_one_by_one(conf: str) -> None:
    assert sum(borrowers(conf, **{"nvidia.com/gpu": "3"}).values()) > 6


def test_what_a_queue_is_guaranteed_it_gets_itself() -> None:
    """Also where the others hold the rest, and only up to there what is guaranteed to another."""
    gpus = {"nvidia.com/gpu": "3"}
    mine = [queue(name, guarantee={"resource": gpus}, deserved=gpus) for name in ("g", "h")]
    found = bound(node("n", cpu=64, gpu=9), *mine, queue("x"), jobs("x", 9), jobs("g", 9), conf=BY_SPEC)
    assert found["g"] >= 3 and sum(found.values()) == 6
