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


NODE = node("n", cpu=10)
GATE = "scheduling.volcano.sh/queue-allocation-gate"


def runs(cpu: int, size: int = 1, **options: Any) -> list[Any]:
    return list(gang("old", size, **{"on": ["n"], "phase": "Running", **options}, cpu=cpu))


def gated(gate: str, **options: Any) -> list[Any]:
    spec = {"schedulingGates": [{"name": gate}]}
    return list(gang("old", 2, cpu=3, minimum={"cpu": 6}, spec=spec, **options))


@pytest.mark.parametrize(
    ("there", "value", "most", "more"),
    [
        ([NODE], None, {"cpu": 12}, {"cpu": "12001m"}),
        *(([NODE], value, {"cpu": most}, {"cpu": most + 1})
          for value, most in ((1, 10), (1.5, 15), (2, 20), (0.5, 12), (0.99, 12))),
        # 10 x 1.5 - 8: usage is not multiplied
        ([NODE, *runs(8)], 1.5, {"cpu": 7}, {"cpu": 8}),
        # terminating pods use resources until they are gone
        ([NODE, *runs(8, phase="Inqueue", deleting=True)], None, {"cpu": 4}, {"cpu": 5}),
        ([NODE, group("old", members=4, minimum={"cpu": 9})], None, {"cpu": 3}, {"cpu": 4}),
        # 10 x 1.2 - 2 used - (6 - 2) missing
        ([NODE, *runs(2, 3, members=1, minimum={"cpu": 6})], None, {"cpu": 6}, {"cpu": 7}),
        # below its minimum of tasks: what it misses does not count
        ([NODE, *runs(2, 3, members=2, minimum={"cpu": 6})], None, {"cpu": 10}, {"cpu": 11}),
        ([NODE, *gated("example.com/wait")], None, {"cpu": 12}, {"cpu": 13}),
        # the queue's own gate counts if it will be lifted
        ([NODE, *gated(GATE, annotations={GATE: "true"})], None, {"cpu": 6}, {"cpu": 12}),
        ([NODE, *gated(GATE, annotations={GATE: "false"})], None, {"cpu": 12}, {"cpu": 13}),
        # only what the group asks for is compared
        ([node("n", cpu=10, memory=32), *runs(1, memory=40)], None, {"cpu": 1}, {"cpu": 1, "memory": 1}),
        ([node("n", gpu=5)], None, {"gpu": 6}, {"gpu": 7}),
        ([node("n", pods=1)], None, {"cpu": 1, "pods": 50}, {"cpu": 10}),
    ],
)  # fmt: skip
def test_a_group_is_admitted_within_total_times_factor_minus_used(
    there: list[Any], value: float | None, most: dict[str, Any], more: dict[str, Any]
) -> None:
    configuration = CONF if value is None else factor(value)
    assert "g" in admitted(*there, asks("g", **most), configuration=configuration)
    assert "g" not in admitted(*there, asks("g", **more), configuration=configuration)


def test_groups_admitted_in_the_same_cycle_count() -> None:
    assert admitted(node("n", cpu=10), asks("a", cpu=7), asks("b", cpu=6), asks("c", cpu=5)) == {"a", "c"}


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
