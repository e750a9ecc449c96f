"""gang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import BARE, Manifest, gang, group, node, planned, pod, session_after, session_of
from tests.plugins.opened import conf, job_of, named, plugin_of, task_of, tasks_of
from vcd.scheduling.closing import plan_of
from vcd.scheduling.plugin import Vote
from vcd.scheduling.plugins.gang import GangPlugin
from vcd.scheduling.session import Session
from vcd.scheduling.statement import Statement

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
    return "" if found is None else found.reason


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
    assert (found.reason, found.detail["valid"], found.detail["min"]) == ("NotEnoughTasks", "2", "3")


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
    Statement(session, "test", job).allocate(task_of(session, "b"), 0)
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
    Statement(session, "test", job).allocate(task_of(session, "m"), 0)
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
    Statement(session, "test", job).pipeline(task_of(session, "b"), 0)
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
    Statement(session, "test", job).pipeline(task_of(session, "b"), 0)
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
    jobs = sorted(session.all_jobs(), key=session.job_key)
    assert [job.name for job in jobs] == ["broken", "waiting", "ready"]


def test_job_order_off_leaves_it_to_age() -> None:
    session = session_of(
        node("n", cpu=64),
        gang("ready", 2, members=1, on=["n"], cpu=1),
        gang("broken", 2, on=["n"], cpu=1, created=9),
        conf=CONF + "    enableJobOrder: false\n",
    )
    jobs = sorted(session.all_jobs(), key=session.job_key)
    assert [job.name for job in jobs] == ["ready", "broken"]


# --- victims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["preemptable", "reclaimable"])
def test_victims_are_taken_above_the_minimum_only(point: str) -> None:
    """4 run, 2 are needed."""
    session = session_of(
        node("n", cpu=64), gang("old", 4, members=2, on=["n"] * 4, cpu=1), gang("want", 1, cpu=1), conf=CONF
    )
    candidates = tasks_of(session, "old-0", "old-1", "old-2", "old-3")
    victims = getattr(plugin(session), point)(task_of(session, "want-0"), candidates)
    assert named(victims) == ["old-0", "old-1"]


def test_victims_are_counted_job_by_job() -> None:
    session = session_of(
        node("n", cpu=64),
        gang("a", 2, members=1, on=["n"] * 2, cpu=1),
        gang("b", 2, members=1, on=["n"] * 2, cpu=1),
        gang("want", 1, cpu=1),
        conf=CONF,
    )
    candidates = tasks_of(session, "a-0", "b-0", "a-1", "b-1")
    assert named(plugin(session).preemptable(task_of(session, "want-0"), candidates)) == ["a-0", "b-0"]


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
    assert found is not None
    assert found[:3] == ("Unschedulable", "True", "NotEnoughResources")
    assert found[3].startswith(
        "2/3 tasks in gang unschedulable: pod group is not ready, 2 minAvailable, 3 Pending. Origin reason is "
    )


def test_the_message_counts_tasks_by_status() -> None:
    found = condition(node("n", cpu=2), gang("g", 4, members=4, on=["n", "n"], cpu=1))
    assert found is not None
    assert "2/4 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 Running, 4 minAvailable." in found[3]


def test_the_message_names_the_reason_of_the_missing_tasks() -> None:
    """pains.md 2."""
    found = condition(node("n1", cpu=1), node("n2", cpu=2), gang("g", 2, cpu=3))
    assert found is not None
    assert found[3].endswith("Origin reason is g-0: 2 Insufficient cpu")


def test_the_message_names_the_claim_that_is_missing() -> None:
    """pains.md 2: a missing claim and a minimum of one."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "lost"}}]
    found = condition(
        node("n"), gang("g", 1, cpu=1, spec={"volumes": volumes}), configuration=conf("gang", "predicates")
    )
    assert found is not None
    assert 'g-0: 1 persistentvolumeclaim "lost" not found' in found[3]


def test_the_message_names_the_queues_refusal() -> None:
    from tests.dsl import queue

    found = condition(
        *[node("n"), queue("q", state="Closed"), gang("g", 1, cpu=1, queue="q")],
        configuration=conf("gang", "proportion"),
    )
    assert found is not None
    assert found[3].endswith("Origin reason is g-0: queue is Closed")


def test_a_group_that_nobody_admitted_says_what_the_gate_said() -> None:
    found = condition(
        *[node("n", cpu=8), gang("g", 3, cpu=4, phase="Pending", minimum={"cpu": 12})],
        configuration=conf("gang", "overcommit"),
    )
    assert found is not None
    assert found[3].endswith("Origin reason is resource in cluster is overused")


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
