"""proportion: deserved shares by weight, and the gates that follow from them; with test_queue_gates."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, planned, pod, queue, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, queue_of, task_of, tasks_of
from tests.plugins.test_queue_gates import cpus, gauge, wants
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

CONF = conf("proportion")
ALLOCATE = conf("proportion", actions="allocate")
GI = 1 << 30


def plugin(session: Session) -> ProportionPlugin:
    return plugin_of(session, ProportionPlugin)


def guarantees(name: str, cpu: int) -> Manifest:
    return queue(name, guarantee={"resource": {"cpu": str(cpu)}})


def deserved(*objects: Any, room: int = 8) -> dict[str, float]:
    session = session_of(node("n", cpu=room), *objects, conf=CONF)
    return {name: round(cpus(session, "deserved", name), 3) for name in sorted(session.queues) if name.startswith("q")}


# --- deserved -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "room", "expected"),
    [
        ([queue("q1"), queue("q3", weight=3), wants("q1", 9), wants("q3", 9)], 8, {"q1": 2, "q3": 6}),
        # weights 1:1:2, q3 asks for 2 of its 6: its 4 go to q1 and q2 by their weights
        (
            [queue("q1"), queue("q2"), queue("q3", weight=2), wants("q1", 9), wants("q2", 9), wants("q3", 2)],
            12,
            {"q1": 5, "q2": 5, "q3": 2},
        ),
        # by thirds: q1 takes 1, then q2 takes 3; q3 gets all the rest
        (
            [queue("q1"), queue("q2"), queue("q3"), wants("q1", 1), wants("q2", 3), wants("q3", 20)],
            10,
            {"q1": 1, "q2": 3, "q3": 6},
        ),
        ([queue("q1"), queue("q2", weight=7), wants("q1", 9)], 8, {"q1": 8, "q2": 0}),
        *(
            ([queue("q1", weight=weight), queue("q2"), wants("q1", 9), wants("q2", 9)], 8, {"q1": 0, "q2": 8})
            for weight in (-1, -5)
        ),
        ([queue("q1", capability={"cpu": "3"}), queue("q2"), wants("q1", 9), wants("q2", 9)], 8, {"q1": 3, "q2": 5}),
        # Volcano takes a capability of zero cpu or memory as not given
        ([queue("q1", capability={"cpu": "0", "memory": "4Gi"}), wants("q1", 9)], 8, {"q1": 8}),
        ([guarantees("q1", 6), queue("q2"), wants("q1", 1), wants("q2", 9)], 8, {"q1": 6, "q2": 2}),
        # 8 - 5 guaranteed to q1, which has no job
        ([guarantees("q1", 5), queue("q2"), wants("q2", 9)], 8, {"q1": 0, "q2": 3}),
    ],
    ids=[
        *["by weight", "unasked share", "rounds", "no jobs", "weight -1", "weight -5", "capability", "capability 0"],
        *["guarantee", "guarantee of others"],
    ],
)  # fmt: skip
def test_the_cluster_is_divided(objects: list[Any], room: int, expected: dict[str, float]) -> None:
    assert deserved(*objects, room=room) == expected


def test_a_capability_of_zero_gpus_is_a_limit() -> None:
    session = session_of(
        node("n", gpu=4), queue("q", capability={"nvidia.com/gpu": "0"}), gang("q", 1, queue="q", gpu=1), conf=CONF
    )
    assert gauge(session, "deserved_scalar_resources", "q", resource="nvidia.com/gpu") == 0


def test_succeeded_and_leaving_pods_are_not_requested() -> None:
    pods = [
        pod("done", group="g", phase="Succeeded", on="n", cpu=1),
        pod("going", group="g", on="n", cpu=1, deleting=True),
    ]
    session = session_of(node("n"), queue("q"), group("g", queue="q"), *pods, conf=CONF)
    assert cpus(session, "request", "q") == 0


def test_each_resource_is_divided_by_itself() -> None:
    """Halves of what remains, until less than 0.1 milli-CPU does: Volcano stops there, too."""
    session = session_of(
        node("n", cpu=8, memory=8),
        *[queue("q1"), queue("q2")],
        gang("a", 8, members=0, queue="q1", cpu=1),
        gang("b", 8, members=0, queue="q2", memory=1),
        conf=CONF,
    )
    assert cpus(session, "deserved", "q1") == 8 - 8 / 2**17
    assert gauge(session, "deserved_memory_bytes", "q2") == pytest.approx(8 * GI, rel=1e-4)


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_share_is_the_largest_over_all_resources() -> None:
    session = session_of(
        node("n", cpu=8, memory=8), queue("q"), gang("q", 2, queue="q", on=["n"], cpu=1, memory=3), conf=CONF
    )
    assert gauge(session, "share", "q") == 0.5


def test_something_of_a_resource_that_is_not_deserved_is_a_share_of_one() -> None:
    session = session_of(
        node("n", cpu=8),
        queue("q", capability={"nvidia.com/gpu": "0"}),
        node("m", gpu=2),
        gang("q", 2, queue="q", on=["m"], cpu=1, gpu=1),
        conf=CONF,
    )
    assert gauge(session, "share", "q") == 1.0


# --- overused and allocatable ---------------------------------------------------------------------------------------


def test_a_queue_is_overused_when_it_has_all_it_deserves() -> None:
    session = session_of(node("n", cpu=4), queue("q"), wants("q", 4, running=4), conf=CONF)
    refusal = plugin(session).overused(queue_of(session, "q"))
    assert refusal is not None
    assert refusal.detail["deserved cpu"] == refusal.detail["allocated cpu"] == "4"


def test_a_queue_with_one_resource_left_is_not_overused() -> None:
    session = session_of(node("n", cpu=4), queue("q"), wants("q", 5, running=4), conf=CONF)
    assert plugin(session).overused(queue_of(session, "q")) is None  # a pod's place is left


def test_overused_off_lets_the_other_gate_decide() -> None:
    objects = [node("n", cpu=8), queue("q", capability={"cpu": "2", "pods": "2"}), wants("q", 3, running=2)]
    gates = [
        planned(*objects, conf=configuration).why["default/q"][0]["reason"]
        for configuration in (ALLOCATE, ALLOCATE + "    enabledOverused: false\n")
    ]
    assert gates == ["queue is overused", "queue has no room within what it deserves"]


def test_no_task_goes_beyond_what_its_queue_deserves() -> None:
    result = planned(node("n", cpu=8), queue("q", capability={"cpu": "2"}), wants("q", 5), conf=ALLOCATE)
    assert len(result.binds) == 2
    why = result.why["default/q"][0]
    assert why["detail"] == {"asks cpu": "1", "deserved cpu": "2", "allocated cpu": "2"}
    assert why["tasks"] == 3


def test_tasks_together_stay_within_what_the_queue_deserves() -> None:
    session = session_of(node("n", cpu=2), queue("q"), wants("q", 3), conf=CONF)
    three = tasks_of(session, "q-0", "q-1", "q-2")
    q = queue_of(session, "q")
    assert plugin(session).preemptive(q, three[:2]) is None
    assert plugin(session).preemptive(q, three) is not None


# --- victims --------------------------------------------------------------------------------------------------------


def reclaimed(*objects: Any, names: tuple[str, ...]) -> list[str]:
    session = session_of(node("n", cpu=8), *objects, conf=CONF)
    return let_go(plugin(session), "reclaimable", task_of(session, "q2-0"), tasks_of(session, *names))


def test_tasks_above_what_their_queue_deserves_may_be_reclaimed() -> None:
    """q1 deserves 4 and has 6: after two it has no more than it deserves."""
    objects = [queue("q1"), queue("q2"), wants("q1", 6, running=6), wants("q2", 9)]
    assert reclaimed(*objects, names=("q1-0", "q1-1", "q1-2", "q1-3")) == ["q1-0", "q1-1"]


def test_nothing_is_reclaimed_from_a_queue_within_what_it_deserves() -> None:
    objects = [queue("q1"), queue("q2"), wants("q1", 6, running=4), wants("q2", 9)]
    assert reclaimed(*objects, names=("q1-0", "q1-1")) == []


# --- accounts -------------------------------------------------------------------------------------------------------


def test_accounts_follow_placements_and_their_reverse() -> None:
    session = session_of(node("n", cpu=8), queue("q"), wants("q", 4, running=1), conf=CONF)
    statement = Statement(session.trial, "test", job_of(session, "q"))
    statement.allocate([task_of(session, "q-1")], [0])
    statement.pipeline([task_of(session, "q-2")], [0])
    statement.evict(task_of(session, "q-0"), "test")
    assert (cpus(session, "allocated", "q"), gauge(session, "share", "q")) == (2, 0.5)
    statement.discard()
    assert (cpus(session, "allocated", "q"), gauge(session, "share", "q")) == (1, 0.25)


def test_gauges_are_zero_for_a_queue_without_jobs() -> None:
    session = session_of(node("n"), queue("q"), conf=CONF)
    assert [cpus(session, series, "q") for series in ("allocated", "request", "inqueue", "deserved")] == [0] * 4
