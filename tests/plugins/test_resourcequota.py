"""resourcequota: used + admitted in this cycle + minResources against hard, per namespace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, group, node, planned
from tests.plugins.opened import conf
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


def test_limits_count_from_the_quotas_status() -> None:
    """A quota that its controller did not look at yet limits nothing."""
    fresh = quota(hard={"cpu": "1"}) | {"status": {}}
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


@settings(max_examples=80, deadline=None)
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
