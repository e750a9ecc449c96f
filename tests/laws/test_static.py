"""Law: tasks share what the nodes' facts say of them only where it is the same for each, within and between sessions.

Pods are of many shapes, made of few selectors, affinity terms, tolerations and images, so that many look at the same;
between cycles nodes change their labels, taints, cordons and images. Each task's table is held to one that no other
task was ever asked about.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import group, node, pod
from tests.laws.test_equivalence import look
from tests.sizes import seeds
from tests.world import World
from vcd.scheduling.search.candidates import Memory

Manifest = dict[str, Any]

SEEDS = seeds(4, 12)
CYCLES, NODES = 3, 12
ZONES, DISKS, IMAGES = ("a", "b", "c"), ("ssd", "hdd"), ("one", "two")
EFFECTS = ("NoSchedule", "PreferNoSchedule")
PREFERENCES = [
    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
]
CONF = json.dumps(
    {
        "actions": "enqueue, allocate, preempt",
        "tiers": [{"plugins": [{"name": name} for name in ("gang", "predicates", "nodeorder", "binpack")]}],
    }
)


def some_node(rand: random.Random, number: int) -> Manifest:
    """Cordoned, tainted and with images now and then."""
    labels = {"zone": rand.choice(ZONES), **({"disk": rand.choice(DISKS)} if rand.random() < 0.7 else {})}
    taints = [
        {"key": effect, "value": rand.choice("xy"), "effect": effect} for effect in EFFECTS if rand.random() < 0.3
    ]
    images = [{"names": [f"{name}:latest"], "sizeBytes": 500 << 20} for name in IMAGES if rand.random() < 0.4]
    cpu = rand.choice((4, 8))
    return node(
        f"n{number:02}",
        cpu=cpu,
        labels=labels,
        taints=taints,
        unschedulable=rand.random() < 0.1,
        status={"images": images},
    )


def term(rand: random.Random) -> Manifest:
    if rand.random() < 0.5:
        return {"matchExpressions": [{"key": "zone", "operator": "In", "values": rand.sample(ZONES, 2)}]}
    return {"matchExpressions": [{"key": "disk", "operator": rand.choice(("Exists", "DoesNotExist"))}]}


def some_spec(rand: random.Random) -> Manifest:
    """Weights have common factors, selectors another order of labels: what they say is the same."""
    requests = {"cpu": f"{rand.randrange(100, 999)}m", "memory": f"{rand.randrange(100, 999)}Mi"}
    containers = [
        {"name": name, "image": rand.choice(IMAGES), "resources": {"requests": requests}}
        for name in ("c", "d")[: rand.choice((1, 1, 1, 2))]
    ]
    spec: Manifest = {"containers": containers}
    wanted = [("zone", rand.choice(ZONES)), ("disk", rand.choice(DISKS))]
    rand.shuffle(wanted)
    if rand.random() < 0.15:
        spec["nodeSelector"] = dict(wanted[: rand.randrange(1, 3)])
    affinity: Manifest = {}
    if rand.random() < 0.15:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [term(rand) for _ in range(rand.randrange(1, 3))]
        }
    if rand.random() < 0.6:
        factor = rand.choice((1, 7, 30))
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": factor * rand.randrange(4), "preference": preference} for preference in PREFERENCES
        ]
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    spec["tolerations"] = [
        {"key": effect, "operator": "Equal", "value": rand.choice("xy"), "effect": rand.choice((effect, ""))}
        for effect in EFFECTS
        if rand.random() < 0.2
    ]
    if rand.random() < 0.1:
        spec["tolerations"].append({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})
    return spec


def some_job(rand: random.Random, name: str) -> Iterator[Manifest]:
    count = rand.randrange(1, 5)
    yield group(name, members=count, phase="Inqueue")
    for number in range(count):
        yield pod(f"{name}-{number}", group=name, spec=some_spec(rand))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_facts_say_is_shared_only_where_it_is_the_same(seed: int) -> None:
    rand, memory = random.Random(seed), Memory()
    world = World(*[some_node(rand, number) for number in range(NODES)], conf=CONF)
    shared = 0
    for cycle in range(CYCLES):
        for job in range(10):
            world.put(some_job(rand, f"j{cycle}-{job}"))
        look(world, memory, rand)
        shared += len(memory.tables) - len({id(table.static) for table in memory.tables.values()})
        world.cycle()
        for name in sorted(world.placed()):
            if rand.random() < 0.5:
                world.remove("Pod", f"default/{name}")
        if rand.random() < 0.5:
            world.put(some_node(rand, rand.randrange(NODES)))
    assert shared
