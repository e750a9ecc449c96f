"""Recorded clusters in which Volcano harms its users, by family: what is right instead (docs/differences.md)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dsl import Manifest
from tests.parity.cases import NOW, Case, recorded
from tests.topology.reference import domains_of, group_of, key_of, nodes_by_group, tier_around
from vcd import plan
from vcd.api import PlanResult
from vcd.model.quantity import parse_milli

_DATA = Path(__file__).parents[1] / "data" / "topology" / "wrong.json.gz"
CASES = [recorded(raw["family"], raw) for raw in json.loads(gzip.decompress(_DATA.read_bytes()))]


def tier_of(case: Case, result: PlanResult, name: str) -> int | None:
    """The tier of the lowest HyperNode that holds all pods of a group."""
    placed = nodes_by_group(case.objects, {**result.binds, **result.pipelined})
    return tier_around(domains_of(case.objects), placed[f"default/{name}"])


def placed(case: Case, result: PlanResult) -> dict[str, int]:
    """The number of pods placed for each group, now or after evictions."""
    groups = {key_of(each): group_of(each).removeprefix("default/") for each in case.objects if each["kind"] == "Pod"}
    return dict(Counter(groups[key] for key in (*result.binds, *result.pipelined)))


def codes(result: PlanResult, name: str) -> set[str]:
    return {why["code"] for why in result.why.get(f"default/{name}", ())}


def no_pod_is_taken_from_a_queue_below_what_it_deserves(case: Case, result: PlanResult) -> None:
    assert result.evictions == []


def best_effort_pods_stay_with_their_group(case: Case, result: PlanResult) -> None:
    assert placed(case, result) == {"j0": sum(group_of(each) == "default/j0" for each in pods(case))}
    assert tier_of(case, result, "j0") == 1


def a_gang_is_evicted_whole_or_not_at_all(case: Case, result: PlanResult) -> None:
    assert result.evictions == [f"default/run-{number}" for number in range(4)]
    assert placed(case, result) == {"new": 2}


def an_elastic_group_starts_with_what_one_rack_takes(case: Case, result: PlanResult) -> None:
    assert placed(case, result) == {"hand": {"j": 2}, "004": {"j0": 4, "j1": 6}}[case.name.rpartition("-")[2]]
    assert all(tier_of(case, result, name) == 1 for name in placed(case, result))


def a_policy_without_keys_selects_one_sub_group(case: Case, result: PlanResult) -> None:
    assert placed(case, result) == {"j": 2}
    assert tier_of(case, result, "j") == 1


def without_the_plugin_the_group_waits_with_that_reason(case: Case, result: PlanResult) -> None:
    assert result.binds == {}
    assert "field-unsupported" in codes(result, "j0")


def a_limit_without_a_tier_makes_the_group_wait_with_that_reason(case: Case, result: PlanResult) -> None:
    assert result.binds == {}
    assert "topology-without-tier" in codes(result, "j0")


def pods_that_exceed_the_limit_already_are_the_reason(case: Case, result: PlanResult) -> None:
    assert result.binds == {}
    assert "topology-already-spread" in codes(result, "j")


def no_victim_could_stay(case: Case, result: PlanResult) -> None:
    """Every victim's node would be over its cpu if that victim stayed, or its gang has such a victim and ends whole."""
    assert result.evictions and result.pipelined
    used: Counter[str] = Counter()
    cpu = {key_of(pod): parse_milli(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in pods(case)}
    on = {key_of(pod): pod["spec"].get("nodeName") for pod in pods(case)}
    for key, node in {**on, **result.pipelined}.items():
        used[node or ""] += cpu[key] * (key not in result.evictions)
    total = {
        each["metadata"]["name"]: parse_milli(each["status"]["allocatable"]["cpu"])
        for each in case.objects
        if each["kind"] == "Node"
    }
    groups = {key_of(pod): group_of(pod) for pod in pods(case)}
    needed = {key for key in result.evictions if used[on[key]] + cpu[key] > total[on[key]]}
    whole = {groups[key] for key in needed} - {groups[key] for key in on.keys() - {*result.evictions}}
    assert [key for key in result.evictions if key not in needed and groups[key] not in whole] == []


def a_rack_with_two_zones_is_one_rack_of_the_first_zone(case: Case, result: PlanResult) -> None:
    assert placed(case, result) == {"j": 1}
    assert list(result.problems) == ["HyperNode hypernode-x-tier2-ccccc"]


def a_tree_of_uneven_depth_holds_the_group(case: Case, result: PlanResult) -> None:
    assert placed(case, result) == {"j": 3}
    assert set(result.binds.values()) == {"n2", "n3"}


def nothing_is_evicted_if_no_rack_could_hold_the_group_then(case: Case, result: PlanResult) -> None:
    assert (result.evictions, result.pipelined) == ([], {})


def other_groups_are_unaffected_by_the_second_parent(case: Case, result: PlanResult) -> None:
    assert placed(case, result) == {"ok": 2, "soft": 2}
    assert tier_of(case, result, "ok") == 1
    assert list(result.problems) == ["HyperNode t2b"]


def an_unknown_tier_name_makes_the_group_wait_with_the_known_names(case: Case, result: PlanResult) -> None:
    assert result.binds == {}
    (reason,) = (why["reason"] for why in result.why["default/j0"] if why["code"] == "topology-tier-unknown")
    assert reason.endswith("(existing: leaf, spine)")


def victims_are_in_the_lowest_tier_that_works(case: Case, result: PlanResult) -> None:
    assert (placed(case, result), len(result.evictions)) == ({"new": 2}, 2)
    assert tier_of(case, result, "new") == 1


def a_wrong_hyper_node_is_reported_and_all_groups_are_placed(case: Case, result: PlanResult) -> None:
    wanted = Counter(group_of(each).removeprefix("default/") for each in pods(case))
    assert placed(case, result) == wanted
    limits = {each["metadata"]["name"]: each["spec"].get("networkTopology") for each in case.objects}
    assert (tier_of(case, result, "j0") or 9) <= limits["j0"]["highestTierAllowed"]
    assert len(result.problems) == 1


RIGHT: dict[str, Callable[[Case, PlanResult], None]] = {
    "below_deserved": no_pod_is_taken_from_a_queue_below_what_it_deserves,
    "best_effort": best_effort_pods_stay_with_their_group,
    "broken_gang": a_gang_is_evicted_whole_or_not_at_all,
    "elastic": an_elastic_group_starts_with_what_one_rack_takes,
    "no_keys": a_policy_without_keys_selects_one_sub_group,
    "no_plugin": without_the_plugin_the_group_waits_with_that_reason,
    "no_tier": a_limit_without_a_tier_makes_the_group_wait_with_that_reason,
    "outside_tier": pods_that_exceed_the_limit_already_are_the_reason,
    "overevict": no_victim_could_stay,
    "rack_name": a_rack_with_two_zones_is_one_rack_of_the_first_zone,
    "ragged": a_tree_of_uneven_depth_holds_the_group,
    "reclaim": nothing_is_evicted_if_no_rack_could_hold_the_group_then,
    "two_parents": other_groups_are_unaffected_by_the_second_parent,
    "unknown_name": an_unknown_tier_name_makes_the_group_wait_with_the_known_names,
    "widest": victims_are_in_the_lowest_tier_that_works,
    "wrong_tree": a_wrong_hyper_node_is_reported_and_all_groups_are_placed,
}


def pods(case: Case) -> list[Manifest]:
    return [each for each in case.objects if each["kind"] == "Pod"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vcd_does_what_is_right(case: Case) -> None:
    RIGHT[case.family](case, plan(case.objects, case.conf, NOW, case.seed))


def test_all_recorded_cases_are_there() -> None:
    assert len(CASES) == 37
    assert {case.family for case in CASES} == RIGHT.keys()
