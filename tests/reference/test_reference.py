"""What the reference must hold by itself, whatever the fast core does."""

from __future__ import annotations

import random

import pytest

from tests.parity.cases import NOW, load
from tests.reference import decide
from tests.reference.clusters import random_case
from tests.reference.model import ALLOCATED, build

SEEDS = range(300)


def test_the_order_of_manifests_does_not_matter() -> None:
    for seed in SEEDS:
        case = random_case(seed)
        shuffled = random.Random(seed).sample(case.objects, len(case.objects))
        assert decide(shuffled, case.conf, NOW) == decide(case.objects, case.conf, NOW), f"seed {seed}"


def test_a_seed_always_gives_the_same_case() -> None:
    assert [random_case(seed) for seed in range(20)] == [random_case(seed) for seed in range(20)]


def test_no_placement_asks_for_more_than_its_node_has() -> None:
    for seed in SEEDS:
        case = random_case(seed)
        cluster = build(case.objects)
        for pod, name in decide(case.objects, case.conf, NOW).binds.items():
            cluster.nodes[name].add(cluster.tasks[pod])
            exceeded = cluster.nodes[name].used.exceeding(cluster.nodes[name].allocatable)
            asked = cluster.tasks[pod].request.names()
            assert not set(exceeded) & {"cpu", "memory", *asked}, f"seed {seed}: {pod} on {name}"


def test_a_gang_is_bound_to_its_minimum_or_not_at_all() -> None:
    for seed in SEEDS:
        case = random_case(seed)
        if "name: gang" not in case.conf or "enableJobReady: false" in case.conf:
            continue
        binds = decide(case.objects, case.conf, NOW).binds
        for key, job in build(case.objects).jobs.items():
            bound = [task for task in job.tasks if task.key in binds]
            count = len(bound) + len(job.having(*ALLOCATED, "Succeeded"))
            waiting = sum(t.best_effort and not t.gated for t in job.having("Pending") if t.key not in binds)
            assert not bound or count + waiting >= job.min_available, f"seed {seed}: {key}"


def test_equal_nodes_are_told_apart_by_the_seed_alone() -> None:
    nodes = [
        {"kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
        for i in range(8)
    ]
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    }
    chosen = {seed: decide([*nodes, pod], None, NOW, seed).binds["default/p"] for seed in range(20)}
    assert len(set(chosen.values())) > 3
    assert chosen == {seed: decide([pod, *nodes[::-1]], None, NOW, seed).binds["default/p"] for seed in range(20)}


@pytest.mark.parametrize("family", sorted({case.family for case in load()}))
def test_odd_clusters_of_every_family_are_decided_without_error(family: str) -> None:
    for case in [case for case in load() if case.family == family]:
        groups = {
            f"{m['metadata']['namespace']}/{m['metadata']['name']}" for m in case.objects if m["kind"] == "PodGroup"
        }
        assert groups <= set(decide(case.objects, None, NOW).phases)
