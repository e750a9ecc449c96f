"""Sub-jobs: how a group's policies divide it, and how what they make is placed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import (
    BARE,
    Manifest,
    flat,
    gang,
    group,
    node,
    planned,
    pod,
    priority_class,
    queue,
    session_after,
    session_of,
)
from tests.plugins.opened import job_of, named, task_of
from tests.sizes import examples
from tests.world import World
from vcd.model import events as ev
from vcd.model.objects import PodGroup
from vcd.model.projection_codec import decode_payload, encode_payload, from_manifest
from vcd.model.status import READY_STATUSES, TaskStatus
from vcd.scheduling.actions._gang_eviction import bundles_of
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.worksheet import Worksheet
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.subjobs import SpareSubJobs
from vcd.scheduling.session.views import Partition, SubJob
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

KEY, ROLE = "volcano.sh/partition-id", "volcano.sh/task-spec"


def policy(name: str = "p", size: int = 1, least: int = 0, **spec: Any) -> Manifest:
    return {"name": name, "matchLabelKeys": [KEY], "subGroupSize": size, "minSubGroups": least, **spec}


def of_role(role: str, size: int = 1, least: int = 0) -> Manifest:
    """What the job controller writes for a task with a partitionPolicy."""
    return policy(role, size, least, labelSelector={"matchLabels": {ROLE: role}})


def divided(*policies: Manifest, members: int = 1, **spec: Any) -> Manifest:
    return group("g", members=members, subGroupPolicy=list(policies), **spec)


def part(number: int | str, *names: str, role: str = "", on: str = "", **options: Any) -> Iterator[Manifest]:
    """Pods of one sub-group; without names ``a<number>`` and ``b<number>``."""
    marks = {KEY: str(number), **({ROLE: role} if role else {})}
    for name in names or (f"a{number}", f"b{number}"):
        yield pod(name, group="g", on=on, labels=marks, **{"cpu": 1, **options})


def partition_of(session: Session) -> Partition:
    partition = job_of(session, "g").partition
    assert partition is not None
    return partition


def members_of(session: Session) -> dict[str, list[str]]:
    return {sub_job.uid: named(sub_job.tasks) for sub_job in partition_of(session).sub_jobs}


def bound(*objects: Manifest | Iterator[Manifest], conf: str = BARE) -> set[str]:
    return {key.partition("/")[2] for key in planned(*objects, conf=conf).binds}


def reasons(*objects: Manifest | Iterator[Manifest]) -> list[dict[str, Any]]:
    return list(planned(*objects, conf=BARE).why["default/g"])


# --- the policies as they are read ------------------------------------------------------------------------------------


def test_policies_are_kept_in_the_log_and_default_to_size_one_and_no_minimum() -> None:
    manifest = divided({"name": "p", "matchLabelKeys": ["x"], "subGroupSize": None, "networkTopology": {}})
    kind, obj, _ = from_manifest(manifest)
    again = decode_payload(kind, encode_payload(obj))
    assert isinstance(again, PodGroup)
    (read,) = again.spec.sub_group_policy
    assert (read.name, read.match_label_keys, read.sub_group_size, read.min_sub_groups) == ("p", ("x",), 1, 0)
    assert read.network_topology is not None


def test_a_group_without_policies_is_written_as_before() -> None:
    _, obj, _ = from_manifest(group("g"))
    assert b"subGroup" not in encode_payload(obj)


# --- the partition ----------------------------------------------------------------------------------------------------


def test_a_group_without_policies_has_no_partition() -> None:
    session = session_of(gang("g", 2, cpu=1))
    assert job_of(session, "g").partition is None


def test_pods_with_the_same_values_are_one_sub_job() -> None:
    session = session_of(divided(policy(size=2)), part(0), part(1))
    assert members_of(session) == {"default/g/p-0": ["a0", "b0"], "default/g/p-1": ["a1", "b1"]}
    assert [each.min_available for each in partition_of(session).sub_jobs] == [2, 2]


def test_several_keys_tell_sub_jobs_apart_and_values_are_not_run_together() -> None:
    keys = {"matchLabelKeys": ["x", "y"]}
    pods = [
        pod(name, group="g", labels={"x": x, "y": y})
        for name, x, y in [("a", "1", "2"), ("b", "1", "3"), ("c", "1", "2"), ("d", "1-2", "3"), ("e", "1", "2-3")]
    ]
    sub_jobs = partition_of(session_of(divided(policy(**keys)), *pods)).sub_jobs
    assert [named(each.tasks) for each in sub_jobs] == [["a", "c"], ["b"], ["d"], ["e"]]
    assert sub_jobs[0].uid == "default/g/p-1-2"
    assert sub_jobs[2].uid == sub_jobs[3].uid == "default/g/p-1-2-3"


def test_the_first_policy_that_takes_a_pod_has_it() -> None:
    session = session_of(divided(of_role("ps"), policy("any")), part(0, "a", role="ps"), part(0, "b", role="worker"))
    assert members_of(session) == {"default/g/ps-0": ["a"], "default/g/any-0": ["b"]}


@pytest.mark.parametrize("labels", [{}, {KEY: ""}, {KEY: "0", ROLE: "worker"}])
def test_a_pod_that_no_policy_takes_is_of_the_rest(labels: dict[str, str]) -> None:
    session = session_of(divided(of_role("ps", 2, 1)), pod("a", group="g", labels=labels), part(0, "b", role="ps"))
    rest = partition_of(session).of(task_of(session, "a"))
    assert (rest.uid, rest.min_available, rest.match_index, rest.values) == ("default/g", 1, 0, ())


def test_all_pods_that_a_policy_without_keys_selects_are_one_sub_job() -> None:
    objects = [
        divided({**of_role("ps", 2, 1), "matchLabelKeys": []}),
        part(0, "a", role="ps"),
        part(1, "b", role="ps"),
        part(0, "c", role="worker"),
    ]
    assert members_of(session_of(*objects)) == {"default/g/ps": ["a", "b"], "default/g": ["c"]}


def test_a_policy_with_a_selector_that_cannot_be_read_takes_no_pod_and_says_so() -> None:
    wrong = {"matchExpressions": [{"key": "x", "operator": "Near", "values": ["y"]}]}
    objects = [node("n", cpu=1), divided(policy("p", labelSelector=wrong)), *part(0)]
    assert members_of(session_of(*objects)) == {"default/g": ["a0", "b0"]}
    (why,) = [why for why in reasons(*objects) if why["reason"] == "a sub-group policy takes no pod"]
    assert "labelSelector" in why["detail"]["message"]


@pytest.mark.parametrize(
    ("value", "index"),
    [("7", 7), ("007", 7), ("-3", -3), ("a", 0), ("1.5", 0), ("1_000", 0), ("٣", 0), (str(2**63 - 1), 2**63 - 1)],
)
def test_the_first_value_as_a_number_is_the_match_index(value: str, index: int) -> None:
    (sub_job,) = partition_of(session_of(divided(policy()), part(value, "a"))).sub_jobs
    assert sub_job.match_index == index


@pytest.mark.parametrize("value", [str(2**63), "9" * 40])
def test_a_number_beyond_64_bits_is_none(value: str) -> None:
    (sub_job,) = partition_of(session_of(divided(policy()), part(value, "a"))).sub_jobs
    assert sub_job.match_index == 0


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_raises_nothing_and_is_always_reached(size: int) -> None:
    assert bound(node("n", cpu=1), divided(policy(size=size, least=1)), part(0)) == {"a0"}


# --- counts -----------------------------------------------------------------------------------------------------------


def test_counts_of_a_sub_job_and_of_its_policy_follow_trials_and_their_reverse() -> None:
    session = session_of(node("n"), divided(policy(size=2, least=1)), part(0))
    partition = partition_of(session)
    (sub_job,) = partition.sub_jobs
    statement = Statement(session.trial, "test", partition.job)
    statement.allocate([task_of(session, "a0")], [0])
    assert (sub_job.is_ready(), sub_job.is_pipelined(), sub_job.margin) == (False, False, -1)
    statement.pipeline([task_of(session, "b0")], [0])
    assert (sub_job.is_ready(), sub_job.is_pipelined()) == (False, True)
    assert (partition.are_ready(), partition.are_pipelined()) == (False, True)
    statement.undo(1)
    assert not partition.are_pipelined()
    statement.allocate([task_of(session, "b0")], [0])
    assert (sub_job.is_ready(), partition.are_ready()) == (True, True)
    statement.discard()
    assert (sub_job.counts[TaskStatus.PENDING], sub_job.ready_count, partition.are_ready()) == (2, 0, False)


def test_pending_best_effort_tasks_count_towards_a_sub_jobs_size() -> None:
    session = session_of(divided(policy(size=2)), part(0, "a", on="n"), part(0, "b", cpu=0))
    (sub_job,) = partition_of(session).sub_jobs
    assert sub_job.is_ready()


steps = st.lists(st.tuples(st.sampled_from(["allocate", "pipeline", "evict", "undo"]), st.integers(0, 8)), max_size=25)


@settings(max_examples=examples(60), deadline=None)
@given(steps)
def test_counts_are_those_of_the_tasks_at_any_time(trial: list[tuple[str, int]]) -> None:
    session = session_of(
        node("n", cpu=99),
        divided(of_role("ps", 2, 1), of_role("w", 1, 2)),
        part(0, role="ps"),
        part(1, role="ps", on="n"),
        part(0, "w0", role="w"),
        part(1, "w1", "w2", role="w", cpu=0),
        [pod("rest", group="g", cpu=1)],
    )
    job, partition = job_of(session, "g"), partition_of(session)
    statement, tasks = Statement(session.trial, "test", job), job.tasks()
    for verb, number in trial:
        task = tasks[number % len(tasks)]
        if verb == "undo":
            statement.undo(min(number, statement.save()))
        elif verb == "evict" and task.status == TaskStatus.RUNNING:
            statement.evict(task, "test")
        elif verb != "evict" and task.status == TaskStatus.PENDING:
            getattr(statement, verb)([task], [0])
        for groups in partition.policies:
            own = [each for each in partition.sub_jobs if each.groups is groups]
            assert groups.ready == sum(reached(each, READY_STATUSES) for each in own)
            assert groups.pipelined == sum(reached(each, (*READY_STATUSES, TaskStatus.PIPELINED)) for each in own)
        assert all(each.is_ready() == reached(each, READY_STATUSES) for each in partition.sub_jobs)


def reached(sub_job: SubJob, statuses: Any) -> bool:
    """Whether enough tasks count, counted one by one."""
    count = 0
    for task in sub_job.tasks:
        count += task.status in statuses or (task.best_effort and task.status == TaskStatus.PENDING)
    return count >= sub_job.min_available


# --- the order --------------------------------------------------------------------------------------------------------


def order(*objects: Manifest | Iterator[Manifest], conf: str = BARE) -> list[str]:
    """Sub-jobs in the order of the worksheet, by the name after the job's."""
    session = session_of(*objects, conf=conf)
    partition = partition_of(session)
    worksheet = Worksheet(framework_of(session), partition, job_of(session, "g").pending())
    return [worksheet.pop()[0].uid.removeprefix("default/g") for _ in range(len(worksheet))]


def test_sub_jobs_come_by_index_as_a_number_then_by_id() -> None:
    pods = [*part(10, "a"), *part(9, "b"), *part("x", "c"), pod("d", group="g", cpu=1)]
    assert order(divided(policy()), *pods) == ["", "/p-x", "/p-9", "/p-10"]


def test_the_plugins_order_comes_first() -> None:
    urgent = {"volcano.sh/task-priority": "5"}
    objects = [divided(policy()), *part(0, "a"), *part(1, "b", annotations=urgent), *part(1, "c")]
    assert order(*objects) == ["/p-1", "/p-0"]
    off = BARE.replace("name: priority", "name: priority\n    enabledSubJobOrder: false")
    assert order(*objects, conf=off) == ["/p-0", "/p-1"]


def test_a_broken_sub_job_comes_first_and_a_ready_one_last() -> None:
    ready, whole, broken = part(0, "a", "b", on="n"), part(1), part(2, "c", on="n")
    pods = [*ready, *part(0, "e"), *whole, *broken, *part(2, "d")]
    assert order(node("n"), divided(policy(size=2)), *pods) == ["/p-2", "/p-1", "/p-0"]


def test_what_the_minima_need_comes_before_all_else() -> None:
    pods = [*part(0, "a", role="w"), *part(1, "b", role="w"), *part(2, "c", role="ps"), *part(3, "d", role="ps")]
    assert order(divided(of_role("w"), of_role("ps", least=1)), *pods) == ["/ps-2", "/w-0", "/w-1", "/ps-3"]


def test_sub_jobs_that_are_ready_count_towards_the_minima() -> None:
    pods = [*part(0, "a", role="w"), *part(1, "b", role="ps", on="n"), *part(2, "c", role="ps")]
    assert order(node("n"), divided(of_role("w"), of_role("ps", least=1)), *pods) == ["/w-0", "/ps-2"]
    assert order(node("n"), divided(of_role("w"), of_role("ps", least=2)), *pods) == ["/ps-2", "/w-0"]


def test_a_sub_job_with_nothing_to_place_is_not_what_the_minima_need() -> None:
    """The one that lost its pod for good must not stand in the way of the one that can be placed."""
    pods = [*part(0, "a", role="w"), *part(1, "b", role="ps", phase="Failed"), *part(2, "c", role="ps")]
    assert order(divided(of_role("w"), of_role("ps", least=1)), *pods) == ["/ps-2", "/w-0"]


def test_a_ready_sub_jobs_further_tasks_come_after_all_that_the_minima_need() -> None:
    """Though its priority is higher."""
    urgent = {"volcano.sh/task-priority": "5"}
    first = part(0, "a", "b", "c", annotations=urgent)
    assert bound(node("n", cpu=2), divided(policy(least=2)), first, part(1, "d")) == {"a", "d"}


# --- placement --------------------------------------------------------------------------------------------------------


def test_a_sub_job_that_does_not_fit_keeps_nothing_and_its_room_goes_to_the_next() -> None:
    pods = [*part(0, "a", "b", cpu=2), *part(1, "c", "d")]
    assert bound(node("n", cpu=3), divided(policy(size=2)), *pods) == {"c", "d"}


def test_without_policies_the_same_pods_are_placed_one_by_one() -> None:
    pods = [*part(0, "a", "b", cpu=2), *part(1, "c", "d")]
    assert bound(node("n", cpu=3), group("g"), *pods) == {"a", "c"}


def test_a_half_placed_sub_job_leaves_no_trace() -> None:
    session = session_after(node("n", cpu=3), divided(policy(size=2)), part(0, "a", "b", cpu=2), part(1, "c", "d"))
    assert session.nodes.usage.idle[0, 0] == 1000
    assert task_of(session, "a").status == TaskStatus.PENDING
    assert task_of(session, "a").node == -1
    assert session.trial.placements == 2


def test_a_sub_job_that_does_not_fit_says_how_far_it_came() -> None:
    objects = [node("n", cpu=3), divided(policy(size=2)), *part(0, "a", "b", cpu=2), *part(1, "c", "d")]
    (why,) = [why for why in reasons(*objects) if why["gate"] == "gang"]
    assert why["plugin"] == "gang"
    assert why["reason"] == "fewer tasks of a sub-group have room than its size"
    assert why["detail"] == {"policy": "p", "subGroups": "1", "first": "0", "have": "1", "size": "2"}
    assert "Insufficient cpu" in [why["reason"] for why in reasons(*objects)]


def test_a_job_that_lacks_a_sub_group_only_does_not_say_that_the_plugin_rejects_it() -> None:
    """It did, first and without a word why, as its number of pods is enough."""
    found = reasons(node("n"), divided(policy(size=2, least=2)), *part(0, "a"), *part(1, "c", on="n"))
    assert [why["code"] for why in found if why["gate"] == "gang"] == ["sub-group-short", "gang-short-of-sub-groups"]


def test_tasks_beyond_a_sub_jobs_size_are_placed_one_by_one() -> None:
    assert bound(node("n", cpu=3), divided(policy(size=2)), part(0, "a", "b", "c", "d")) == {"a", "b", "c"}


def test_a_job_needs_its_minimum_of_tasks_beside_its_sub_groups() -> None:
    pods = [*part(0), *part(1)]
    assert bound(node("n", cpu=3), divided(policy(size=2, least=1), members=4), *pods) == set()
    assert bound(node("n", cpu=4), divided(policy(size=2, least=1), members=4), *pods) == {"a0", "b0", "a1", "b1"}
    assert bound(node("n", cpu=3), divided(policy(size=2, least=1), members=2), *pods) == {"a0", "b0"}


def test_a_job_needs_the_minimum_of_sub_groups_of_each_policy() -> None:
    pods = [*part(0, role="ps"), *part(0, "c", "d", role="w"), *part(1, "e", "f", role="w")]
    policies = [of_role("ps", 2, 1), of_role("w", 2, 2)]
    assert bound(node("n", cpu=5), divided(*policies), *pods) == set()
    assert len(bound(node("n", cpu=6), divided(*policies), *pods)) == 6
    (why,) = [
        why
        for why in reasons(node("n", cpu=5), divided(*policies), *pods)
        if why["reason"] == "fewer sub-groups than the minimum"
    ]
    assert why["detail"] == {"policy": "ps", "have": "0", "min": "1"}


def test_the_rest_of_the_pods_count_towards_the_jobs_minimum() -> None:
    loose = [pod("loose-0", group="g", cpu=1), pod("loose-1", group="g", cpu=1)]
    spec = divided(policy(size=2, least=1), members=3)
    assert bound(node("n", cpu=3), spec, part(0), *loose) == {"a0", "b0", "loose-0"}
    assert bound(node("n", cpu=2), spec, part(0), *loose) == set()


def test_a_sub_job_that_waits_for_room_that_is_freed_keeps_it_and_nothing_is_bound() -> None:
    leaving = gang("old", 1, on=["n"], cpu=1, deleting=True)
    result = planned(node("n", cpu=2), leaving, divided(policy(size=2, least=1)), part(0), conf=BARE)
    assert result.binds == {}
    assert result.pipelined == {"default/b0": "n"}


def a_waiting_and_a_ready_one(least: int, members: int) -> list[Manifest]:
    """4 cpu are free now and 3 later: ``a`` (2), ``c`` and ``d`` (1 each) fill the ones, ``b`` waits for the others."""
    return flat(
        [
            node("n", cpu=5),
            node("m", cpu=2),
            gang("old", 1, on=["n"], cpu=3, deleting=True),
            divided(policy(size=2, least=least), members=members),
            part(0, "a", cpu=2),
            part(0, "b", cpu=3),
            part(1, "c", "d", cpu=1),
        ]
    )


def test_a_sub_job_that_waits_is_bound_whole_later_and_the_ready_one_now() -> None:
    result = planned(*a_waiting_and_a_ready_one(least=1, members=1), conf=BARE)
    assert set(result.binds) == {"default/c", "default/d"}
    assert result.pipelined == {"default/b": "n"}


def test_the_room_of_a_sub_job_that_waits_is_held_against_others() -> None:
    objects = [*a_waiting_and_a_ready_one(least=1, members=1), *gang("late", 4, members=1, cpu=1, created=9)]
    assert set(planned(*objects, conf=BARE).binds) == {"default/c", "default/d"}


def test_a_sub_job_that_waited_is_bound_whole_when_its_room_is_free() -> None:
    world = World(*a_waiting_and_a_ready_one(least=1, members=1), conf=BARE)
    world.cycle()
    assert set(world.placed()) == {"c", "d", "old-0"}
    world.remove("Pod", "default/old-0")
    world.cycle()
    assert set(world.placed()) == {"a", "b", "c", "d"}


@pytest.mark.parametrize(("least", "members"), [(2, 1), (1, 3)])
def test_a_job_that_is_not_ready_without_the_sub_job_that_waits_waits_whole(least: int, members: int) -> None:
    result = planned(*a_waiting_and_a_ready_one(least, members), conf=BARE)
    assert result.binds == {}
    assert result.pipelined == {"default/b": "n"}


def test_backfill_binds_nothing_of_a_sub_job_that_waits() -> None:
    conf = BARE.replace("actions: allocate", 'actions: "allocate, backfill"')
    objects = [*a_waiting_and_a_ready_one(least=1, members=1), *part(2, "e", cpu=0)]
    result = planned(*objects, conf=conf)
    assert set(result.binds) == {"default/c", "default/d", "default/e"}
    assert result.pipelined == {"default/b": "n"}


def test_a_role_that_found_no_node_in_one_sub_job_is_tried_in_the_next() -> None:
    pods = [*part(0, "a", role="w", cpu=9), *part(1, "b", role="w")]
    assert bound(node("n", cpu=8), divided(policy()), *pods) == {"b"}
    assert bound(node("n", cpu=8), group("g"), *pods) == {"b"}  # by allocate's second round, for nobody else wants room


def test_of_a_role_in_one_sub_job_all_are_tried_when_nobody_else_wants_room() -> None:
    """A pod for which no node is large enough keeps no other one of its role from its size of the sub-group."""
    pods = [*part(0, "a", role="w", cpu=9), *part(0, "b", "c", role="w", created=1)]
    assert bound(node("n", cpu=8), divided(policy(size=2)), *pods) == {"b", "c"}
    assert bound(node("n", cpu=8), divided(policy(size=3)), *pods) == set()
    assert bound(node("n", cpu=8), divided(policy(size=1, least=2)), *pods, *part(1, "d", cpu=9)) == set()


def test_a_sub_job_goes_on_after_a_task_that_fits_nowhere_and_tries_its_role_again_next_turn() -> None:
    big, small = part(0, "a", role="w", cpu=9), part(0, "b", created=1)
    last = part(0, "c", role="w", created=2)
    assert bound(node("n", cpu=8), divided(policy(size=1)), big, small, last) == {"b", "c"}


@pytest.mark.parametrize(("size", "members"), [(2, 1), (1, 2)])
def test_where_all_of_a_sub_job_or_of_the_job_is_needed_the_first_that_fits_nowhere_ends_the_attempt(
    size: int, members: int
) -> None:
    found = reasons(node("n", cpu=1), divided(policy(size=size), members=members), part(0, cpu=9))
    assert [why["tasks"] for why in found if why["reason"] == "Insufficient cpu"] == [1]


def test_roles_bind_beside_sub_groups() -> None:
    policies = [of_role("w", 2, 1)]
    roles = {"minTaskMember": {"ps": 1, "w": 2}}
    pods = [*part(0, role="w"), *part("x", "ps", role="ps", cpu=2)]
    assert bound(node("n", cpu=3), divided(*policies, members=3, **roles), *pods) == set()
    assert len(bound(node("n", cpu=4), divided(*policies, members=3, **roles), *pods)) == 3


def test_sub_jobs_of_one_turn_are_one_statement_and_each_further_unit_another() -> None:
    session = session_after(node("n", cpu=8), divided(policy(size=2, least=2)), part(0), part(1), part(2))
    assert [len(statement) for statement in session.trial.statements] == [4, 2]


def test_without_gang_each_task_stands_alone() -> None:
    conf = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n"
    assert bound(node("n", cpu=3), divided(policy(size=2, least=2)), part(0), part(1), conf=conf) == {"a0", "b0", "a1"}


def test_with_its_flag_off_a_sub_jobs_size_does_not_bind() -> None:
    off = BARE.replace("name: gang", "name: gang\n    enabledSubJobReady: false")
    assert bound(node("n", cpu=1), divided(policy(size=2)), part(0), conf=off) == {"a0"}


def test_gated_and_best_effort_pods_are_no_units_of_placement() -> None:
    gate = {"schedulingGates": [{"name": "wait"}]}
    pods = [*part(0, "a", cpu=0), *part(0, "b", spec=gate), *part(0, "c")]
    session = session_after(node("n"), divided(policy(size=2)), *pods)
    assert [op.key for statement in session.trial.statements for op in statement.operations()] == ["default/c"]


def test_what_is_passed_over_does_not_hide_what_the_pods_wait_for() -> None:
    objects = [node("n", cpu=1), divided(policy("p", 2, least=1, networkTopology={"mode": "soft"})), *part(0)]
    assert reasons(*objects)[0]["reason"] == "Insufficient cpu"


def test_nominated_tasks_of_sub_jobs_come_first_too() -> None:
    from tests.actions.test_gangpreempt import CONF as gangpreempt

    world = World(
        node("n", cpu=4),
        priority_class("high", 100),
        gang("low", 4, members=1, on=["n"] * 4, cpu=1, phase="Running"),
        divided(policy(size=2, least=2), members=4, priorityClassName="high"),
        [*part(0), *part(1)],
        conf=gangpreempt,
    )
    world.rest()
    assert sorted(name for name in world.placed() if not name.startswith("low")) == ["a0", "a1", "b0", "b1"]


# --- making room ------------------------------------------------------------------------------------------------------

PREEMPT = """
actions: "allocate, {action}"
tiers:
- plugins:
  - name: priority
- plugins:
  - name: gang
  - name: predicates
  - name: {shares}
"""
ACTIONS = pytest.mark.parametrize("action", ["preempt", "gangpreempt", "reclaim", "gangreclaim"])


def making_room(action: str, *pods: Manifest, room: int = 0, **spec: Any) -> tuple[list[str], list[str]]:
    """Who goes, and who waits for it, when sub-groups of two want room: three small pods, of which one has to stay,
    fill a node of five cpu but for ``room``. They are of lower priority or of a queue above its share."""
    other = action.endswith("reclaim")
    low = gang("low", 3, members=1, on=["n"] * 3, phase="Running", cpu=1, queue="borrower" if other else "default")
    queues = [queue("borrower", deserved={"cpu": "1"}), queue("default", deserved={"cpu": "9"})]
    result = planned(
        node("n", cpu=3 + room),
        priority_class("high", 100),
        queues,
        low,
        divided(policy(size=2), priorityClassName="high", **spec),
        pods,
        conf=PREEMPT.format(action=action, shares="capacity"),
    )
    return sorted(key.partition("/")[2] for key in result.evictions), sorted(
        key.partition("/")[2] for key in result.pipelined
    )


@ACTIONS
def test_nobody_goes_for_a_part_of_a_sub_group(action: str) -> None:
    """Room for the second of two pods nobody can make, so the first one would never be bound."""
    pods = flat([part(0, "a"), part(0, "b", cpu=9, created=1)])
    assert making_room(action, *pods) == ([], [])


@ACTIONS
def test_nobody_goes_for_a_sub_group_that_has_too_few_pods(action: str) -> None:
    assert making_room(action, *flat([part(0, "a")])) == ([], [])


@ACTIONS
def test_room_is_made_for_a_sub_group_as_a_whole(action: str) -> None:
    """Also where the job's minimum is one pod: a pod alone of a sub-group of two would never be bound."""
    gone, waiting = making_room(action, *flat([part(0)]))
    assert (len(gone), waiting) == (2, ["a0", "b0"])


@ACTIONS
def test_a_sub_group_that_has_too_few_pods_is_in_no_other_ones_way(action: str) -> None:
    gone, waiting = making_room(action, *flat([part(0, "a"), part(1)]))
    assert (len(gone), waiting) == (2, ["a1", "b1"])


@pytest.mark.parametrize(("size", "gone"), [(2, 2), (9, 0)])
def test_within_a_job_lower_pods_go_for_a_sub_group_as_a_whole(size: int, gone: int) -> None:
    """Two of the job's own pods of lower priority make room for a sub-group, none where that is too large."""
    conf = PREEMPT.format(action="preempt", shares="capacity")
    marks = {"annotations": {"volcano.sh/task-priority": "9"}}
    small, large = part(0, "a", **marks), part(0, "b", cpu=size - 1, created=1, **marks)
    low = [pod(f"low-{i}", group="g", on="n", cpu=1, annotations={"volcano.sh/task-priority": "1"}) for i in range(3)]
    result = planned(node("n", cpu=3), divided(policy(size=2), phase="Running"), low, small, large, conf=conf)
    assert (len(result.evictions), len(result.pipelined)) == (gone, gone)


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_what_a_sub_group_gives_back_is_there_for_the_next(action: str) -> None:
    """The first sub-group's small pod finds room, its large one does not: the second sub-group takes that room."""
    pods = flat([part(0, "a"), part(0, "b", cpu=9, created=1), part(1, created=2)])
    gone, waiting = making_room(action, *pods)
    assert (len(gone), waiting) == (2, ["a1", "b1"])


def bundles(*policies: Manifest, pods: list[Manifest], members: int = 1, **spec: Any) -> list[tuple[bool, list[str]]]:
    """A job's bundles: whether they are the whole job, and their tasks."""
    session = session_of(node("n", cpu=64), divided(*policies, members=members, phase="Running", **spec), *pods)
    job = job_of(session, "g")
    placed = [task for task in job.tasks() if task.status == TaskStatus.RUNNING]
    return [(bundle.whole, named(bundle.tasks)) for bundle in bundles_of(job, placed, session.nodes.total > 0)]


def prioritized(number: int, *names: tuple[str, int], role: str = "") -> Iterator[Manifest]:
    for name, priority in names:
        marks = {"volcano.sh/task-priority": str(priority)}
        yield from part(number, name, role=role, on="n", annotations=marks)


def three_of_two() -> list[Manifest]:
    return flat([prioritized(i, (f"a{i}", 10 * i), (f"b{i}", 10 * i + 1)) for i in range(3)])


def test_a_policys_surplus_bounds_how_many_sub_groups_a_job_spares() -> None:
    """Three sub-groups of two, of which two must stay: only the first one's tasks may go."""
    assert bundles(policy(size=2, least=2), pods=three_of_two()) == [
        (False, ["a0", "b0"]),
        (True, ["a1", "b1", "a2", "b2"]),
    ]


def test_the_jobs_minimum_binds_beside_the_surplus_of_sub_groups() -> None:
    spare = bundles(policy(size=2, least=2), pods=three_of_two(), members=5)
    assert spare == [(False, ["a0"]), (True, ["b0", "a1", "b1", "a2", "b2"])]


def test_without_a_minimum_of_sub_groups_only_the_jobs_own_binds() -> None:
    spare = bundles(policy(size=2), pods=three_of_two(), members=2)
    assert spare == [(False, ["a0", "b0", "a1", "b1"]), (True, ["a2", "b2"])]


def test_a_sub_group_that_is_broken_already_is_spared_though_none_else_may_go() -> None:
    pods = flat([three_of_two()[1:]])
    spare = bundles(policy(size=2, least=2), pods=pods)
    assert spare == [(False, ["b0"]), (True, ["a1", "b1", "a2", "b2"])]


def test_what_a_sub_group_has_above_its_size_costs_no_sub_group() -> None:
    pods = flat([prioritized(0, ("a", 1), ("b", 2), ("c", 3)), prioritized(1, ("d", 4), ("e", 5))])
    assert bundles(policy(size=2, least=2), pods=pods) == [(False, ["a"]), (True, ["b", "c", "d", "e"])]


def test_the_rest_of_the_pods_belongs_to_no_minimum_of_sub_groups() -> None:
    pods = flat([part(0, on="n"), [pod(f"loose-{i}", group="g", on="n", cpu=1) for i in range(2)]])
    assert bundles(policy(size=2, least=1), pods=pods) == [(False, ["loose-0", "loose-1"]), (True, ["a0", "b0"])]


def test_roles_and_sub_groups_bind_together() -> None:
    """One more master than needed may go; the worker of the broken sub-group may not, its role has none to spare."""
    pods = flat(
        [
            prioritized(0, ("m1", 0), role="master"),
            prioritized(1, ("m2", 10), role="master"),
            prioritized(0, ("w1a", 1), role="worker"),
            prioritized(1, ("w2a", 11), ("w2b", 12), role="worker"),
            prioritized(2, ("w3a", 13), ("w3b", 14), role="worker"),
        ]
    )
    policies = [of_role("master", 1, 1), of_role("worker", 2, 2)]
    spare = bundles(*policies, pods=pods, members=5, minTaskMember={"worker": 5})
    assert spare == [(False, ["m1"]), (True, ["w1a", "m2", "w2a", "w2b", "w3a", "w3b"])]


def test_a_job_below_its_minimum_gives_all() -> None:
    assert bundles(policy(size=3, least=2), pods=flat([part(0, on="n")]), members=10) == [(False, ["a0", "b0"])]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 11), max_size=12, unique=True), st.integers(1, 3), st.integers(0, 4))
def test_what_is_spared_keeps_the_minimum_of_sub_groups(going: list[int], size: int, least: int) -> None:
    pods = flat([part(i // 3, f"p{i:02}", on="n") for i in range(12)])
    session = session_of(node("n", cpu=64), divided(policy(size=size, least=least)), *pods)
    partition, job = partition_of(session), job_of(session, "g")
    spare, statement, tasks = SpareSubJobs(partition), Statement(session.trial, "test", job), job.tasks()
    for number in going:
        if spare.may_lose(tasks[number]):
            spare.lose(tasks[number])
            statement.evict(tasks[number], "test")
            assert partition.are_ready()
        else:
            save_point = statement.save()
            statement.evict(tasks[number], "test")
            assert not partition.are_ready()
            statement.undo(save_point)


# --- laws -------------------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> list[Manifest]:
    """Some room, some of it being freed, and a job of two policies and loose pods."""
    number = st.integers
    sizes, least = draw(st.tuples(number(1, 3), number(1, 3))), draw(st.tuples(number(0, 2), number(0, 2)))
    count = [draw(number(minimum, 3)) for minimum in least]
    objects = [node(f"n{i}", cpu=draw(number(1, 6))) for i in range(draw(number(1, 3)))]
    leaving = gang("old", 1, on=["n0"], cpu=draw(number(0, 4)), deleting=True)
    pods = [
        pod(f"{role}-{i}-{k}", group="g", cpu=draw(number(1, 3)), labels={ROLE: role, KEY: str(i)})
        for role, groups, size in zip(("ps", "w"), count, sizes, strict=True)
        for i in range(groups)
        for k in range(size + draw(number(-1, 1)))
    ]
    loose = [pod(f"loose-{i}", group="g", cpu=1) for i in range(draw(number(0, 2)))]
    members = draw(number(0, 6))
    policies = [of_role(role, *each) for role, *each in zip(("ps", "w"), sizes, least, strict=True)]
    return flat([objects, leaving, divided(*policies, members=members), pods, loose])


@settings(max_examples=examples(200), deadline=None)
@given(clusters())
def test_sub_jobs_are_bound_whole_and_jobs_with_all_their_minima(objects: list[Manifest]) -> None:
    (spec,) = [obj["spec"] for obj in objects if obj["kind"] == "PodGroup" and obj["metadata"]["name"] == "g"]
    names = {key.partition("/")[2] for key in planned(*objects, conf=BARE).binds}
    by_sub_job: dict[str, int] = {}
    for name in names:
        if not name.startswith("loose"):
            sub_job = name.rpartition("-")[0]
            by_sub_job[sub_job] = by_sub_job.get(sub_job, 0) + 1
    for each in spec["subGroupPolicy"]:
        own = [count for sub_job, count in by_sub_job.items() if sub_job.startswith(each["name"])]
        assert all(count >= each["subGroupSize"] for count in own)
        assert not names or len(own) >= each["minSubGroups"]
    assert not names or len(names) >= spec["minMember"]


@settings(max_examples=examples(60), deadline=None)
@given(clusters())
def test_random_sessions_with_sub_groups_are_decided_again_and_memory_changes_nothing(objects: list[Manifest]) -> None:
    worlds = [World(*objects, conf=BARE, memory=memory) for memory in (True, False)]
    for world in worlds:
        world.cycle()
        world.remove("Pod", "default/old-0")
        world.put(node("late", cpu=4))
        world.rest()
    assert plans(worlds[0]) == plans(worlds[1])
    decided_again(worlds[0])


def lively(memory: bool = True) -> World:
    """A job of sub-groups that is placed, loses a pod, and is filled again."""
    world = World(
        node("n0", cpu=3),
        node("n1", cpu=2),
        divided(of_role("ps", 1, 1), of_role("w", 2, 1), members=3, phase="Pending"),
        [*part(0, "ps-0", role="ps"), *part(0, role="w"), *part(1, role="w")],
        memory=memory,
    )
    world.rest()
    world.remove("Pod", "default/a1")
    world.put(gang("other", 2, members=1, cpu=1, phase="Pending"))
    world.rest()
    world.put(node("n2", cpu=3), part(1, "a1", role="w"), part(2, role="w"))
    world.rest()
    return world


def test_a_job_of_sub_groups_is_placed_refilled_and_at_rest() -> None:
    """The sub-group that lost a pod is filled on the new node; what is left there is too little for another one."""
    world = lively()
    assert set(world.placed()) == {"ps-0", "a0", "b0", "a1", "b1", "other-0", "other-1"}
    assert "fewer tasks of a sub-group have room than its size" in world.reasons("g")


def plans(world: World) -> list[bytes]:
    return [event.plan for event in world.log if isinstance(event, ev.SessionDecided)]


def decided_again(world: World) -> int:
    """Decide every session of a log again; how many there are."""
    state, count = ClusterState(), 0
    for sequence, event in enumerate(world.log, 1):
        if isinstance(event, ev.SessionDecided):
            snapshot = SnapshotMaker(state).snapshot()
            assert ev.encode_plan(decide(snapshot, world.policy, event.now, event.seed)) == event.plan
            count += 1
        state.apply(sequence, event)
    return count


def test_sessions_with_sub_groups_are_decided_again_from_the_log() -> None:
    assert decided_again(lively()) > 4


def test_with_and_without_memory_the_plans_are_the_same() -> None:
    assert plans(lively()) == plans(lively(memory=False))


def test_the_order_in_which_pods_arrive_changes_nothing() -> None:
    objects = [divided(policy(size=2, least=1)), node("n", cpu=5), *part(0), *part(1), *part(2)]
    assert planned(*objects, conf=BARE).binds == planned(*reversed(objects), conf=BARE).binds
