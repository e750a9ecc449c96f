"""priority."""

from __future__ import annotations

import pytest

from tests.dsl import gang, group, node, planned, pod, priority_class, session_of
from tests.plugins.opened import conf, job_of, named, plugin_of, task_of, tasks_of
from vcd.model.objects import ObjectMeta, Pod
from vcd.scheduling.plugins.priority import PriorityPlugin
from vcd.scheduling.session.session import Session
from vcd.state.records import task_priority

CONF = conf("priority")
HIGH, LOW = priority_class("high", 1000), priority_class("low", 10)


def of_class(name: str) -> dict[str, str]:
    return {"priorityClassName": name}


def running(*pods: dict, **group_spec: str) -> Session:
    return session_of(node("n", cpu=64), HIGH, LOW, group("g", phase="Running", **group_spec), *pods, conf=CONF)


def test_a_job_has_the_value_of_its_groups_class() -> None:
    session = session_of(HIGH, LOW, group("g", priorityClassName="high"), conf=CONF)
    assert job_of(session, "g").priority == 1000


def test_a_group_without_class_has_the_global_default() -> None:
    session = session_of(HIGH, priority_class("usual", 7, default=True), group("g"), conf=CONF)
    assert job_of(session, "g").priority == 7


def test_a_group_of_an_unknown_class_without_default_has_zero() -> None:
    assert job_of(session_of(HIGH, group("g", priorityClassName="nope"), conf=CONF), "g").priority == 0


@pytest.mark.parametrize(
    ("annotation", "spec", "expected"),
    [
        ({}, {}, 0),
        ({}, {"priority": 50}, 50),
        ({"volcano.sh/task-priority": "-3"}, {"priority": 50}, -3),
        ({"volcano.sh/task-priority": "much"}, {"priority": 50}, 50),
        ({"volcano.sh/task-priority": str(2**31)}, {}, 0),
    ],
)
def test_a_task_has_its_annotations_or_its_pods_priority(annotation: dict, spec: dict, expected: int) -> None:
    session = session_of(group("g"), pod("p", group="g", annotations=annotation, spec=spec), conf=CONF)
    assert task_of(session, "p").priority == expected


def test_a_pod_without_spec_priority_has_the_default_of_volcano() -> None:
    # no API server leaves it out: a pod without any PriorityClass has 0
    assert task_priority(Pod(metadata=ObjectMeta("p", "default"))) == 1


def test_the_job_of_higher_priority_is_placed_though_it_is_younger() -> None:
    result = planned(
        node("n", cpu=1),
        *[HIGH, LOW],
        gang("old", 1, cpu=1, group_spec=of_class("low")),
        gang("new", 1, cpu=1, created=9, group_spec=of_class("high")),
        conf=CONF,
    )
    assert result.binds == {"default/new-0": "n"}


def test_job_order_off_leaves_it_to_age() -> None:
    result = planned(
        node("n", cpu=1),
        *[HIGH, LOW],
        gang("old", 1, cpu=1, group_spec=of_class("low")),
        gang("new", 1, cpu=1, created=9, group_spec=of_class("high")),
        conf=CONF + "    enableJobOrder: false\n",
    )
    assert result.binds == {"default/old-0": "n"}


def test_the_task_of_higher_priority_is_placed_first() -> None:
    tasks = [pod("a", group="g", cpu=1), pod("b", group="g", cpu=1, spec={"priority": 9})]
    assert planned(node("n", cpu=1), group("g", members=0), *tasks, conf=CONF).binds == {"default/b": "n"}


def test_task_order_off_leaves_it_to_age() -> None:
    tasks = [pod("a", group="g", cpu=1), pod("b", group="g", cpu=1, created=1, spec={"priority": 9})]
    off = CONF + "    enableTaskOrder: false\n"
    assert planned(node("n", cpu=1), group("g", members=0), *tasks, conf=off).binds == {"default/a": "n"}


def test_tasks_of_jobs_of_lower_priority_are_victims() -> None:
    session = session_of(
        *[node("n"), HIGH, LOW],
        gang("low", 1, on=["n"], cpu=1, group_spec=of_class("low")),
        gang("equal", 1, on=["n"], cpu=1, group_spec=of_class("high")),
        gang("want", 1, cpu=1, group_spec=of_class("high")),
        conf=CONF,
    )
    victims = plugin_of(session, PriorityPlugin).preemptable(
        task_of(session, "want-0"), tasks_of(session, "low-0", "equal-0")
    )
    assert named(victims) == ["low-0"]


def test_between_jobs_the_tasks_own_priority_does_not_count() -> None:
    session = session_of(
        *[node("n"), HIGH, LOW],
        gang("low", 1, on=["n"], cpu=1, spec={"priority": 9999}, group_spec=of_class("low")),
        gang("want", 1, cpu=1, spec={"priority": 0}, group_spec=of_class("high")),
        conf=CONF,
    )
    victims = plugin_of(session, PriorityPlugin).preemptable(task_of(session, "want-0"), tasks_of(session, "low-0"))
    assert named(victims) == ["low-0"]


def test_within_a_job_tasks_of_lower_priority_are_victims() -> None:
    session = running(
        pod("low", group="g", on="n", spec={"priority": 1}),
        pod("equal", group="g", on="n", spec={"priority": 5}),
        pod("want", group="g", spec={"priority": 5}),
    )
    victims = plugin_of(session, PriorityPlugin).preemptable(
        task_of(session, "want"), tasks_of(session, "low", "equal")
    )
    assert named(victims) == ["low"]


@pytest.mark.parametrize(
    ("pods", "starving"),
    [
        ([pod("a", group="g", on="n")], False),
        ([pod("a", group="g", on="n"), pod("b", group="g")], True),
        ([pod("a", group="g", phase="Succeeded")], False),
        ([pod("a", group="g", on="n", phase="Failed")], True),
    ],
)
def test_a_job_starves_while_a_task_has_no_room(pods: list[dict], starving: bool) -> None:
    session = running(*pods)
    assert plugin_of(session, PriorityPlugin).job_starving(job_of(session, "g")) is starving


@pytest.mark.parametrize(
    ("priorities", "first"), [((1, 5, 3, 4), "p-0"), ((1, 2, 3, 2), "p-1"), ((-7, -5, -3, -4), "p-1")]
)
def test_sub_jobs_come_by_their_most_urgent_task(priorities: tuple[int, ...], first: str) -> None:
    policy = {"name": "p", "matchLabelKeys": ["part"]}
    pods = [
        pod(f"{i}", group="g", labels={"part": str(i // 2)}, annotations={"volcano.sh/task-priority": str(priority)})
        for i, priority in enumerate(priorities)
    ]
    session = session_of(group("g", subGroupPolicy=[policy]), *pods, conf=CONF)
    partition = job_of(session, "g").partition
    assert partition is not None
    order = sorted(partition.sub_jobs, key=plugin_of(session, PriorityPlugin).sub_job_order)
    assert order[0].uid == f"default/g/{first}"


def test_the_class_of_the_group_does_not_rank_its_sub_jobs() -> None:
    policy = {"name": "p", "matchLabelKeys": ["part"]}
    pods = [pod(name, group="g", labels={"part": name}) for name in "ab"]
    session = session_of(HIGH, group("g", subGroupPolicy=[policy], **of_class("high")), *pods, conf=CONF)
    partition = job_of(session, "g").partition
    assert partition is not None
    assert [plugin_of(session, PriorityPlugin).sub_job_order(each) for each in partition.sub_jobs] == [0, 0]
