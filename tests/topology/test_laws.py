"""Laws of placement, on random clusters with HyperNodes, checked by a reading of the manifests without vcd."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.dsl import Manifest, planned
from tests.topology.manifests import CONF
from tests.topology.reference import Domain, domains_of, group_of, key_of, nodes_by_group
from tests.topology.test_together import cluster


def allowed_domains(objects: list[Manifest], group: Manifest) -> list[Domain]:
    """The domains that may hold a group: with a hard limit, HyperNodes, otherwise also the whole cluster."""
    topology = group["spec"].get("networkTopology")
    if topology is not None and topology["mode"] == "hard":
        return [domain for domain in domains_of(objects) if domain.tier <= topology["highestTierAllowed"]]
    names = frozenset(each["metadata"]["name"] for each in objects if each["kind"] == "Node")
    return [Domain("all", 99, names)]


def cpu_of(pod: Manifest) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_groups_stay_within_a_domain_and_none_waits_while_one_takes_it(first: int, nested: bool) -> None:
    for seed in range(first, first + 25):
        objects = list(cluster(random.Random(seed), nested=nested))
        binds = planned(objects, conf=CONF).binds
        placed = nodes_by_group(objects, binds)
        free = {each["metadata"]["name"]: int(each["status"]["allocatable"]["cpu"]) for each in _of("Node", objects)}
        waiting: Counter[str] = Counter()
        cpu: dict[str, int] = {}
        for pod in _of("Pod", objects):
            cpu[group_of(pod)] = cpu_of(pod)
            node = binds.get(key_of(pod)) or pod["spec"].get("nodeName")
            if node:
                free[node] -= cpu_of(pod)
            else:
                waiting[group_of(pod)] += 1
        assert min(free.values()) >= 0
        for group in _of("PodGroup", objects):
            key, size = key_of(group), sum(group_of(pod) == key_of(group) for pod in _of("Pod", objects))
            around = [domain for domain in allowed_domains(objects, group) if placed[key] <= domain.nodes]
            assert around or not placed[key], (seed, key)
            needed = max(1, group["spec"]["minMember"] - (size - waiting[key]))
            for domain in around if waiting[key] else ():
                assert sum(free[node] // cpu[key] for node in domain.nodes) < needed, (seed, key, domain.name)


def _of(kind: str, objects: list[Manifest]) -> list[Manifest]:
    return [each for each in objects if each["kind"] == kind]
