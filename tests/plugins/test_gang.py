"""gang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import BARE, Manifest, gang, group, node, planned, pod, session_after, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, task_of, tasks_of
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.gang import GangPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import SubJob
from vcd.scheduling.session_close import plan_of

CONF = conf("gang")


def member(name: str, role: str = "", **options: Any) -> Manifest:
    marks = {"volcano.sh/task-spec": role} if role else {}
    return pod(name, group="g", annotations=marks, **options)


def opened(*objects: Any, members: int = 1, roles: dict[str, int] | None = None, **spec: Any) -> Session:
    minima = {"minTaskMember": roles} if roles is not None else {}
    return session_of(node("n", cpu=64), group("g", members=members, **minima, **spec), *objects, conf=CONF)


def plugin(session: Session) -> GangPlugin:
    return plugin_of(session, GangPlugin)


def refusal(session: Session) -> str:
    found = plugin(session).job_valid(job_of(session, "g"))
    return "" if found is None else found.words


def condition(*objects: Any, configuration: str = CONF, name: str = "g") -> tuple[str, str, str, str] | None:
    """The condition that a cycle gives a group."""
    for status in plan_of(session_after(*objects, conf=configuration)).groups:
        if status.key == f"default/{name}":
            return status.condition
    return None


# --- validity -------------------------------------------------------------------------------------------------------


def test_a_job_with_fewer_pods_than_its_minimum_is_not_valid() -> None:
    session = opened(member("a"), member("b"), members=3)
    found = plugin(session).job_valid(job_of(session, "g"))
    assert found is not None
    assert (found.words, found.detail["valid"], found.detail["min"]) == ("NotEnoughTasks", "2", "3")


@pytest.mark.parametrize(
    ("options", "valid"),
    [
        ({}, True),
        ({"on": "n"}, True),
        ({"on": "n", "phase": "Pending"}, True),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, False),
        ({"on": "n", "deleting": True}, False),
        ({"phase": "Unknown"}, False),
    ],
)
def test_which_pods_count_for_validity(options: dict[str, Any], valid: bool) -> None:
    assert refusal(opened(member("a", **options))) == ("" if valid else "NotEnoughTasks")


def test_each_role_needs_its_minimum_of_pods() -> None:
    pods = [member("m", "master"), member("w0", "worker"), member("w1", "worker"), member("w2", "worker")]
    assert refusal(opened(*pods, members=3, roles={"master": 1, "worker": 2})) == ""
    assert refusal(opened(*pods, members=4, roles={"master": 2, "worker": 2})) == "NotEnoughPodsOfTask"


def test_the_role_is_the_annotations_or_the_labels() -> None:
    pods = [pod("a", group="g", labels={"volcano.sh/task-spec": "worker"}), member("b", "worker")]
    assert refusal(opened(*pods, members=2, roles={"worker": 2})) == ""


def test_role_minima_do_not_bind_below_their_sum() -> None:
    """002: task1 has 1 pod of 2, task2 2 of 3; with minAvailable 3 the job is valid."""
    pods = [member("a", "task1"), member("b", "task2"), member("c", "task2")]
    assert refusal(opened(*pods, members=3, roles={"task1": 2, "task2": 3})) == ""
    assert refusal(opened(*pods, members=5, roles={"task1": 2, "task2": 3})) == "NotEnoughPodsOfTask"


def test_an_invalid_job_is_not_tried_and_says_why() -> None:
    result = planned(node("n"), gang("g", 2, members=3, cpu=1), conf=BARE)
    assert result.binds == {}
    assert result.why["default/g"][0]["gate"] == "invalid"
    assert result.why["default/g"][0]["reason"] == "NotEnoughTasks"


# --- ready and pipelined --------------------------------------------------------------------------------------------


def test_a_job_is_ready_at_its_minimum() -> None:
    session = opened(member("a", on="n"), member("b", cpu=1), members=2)
    gang_plugin, job = plugin(session), job_of(session, "g")
    assert not gang_plugin.job_ready(job)
    Statement(session.trial, "test", job).allocate([task_of(session, "b")], [0])
    assert gang_plugin.job_ready(job)


def test_pending_best_effort_tasks_count_as_ready() -> None:
    session = opened(member("a", on="n"), member("b"), members=2)
    assert plugin(session).job_ready(job_of(session, "g"))


def test_a_job_is_not_ready_before_each_role_is() -> None:
    pods = [member("m", "master", cpu=1), *[member(f"w{i}", "worker", on="n", cpu=1) for i in range(3)]]
    session = opened(*pods, members=3, roles={"master": 1, "worker": 2})
    job = job_of(session, "g")
    assert job.is_ready()
    assert not plugin(session).job_ready(job)
    Statement(session.trial, "test", job).allocate([task_of(session, "m")], [0])
    assert plugin(session).job_ready(job)


def test_a_role_is_ready_with_pending_best_effort_tasks() -> None:
    pods = [member("m", "master"), member("w", "worker", on="n", cpu=1)]
    session = opened(*pods, members=2, roles={"master": 1, "worker": 1})
    assert plugin(session).job_ready(job_of(session, "g"))


def test_roles_of_a_job_below_their_sum_need_not_be_ready() -> None:
    session = opened(
        member("w", "worker", on="n"), member("m", "master", cpu=1), members=1, roles={"master": 1, "worker": 1}
    )
    assert plugin(session).job_ready(job_of(session, "g"))


def test_a_gang_of_roles_is_bound_with_each_roles_minimum() -> None:
    """3 CPU: with one master and two workers needed, no third worker takes the master's place."""
    minima = {"master": 1, "worker": 2}
    workers = [member(f"a-w{i}", "worker", cpu=1) for i in range(3)]
    result = planned(
        node("n", cpu=3),
        group("g", members=3, minTaskMember=minima),
        *workers,
        member("z-m", "master", cpu=1),
        conf=CONF,
    )
    assert result.binds == {}
    result = planned(
        node("n", cpu=4),
        group("g", members=3, minTaskMember=minima),
        *workers,
        member("z-m", "master", cpu=1),
        conf=CONF,
    )
    assert len(result.binds) == 4


def test_a_job_may_wait_when_its_minimum_has_room_or_waits() -> None:
    session = opened(member("a", on="n"), member("b", cpu=1), members=2)
    job = job_of(session, "g")
    assert plugin(session).job_pipelined(job) is Vote.REJECT
    Statement(session.trial, "test", job).pipeline([task_of(session, "b")], [0])
    assert plugin(session).job_pipelined(job) is Vote.PERMIT
    assert not plugin(session).job_ready(job)


def test_a_job_may_not_wait_before_each_role_does() -> None:
    pods = [member("m", "master", cpu=1), *[member(f"w{i}", "worker", on="n", cpu=1) for i in range(2)]]
    session = opened(*pods, members=2, roles={"master": 1, "worker": 1})
    assert plugin(session).job_pipelined(job_of(session, "g")) is Vote.REJECT


@pytest.mark.parametrize("flag", ["enableJobReady", "enableJobPipelined"])
def test_a_flag_that_is_off_takes_the_gang_out_of_that_question(flag: str) -> None:
    """Without job_ready each placement is ready by itself; without job_pipelined an unready one is kept."""
    configuration = conf("gang", actions="allocate") + f"    {flag}: false\n"
    session = session_after(node("n", cpu=2), gang("g", 3, cpu=1), conf=configuration)
    placed = session.nodes.usage.used[0, 0]
    assert placed == 2000


def test_a_job_starves_below_its_minimum() -> None:
    session = opened(member("a", on="n"), member("b", cpu=1), member("c", cpu=1), members=2)
    job = job_of(session, "g")
    assert plugin(session).job_starving(job)
    Statement(session.trial, "test", job).pipeline([task_of(session, "b")], [0])
    assert not plugin(session).job_starving(job)


# --- order ----------------------------------------------------------------------------------------------------------


def test_broken_gangs_come_first_then_waiting_then_ready_ones() -> None:
    session = session_of(
        node("n", cpu=64),
        gang("ready", 2, members=1, on=["n"], cpu=1),
        gang("waiting", 2, cpu=1),
        gang("broken", 2, on=["n"], cpu=1),
        conf=CONF,
    )
    jobs = sorted(session.all_jobs(), key=framework_of(session).job_key)
    assert [job.name for job in jobs] == ["broken", "waiting", "ready"]


def test_job_order_off_leaves_it_to_age() -> None:
    session = session_of(
        node("n", cpu=64),
        gang("ready", 2, members=1, on=["n"], cpu=1),
        gang("broken", 2, on=["n"], cpu=1, created=9),
        conf=CONF + "    enableJobOrder: false\n",
    )
    jobs = sorted(session.all_jobs(), key=framework_of(session).job_key)
    assert [job.name for job in jobs] == ["ready", "broken"]


# --- victims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["preemptable", "reclaimable"])
def test_victims_are_taken_above_the_minimum_only(point: str) -> None:
    """4 run, 2 are needed."""
    session = session_of(
        node("n", cpu=64), gang("old", 4, members=2, on=["n"] * 4, cpu=1), gang("want", 1, cpu=1), conf=CONF
    )
    candidates = tasks_of(session, "old-0", "old-1", "old-2", "old-3")
    assert let_go(plugin(session), point, task_of(session, "want-0"), candidates) == ["old-0", "old-1"]


def test_victims_are_counted_job_by_job() -> None:
    session = session_of(
        node("n", cpu=64),
        gang("a", 2, members=1, on=["n"] * 2, cpu=1),
        gang("b", 2, members=1, on=["n"] * 2, cpu=1),
        gang("want", 1, cpu=1),
        conf=CONF,
    )
    candidates = tasks_of(session, "a-0", "b-0", "a-1", "b-1")
    assert let_go(plugin(session), "preemptable", task_of(session, "want-0"), candidates) == ["a-0", "b-0"]


# --- sub-groups -----------------------------------------------------------------------------------------------------

PARTITION = "volcano.sh/partition-id"


def sub_groups(size: int, least: int, name: str = "p", **spec: Any) -> Manifest:
    return {"name": name, "matchLabelKeys": [PARTITION], "subGroupSize": size, "minSubGroups": least, **spec}


def of_sub_group(number: int, *names: str, **options: Any) -> list[Manifest]:
    return [pod(name, group="g", labels={PARTITION: str(number)}, **options) for name in names]


def sub_job_of(session: Session, name: str) -> SubJob:
    partition = job_of(session, "g").partition
    assert partition is not None
    return partition.of(task_of(session, name))


def test_a_job_with_fewer_sub_groups_than_a_policys_minimum_is_not_valid() -> None:
    session = opened(*of_sub_group(0, "a", "b"), *of_sub_group(1, "c"), subGroupPolicy=[sub_groups(2, 3)])
    found = plugin(session).job_valid(job_of(session, "g"))
    assert found is not None
    assert found.words == "NotEnoughPodsOfTask"
    assert found.detail == {
        "message": "Not enough valid subGroups of each task for gang-scheduling",
        "policy": "p",
        "have": "2",
        "min": "3",
    }


@pytest.mark.parametrize("least", [0, 1, 2])
def test_sub_groups_count_for_validity_whatever_their_size_and_state(least: int) -> None:
    """As in Volcano: whether they can be filled is seen when they are placed."""
    pods = [*of_sub_group(0, "a", phase="Failed"), *of_sub_group(1, "b")]
    assert refusal(opened(*pods, subGroupPolicy=[sub_groups(2, least)])) == ""


def test_a_policy_that_can_take_no_pod_makes_a_job_with_a_minimum_invalid_and_says_why() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]}
    session = opened(member("a"), subGroupPolicy=[sub_groups(1, 1, labelSelector=selector)])
    found = plugin(session).job_valid(job_of(session, "g"))
    assert found is not None
    assert found.detail["fault"].startswith("labelSelector cannot be read")


def test_roles_are_looked_at_before_sub_groups_and_sub_groups_before_the_minimum_of_tasks() -> None:
    pods = of_sub_group(0, "a")
    policy = [sub_groups(1, 2)]
    roles = plugin(s := opened(*pods, members=9, roles={"w": 1}, subGroupPolicy=policy)).job_valid(job_of(s, "g"))
    assert roles is not None
    assert "pods of each task" in roles.detail["message"]
    groups = plugin(s := opened(*pods, members=9, subGroupPolicy=policy)).job_valid(job_of(s, "g"))
    assert groups is not None
    assert "subGroups" in groups.detail["message"]


def test_a_job_is_ready_with_its_minimum_of_ready_sub_groups_of_each_policy() -> None:
    workers = {"labelSelector": {"matchLabels": {"role": "w"}}}
    pods = [
        *[pod(name, group="g", labels={PARTITION: "0", "role": "w"}, cpu=1) for name in ("w0", "w1")],
        *of_sub_group(0, "m", cpu=1),
    ]
    session = opened(*pods, subGroupPolicy=[sub_groups(2, 1, "w", **workers), sub_groups(1, 1, "m")])
    gang_plugin, job = plugin(session), job_of(session, "g")
    statement = Statement(session.trial, "test", job)
    for name, ready in [("w0", False), ("m", False), ("w1", True)]:
        statement.allocate([task_of(session, name)], [0])
        assert job.is_ready()
        assert gang_plugin.job_ready(job) == ready
    statement.undo(2)
    assert not gang_plugin.job_ready(job)


def test_a_job_is_pipelined_with_its_minimum_of_sub_groups_that_wait() -> None:
    session = opened(*of_sub_group(0, "a", "b", cpu=1), subGroupPolicy=[sub_groups(2, 1)])
    gang_plugin, job = plugin(session), job_of(session, "g")
    statement = Statement(session.trial, "test", job)
    statement.allocate([task_of(session, "a")], [0])
    assert gang_plugin.job_pipelined(job) is Vote.REJECT
    statement.pipeline([task_of(session, "b")], [0])
    assert gang_plugin.job_pipelined(job) is Vote.PERMIT
    assert not gang_plugin.job_ready(job)


def test_the_minimum_of_tasks_binds_beside_that_of_sub_groups() -> None:
    session = opened(*of_sub_group(0, "a", on="n"), *of_sub_group(1, "b"), members=3, subGroupPolicy=[sub_groups(1, 1)])
    assert not plugin(session).job_ready(job_of(session, "g"))
    assert plugin(session).job_pipelined(job_of(session, "g")) is Vote.REJECT


def test_only_the_minimum_of_tasks_makes_a_job_starve() -> None:
    policy = [sub_groups(2, 1)]
    pods = [*of_sub_group(0, "a", on="n"), *of_sub_group(0, "b", cpu=1)]
    assert not plugin(s := opened(*pods, members=1, subGroupPolicy=policy)).job_starving(job_of(s, "g"))
    assert plugin(s := opened(*pods, members=2, subGroupPolicy=policy)).job_starving(job_of(s, "g"))


def test_a_sub_job_is_ready_and_pipelined_at_its_size() -> None:
    session = opened(*of_sub_group(0, "a", "b", cpu=1), subGroupPolicy=[sub_groups(2, 0)])
    gang_plugin, sub_job = plugin(session), sub_job_of(session, "a")
    statement = Statement(session.trial, "test", job_of(session, "g"))
    seen = [(gang_plugin.sub_job_ready(sub_job), gang_plugin.sub_job_pipelined(sub_job))]
    for place, name in ((statement.allocate, "a"), (statement.pipeline, "b")):
        place([task_of(session, name)], [0])
        seen.append((gang_plugin.sub_job_ready(sub_job), gang_plugin.sub_job_pipelined(sub_job)))
    assert seen == [(False, Vote.REJECT), (False, Vote.REJECT), (False, Vote.PERMIT)]


def test_broken_sub_jobs_come_before_those_without_room_and_ready_ones_last() -> None:
    pods = [*of_sub_group(0, "a", "b", on="n"), *of_sub_group(1, "c", "d", cpu=1), *of_sub_group(2, "e", on="n")]
    session = opened(*pods, *of_sub_group(2, "f", cpu=1), subGroupPolicy=[sub_groups(2, 0)])
    ranks = [plugin(session).sub_job_order(sub_job_of(session, name)) for name in ("e", "c", "a")]
    assert ranks == sorted(set(ranks))


def test_sub_groups_that_are_missing_are_noted() -> None:
    pods = [*of_sub_group(0, "a", "b", cpu=1), *of_sub_group(1, "c", "d", cpu=2)]
    spec = group("g", subGroupPolicy=[sub_groups(2, 2)])
    notes = [why for why in planned(node("n", cpu=3), spec, *pods, conf=CONF).why["default/g"] if why["gate"] == "gang"]
    assert [(why["plugin"], why["reason"]) for why in notes] == [
        ("gang", "fewer tasks of a sub-group have room than its size"),
        ("gang", "fewer sub-groups than the minimum"),
        ("gang", "fewer tasks than the minimum"),
    ]
    assert notes[0]["detail"] == {"policy": "p", "subGroups": "1", "first": "1", "have": "0", "size": "2"}
    assert notes[1]["detail"] == {"policy": "p", "have": "0", "min": "2"}


# --- conditions -----------------------------------------------------------------------------------------------------


def test_a_job_with_its_minimum_gets_the_condition_scheduled() -> None:
    assert condition(node("n"), gang("g", 2, cpu=1)) == (
        "Scheduled",
        "True",
        "tasks in gang are ready to be scheduled",
        "",
    )


def test_a_job_without_its_minimum_gets_the_condition_unschedulable() -> None:
    found = condition(node("n", cpu=1), gang("g", 3, members=2, cpu=1))
    assert found == ("Unschedulable", "True", "NotEnoughResources", "")


def test_a_condition_is_not_set_again_for_the_words_that_were_made_for_it() -> None:
    shown = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "1/1 tasks: no room"}
    objects = list(gang("g", 1, cpu=9, phase="Pending"))
    objects[0]["status"]["conditions"] = [shown]
    assert condition(node("n", cpu=1), *objects) is None


def test_a_gang_whose_pods_are_only_going_away_is_left_alone() -> None:
    assert condition(node("n"), gang("g", 2, on=["n", "n"], cpu=1, deleting=True)) is None


def test_a_gang_that_also_has_waiting_pods_is_not_left_alone() -> None:
    leaving = [member("a", on="n", cpu=8, deleting=True), member("b", cpu=9)]
    found = condition(node("n"), group("g", members=2), *leaving)
    assert found is not None
    assert found[0] == "Unschedulable"


def test_a_group_without_pods_gets_no_condition() -> None:
    assert condition(node("n"), group("g", members=2)) is None


def test_a_condition_that_the_group_shows_is_not_set_again() -> None:
    shown = {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled", "message": ""}
    objects = list(gang("g", 1, on=["n"], cpu=1, phase="Running"))
    objects[0]["status"]["conditions"] = [shown]
    assert condition(node("n"), *objects) is None


def test_what_is_missing_is_noted_for_explanations() -> None:
    result = planned(node("n", cpu=1), gang("g", 3, members=2, cpu=1), conf=CONF)
    gate = result.why["default/g"][-1]
    assert (gate["gate"], gate["plugin"], gate["detail"]) == ("gang", "gang", {"have": "0", "min": "2"})
