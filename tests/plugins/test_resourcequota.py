"""resourcequota: used + admitted in this cycle + minResources against hard, per namespace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, group, node, planned, pod
from tests.plugins.opened import conf
from tests.sizes import examples
from tests.world import World
from vcd.scheduling.framework.registry import plugins

Manifest = dict[str, Any]

CONF = conf("resourcequota", actions="enqueue")
NODE = node("n", cpu=1000, memory="1Pi", gpu=1000)


def quota(
    name: str = "quota",
    *,
    namespace: str = "default",
    hard: dict[str, Any],
    used: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": hard, **(spec or {})},
        "status": {"hard": hard, "used": used or {}},
    }


def asks(name: str, *, namespace: str = "default", created: int = 0, **minimum: Any) -> Manifest:
    made = group(name, members=100, phase="Pending", namespace=namespace, created=created)
    made["spec"]["minResources"] = {key.replace("_", "."): value for key, value in minimum.items()}
    return made


def admitted(*objects: Any, configuration: str = CONF) -> set[str]:
    phases = planned(NODE, *objects, conf=configuration).phases
    return {key for key, phase in phases.items() if phase == "Inqueue"}


def test_a_group_is_admitted_up_to_the_limit() -> None:
    limit = quota(hard={"cpu": "8"}, used={"cpu": "2"})
    assert admitted(limit, asks("g", cpu="6")) == {"default/g"}
    assert admitted(limit, asks("g", cpu="6001m")) == set()


def test_the_example_of_the_specification() -> None:
    """Hard 8, used 2: the first group of 4 is admitted, the second would make it 2 + 4 + 4 = 10."""
    limit = quota(hard={"cpu": "8"}, used={"cpu": "2"})
    assert admitted(limit, asks("first", cpu="4"), asks("second", cpu="4", created=1)) == {"default/first"}


def test_a_smaller_group_still_fits_after_one_that_does_not() -> None:
    limit = quota(hard={"cpu": "8"}, used={"cpu": "2"})
    groups = [asks("a", cpu="4"), asks("b", cpu="4", created=1), asks("c", cpu="2", created=2)]
    assert admitted(limit, *groups) == {"default/a", "default/c"}


def test_what_a_cycle_admitted_is_not_counted_in_the_next() -> None:
    """By then the quota's own figures show the pods."""
    world = World(NODE, quota(hard={"cpu": "4"}), asks("a", cpu="4"), conf=CONF)
    world.cycle()
    world.put(asks("b", cpu="4"))
    world.cycle()
    assert {key for key, record in world.state.groups.items() if record.phase.text == "Inqueue"} == {
        "default/a",
        "default/b",
    }


def test_names_are_compared_as_they_are_written() -> None:
    limit = quota(hard={"requests.cpu": "4"})
    assert admitted(limit, asks("g", cpu="5")) == {"default/g"}
    assert admitted(limit, asks("g", requests_cpu="5")) == set()


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "requests.memory", "limits.cpu", "pods", "count/pods", "requests.nvidia.com/gpu"]
)
def test_every_name_can_be_limited(name: str) -> None:
    limit = quota(hard={name: "4"})
    assert admitted(limit, asks("g", **{name: "4"})) == {"default/g"}
    assert admitted(limit, asks("g", **{name: "5"})) == set()


def test_what_the_quota_does_not_limit_is_free() -> None:
    assert admitted(quota(hard={"memory": "1Gi"}), asks("g", cpu="900")) == {"default/g"}


def test_a_quota_that_is_exceeded_in_something_else_does_not_matter() -> None:
    limit = quota(hard={"cpu": "1", "memory": "1Gi"}, used={"cpu": "5"})
    assert admitted(limit, asks("g", memory="1Gi")) == {"default/g"}


def test_a_resource_asked_for_with_zero_is_compared_too() -> None:
    assert admitted(quota(hard={"cpu": "1"}, used={"cpu": "5"}), asks("g", cpu="0")) == set()


def test_every_quota_of_the_namespace_must_have_room() -> None:
    quotas = [quota("wide", hard={"cpu": "9"}), quota("tight", hard={"cpu": "2"}), quota("other", hard={"memory": "1"})]
    assert admitted(*quotas, asks("g", cpu="2")) == {"default/g"}
    assert admitted(*quotas, asks("g", cpu="3")) == set()


def test_quotas_bind_their_own_namespace_only() -> None:
    limit = quota(namespace="team-a", hard={"cpu": "4"})
    groups = [asks(name, namespace=name, cpu="4") for name in ("team-a", "team-b")]
    more = [asks("more", namespace=name, created=1, cpu="4") for name in ("team-a", "team-b")]
    assert admitted(limit, *groups, *more) == {"team-a/team-a", "team-b/team-b", "team-b/more"}


def test_a_group_without_minimum_is_admitted() -> None:
    full = quota(hard={"cpu": "1"}, used={"cpu": "1"})
    assert admitted(full, group("g", phase="Pending")) == {"default/g"}


def test_a_group_that_another_plugin_rejects_is_not_counted() -> None:
    """overcommit has room for 1200 cpu, so that the first group takes nothing of the quota's 1300."""
    limit = quota(hard={"cpu": "1300"})
    groups = [asks("large", cpu="1250"), asks("small", cpu="200", created=1)]
    both = conf("overcommit", "resourcequota", actions="enqueue")
    assert admitted(limit, *groups, configuration=both) == {"default/small"}
    assert admitted(limit, *groups) == {"default/large"}


def test_scopes_are_not_looked_at() -> None:
    limit = quota(hard={"cpu": "1"}, spec={"scopes": ["BestEffort"]})
    assert admitted(limit, asks("g", cpu="2")) == set()


# --- pods that the quota counts already -------------------------------------------------------------------------------

BY_CLASS = {
    "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
}
CLASSLESS = {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}


def with_pods(
    name: str, count: int, *, phase: str = "", spec: Manifest | None = None, **amounts: Any
) -> list[Manifest]:
    return [pod(f"{name}-{i}", group=name, phase=phase, spec=spec, **amounts) for i in range(count)]


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "requests.memory", "pods", "count/pods", "ephemeral-storage", "requests.nvidia.com/gpu"]
)
def test_a_reason_has_amounts_in_the_units_of_the_quota(name: str) -> None:
    limit = quota(hard={name: "1"}, used={name: "1"})
    (why,) = planned(node("n"), limit, asks("g", **{name: "2"}), conf=CONF).why["default/g"]
    found = {role: why["detail"][f"{role} {name}"] for role in ("asks", "used", "limit")}
    assert found == {"asks": "2", "used": "1", "limit": "1"}


@pytest.mark.parametrize("name", ["cpu", "requests.cpu", "limits.cpu", "pods", "count/pods", "requests.nvidia.com/gpu"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_groups_own_pods_are_not_asked_for_again(name: str, size: int) -> None:
    resources = {kind: {"cpu": "1", "nvidia.com/gpu": "1"} for kind in ("requests", "limits")}
    pods = with_pods("g", size, spec={"containers": [{"name": "c", "image": "image", "resources": resources}]})
    limit = quota(hard={name: str(2 * size - 1)}, used={name: str(size)})
    wanted = asks("g", **{name: str(size)})
    assert admitted(limit, wanted) == set()
    assert admitted(limit, wanted, pods) == {"default/g"}


@pytest.mark.parametrize(
    ("hard", "used", "made", "expected"),
    [
        (4, 2, 2, True),  # two of four pods exist, two more fit
        (3, 2, 2, False),
        (7, 5, 2, True),  # three of other groups
        (6, 5, 2, False),
        (5, 5, 6, True),  # more pods than the minimum ask for nothing more
        (4, 1, 2, True),  # used lags behind by one pod
        (3, 0, 2, False),  # used knows of no pod yet
        (4, 5, 4, False),  # lowered below what is used
    ],
)
def test_what_a_group_with_part_of_its_pods_still_asks_for(hard: int, used: int, made: int, expected: bool) -> None:
    limit = quota(hard={"cpu": str(hard)}, used={"cpu": str(used)})
    assert bool(admitted(limit, asks("g", cpu="4"), with_pods("g", made, cpu="1"))) is expected


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_are_not_in_used(phase: str) -> None:
    limit = quota(hard={"cpu": "4"}, used={"cpu": "2"})
    assert admitted(limit, asks("g", cpu="3"), with_pods("g", 2, phase=phase, cpu="1")) == set()


@pytest.mark.parametrize(
    ("scopes", "inside", "outside"),
    [
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, {}),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, {}, {"activeDeadlineSeconds": 60}),
        (BY_CLASS, {"priorityClassName": "high"}, {"priorityClassName": "low"}),
        (CLASSLESS, {}, {"priorityClassName": "high"}),
        ({"scopes": ["NotTerminating"], **BY_CLASS}, {"priorityClassName": "high"}, {}),
    ],
)
def test_pods_outside_a_quotas_scopes_are_not_in_used(scopes: Manifest, inside: Manifest, outside: Manifest) -> None:
    limit = quota(hard={"cpu": "5"}, used={"cpu": "3"}, spec=scopes)
    assert admitted(limit, asks("g", cpu="3"), with_pods("g", 3, cpu="1", spec=inside)) == {"default/g"}
    assert admitted(limit, asks("g", cpu="3"), with_pods("g", 3, cpu="1", spec=outside)) == set()


def test_best_effort_pods_count_in_quotas_of_pods() -> None:
    limit = quota(hard={"pods": "3"}, used={"pods": "2"}, spec={"scopes": ["BestEffort"]})
    assert admitted(limit, asks("g", pods="2"), with_pods("g", 2)) == {"default/g"}
    assert admitted(limit, asks("g", pods="2"), with_pods("g", 2, cpu="1")) == set()


def test_groups_of_a_namespace_take_what_they_still_ask_for_in_turn() -> None:
    """Hard 8, used 4: the first group has its pods, the second asks for 2 of 4 more, and the third for 3."""
    limit = quota(hard={"cpu": "8"}, used={"cpu": "4"})
    groups = [asks(name, created=i, cpu=cpu) for i, (name, cpu) in enumerate([("a", "2"), ("b", "4"), ("c", "3")])]
    pods = [with_pods("a", 2, cpu="1"), with_pods("b", 2, cpu="1")]
    assert admitted(limit, *groups, *pods) == {"default/a", "default/b"}


def test_limits_count_from_the_quotas_status() -> None:
    """A quota that its controller did not look at yet limits nothing."""
    fresh = quota(hard={"cpu": "1"}) | {"status": {}}
    fresh["metadata"]["resourceVersion"] = "1"
    assert admitted(fresh, asks("g", cpu="2")) == {"default/g"}


def test_bytes_beyond_thousandths_of_int64_are_compared() -> None:
    limit = quota(hard={"requests.memory": "2Ei"}, used={"requests.memory": "1Ei"})
    assert admitted(limit, asks("g", requests_memory="1Ei")) == {"default/g"}
    assert admitted(limit, asks("g", requests_memory="1153000P")) == set()


def test_fractions_of_bytes_count_as_thousandths() -> None:
    limit = quota(hard={"cpu": "1", "memory": "1"})
    assert admitted(limit, asks("g", cpu="1000m", memory="1000m")) == {"default/g"}


def test_the_gate_off_admits_all() -> None:
    off = CONF + "    enableJobEnqueued: false\n"
    assert admitted(quota(hard={"cpu": "1"}), asks("g", cpu="2"), configuration=off) == {"default/g"}


def test_the_refusal_names_the_quota_and_all_quantities() -> None:
    limit = quota("team-quota", hard={"cpu": "8", "memory": "4Gi", "pods": "9"}, used={"cpu": "2", "memory": "1Gi"})
    groups = [asks("a", cpu="4", memory="2Gi"), asks("b", cpu="4", memory="2Gi", pods="1", created=1)]
    why = planned(NODE, limit, *groups, conf=CONF).why["default/b"][0]
    assert (why["gate"], why["plugin"], why["reason"]) == ("enqueue", "resourcequota", "resource quota insufficient")
    assert why["detail"] == {
        "quota": "default/team-quota",
        "asks cpu": "4",
        "used cpu": "2",
        "admitted cpu": "4",
        "limit cpu": "8",
        "asks memory": "2Gi",
        "used memory": "1Gi",
        "admitted memory": "2Gi",
        "limit memory": "4Gi",
    }


@pytest.mark.parametrize(
    ("limit", "wanted", "words"),
    [
        (quota(hard={"cpu": "lots"}), {"cpu": "1"}, "status.hard.cpu of the quota"),
        (quota(hard={"cpu": "-1"}), {"cpu": "1"}, "status.hard.cpu of the quota"),
        (quota(hard={"cpu": "1"}, used={"cpu": ""}), {"cpu": "1"}, "status.used.cpu of the quota"),
        (quota(hard={"requests.cpu": "1"}), {"requests_cpu": "-1"}, "minResources.requests.cpu of the group"),
    ],
)
def test_what_cannot_be_read_keeps_groups_waiting_that_ask_for_it(
    limit: Manifest, wanted: Manifest, words: str
) -> None:
    result = planned(NODE, limit, asks("g", **wanted), asks("free", memory="1Gi"), conf=CONF)
    assert {key for key, phase in result.phases.items() if phase == "Inqueue"} == {"default/free"}
    why = result.why["default/g"][0]
    assert (why["plugin"], why["reason"]) == ("resourcequota", "resource quota cannot be compared")
    assert why["detail"]["quota"] == "default/quota"
    assert words in why["detail"]["error"]


def test_a_name_that_no_quota_limits_need_not_be_readable() -> None:
    limit = quota(hard={"cpu": "4"})
    groups = [asks("a", cpu="3", requests_cpu="what"), asks("b", cpu="2", created=1)]
    assert admitted(limit, *groups) == {"default/a"}


def test_without_quotas_nothing_is_kept_out() -> None:
    assert admitted(asks("g", cpu="900")) == {"default/g"}


def test_admitted_groups_are_placed() -> None:
    both = conf("gang", "resourcequota", actions="enqueue, allocate")
    jobs = [gang(name, 1, phase="Pending", cpu=2, minimum={"cpu": 2}, created=i) for i, name in enumerate("ab")]
    result = planned(node("n"), quota(hard={"cpu": "3"}), *jobs, conf=both)
    assert result.binds == {"default/a-0": "n"}


def test_it_watches_resource_quotas() -> None:
    assert plugins()["resourcequota"].kinds == ("ResourceQuota",)


NAMES = ("cpu", "requests.cpu", "memory")
figures = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, st.integers(0, 6)))


@settings(max_examples=examples(80), deadline=None)
@given(
    quotas=st.lists(st.tuples(st.sampled_from(["x", "y"]), figures, figures), max_size=3),
    groups=st.lists(st.tuples(st.sampled_from(["x", "y"]), st.none() | figures), max_size=5),
)
def test_the_admitted_groups_are_those_of_the_rule(
    quotas: list[tuple[str, dict[str, int], dict[str, int]]], groups: list[tuple[str, dict[str, int] | None]]
) -> None:
    objects = [quota(f"q{i}", namespace=space, hard=hard, used=used) for i, (space, hard, used) in enumerate(quotas)]
    for i, (space, minimum) in enumerate(groups):
        made = asks(f"g{i}", namespace=space, created=i)
        made["spec"]["minResources"] = minimum
        objects.append(made)
    expected, taken = set(), {("x", name): 0 for name in NAMES} | {("y", name): 0 for name in NAMES}
    for i, (space, minimum) in enumerate(groups):
        fits = all(
            used.get(name, 0) + taken[space, name] + (minimum or {})[name] <= hard[name]
            for where, hard, used in quotas
            if where == space
            for name in hard
            if name in (minimum or {})
        )
        if fits:
            expected.add(f"{space}/g{i}")
            for name, amount in (minimum or {}).items():
                taken[space, name] += amount
    assert admitted(*objects) == expected
