"""The end of a session: phases, counts, queues' usage and what groups wait for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, group, node, pod, queue, session_after, session_of
from tests.plugins.opened import conf, job_of, task_of
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session_close import plan_of

GANG = conf("gang", actions="allocate, backfill")
NONE = conf("priority", actions="enqueue")

RUNS = {"on": "n"}
BOUND = {"on": "n", "phase": "Pending"}
DONE = {"phase": "Succeeded", "on": "n"}
FAILED = {"phase": "Failed", "on": "n"}
LEAVES = {"on": "n", "deleting": True}
LEAVES_A_NODE_THAT_IS_GONE = {"on": "gone", "deleting": True}
NEVER_PLACED = {"deleting": True}
WAITS = {"cpu": 99}


def statuses(*objects: Any, configuration: str = NONE) -> dict[str, ev.GroupStatus]:
    return {status.key: status for status in plan_of(session_after(*objects, conf=configuration)).groups}


def phase(pods: list[dict[str, Any]], before: str, members: int, configuration: str = NONE) -> str:
    """The phase of a group after a session; as before where the session has nothing to say."""
    objects = [pod(f"p{i}", group="g", **options) for i, options in enumerate(pods)]
    found = statuses(node("n"), group("g", members=members, phase=before), *objects, configuration=configuration)
    return found["default/g"].phase if "default/g" in found else before


@pytest.mark.parametrize(
    ("before", "pods", "members", "after"),
    [
        ("Inqueue", [RUNS, RUNS], 2, "Running"),
        ("Inqueue", [RUNS, BOUND], 2, "Running"),
        ("Inqueue", [RUNS, DONE], 2, "Running"),
        ("Running", [RUNS, LEAVES], 2, "Running"),
        ("Running", [RUNS, NEVER_PLACED], 2, "Pending"),
        ("Running", [DONE, DONE], 2, "Completed"),
        ("Running", [DONE, FAILED], 2, "Completed"),
        ("Running", [DONE, RUNS], 1, "Running"),
        ("Inqueue", [RUNS, WAITS], 2, "Inqueue"),
        ("Running", [RUNS, WAITS], 2, "Pending"),
        ("Unknown", [RUNS, WAITS], 2, "Pending"),
        ("Running", [RUNS, WAITS], 1, "Running"),
        ("Completed", [WAITS], 1, "Pending"),
        ("Inqueue", [], 1, "Inqueue"),
        ("Pending", [], 0, "Completed"),
    ],
)
def test_the_phase_follows_the_tasks(before: str, pods: list[dict[str, Any]], members: int, after: str) -> None:
    no_action = conf("priority", actions="backfill")
    assert phase(pods, before, members, no_action) == after


@pytest.mark.parametrize(
    ("pods", "members", "after"),
    [
        ([RUNS, WAITS], 2, "Unknown"),
        ([WAITS, WAITS], 2, "Inqueue"),
        ([DONE, WAITS], 2, "Inqueue"),
        ([RUNS], 1, "Running"),
    ],
)
def test_a_gang_below_its_minimum_that_runs_in_part_is_unknown(
    pods: list[dict[str, Any]], members: int, after: str
) -> None:
    assert phase(pods, "Inqueue", members, GANG) == after


def test_a_job_that_is_bound_in_this_session_is_not_running_yet() -> None:
    assert phase([{"cpu": 1}], "Inqueue", 1, GANG) == "Inqueue"


def test_evicted_tasks_count_as_going_away() -> None:
    session = session_of(node("n"), gang("g", 2, on=["n", "n"], cpu=1, phase="Running"), conf=NONE)
    statement = Statement(session.trial, "test", job_of(session, "g"))
    statement.evict(task_of(session, "g-0"), "why")
    statement.commit()
    (status,) = plan_of(session).groups
    assert (status.phase, status.running) == ("Running", 1)


def test_the_status_counts_tasks() -> None:
    pods = [pod(f"p{i}", group="g", **options) for i, options in enumerate([RUNS, RUNS, DONE, FAILED, WAITS])]
    status = statuses(node("n"), group("g", phase="Running"), *pods)["default/g"]
    assert (status.running, status.succeeded, status.failed, status.was) == (2, 1, 1, "Running")


def test_a_group_that_shows_all_of_it_already_is_not_written() -> None:
    shown = group("g", phase="Running")
    shown["status"] |= {"running": 1}
    assert statuses(node("n"), shown, pod("p", group="g", on="n")) == {}


# --- statements -----------------------------------------------------------------------------------------------------


def test_statements_come_in_the_order_of_their_commits_then_who_waits() -> None:
    plan = plan_of(
        session_after(
            *[node("n", cpu=4), node("m", cpu=2)],
            gang("a", 1, on=["n"], cpu=2, deleting=True),
            gang("b-waits", 1, cpu=3),
            gang("c-first", 1, cpu=1, created=1),
            gang("d-second", 1, cpu=1, created=2),
            conf=conf("gang", actions="allocate"),
        )
    )
    assert [(s.group, s.operations[0].verb) for s in plan.statements] == [
        ("default/c-first", "bind"),
        ("default/d-second", "bind"),
        ("default/b-waits", "pipeline"),
    ]


# --- queues ---------------------------------------------------------------------------------------------------------


def usage(*objects: Any) -> dict[str, dict[str, str]]:
    return {entry.name: entry.allocated for entry in plan_of(session_after(*objects, conf=GANG)).queues}


def test_a_queue_has_what_its_jobs_have_with_this_sessions_placements() -> None:
    found = usage(
        node("n"), queue("q"), gang("a", 1, queue="q", on=["n"], cpu=1, memory=1), gang("b", 1, queue="q", cpu=2)
    )
    assert found["q"] == {"cpu": "3", "memory": "1Gi", "pods": "2"}


def test_a_parent_has_what_its_children_have() -> None:
    found = usage(
        *[node("n"), queue("root"), queue("up", parent="root"), queue("leaf", parent="up")],
        gang("a", 1, queue="leaf", on=["n"], cpu=1),
        gang("b", 1, queue="up", on=["n"], cpu=2),
    )
    assert [found[name]["cpu"] for name in ("leaf", "up", "root")] == ["1", "3", "3"]


def test_queues_that_are_each_others_parents_end_the_sum() -> None:
    found = usage(
        *[node("n"), queue("root"), queue("a", parent="b"), queue("b", parent="a")],
        gang("g", 1, queue="a", on=["n"], cpu=1),
    )
    assert found["a"]["cpu"] == "1"


def test_a_queue_that_shows_its_usage_already_is_not_written() -> None:
    shown = queue("q")
    shown["status"]["allocated"] = {"cpu": "1000m", "pods": "1"}
    assert "q" not in usage(node("n"), shown, gang("g", 1, queue="q", on=["n"], cpu=1))


def test_a_usage_that_fell_to_zero_is_written() -> None:
    shown = queue("q")
    shown["status"]["allocated"] = {"cpu": "1", "nvidia.com/gpu": "2"}
    assert usage(node("n", gpu=2), shown) == {"q": {"cpu": "0", "nvidia.com/gpu": "0"}}


def test_a_usage_that_nobody_can_read_is_written_anew() -> None:
    shown = queue("q")
    shown["status"]["allocated"] = {"cpu": "much"}
    assert usage(node("n"), shown, gang("g", 1, queue="q", on=["n"], cpu=1))["q"]["cpu"] == "1"


# --- waiting --------------------------------------------------------------------------------------------------------


def test_reasons_are_told_when_they_change_only() -> None:
    world = World(node("n", cpu=1), gang("g", 1, cpu=2), conf=GANG)
    assert [w.reason for w in all_told(world.cycle().waiting)] == [
        "a pod of the group is larger than any node",
        "Insufficient cpu",
        "fewer tasks than the minimum",
    ]
    assert world.cycle().waiting == ()


def test_a_group_that_waits_no_more_says_so() -> None:
    world = World(node("n", cpu=1), gang("g", 1, cpu=2), conf=GANG)
    world.cycle()
    world.put(node("m", cpu=2))
    assert world.cycle().waiting == (ev.Waiting("default/g", ""),)
    assert world.why("g") == []


def test_a_group_of_a_missing_queue_waits_for_it() -> None:
    plan = plan_of(session_after(node("n"), gang("g", 1, queue="nowhere", cpu=1), conf=GANG))
    assert [(w.gate, w.reason) for w in all_told(plan.waiting)] == [("queue", "queue nowhere does not exist")]
    assert plan.groups == ()


@pytest.mark.parametrize("bad", [False, True])
def test_a_group_whose_pods_have_nodes_does_not_wait_for_a_queue_that_was_deleted(bad: bool) -> None:
    queues = queue("q"), queue("default")
    world = World(node("n", cpu=2), queues, gang("g", 2, queue="q", cpu=1), conf=GANG)
    world.rest()
    world.put(queue("q", capability={"cpu": "-1"})) if bad else world.remove("Queue", "q")
    assert world.cycle().waiting == ()
    world.put(pod("late", group="g", cpu=1))
    assert [why.gate for why in all_told(world.cycle().waiting)] == ["queue"]
    world.remove("Pod", "default/late")
    assert world.cycle().waiting == (ev.Waiting("default/g", ""),)
    world.remove("Pod", "default/g-0")
    assert [why.gate for why in all_told(world.cycle().waiting)] == ["queue"]


def test_a_group_that_others_placed_after_its_queue_was_deleted_is_no_longer_unschedulable() -> None:
    world = World(node("n", cpu=1), queue("q"), gang("g", 2, queue="q", cpu=1), conf=GANG)
    world.cycle()
    assert world.state.groups["default/g"].group.status.conditions[-1].type == "Unschedulable"
    world.remove("Queue", "q")
    assert world.cycle().groups == ()
    world.put(node("m", cpu=1), pod("g-0", group="g", cpu=1, on="n"), pod("g-1", group="g", cpu=1, on="m"))
    world.cycle()
    assert world.state.groups["default/g"].group.status.conditions[-1].type == "Scheduled"
    assert world.cycle().groups == ()


@pytest.mark.parametrize(
    ("field", "amounts"),
    [
        ("capability", {"cpu": "-1"}),
        ("deserved", {"memory": "much"}),
        ("guarantee", {"resource": {"nvidia.com/gpu": "-2"}}),
    ],
)
def test_groups_of_a_queue_that_was_set_aside_say_that_it_cannot_be_used_and_why(field: str, amounts: Any) -> None:
    world = World(node("n"), queue("q", **{field: amounts}), gang("g", 1, queue="q", cpu=1), conf=GANG)
    (why,) = all_told(world.cycle().waiting)
    assert (why.gate, why.reason) == ("queue", "queue q cannot be used")
    assert f"spec.{field}" in why.detail["problem"]
    assert world.decide().waiting == ()
    world.put(queue("q"))
    assert world.cycle().statements[0].operations[0].verb == "bind"


def test_groups_of_a_queue_that_is_deleted_after_it_was_set_aside_say_that_it_is_gone() -> None:
    world = World(node("n"), queue("q", capability={"cpu": "-1"}), gang("g", 1, queue="q", cpu=1), conf=GANG)
    world.cycle()
    world.remove("Queue", "q")
    assert [why.reason for why in all_told(world.cycle().waiting)] == ["queue q does not exist"]
