"""Placement of groups with a network topology by allocate and backfill."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, planned, pod, queue
from tests.topology.manifests import CONF, SOFT, exact, hard, hyper_node, parent, rack_of, racks
from tests.world import World
from vcd.api import PlanResult
from vcd.model.events import Waiting
from vcd.scheduling.actions.enqueue import unsupported_reason
from vcd.scheduling.framework.declared_reasons import mending

WITHOUT_PLUGIN = CONF.replace("  - name: network-topology-aware\n", "")


def racks_of(result: PlanResult, name: str) -> set[str]:
    """The racks in which pods of a group were placed."""
    return {rack_of(on) for key, on in result.binds.items() if key.startswith(f"default/{name}-")}


def reasons(result: PlanResult, name: str) -> list[str]:
    return [why["reason"] for why in result.why.get(f"default/{name}", ())]


def codes(result: PlanResult, name: str) -> list[str]:
    return [why["code"] for why in result.why.get(f"default/{name}", ())]


# --- hard and soft ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [hard(1), {"networkTopology": {"highestTierAllowed": 1}}, SOFT])
def test_a_gang_goes_to_one_rack(spec: Manifest) -> None:
    result = planned(racks([1, 3, 2]), gang("g", 3, cpu=8, group_spec=spec), conf=CONF)
    assert racks_of(result, "g") == {"r1"}
    assert len(result.binds) == 3


def test_a_hard_gang_that_no_rack_holds_waits_with_the_rack_that_takes_most() -> None:
    result = planned(racks([1, 3, 2]), gang("g", 4, cpu=8, group_spec=hard(1)), conf=CONF)
    assert result.binds == {}
    assert reasons(result, "g")[0] == "no allowed HyperNode fits: r1 takes 3 of 4 pods"


def test_a_cluster_that_is_too_small_is_the_reason_and_not_its_racks() -> None:
    result = planned(racks([1, 2]), gang("g", 4, cpu=8, group_spec=hard(1)), conf=CONF)
    assert reasons(result, "g")[0] == "all nodes together take 3 of the 4 pods that it needs"


def test_nodes_that_the_selector_excludes_do_not_count_for_a_rack() -> None:
    gangs = gang("g", 3, cpu=8, group_spec=hard(1), spec={"nodeSelector": {"zone": "z1"}})
    result = planned(racks([3, 1, 2, 2]), gangs, conf=CONF)
    assert reasons(result, "g")[0] == "no allowed HyperNode fits: r2 takes 2 of 3 pods"


def test_the_selector_is_the_reason_if_it_leaves_too_few_nodes() -> None:
    gangs = gang("g", 3, cpu=8, group_spec=hard(1), spec={"nodeSelector": {"rack": "r1"}})
    result = planned(racks([3, 2]), gangs, conf=CONF)
    assert "node(s) didn't match Pod's node affinity/selector" in reasons(result, "g")
    assert not [code for code in codes(result, "g") if code.startswith("topology-")]


def test_the_limit_of_the_queue_is_the_reason_and_not_the_racks() -> None:
    small = queue("small", capability={"cpu": "16"})
    gangs = gang("g", 3, cpu=8, queue="small", group_spec=hard(1))
    result = planned(racks([2, 3]), small, gangs, conf=CONF + "  - name: proportion\n")
    assert codes(result, "g")[0].startswith("queue-")


def test_pods_that_exclude_each_other_from_a_rack_name_that_as_the_reason() -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "rack"}
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    gangs = gang("g", 2, cpu=1, group_spec=hard(1), labels={"app": "g"}, spec=spec)
    result = planned(racks([2, 3]), gangs, conf=CONF)
    assert "node(s) didn't match pod anti-affinity rules" in reasons(result, "g")
    assert "topology-no-domain" not in codes(result, "g")


@pytest.mark.parametrize("spec", [hard(2), SOFT])
def test_a_higher_tier_is_used_where_it_is_allowed_and_needed(spec: Manifest) -> None:
    result = planned(racks([1, 3, 2]), gang("g", 4, cpu=8, group_spec=spec), conf=CONF)
    assert len(result.binds) == 4


def test_a_soft_gang_may_use_nodes_without_a_hyper_node_and_a_hard_one_may_not() -> None:
    outside = [node(f"out-{number}") for number in range(4)]
    soft = planned(racks([1]), outside, gang("g", 4, cpu=8, group_spec=SOFT), conf=CONF)
    assert len(soft.binds) == 4
    assert planned(racks([1]), outside, gang("g", 4, cpu=8, group_spec=hard(2)), conf=CONF).binds == {}


def test_the_tier_may_be_named() -> None:
    by_name = {"networkTopology": {"mode": "hard", "highestTierName": "rack"}}
    result = planned(racks([1, 2]), gang("g", 2, cpu=8, group_spec=by_name), conf=CONF)
    assert racks_of(result, "g") == {"r1"}


@pytest.mark.parametrize(
    "topology, words",
    [
        ({"highestTierName": "row"}, "spec.networkTopology.highestTierName is row, which no HyperNode has"),
        ({"mode": "hard"}, "spec.networkTopology is hard and names no tier"),
    ],
)
def test_a_hard_limit_that_cannot_be_read_is_never_dropped(topology: Manifest, words: str) -> None:
    result = planned(racks([2]), gang("g", 1, cpu=1, group_spec={"networkTopology": topology}), conf=CONF)
    assert result.binds == {}
    assert reasons(result, "g")[0].startswith(words)


def test_so_is_one_whose_tier_no_hyper_node_has() -> None:
    result = planned(racks([2]), gang("g", 1, cpu=1, group_spec=hard(0)), conf=CONF)
    assert result.binds == {}
    assert "node(s) were in no HyperNode of tier 0 or below" in reasons(result, "g")


@pytest.mark.parametrize(
    "spec", [hard(1), {"subGroupPolicy": [{"name": "p", "networkTopology": hard(1)["networkTopology"]}]}]
)
def test_without_the_plugin_a_hard_group_waits(spec: Manifest) -> None:
    result = planned(racks([2]), gang("g", 1, cpu=1, group_spec=spec), conf=WITHOUT_PLUGIN)
    assert result.binds == {}
    assert codes(result, "g")[0] == "field-unsupported"
    waiting = Waiting("default/g", "unsupported", "", unsupported_reason(("the PodGroup's spec.networkTopology",)))
    assert mending(waiting).startswith("add plugin network-topology-aware to the configuration, or take the field away")


# --- the choice between domains ---------------------------------------------------------------------------------------


def test_the_fuller_rack_comes_first_then_the_first_by_name() -> None:
    used = gang("old", 1, on=["r1-n0"], cpu=2)
    assert racks_of(planned(racks([2, 2, 2]), used, gang("g", 2, cpu=2, group_spec=hard(1)), conf=CONF), "g") == {"r1"}
    assert racks_of(planned(racks([2, 2, 2]), gang("g", 2, cpu=2, group_spec=hard(1)), conf=CONF), "g") == {"r0"}


def test_an_elastic_group_goes_where_most_of_its_pods_fit() -> None:
    """Volcano takes the fuller rack, which has room for the minimum only."""
    used = gang("old", 1, on=["r0-n0"], cpu=4)
    result = planned(racks([1, 2]), used, gang("g", 4, members=1, cpu=4, group_spec=hard(1)), conf=CONF)
    assert racks_of(result, "g") == {"r1"}
    assert len(result.binds) == 4


def test_an_elastic_group_takes_what_one_rack_has_and_the_rest_waits() -> None:
    result = planned(racks([2, 1]), gang("g", 4, members=1, cpu=8, group_spec=hard(1)), conf=CONF)
    assert racks_of(result, "g") == {"r0"}
    assert len(result.binds) == 2
    assert codes(result, "g") == ["topology-no-domain", "topology-higher-tier"]


def test_two_gangs_get_a_rack_each() -> None:
    gangs = [gang(name, 2, cpu=8, group_spec=hard(1), created=number) for number, name in enumerate("ab")]
    result = planned(racks([2, 2]), *gangs, conf=CONF)
    assert (racks_of(result, "a"), racks_of(result, "b")) == ({"r0"}, {"r1"})


def test_pods_without_topology_fill_racks_that_are_in_use() -> None:
    used = gang("old", 1, on=["r1-n0"], cpu=4)
    result = planned(racks([2, 2]), used, gang("plain", 2, cpu=1), conf=CONF)
    assert racks_of(result, "plain") == {"r1"}


# --- groups that are placed in part -----------------------------------------------------------------------------------


def test_a_replacement_stays_in_the_rack_of_the_group() -> None:
    result = planned(
        racks([2, 3]), gang("g", 3, members=3, on=["r0-n0", "r0-n1"], cpu=3, group_spec=hard(1)), conf=CONF
    )
    assert racks_of(result, "g") == {"r0"}


def test_it_waits_if_that_rack_is_full() -> None:
    result = planned(racks([2, 3]), gang("g", 3, on=["r0-n0", "r0-n1"], cpu=8, group_spec=hard(1)), conf=CONF)
    assert result.binds == {}


def test_several_replacements_stay_in_the_rack_after_its_node_failed() -> None:
    lost = [pod(f"g-{number}", group="g", cpu=4) for number in (2, 3)]
    running = [pod(f"g-{number}", group="g", cpu=4, on="r0-n0") for number in (0, 1)]
    result = planned(racks([3, 3]), group("g", members=4, **hard(1)), running, lost, conf=CONF)
    assert racks_of(result, "g") == {"r0"} and len(result.binds) == 2


def test_pods_that_exceed_the_tier_already_are_named_as_the_reason() -> None:
    result = planned(racks([2, 2]), gang("g", 3, on=["r0-n0", "r1-n0"], cpu=1, group_spec=hard(1)), conf=CONF)
    assert result.binds == {}
    assert "placed pods of the group lie in no HyperNode of tier 1 or below" in reasons(result, "g")


@pytest.mark.parametrize("members", [1, 4])
def test_best_effort_pods_stay_in_the_rack_too(members: int) -> None:
    side = [pod(f"g-side-{number}", group="g") for number in range(3)]
    result = planned(
        racks([2, 2, 2]), group("g", members=members, **hard(1)), pod("g-main", group="g", cpu=8), side, conf=CONF
    )
    assert len(result.binds) == 4
    assert len(racks_of(result, "g")) == 1


def test_a_group_of_best_effort_pods_alone_goes_to_one_rack() -> None:
    result = planned(
        racks([2, 2]), group("g", **hard(1)), [pod(f"g-{number}", group="g") for number in range(4)], conf=CONF
    )
    assert len(result.binds) == 4
    assert len(racks_of(result, "g")) == 1


@pytest.mark.parametrize("spec", [SOFT, hard(2)])
def test_replacements_of_failed_pods_stay_close_to_the_others_if_the_limit_allows_more(spec: Manifest) -> None:
    """Rack r1 is fuller, so it would come first for a new group."""
    old = gang("old", 1, on=["r1-n0"], cpu=4)
    mine = gang("g", 4, on=["r0-n0", "r0-n0"], cpu=4, phase="Running", group_spec=spec)
    result = planned(racks([3, 3]), old, mine, conf=CONF)
    assert racks_of(result, "g") == {"r0"} and len(result.binds) == 2


def test_a_replacement_leaves_its_rack_only_if_it_is_full() -> None:
    spine = [each for each in racks([1, 1, 1, 1]) if each["metadata"]["name"] != "spine"]
    halves = [parent("left", 2, "r0", "r1"), parent("right", 2, "r2", "r3"), parent("all", 3, "left", "right")]
    old = gang("old", 1, on=["r3-n0"], cpu=4)
    mine = gang("g", 2, on=["r0-n0"], cpu=8, phase="Running", group_spec=SOFT)
    assert racks_of(planned(spine, halves, old, mine, conf=CONF), "g") == {"r1"}


# --- groups that no single HyperNode takes ----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SOFT, hard(2)])
@pytest.mark.parametrize(
    "sizes, pods, shares",
    [
        ([1, 4, 4, 1, 2], 8, {"r1": 4, "r2": 4}),
        ([1, 1, 1, 6, 6], 8, {"r3": 4, "r4": 4}),
        ([7, 4, 4, 7], 8, {"r1": 4, "r2": 4}),
        ([2, 2, 2, 2, 6], 8, {"r0": 2, "r4": 6}),
        ([1, 4, 4, 3], 7, {"r1": 4, "r2": 3}),
        ([3, 3, 3], 9, {"r0": 3, "r1": 3, "r2": 3}),
    ],
)
def test_a_gang_gets_even_shares_of_the_fewest_racks(
    spec: Manifest, sizes: list[int], pods: int, shares: dict[str, int]
) -> None:
    result = planned(racks(sizes), gang("g", pods, cpu=8, group_spec=spec), conf=CONF)
    assert Counter(map(rack_of, result.binds.values())) == shares


def test_shares_are_divided_in_trees_of_uneven_depth() -> None:
    """The block ``left`` has two racks, ``right`` has nodes only."""
    racked = [each for each in racks([2, 2, 1]) if each["metadata"]["name"] not in ("spine", "r2")]
    tree = [parent("left", 2, "r0", "r1"), hyper_node("right", 2, "r2-n0"), parent("all", 3, "left", "right")]
    result = planned(racked, tree, gang("g", 5, cpu=8, group_spec=hard(3)), conf=CONF)
    assert Counter(map(rack_of, result.binds.values())) == {"r0": 2, "r1": 2, "r2": 1}


def test_nodes_are_used_without_shares_if_the_shares_do_not_fit() -> None:
    """Pods that exclude each other from a zone fit two racks of one zone by counting only."""
    apart = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "zone"}
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    result = planned(
        racks([1, 1, 1, 1]), gang("g", 2, group_spec=SOFT, cpu=8, labels={"app": "g"}, spec=spec), conf=CONF
    )
    assert len(result.binds) == 2


def test_the_pods_of_a_share_have_consecutive_indexes() -> None:
    conf = CONF + "  - name: nodeorder\n"
    result = planned(racks([2, 2, 2]), gang("g", 6, members=6, cpu=4, group_spec=SOFT), gang("h", 8, cpu=4), conf=conf)
    by_rack: dict[str, list[int]] = {}
    for key, on in sorted(result.binds.items()):
        if key.startswith("default/g-"):
            by_rack.setdefault(rack_of(on), []).append(int(key[-1]))
    assert list(by_rack.values()) == [[0, 1, 2], [3, 4, 5]]


def test_a_leader_and_its_workers_get_one_rack() -> None:
    """Rack r0 has no node for the leader, r1 too few for the workers."""
    nodes = [each for each in racks([3, 2, 3]) if each["metadata"]["name"] != "r2-n0"]
    large = node("r2-n0", cpu=16)
    leader = pod("g-leader-0", group="g", cpu=12)
    workers = [pod(f"g-worker-{number}", group="g", cpu=8) for number in range(2)]
    result = planned(nodes, large, group("g", members=3, **hard(1)), leader, workers, conf=CONF)
    assert racks_of(result, "g") == {"r2"} and len(result.binds) == 3


# --- HyperNodes that overlap ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", [1, 2])
def test_a_gang_is_placed_in_a_hyper_node_that_shares_a_node_with_one_that_is_too_small(tier: int) -> None:
    overlapping = [hyper_node("a", 1, "n0", "n1"), hyper_node("b", tier, "n1", "n2", "n3")]
    nodes = [node(f"n{number}") for number in range(4)]
    result = planned(nodes, overlapping, gang("g", 3, cpu=8, group_spec=hard(tier)), conf=CONF)
    assert sorted(result.binds.values()) == ["n1", "n2", "n3"]


def test_a_replacement_may_use_any_hyper_node_that_holds_the_placed_pods() -> None:
    overlapping = [hyper_node("a", 1, "n0", "n1"), hyper_node("b", 1, "n1", "n2")]
    placed, new = pod("g-0", group="g", cpu=8, on="n1"), pod("g-1", group="g", cpu=8)
    other = pod("other", cpu=8, on="n0")
    nodes = [node(f"n{number}") for number in range(4)]
    result = planned(nodes, overlapping, group("g", members=2, **hard(1)), placed, new, other, conf=CONF)
    assert result.binds == {"default/g-1": "n2"}


# --- wrong trees and changes ------------------------------------------------------------------------------------------


def test_a_wrong_hyper_node_is_reported_and_stops_no_other() -> None:
    wrong = [hyper_node("loop", 1, exact("spine", "HyperNode")), parent("second", 3, "r0")]
    result = planned(racks([2, 2]), wrong, gang("g", 2, cpu=8, group_spec=hard(1)), conf=CONF)
    assert racks_of(result, "g") == {"r0"}
    assert sorted(result.problems) == ["HyperNode loop", "HyperNode second"]


def test_membership_follows_the_labels_of_nodes() -> None:
    by_label = {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "a"}}}}
    nodes = [node("n0", labels={"rack": "a"}), node("n1", labels={"rack": "b"})]
    world = World(nodes, hyper_node("h", 1, by_label), gang("g", 2, cpu=8, group_spec=hard(1)), conf=CONF)
    world.rest()
    assert world.placed() == {}
    world.put(node("n1", labels={"rack": "a"}))
    world.rest()
    assert world.placed() == {"g-0": "n0", "g-1": "n1"}


def test_a_hyper_node_that_appears_counts_in_the_next_session() -> None:
    world = World(node("n0"), gang("g", 1, cpu=1, group_spec=hard(1)), parent("p", 2), conf=CONF)
    world.rest()
    assert world.placed() == {}
    world.put(hyper_node("h", 1, "n0"))
    world.rest()
    assert world.placed() == {"g-0": "n0"}


LABELS = CONF.replace("aware\n", "aware\n    arguments:\n      labels: zone, rack\n")


def test_labels_take_the_place_of_hyper_nodes() -> None:
    places = [("a", "r1"), ("b", "r1"), ("b", "r1")]
    nodes = [node(f"n{number}", labels={"zone": zone, "rack": rack}) for number, (zone, rack) in enumerate(places)]
    result = planned(nodes, gang("g", 2, cpu=8, group_spec=hard(1)), conf=LABELS)
    assert sorted(result.binds.values()) == ["n1", "n2"]


def test_labels_do_not_count_where_a_hyper_node_exists() -> None:
    nodes = [node(f"n{number}", labels={"zone": "a", "rack": "r"}) for number in range(2)]
    result = planned(nodes, hyper_node("h", 1, "n0"), gang("g", 2, cpu=8, group_spec=hard(1)), conf=LABELS)
    assert result.binds == {}


# --- sub-groups -------------------------------------------------------------------------------------------------------


def parts(count: int, size: int, **amounts: Any) -> list[Manifest]:
    return [
        pod(f"g-{part}-{number}", group="g", labels={"part": str(part)}, **amounts)
        for part in range(count)
        for number in range(size)
    ]


def policy(size: int, least: int, topology: Manifest | None = None) -> Manifest:
    found = {"name": "p", "matchLabelKeys": ["part"], "subGroupSize": size, "minSubGroups": least}
    return found if topology is None else {**found, **topology}


def racks_by_part(result: PlanResult) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for key, on in result.binds.items():
        found.setdefault(key.split("-")[1], set()).add(rack_of(on))
    return found


def test_each_sub_group_gets_a_rack_of_its_own_limit() -> None:
    spec = {**hard(2), "subGroupPolicy": [policy(2, 3, hard(1))]}
    result = planned(racks([2, 2, 2]), group("g", members=6, **spec), parts(3, 2, cpu=8), conf=CONF)
    found = racks_by_part(result)
    assert len(result.binds) == 6
    assert all(len(racks) == 1 for racks in found.values())
    assert len(set.union(*found.values())) == 3


def test_sub_groups_of_uneven_size_get_racks_that_take_them() -> None:
    pods = [
        pod(f"g-{part}-{number}", group="g", labels={"part": part}, cpu=8)
        for part, size in (("a", 1), ("b", 3), ("c", 2))
        for number in range(size)
    ]
    policies = [
        {"name": part, "labelSelector": {"matchLabels": {"part": part}}, "subGroupSize": size, "minSubGroups": 1}
        for part, size in (("a", 1), ("b", 3), ("c", 2))
    ]
    spec: Manifest = {"subGroupPolicy": [{**policy, **hard(1)} for policy in policies]}
    result = planned(racks([1, 2, 3]), group("g", members=6, **spec), pods, conf=CONF)
    assert racks_by_part(result) == {"a": {"r0"}, "b": {"r2"}, "c": {"r1"}}


def test_sub_groups_without_limit_stay_within_that_of_the_group() -> None:
    spec = {**hard(1), "subGroupPolicy": [policy(2, 2)]}
    result = planned(racks([3, 4]), group("g", members=4, **spec), parts(2, 2, cpu=8), conf=CONF)
    assert set.union(*racks_by_part(result).values()) == {"r1"}


def test_a_group_whose_sub_groups_do_not_fit_together_gets_nothing() -> None:
    spec = {**hard(1), "subGroupPolicy": [policy(2, 2)]}
    result = planned(racks([3, 3]), group("g", members=4, **spec), parts(2, 2, cpu=8), conf=CONF)
    assert result.binds == {}


# --- sessions without topology ----------------------------------------------------------------------------------------


def test_without_hyper_nodes_the_plugin_changes_nothing() -> None:
    nodes = [node(f"n{number}", cpu=4 + number) for number in range(4)]
    gangs = [gang(name, 3, cpu=1, created=number) for number, name in enumerate("abc")]
    placed = planned(nodes, *gangs, conf=CONF).binds
    gangs = [gang(name, 3, cpu=1, created=number) for number, name in enumerate("abc")]
    assert placed == planned(nodes, *gangs, conf=WITHOUT_PLUGIN).binds != {}


def test_the_same_cluster_gives_the_same_plan() -> None:
    objects = [
        *racks([2, 3, 3]),
        *gang("g", 5, members=2, cpu=4, group_spec=hard(2)),
        *gang("h", 2, cpu=8, group_spec=SOFT),
    ]
    assert planned(objects, conf=CONF).binds == planned(objects[::-1], conf=CONF).binds != {}


def test_a_tier_above_all_hyper_nodes_allows_the_whole_cluster() -> None:
    outside = [node(f"out-{number}") for number in range(2)]
    assert len(planned(racks([1]), outside, gang("g", 3, cpu=8, group_spec=hard(3)), conf=CONF).binds) == 3


@pytest.mark.parametrize("tier", [1, 9])
def test_a_hard_group_waits_where_there_are_no_hyper_nodes(tier: int) -> None:
    """Volcano places it anywhere."""
    assert planned(node("n"), gang("g", 1, cpu=1, group_spec=hard(tier)), conf=CONF).binds == {}


@pytest.mark.parametrize("flag", ["enablePredicate", "enabledHyperNodeGradient", "enabledHyperNodeOrder"])
def test_no_flag_turns_hard_limits_off(flag: str) -> None:
    conf = CONF.replace("aware\n", f"aware\n    {flag}: false\n")
    assert planned(racks([2, 2]), gang("g", 3, cpu=8, group_spec=hard(1)), conf=conf).binds == {}
    assert len(planned(racks([2, 3]), gang("g", 2, cpu=8, group_spec=hard(1)), conf=conf).binds) == 2


def test_a_limit_that_cannot_be_read_holds_even_without_the_plugins_predicates() -> None:
    conf = CONF.replace("aware\n", "aware\n    enablePredicate: false\n")
    spec = {"networkTopology": {"mode": "hard"}}
    assert planned(racks([2]), gang("g", 1, cpu=1, group_spec=spec), conf=conf).binds == {}


def test_the_tier_that_would_do_is_named() -> None:
    result = planned(racks([1, 3, 2]), gang("g", 4, cpu=8, group_spec=hard(1)), conf=CONF)
    assert "with highestTierAllowed 2, spine would have enough free resources" in reasons(result, "g")
    full = planned(racks([1, 2]), gang("g", 4, cpu=8, group_spec=hard(1)), conf=CONF)
    assert "topology-higher-tier" not in codes(full, "g")


@pytest.mark.parametrize("fading", [0, 0.5, 2, -1])
def test_any_fading_rates_nodes_for_pods_without_topology(fading: float) -> None:
    conf = CONF.replace("aware\n", f"aware\n    arguments:\n      hypernode.binpack.normal-pod.fading: {fading}\n")
    nodes = [node(f"n{number}") for number in range(2)]
    used = gang("old", 1, on=["n1"], cpu=4)
    result = planned(
        nodes, hyper_node("wide", 2, "n0"), hyper_node("high", 2, "n1"), used, gang("g", 1, cpu=1), conf=conf
    )
    assert result.binds == {"default/g-0": "n0" if not fading else "n1"}
