"""overcommit: total x factor - used, against what is admitted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, group, node, planned, pod, queue
from tests.plugins.opened import conf

CONF = conf("overcommit", actions="enqueue")


def factor(value: object) -> str:
    return conf("overcommit", arguments={"overcommit-factor": value}, actions="enqueue")


def admitted(*objects: object, configuration: str = CONF) -> set[str]:
    phases = planned(*objects, conf=configuration).phases  # type: ignore[arg-type]
    return {key.partition("/")[2] for key, phase in phases.items() if phase == "Inqueue"}


def asks(name: str, queue: str = "default", **minimum: object) -> dict:
    return group(name, members=100, queue=queue, phase="Pending", minimum=minimum)


def test_the_default_factor_admits_a_fifth_more_than_there_is() -> None:
    assert admitted(node("n", cpu=10), asks("g", cpu=12)) == {"g"}
    assert admitted(node("n", cpu=10), asks("g", cpu="12001m")) == set()


@pytest.mark.parametrize(("value", "most"), [(1, 10), (1.5, 15), (2, 20), (0.5, 12), (0.99, 12)])
def test_the_factor_is_the_arguments_and_the_default_below_one(value: float, most: int) -> None:
    assert admitted(node("n", cpu=10), asks("g", cpu=most), configuration=factor(value)) == {"g"}
    assert admitted(node("n", cpu=10), asks("g", cpu=most + 1), configuration=factor(value)) == set()


def test_what_is_used_is_not_multiplied() -> None:
    """10 x 1.5 - 8 = 7."""
    full = list(gang("old", 1, on=["n"], cpu=8, phase="Running"))
    assert admitted(node("n", cpu=10), full, asks("g", cpu=7), configuration=factor(1.5)) == {"g"}
    assert admitted(node("n", cpu=10), full, asks("g", cpu=8), configuration=factor(1.5)) == set()


def test_pods_that_are_going_away_still_use_room() -> None:
    leaving = list(gang("old", 1, on=["n"], cpu=8, deleting=True))
    assert admitted(node("n", cpu=10), leaving, asks("g", cpu=5)) == set()


def test_groups_admitted_in_the_same_cycle_count() -> None:
    assert admitted(node("n", cpu=10), asks("a", cpu=7), asks("b", cpu=6), asks("c", cpu=5)) == {"a", "c"}


def test_groups_admitted_before_count_with_their_whole_minimum() -> None:
    before = group("before", members=4, minimum={"cpu": 9})
    assert admitted(node("n", cpu=10), before, asks("g", cpu=4)) == {"before"}
    assert admitted(node("n", cpu=10), before, asks("g", cpu=3)) == {"before", "g"}


def test_a_running_group_counts_with_what_it_still_misses() -> None:
    """10 x 1.2 - 2 used - (6 - 2) missing leaves 6."""
    part = list(gang("part", 3, members=1, on=["n"], cpu=2, phase="Running", minimum={"cpu": 6}))
    assert admitted(node("n", cpu=10), part, asks("g", cpu=6)) == {"g"}
    assert admitted(node("n", cpu=10), part, asks("g", cpu=7)) == set()


def test_a_running_group_below_its_minimum_of_tasks_does_not_count() -> None:
    part = list(gang("part", 3, members=2, on=["n"], cpu=2, phase="Running", minimum={"cpu": 6}))
    assert admitted(node("n", cpu=10), part, asks("g", cpu=10)) == {"g"}


def test_what_foreign_gates_hold_does_not_count() -> None:
    gated = list(gang("gated", 2, cpu=3, minimum={"cpu": 6}, spec={"schedulingGates": [{"name": "example.com/wait"}]}))
    assert admitted(node("n", cpu=10), gated, asks("g", cpu=12)) == {"gated", "g"}


@pytest.mark.parametrize("opted, found", [("true", {"gated"}), ("false", {"gated", "g"})])
def test_the_queues_own_gate_counts_where_it_will_be_lifted(opted: str, found: set[str]) -> None:
    gate = "scheduling.volcano.sh/queue-allocation-gate"
    held: dict[str, Any] = {"annotations": {gate: opted}, "spec": {"schedulingGates": [{"name": gate}]}}
    gated = list(gang("gated", 2, cpu=3, minimum={"cpu": 6}, **held))
    assert admitted(node("n", cpu=10), gated, asks("g", cpu=12)) == found


def test_only_what_the_group_asks_for_is_compared() -> None:
    full = list(gang("old", 1, on=["n"], cpu=1, memory=40, phase="Running"))
    assert admitted(node("n", cpu=10, memory=32), full, asks("g", cpu=1)) == {"g"}
    assert admitted(node("n", cpu=10, memory=32), full, asks("g", cpu=1, memory=1)) == set()


def test_scalars_are_compared() -> None:
    assert admitted(node("n", gpu=5), asks("g", gpu=6)) == {"g"}
    assert admitted(node("n", gpu=5), asks("g", gpu=7)) == set()


def test_the_number_of_pods_is_not_compared() -> None:
    assert admitted(node("n", pods=1), asks("g", cpu=1, pods=50)) == {"g"}


def test_a_group_without_minimum_passes() -> None:
    full = list(gang("old", 1, on=["n"], cpu=10, phase="Running"))
    assert admitted(node("n", cpu=8), full, group("g", phase="Pending")) == {"g"}


def test_the_gate_off_admits_all() -> None:
    off = CONF + "    enableJobEnqueued: false\n"
    assert admitted(node("n", cpu=10), asks("g", cpu=900), configuration=off) == {"g"}


def test_the_refusal_names_all_quantities() -> None:
    old = list(gang("old", 1, on=["n"], cpu=2, phase="Running"))
    result = planned(
        node("n", cpu=10),
        old,
        pod("p", group="h"),
        group("h", members=9, minimum={"cpu": 4}),
        asks("g", cpu=7),
        conf=CONF,
    )
    why = result.why["default/g"][0]
    assert (why["gate"], why["plugin"], why["reason"]) == ("enqueue", "overcommit", "resource in cluster is overused")
    assert why["detail"] == {"asks cpu": "7", "admitted cpu": "4", "limit cpu": "10"}


# --- guarantees (Volcano #4817) ---------------------------------------------------------------------------------------


def borrowed(guarantee: int) -> list[Any]:
    """10 CPU, all with queue b; queue a is guaranteed some."""
    return [
        node("n", cpu=10),
        queue("a", guarantee={"resource": {"cpu": str(guarantee)}}),
        queue("b"),
        *gang("old", 10, members=1, on=["n"] * 10, queue="b", cpu=1, phase="Running"),
    ]


def test_what_a_queue_is_guaranteed_is_admitted_though_others_have_it() -> None:
    assert admitted(*borrowed(5), asks("g", cpu=5, queue="a")) == {"g"}
    assert admitted(*borrowed(4), asks("g", cpu=5, queue="a")) == set()
    assert admitted(*borrowed(5), asks("g", cpu=5, queue="b")) == set()


def test_a_guarantee_admits_once() -> None:
    assert admitted(*borrowed(5), asks("f", cpu=3, queue="a"), asks("g", cpu=3, queue="a")) == {"f"}


def test_what_a_queue_has_counts_towards_its_guarantee() -> None:
    mine = list(gang("mine", 2, on=["n"] * 2, queue="a", cpu=1, phase="Running"))
    assert admitted(*borrowed(5), mine, asks("g", cpu=4, queue="a")) == set()
    assert admitted(*borrowed(5), mine, asks("g", cpu=3, queue="a")) == {"g"}
