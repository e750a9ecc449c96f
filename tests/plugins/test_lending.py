"""Shares beyond Volcano's formula: demand that no node can take, what is lent, guarantees against several borrowers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, planned, pod, queue, session_of
from tests.laws.returning import Returning
from tests.plugins.opened import conf, plugin_of
from tests.world import World
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.session.session import Session

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


def _term(app: str, key: str = "kubernetes.io/hostname") -> Manifest:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def near(app: str, key: str = "kubernetes.io/hostname") -> Manifest:
    """Required affinity to pods of an application."""
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}}}


def away_from(app: str, key: str = "kubernetes.io/hostname") -> Manifest:
    """Required anti-affinity to pods of an application."""
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}}}


def spread(key: str, when: str = "DoNotSchedule") -> Manifest:
    """A constraint that spreads all pods of the namespace by a label of nodes."""
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}}
    return {"topologySpreadConstraints": [constraint]}


def on_port(number: int, gpu: int = 1) -> Manifest:
    """A container with a port of the host."""
    requests = {"cpu": 1, "memory": 1, "nvidia.com/gpu": gpu}
    container = {"name": "c", "ports": [{"containerPort": 80, "hostPort": number}], "resources": {"requests": requests}}
    return {"containers": [container]}


def in_roles(workers: int, leads: int = 0, **of_leads: Any) -> list[Manifest]:
    """A gang of four that needs one lead and three workers."""
    roles = {role: {"volcano.sh/task-spec": role} for role in ("lead", "worker")}
    options = {"group": "z", "cpu": 1, "gpu": 1}
    return [
        group("z", queue="z", members=4, minTaskMember={"lead": 1, "worker": 3}),
        *[pod(f"z-w{i}", annotations=roles["worker"], **options) for i in range(workers)],
        *[pod(f"z-l{i}", annotations=roles["lead"], **options, **of_leads) for i in range(leads)],
    ]


NEVER |= {
    "a spread over a label that no node has": jobs("z", 4, spec=spread("no.such/key")),
    "affinity to pods that do not exist": jobs("z", 4, spec=near("ghost")),
    "affinity by a label that no node has": jobs("z", 4, labels={"app": "z"}, spec=near("z", "no.such/key")),
    "affinity to each other, and no pod of it placed": [
        *jobs("z", 2, labels={"app": "one"}, spec=near("two")),
        *gang("z-o", 2, queue="z", labels={"app": "two"}, spec=near("one"), cpu=1, gpu=1),
    ],
    "affinity to pods that can never be placed": [
        *jobs("z", 2, spec=near("large")),
        *gang("z-o", 1, queue="z", labels={"app": "large"}, cpu=1, gpu=9),
    ],
    "a gang with one pod a node, too few nodes": jobs("z", 1, size=3, labels={"app": "z"}, spec=away_from("z")),
    "a gang with a host port, too few nodes": jobs("z", 1, size=3, spec=on_port(8080)),
    "a gang without a pod of a role": in_roles(workers=4),
    "a gang a role of which no node takes": in_roles(workers=3, leads=1, spec={"nodeSelector": {"no": "such"}}),
    "a gang a role of which a gate holds": in_roles(workers=3, leads=1, spec={"schedulingGates": [{"name": "g"}]}),
}


NODES = [node("a", gpu=4), node("b", gpu=5), node("tainted", gpu=8, taints=[{"key": "t", "effect": "NoSchedule"}])]


def deserved_gpus(session: Session, queue_name: str) -> float:
    """What a queue deserves, by the gauge."""
    found = [
        each.value
        for each in plugin_of(session, ProportionPlugin).gauges()
        if each.name == "volcano_queue_deserved_scalar_resources"
        and dict(each.labels) == {"queue_name": queue_name, "resource": "nvidia.com/gpu"}
    ]
    return found[0] / 1000 if found else 0  # as Volcano has it: thousandths


@pytest.mark.parametrize("never", NEVER)
def test_what_no_node_can_take_leaves_its_share_to_the_others(never: str) -> None:
    found = bound(*NODES, *QUEUES, jobs("x", 9), jobs("y", 9), NEVER[never])
    assert set(found) == {"x", "y"} and sum(found.values()) == 9


@pytest.mark.parametrize("never", NEVER)
def test_what_no_node_can_take_does_not_raise_what_its_queue_deserves(never: str) -> None:
    session = session_of(*NODES, *QUEUES, jobs("x", 9), jobs("y", 9), NEVER[never], conf=FLAT)
    assert deserved_gpus(session, "z") == 0
    assert deserved_gpus(session, "x") == deserved_gpus(session, "y") == 8.5


CAN_BE: dict[str, list[Manifest]] = {
    "a spread that is no condition": jobs("z", 4, spec=spread("no.such/key", "ScheduleAnyway")),
    "affinity to itself": jobs("z", 4, labels={"app": "z"}, spec=near("z")),
    "affinity to a pod of the same job that waits": [
        m
        for m in gang("z", 4, queue="z", cpu=1, gpu=1, spec=near("lead"))
        for m in [
            {**m, "metadata": {**m["metadata"], "labels": {"app": "lead"}}} if m["metadata"]["name"] == "z-3" else m
        ]
    ],
    "affinity to a pod of another job that waits": [
        *jobs("z", 3, spec=near("lead")),
        *gang("z-o", 1, queue="z", labels={"app": "lead"}, cpu=1, gpu=1),
    ],
    "affinity to pods that run": [
        *jobs("z", 4, spec=near("runs")),
        *gang("s", 1, queue="x", on=["b"], labels={"app": "runs"}, cpu=1),
    ],
    "a gang with one pod a node": jobs("z", 1, size=2, labels={"app": "z"}, spec=away_from("z"), gpu=2),
    "pods apart from others": jobs("z", 1, size=4, spec=away_from("ghost")),
    "a gang with a host port": jobs("z", 1, size=2, spec=on_port(8080, gpu=2)),
    "a gang with all its roles": in_roles(workers=3, leads=1),
}


@pytest.mark.parametrize("demand", CAN_BE)
def test_what_can_be_placed_later_is_deserved(demand: str) -> None:
    session = session_of(*NODES, *QUEUES, jobs("x", 9), jobs("y", 9), CAN_BE[demand], conf=FLAT)
    assert deserved_gpus(session, "z") == 4


REFUSED_NOW: dict[str, list[Manifest]] = {
    "a host port that is taken": [
        *jobs("z", 1, size=4, members=1, gpu=2, spec=on_port(80, gpu=2)),
        *[pod(f"holds-{n}", on=n, phase="Running", spec=on_port(80, gpu=0)) for n in ("a", "b")],
    ],
    "anti-affinity to pods that run": [
        *jobs("z", 4, gpu=2, spec=away_from("runs")),
        *[pod(f"runs-{n}", on=n, phase="Running", labels={"app": "runs"}) for n in ("a", "b")],
    ],
    "anti-affinity of pods that run": [
        *jobs("z", 4, gpu=2, labels={"app": "z"}),
        *[pod(f"runs-{n}", on=n, phase="Running", spec=away_from("z")) for n in ("a", "b")],
    ],
}


@pytest.mark.parametrize("refused", REFUSED_NOW)
def test_what_others_refuse_now_keeps_nothing_from_the_others(refused: str) -> None:
    """Resources do not lack: no node takes z's pods until other pods end, so nothing is kept idle for them."""
    result = planned(*NODES[:2], *QUEUES, jobs("x", 9), jobs("y", 9), REFUSED_NOW[refused], conf=FLAT)
    assert len([key for key in result.binds if key.startswith(("default/x-", "default/y-"))]) == 9
    reasons = [why["reason"] for told in result.why.values() for why in told]
    assert not any("can use" in reason for reason in reasons)


@pytest.mark.parametrize(("pods", "size", "lent"), [(1, 4, 6), (1, 3, 6), (4, 2, 0), (2, 4, 6)])
def test_what_is_idle_in_parts_smaller_than_a_pod_is_lent(pods: int, size: int, lent: int) -> None:
    """Three nodes of 4 GPUs have two idle each. No node has what a pod of 3 or 4 of y asks for, so x gets all of it. A
    gang of four pods of 2 keeps the places of three while it waits for the fourth."""
    nodes = [node(name, cpu=64, gpu=4) for name in "abc"]
    held = [m for n in "abc" for m in gang(f"x-{n}", 2, queue="x", on=[n, n], phase="Running", cpu=1, gpu=1)]
    objects = [queue("x"), queue("y", weight=2), held, gang("y", pods, queue="y", cpu=1, gpu=size), jobs("x", 9)]
    assert bound(*nodes, *objects).get("x", 0) == lent


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
