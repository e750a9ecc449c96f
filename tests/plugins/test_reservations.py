"""What admitted groups reserve: nothing for pods that no node takes, nor for a group that can never be whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, planned, queue
from tests.plugins.opened import conf

OVERCOMMIT = conf("gang", "predicates", "overcommit", actions="enqueue, allocate", arguments={"overcommit-factor": 1})
PROPORTION = conf("gang", "predicates", "proportion", actions="enqueue, allocate")
CAPACITY = conf("gang", "predicates", "capacity", actions="enqueue, allocate")
CARDS = conf("gang", "predicates", "capacity-card", actions="enqueue, allocate")
CONFIGURATIONS = {"overcommit": OVERCOMMIT, "proportion": PROPORTION, "capacity": CAPACITY, "capacity-card": CARDS}


def term(app: str) -> Manifest:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}


APART: Manifest = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("big")]}}}
NEAR: Manifest = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("ghost")]}}}
SPREAD: Manifest = {
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "no.such/key", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ]
}
WORKER = {"volcano.sh/task-spec": "worker"}
NEVER: dict[str, Manifest] = {
    "no such node": {"spec": {"nodeSelector": {"no": "such"}}},
    "a spread over a label that no node has": {"spec": SPREAD},
    "affinity to pods that do not exist": {"spec": NEAR},
    "one pod a node, too few nodes": {"spec": APART, "labels": {"app": "big"}},
    "no pod of a role": {"group_spec": {"minTaskMember": {"lead": 1, "worker": 2}}, "annotations": WORKER},
}
NODES = [node("a", cpu=4), node("b", cpu=4)]


def big(pods: int = 3, members: int = 3, **options: Any) -> list[Manifest]:
    """An admitted gang that reserves six of eight CPUs."""
    return list(gang("big", pods, members=members, queue="q", minimum={"cpu": 6}, cpu=2, **options))


def is_admitted(conf: str, *objects: Any, cpu: int = 4) -> bool:
    """Whether one more group is admitted."""
    late = gang("late", 1, queue="q", phase="Pending", created=9, minimum={"cpu": cpu}, cpu=cpu)
    return planned(*NODES, queue("q"), *objects, late, conf=conf).phases.get("default/late") == "Inqueue"


@pytest.mark.parametrize("plugin", CONFIGURATIONS)
@pytest.mark.parametrize("never", NEVER)
def test_a_gang_that_can_never_be_whole_reserves_nothing(plugin: str, never: str) -> None:
    assert is_admitted(CONFIGURATIONS[plugin], big(**NEVER[never]))


@pytest.mark.parametrize("plugin", CONFIGURATIONS)
def test_a_gang_that_can_be_whole_reserves_its_minimum(plugin: str) -> None:
    assert not is_admitted(CONFIGURATIONS[plugin], big())


@pytest.mark.parametrize("plugin", CONFIGURATIONS)
@pytest.mark.parametrize("pods", [1, 2])
def test_a_gang_some_of_whose_pods_are_yet_to_come_reserves_its_minimum(plugin: str, pods: int) -> None:
    assert not is_admitted(CONFIGURATIONS[plugin], big(pods=pods))


@pytest.mark.parametrize("plugin", CONFIGURATIONS)
@pytest.mark.parametrize("roles", [{"worker": 3}, {"worker": 2}, {"lead": 2, "worker": 2}])
def test_roles_that_a_gang_has_or_does_not_need_end_no_reservation(plugin: str, roles: dict[str, int]) -> None:
    """Minima of roles count if minMember is at least their sum."""
    asks = big(group_spec={"minTaskMember": roles}, annotations=WORKER)
    assert not is_admitted(CONFIGURATIONS[plugin], asks)


@pytest.mark.parametrize("plugin", CONFIGURATIONS)
def test_a_group_without_pods_reserves_its_minimum(plugin: str) -> None:
    assert not is_admitted(CONFIGURATIONS[plugin], group("big", members=3, queue="q", minimum={"cpu": 6}))


@pytest.mark.parametrize("plugin", CONFIGURATIONS)
@pytest.mark.parametrize(("cpu", "admitted"), [(4, True), (5, False)])
def test_of_a_group_that_can_do_without_them_pods_that_no_node_takes_reserve_nothing(
    plugin: str, cpu: int, admitted: bool
) -> None:
    """Two of the three pods fit; they keep four CPUs, and four are left."""
    objects = [
        group("big", members=2, queue="q", minimum={"cpu": 6}),
        *list(gang("big", 2, cpu=2))[1:],
        *[
            {**m, "metadata": {**m["metadata"], "name": "big-2"}}
            for m in list(gang("big", 1, cpu=2, **NEVER["no such node"]))[1:]
        ],
    ]
    assert is_admitted(CONFIGURATIONS[plugin], objects, cpu=cpu) is admitted


@pytest.mark.parametrize("plugin", ["proportion", "capacity", "capacity-card"])
def test_volcanos_shares_reserve_whatever_the_pods_are(plugin: str) -> None:
    arguments = {"volcanoSharesEnable": True}
    as_volcano = conf("gang", "predicates", plugin, actions="enqueue, allocate", arguments=arguments)
    assert not is_admitted(as_volcano, big(**NEVER["no such node"]))
