"""The simulation's checks of network topology find violations, and read trees as documented."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, pod
from tests.simulation.invariants.topology import Tree, _Session, held_back, limited_groups
from tests.topology.manifests import CONF, SOFT, exact, hard, hyper_node, parent, racks
from tests.world import World
from vcd.model import events as ev


def tree_of(*objects: Any) -> Tree:
    state = World(*objects, conf=CONF).state
    found: Any = state.others["HyperNode"]
    return Tree.of(found, {name: record.node.metadata.labels for name, record in state.nodes.items()})


def member(**selector: Manifest) -> Manifest:
    return {"type": "Node", "selector": selector}


def statement(verb: Any, owner: str, *places: tuple[str, str], action: str = "allocate") -> ev.Statement:
    operations = tuple(ev.Operation(verb, key, f"uid-{key}", on) for key, on in places)
    return ev.Statement(owner, action, operations)


def problems(objects: Iterable[Any], *statements: ev.Statement, late: Iterable[str] = ()) -> list[str]:
    session = _Session(World(*objects, conf=CONF).state, True)
    return [invariant for each in statements for invariant, _ in session.problems(each, set(late))]


# --- trees ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members, found",
    [
        ([exact("a-0"), exact("nowhere")], {"a-0"}),
        ([member(regexMatch={"pattern": "^a-"})], {"a-0", "a-1"}),
        ([member(regexMatch={"pattern": "("}), exact("b-0")], {"b-0"}),
        ([member(labelMatch={"matchLabels": {"rack": "b"}})], {"b-0"}),
        ([member(labelMatch={})], set()),
    ],
)
def test_members_are_found_by_name_pattern_and_label(members: list[Manifest], found: set[str]) -> None:
    nodes = [node(name, labels={"rack": name[0]}) for name in ("a-0", "a-1", "b-0")]
    assert tree_of(nodes, hyper_node("h", 1, *members)).nodes["h"] == found


def test_wrong_edges_are_left_out_and_all_others_count() -> None:
    nodes = [node(name) for name in ("a", "b")]
    leaves = [hyper_node("ra", 1, "a", tierName="rack"), hyper_node("rb", 1, "b", tierName="rack")]
    first = parent("first", 2, "ra", "second", "nowhere")
    second = parent("second", 2, "ra", "rb", "first", tierName="rack")
    tree = tree_of(nodes, leaves, first, second)
    assert [set(tree.nodes[name]) for name in ("first", "second")] == [{"a"}, {"b"}]
    assert tree.named == {"rack": 1}
    assert tree.allowed(2)[-2:] == [{"a"}, {"b"}]
    assert tree.allowed(3)[-1] == {"a", "b"}


def test_without_hyper_nodes_no_tier_allows_anything() -> None:
    assert Tree.of({}, {"a": {}}).allowed(9) == []


# --- what sessions decide ---------------------------------------------------------------------------------------------


def test_binding_a_group_to_two_racks_is_found() -> None:
    objects = [*racks([2, 2]), *gang("g", 2, cpu=1, group_spec=hard(1))]
    apart = statement("bind", "default/g", ("default/g-0", "r0-n0"), ("default/g-1", "r1-n0"))
    together = statement("bind", "default/g", ("default/g-0", "r0-n0"), ("default/g-1", "r0-n1"))
    assert problems(objects, apart) == ["no group beyond its tier"]
    assert problems(objects, together) == []
    assert problems(objects, apart, late=["default/g-1"]) == []


@pytest.mark.parametrize("spec, found", [(hard(1), True), (hard(2), False), (SOFT, False), ({}, False)])
def test_so_is_a_pod_bound_apart_from_those_that_run(spec: Manifest, found: bool) -> None:
    objects = [racks([2, 2]), group("g", members=1, **spec), pod("g-0", group="g", on="r0-n0"), pod("g-1", group="g")]
    bound = statement("bind", "default/g", ("default/g-1", "r1-n0"))
    assert problems(objects, bound) == ["no group beyond its tier"] * found


def test_a_sub_group_has_a_limit_of_its_own() -> None:
    policy = {"name": "p", "matchLabelKeys": ["part"], **hard(1)}
    pods = [pod(f"g-{number}", group="g", labels={"part": str(number % 2)}) for number in range(4)]
    objects = [*racks([2, 2]), group("g", members=4, subGroupPolicy=[policy]), *pods]
    racks_of = ("r0", "r1", "r0", "r1")
    places = [(f"default/g-{number}", f"{rack}-n0") for number, rack in enumerate(racks_of)]
    assert problems(objects, statement("bind", "default/g", *places)) == []
    places[2:] = [("default/g-2", "r1-n0"), ("default/g-3", "r0-n0")]
    assert problems(objects, statement("bind", "default/g", *places)) == ["no group beyond its tier"] * 2


@pytest.mark.parametrize("size, found", [(2, False), (3, True)])
def test_an_eviction_for_a_group_that_no_rack_can_hold_is_found(size: int, found: bool) -> None:
    old = gang("old", 1, on=["r0-n0"], cpu=8)
    objects = [racks([2, 2]), old, gang("g", size, cpu=8, group_spec=hard(1))]
    evicted = statement("evict", "default/g", ("default/old-0", ""), action="preempt")
    assert problems(objects, evicted) == ["no eviction in vain"] * found


# --- at rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, found", [(2, True), (3, False)])
def test_a_group_that_waits_although_a_rack_could_take_it_is_found(size: int, found: bool) -> None:
    objects = [racks([1, 2]), gang("g", size, cpu=8, group_spec=hard(1), phase="Inqueue")]
    session = _Session(World(*objects, conf=CONF).state, True)
    assert (
        list(session.left_undone()) == ["default/g waits, and ['r1-n0', 'r1-n1'] have room for 2 of its pods"] * found
    )


def test_only_pods_that_wait_for_limited_groups_are_held_back_from_the_reference() -> None:
    objects = [*gang("soft", 1, group_spec=SOFT), *gang("hard", 1, group_spec=hard(1)), *gang("on", 1, on=["n"])]
    limited = limited_groups(each for each in objects if each["kind"] == "PodGroup")
    gated = [each["metadata"]["name"] for each in held_back(objects, limited) if each["spec"].get("schedulingGates")]
    assert (limited, gated) == ({"default/hard"}, ["hard-0"])
