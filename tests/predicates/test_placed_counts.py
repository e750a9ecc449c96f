"""What placed pods have, made of an earlier snapshot's, equals a fresh count."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given

from tests.dsl import Manifest, node
from tests.predicates.random_pods import SEEDS, random_affinity, random_cluster, random_keys, random_ports
from tests.world import World
from vcd.scheduling.search.placed_counts import PlacedCounts
from vcd.scheduling.search.podterms import PlacedOpposing, PlacedPreferring
from vcd.scheduling.search.predicates.ports import PlacedPorts
from vcd.state.snapshot import Snapshot

KINDS: tuple[type[PlacedCounts[Any]], ...] = (PlacedOpposing, PlacedPreferring, PlacedPorts)


def drawn(random: Random) -> Manifest:
    return (
        random_affinity(random) | {"x": random_keys(random)} | (random_ports(random) if random.random() < 0.5 else {})
    )


def counts(placed: PlacedCounts[Any]) -> dict[Any, list[int]]:
    return {thing: sums.counts().tolist() for thing, sums in placed.sums.items() if sums.total}


def becomes_base(snapshot: Snapshot) -> None:
    """What each session asks for: later snapshots follow from one that has it."""
    assert snapshot.shape_columns is not None
    assert snapshot.group_columns is not None
    assert snapshot.usage is not None


def change(world: World, random: Random) -> None:
    """Pods come, go or change; now and then a node's labels do."""
    others = random_cluster(random, drawn)
    pods = [each for each in others if each["kind"] == "Pod"]
    if random.random() < 0.1:
        world.put(node("n0", labels={"zone": random.choice("ab")}))
    for each in random.sample(pods, min(len(pods), 3)):
        key = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        if random.random() < 0.4 and key in world.state.tasks.row_of:
            world.remove("Pod", key)
        else:
            world.put(each)


@given(SEEDS)
def test_what_follows_equals_a_fresh_count_and_changes_no_earlier_one(seed: int) -> None:
    random = Random(seed)
    world = World(*random_cluster(random, drawn))
    seen = []
    for _ in range(12):
        change(world, random)
        snapshot = world.maker.snapshot()
        if random.random() < 0.8:
            becomes_base(snapshot)
        for kind in random.sample(KINDS, random.randint(0, 3)):
            followed, fresh = snapshot.following(kind), counts(kind(snapshot))
            assert counts(followed) == fresh
            seen.append((followed, fresh))
    for followed, fresh in seen:
        assert counts(followed) == fresh


def test_terms_that_no_pod_has_any_more_are_forgotten() -> None:
    def apart(number: int) -> Manifest:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": str(number)}}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        meta = {"name": "p", "namespace": "default", "uid": str(number)}
        return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "n", "affinity": affinity}}

    world = World(node("n"))
    for number in range(300):
        world.put(apart(number))
        snapshot = world.maker.snapshot()
        becomes_base(snapshot)
        placed = snapshot.following(PlacedOpposing)
    assert len(placed.sums) == 1
    assert len(placed.files) < 100
