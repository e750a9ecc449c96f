"""Pods whose PodGroup is gone before them keep what they have, at the cost of their queue, until they are gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dsl import flat, gang, group, node, pod, queue
from tests.plugins.opened import conf, plugin_of
from tests.plugins.test_capacity_card import A, B, card_conf, card_queue, carded, users
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.plugins.capacity import CapacityPlugin
from vcd.scheduling.plugins.capacity_card import CapacityCardPlugin
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.statement_verification import stale_statements

Manifest = dict[str, Any]
LIMITS = "volcano.sh/nodegroup-resource-limits"


@dataclass
class Case:
    """A queue ``q`` that may hold three units, a node with room for eight, and a pod that takes one."""

    conf: str
    queues: list[Manifest]
    amounts: dict[str, Any]
    marks: dict[str, str]
    node: Manifest


def of_capability(name: str, *before: str, **spec: Any) -> Case:
    return Case(conf(*before, name), [queue("q", **(spec or {"capability": {"cpu": 3}}))], {"cpu": 1}, {}, node("n"))


def hierarchical() -> Case:
    text = conf("gang", "predicates", "capacity").replace("name: capacity", "name: capacity\n    enableHierarchy: true")
    queues = [queue("top", capability={"cpu": 3}), queue("q", parent="top"), queue("r", parent="top")]
    return Case(text, queues, {"cpu": 1}, {}, node("n"))


def limited() -> Case:
    affinity = {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["A"]}}
    made = queue("q", affinity=affinity)
    made["metadata"]["annotations"] = {LIMITS: '{"A": {"cpu": "3"}}'}
    grouped = node("n", labels={"volcano.sh/nodegroup-name": "A"})
    return Case(conf("gang", "predicates", "nodegroup"), [made], {"cpu": 1}, {}, grouped)


CASES: dict[str, Callable[[], Case]] = {
    "capacity": lambda: of_capability("capacity", "gang", "predicates"),
    "capacity of memory": lambda: Case(
        conf("capacity", "predicates"), [queue("q", capability={"memory": "3Gi"})], {"memory": 1}, {}, node("n")
    ),
    "capacity of pods": lambda: of_capability("capacity", "gang", "predicates", capability={"pods": 3}),
    "capacity with hierarchy": hierarchical,
    "proportion": lambda: of_capability("proportion", "gang", "predicates"),
    "proportion first": lambda: of_capability("predicates", "proportion", "gang"),
    "capacity-card": lambda: Case(
        card_conf(), [card_queue("q", {A: 3})], {"gpu": 1}, {"volcano.sh/card.name": A}, carded("n", A)
    ),
    "capacity-card of either card": lambda: Case(
        card_conf(), [card_queue("q", {A: 3})], {"gpu": 1}, {"volcano.sh/card.name": f"{B}|{A}"}, carded("n", A)
    ),
    "capacity-card of cpu": lambda: Case(
        card_conf(), [card_queue("q", capability={"cpu": 3})], {"cpu": 1}, {}, carded("n", A)
    ),
    "nodegroup": limited,
}


@pytest.fixture(params=CASES, name="case")
def case_(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def of_case(case: Case, name: str, size: int, **options: Any) -> list[Manifest]:
    return flat([gang(name, size, members=1, queue="q", annotations=case.marks, **case.amounts, **options)])


@pytest.mark.parametrize("told", [True, False])
def test_pods_whose_group_is_gone_count_against_their_queue_until_they_are_gone(case: Case, told: bool) -> None:
    """Two of three units are held by pods whose group was deleted, or was never seen: one more finds room."""
    old = of_case(case, "old", 2, on=["n", "n"])
    if not told:
        old = [{**m, "metadata": {**m["metadata"], "labels": {"volcano.sh/queue-name": "q"}}} for m in old[1:]]
    world = World(*case.queues, case.node, old, conf=case.conf)
    world.remove("PodGroup", "default/old")
    world.put(of_case(case, "new", 3))
    world.rest()
    assert len(world.placed("new")) == 1
    world.remove("Pod", "default/old-0")
    world.rest()
    assert len(world.placed("new")) == 2
    world.remove("Pod", "default/old-1")
    world.rest()
    assert len(world.placed("new")) == 3


def test_pods_in_phase_unknown_count_against_no_queue(case: Case) -> None:
    """As in Volcano, where they are not allocated: whatever divides the cluster, they hold room on their node only."""
    lost = [{**one, "status": {"phase": "Unknown"}} if one["kind"] == "Pod" else one for one in _full(case)]
    for old, placed in ((_full(case), 0), (lost, 3)):
        world = World(*case.queues, case.node, old, of_case(case, "new", 4), conf=case.conf)
        world.rest()
        assert len(world.placed("new")) == placed


def _full(case: Case) -> list[Manifest]:
    return of_case(case, "old", 3, on=["n", "n", "n"])


def test_a_siblings_orphans_count_against_their_parent() -> None:
    case = hierarchical()
    world = World(*case.queues, case.node, of_case(case, "old", 2, on=["n", "n"]), conf=case.conf)
    world.remove("PodGroup", "default/old")
    world.put(gang("new", 3, members=1, queue="r", cpu=1))
    world.rest()
    assert len(world.placed("new")) == 1


def test_pods_in_between_hold_their_cards_while_they_are_being_deleted() -> None:
    """The group goes first, then the pods are told to go: what they hold is given to nobody."""
    old = flat(
        [group("old", queue="q"), pod("old-0", group="old", on="n", gpu=2, annotations={"volcano.sh/card.name": A})]
    )
    world = World(card_queue("q", {A: 3}), carded("n", A), old, conf=card_conf())
    world.remove("PodGroup", "default/old")
    going = {**old[1], "metadata": {**old[1]["metadata"], "deletionTimestamp": "2026-01-01T00:00:01Z"}}
    world.put(going, users("new", 3, A))
    for _ in range(2):
        world.cycle()
        assert len(world.placed("new")) == 1
    assert shown(world, CapacityCardPlugin)["vcd_cards_leaving", A] == 2
    world.remove("Pod", "default/old-0")
    world.rest()
    assert len(world.placed("new")) == 3


def test_a_pod_of_a_group_that_is_gone_is_charged_for_the_card_of_its_node() -> None:
    """Its group named the card, and went with the name."""
    named = {**group("old", queue="q"), "metadata": {"name": "old", "namespace": "default"}}
    named["metadata"]["annotations"] = {"volcano.sh/card.name": f"{A}|{B}"}
    world = World(
        card_queue("q", {A: 2, B: 2}),
        carded("a", A),
        carded("b", B),
        named,
        pod("old-0", group="old", on="b", gpu=2),
        conf=card_conf(),
    )
    world.remove("PodGroup", "default/old")
    world.put(users("new", 3, f"{B}|{A}"))
    world.rest()
    assert sorted(world.placed("new").values()) == ["a", "a"]


def shown(world: World, kind: type[Any]) -> dict[tuple[str, ...], float]:
    world.decide()
    assert world.session is not None
    return {
        (gauge.name, *(text for _, text in gauge.labels)): gauge.value
        for gauge in plugin_of(world.session, kind).gauges()
    }


@pytest.mark.parametrize("kind", [CapacityPlugin, ProportionPlugin, CapacityCardPlugin])
def test_gauges_and_the_queues_status_show_what_pods_without_a_group_hold(kind: type[Any]) -> None:
    text = conf("predicates", kind.name)
    marks = {"volcano.sh/card.name": A}
    world = World(
        card_queue("q", {A: 3}),
        carded("n", A),
        gang("old", 2, queue="q", cpu=1, gpu=1, on=["n", "n"], annotations=marks),
        conf=text,
    )
    before = shown(world, kind)
    assert before["volcano_queue_allocated_milli_cpu", "q"] == 2000
    world.remove("PodGroup", "default/old")
    plan = world.decide()
    assert {usage.name: usage.allocated for usage in plan.queues}["q"] == {
        "cpu": "2",
        "nvidia.com/gpu": "2",
        "pods": "2",
    }
    after = shown(world, kind)
    held = [name for name in before if "allocated" in name[0] or "request" in name[0]]
    assert {name: after[name] for name in held} == {name: before[name] for name in held}


def test_online_and_offline_cards_of_pods_without_a_group_are_told_apart() -> None:
    owners = [{"kind": kind, "name": "w", "uid": "w", "apiVersion": "v1"} for kind in ("Job", "ReplicaSet")]
    pods = [pod(f"p{i}", group=f"g{i}", on="n", gpu=i + 1) for i in range(2)]
    for made, owner in zip(pods, owners, strict=True):
        made["metadata"]["ownerReferences"] = [owner]
    world = World(
        card_queue("q", {A: 3}), carded("n", A), [group(f"g{i}", queue="q") for i in range(2)], pods, conf=card_conf()
    )
    world.remove("PodGroup", "default/g0", "default/g1")
    after = shown(world, CapacityCardPlugin)
    assert (after["vcd_cards_allocated", A, "offline"], after["vcd_cards_allocated", A, "online"]) == (1, 2)
    assert after["vcd_queue_card_allocated", "q", A] == 3


def test_pods_of_a_queue_that_is_gone_too_count_against_nobody() -> None:
    world = World(
        card_queue("q", {A: 3}),
        card_queue("r", {A: 3}),
        carded("n", A),
        users("old", 2, A, on=["n", "n"]),
        conf=card_conf(),
    )
    world.remove("PodGroup", "default/old")
    world.remove("Queue", "q")
    world.put(users("new", 3, A, queue="r"))
    world.rest()
    assert len(world.placed("new")) == 3


@pytest.mark.parametrize("limit", ["capability", "quota"])
def test_a_statement_does_not_hold_on_what_a_deleted_group_seems_to_have_freed(limit: str) -> None:
    """Between decision and log another pod of the queue is bound and a group vanishes whose pods are still there."""
    if limit == "quota":
        q, text = card_queue("q", {A: 3}), card_conf()
    else:
        q, text = queue("q", capability={"cpu": 3}), conf("predicates", "capacity")
    world = World(
        q,
        carded("n", A),
        gang("old", 2, queue="q", cpu=1, gpu=1, on=["n", "n"], annotations={"volcano.sh/card.name": A}),
        conf=text,
    )
    world.put(gang("new", 1, queue="q", cpu=1, gpu=1, annotations={"volcano.sh/card.name": A}))
    base = world.maker.snapshot()
    plan = ev.Plan(statements=tuple(s for s in world.decide().statements if s.group == "default/new"))
    assert [op.verb for s in plan.statements for op in s.operations] == ["bind"]
    fresh = World(
        q,
        carded("n", A),
        gang("old", 2, queue="q", cpu=1, gpu=1, on=["n", "n"], annotations={"volcano.sh/card.name": A}),
        conf=text,
    )
    fresh.put(gang("new", 1, queue="q", cpu=1, gpu=1, annotations={"volcano.sh/card.name": A}))
    fresh.put(gang("other", 1, queue="q", cpu=1, gpu=1, on=["n"], annotations={"volcano.sh/card.name": A}))
    fresh.remove("PodGroup", "default/old")
    assert stale_statements(plan, fresh.maker.snapshot(), base) != ()
