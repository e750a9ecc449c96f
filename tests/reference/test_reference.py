"""What the reference must hold by itself, whatever the fast core does."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest

from tests.actions import test_preempt, test_reclaim
from tests.dsl import gang, node, priority_class, queue
from tests.parity.cases import NOW, load
from tests.reference import Result, decide
from tests.reference.clusters import random_case
from tests.reference.immunity import REPLACES
from tests.reference.model import ALLOCATED, build
from tests.sizes import seeds

SEEDS = seeds(60, 300)


@cache
def decided(seed: int) -> Result:
    """Return what is decided on a random cluster."""
    case = random_case(seed)
    return decide(case.objects, case.conf, NOW)


def test_the_order_of_manifests_does_not_matter() -> None:
    for seed in SEEDS:
        case = random_case(seed)
        shuffled = random.Random(seed).sample(case.objects, len(case.objects))
        assert decide(shuffled, case.conf, NOW) == decided(seed), f"seed {seed}"


def test_a_seed_always_gives_the_same_case() -> None:
    assert [random_case(seed) for seed in range(20)] == [random_case(seed) for seed in range(20)]


def test_no_placement_asks_for_more_than_its_node_has() -> None:
    for seed in SEEDS:
        cluster = build(random_case(seed).objects)
        for pod, name in decided(seed).binds.items():
            cluster.nodes[name].add(cluster.tasks[pod])
            exceeded = cluster.nodes[name].used.exceeding(cluster.nodes[name].allocatable)
            asked = cluster.tasks[pod].request.names()
            assert not set(exceeded) & {"cpu", "memory", *asked}, f"seed {seed}: {pod} on {name}"


def test_a_gang_is_bound_to_its_minimum_or_not_at_all() -> None:
    for seed in SEEDS:
        case = random_case(seed)
        if "name: gang" not in case.conf or "enableJobReady: false" in case.conf:
            continue
        binds = decided(seed).binds
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


@pytest.mark.parametrize("owner", ["asks", "another"])
@pytest.mark.parametrize(
    ("conf", "its_queue"), [(test_preempt.CONF, "a"), (test_reclaim.LONE, "b"), (test_reclaim.CAPACITY, "b")]
)
def test_what_replaces_an_evicted_pod_stays_for_whom_that_was_evicted(conf: str, its_queue: str, owner: str) -> None:
    told = {"place": 0, "knew": [[]], "lost": {f"default/{owner}": 1}, "undisturbed": False}
    high = {"priorityClassName": "high"}
    objects = [
        priority_class("high", 100),
        *[queue(name, deserved={"cpu": "2"}) for name in "ab"],
        node("n", cpu=4),
        *gang("old", 4, members=1, on=["n"] * 4, queue="a", cpu=1, annotations={REPLACES: json.dumps(told)}),
        *gang("asks", 1, queue=its_queue, cpu=1, group_spec=high, spec={"priority": 100}),
    ]
    assert len(decide(objects, conf, NOW).evictions) == (owner == "another")
