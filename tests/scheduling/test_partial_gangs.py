"""Gangs that were let in only in part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from tests.dsl import BARE, Manifest, gang, group, node, pod
from tests.world import World
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState
from vcd.state.records import TASK_SPEC

SECOND = 1_000_000_000


def partly_bound(conf: str = BARE) -> World:
    """A gang of three of which the last bind was refused, on a node that then lost the room for it."""
    world = World(node("n", cpu=3), gang("g", 3, cpu=1), conf=conf)
    plan = world.decide()
    *done, refused = [
        (number, position, operation)
        for number, statement in enumerate(plan.statements)
        for position, operation in enumerate(statement.operations)
    ]
    for number, position, operation in done:
        world.update_pod(operation.key, node=operation.node, phase="Running")
        world.happen(ev.OperationDone(1, number, position, "done"))
    world.happen(ev.OperationDone(1, *refused[:2], "failed", "refused"))
    world.put(node("n", cpu=2))
    return world


def evictions(plan: ev.Plan) -> list[str]:
    return [op.key for statement in plan.statements for op in statement.operations if op.verb == "evict"]


def test_a_gang_let_in_only_in_part_is_remembered() -> None:
    assert list(partly_bound().state.stranded) == ["default/g"]


def partly_left(last: str) -> World:
    """A gang of three of which two were bound; the last is to be."""
    world = World(node("n", cpu=3), gang("g", 3, cpu=1), conf=BARE)
    plan = world.decide()
    for key in (operation.key for statement in plan.statements for operation in statement.operations):
        if key != last:
            world.update_pod(key, node="n", phase="Running")
    return world


def test_so_is_one_of_which_a_pod_went_before_it_was_bound() -> None:
    world = partly_left("default/g-2")
    assert not world.state.stranded
    world.remove("Pod", "default/g-2")
    assert list(world.state.stranded) == ["default/g"]


def test_so_is_one_of_which_a_pod_came_again_under_its_name() -> None:
    world = partly_left("default/g-2")
    again = pod("g-2", group="g", cpu=1)
    again["metadata"]["uid"] = "another"
    world.put(again)
    assert list(world.state.stranded) == ["default/g"]
    world.cycle()
    world.cycle()
    assert (len(world.placed()), list(world.state.stranded)) == (3, [])


def test_one_of_which_a_pod_came_again_in_another_group_is_remembered_and_that_is_not() -> None:
    world = partly_left("default/g-2")
    again = pod("g-2", group="h", cpu=9)
    again["metadata"]["uid"] = "another"
    world.put(group("h", members=1), again)
    assert list(world.state.stranded) == ["default/g"]


WORKERS = {"minTaskMember": {"worker": 3}}
GROUP_NAME = "scheduling.k8s.io/group-name"


@pytest.mark.parametrize(
    ("divided", "left"),
    [
        ({}, {GROUP_NAME: ""}),
        ({}, {GROUP_NAME: "other"}),
        (WORKERS, {TASK_SPEC: "ps"}),
    ],
)
def test_a_gang_that_a_pod_leaves_before_it_is_bound_is_remembered_and_released(
    divided: Manifest, left: Mapping[str, str]
) -> None:
    members = [pod(f"g-{n}", group="g", cpu=1, annotations={TASK_SPEC: "worker"}) for n in range(3)]
    world = World(node("n", cpu=3), group("g", members=3, **divided), members, conf=BARE)
    world.decide()
    members[2]["metadata"]["annotations"] |= left
    world.put(members[2])  # its bind is in flight
    for number in range(3):
        world.update_pod(f"default/g-{number}", node="n", phase="Running")
    assert list(world.state.stranded) == ["default/g"]
    world.now += 61 * SECOND
    placed = [f"default/g-{number}" for number in range(3) if number < 2 or GROUP_NAME not in left]
    assert evictions(world.cycle()) == placed


def test_one_that_has_its_minimum_without_the_pod_that_left_is_forgotten() -> None:
    world = World(node("n", cpu=3), gang("g", 3, cpu=1, members=2), conf=BARE)
    world.decide()
    left = pod("g-2", cpu=1)
    world.put(left)
    for number in range(3):
        world.update_pod(f"default/g-{number}", node="n", phase="Running")
    world.cycle()
    assert not world.state.stranded


def left_amid_the_session(again: bool, minimum: int = 3) -> World:
    """A gang of three of which a pod went while a session was decided on it, so late that it was logged before that
    session and folded after what is stale had been looked for; ``again``: another one came under its name."""
    world = World(node("n", cpu=3), gang("g", 3, cpu=1, members=minimum), conf=BARE)
    happen = world.happen

    def after_what_came_meanwhile(*events: ev.Event) -> None:
        world.happen = happen  # type: ignore[method-assign]
        world.remove("Pod", "default/g-1")
        if again:
            another = pod("g-1", group="g", cpu=1)
            another["metadata"]["uid"] = "another"
            world.put(another)
        happen(*events)

    world.happen = after_what_came_meanwhile  # type: ignore[method-assign]
    world.decide()
    for key in ("default/g-0", "default/g-2"):
        world.update_pod(key, node="n", phase="Running")
    return world


@pytest.mark.parametrize("again", [False, True])
def test_so_is_one_of_which_a_pod_went_just_before_its_session_was_logged(again: bool) -> None:
    assert list(left_amid_the_session(again).state.stranded) == ["default/g"]


def test_so_is_one_that_lost_what_it_had_as_the_rest_was_bound() -> None:
    """Of what was let in of it nothing was left when the session that bound the rest was logged."""
    world, happen = partly_bound(), World.happen
    world.put(node("n", cpu=3))

    def after_what_went_meanwhile(*events: ev.Event) -> None:
        world.happen = partial(happen, world)  # type: ignore[method-assign]
        world.remove("Pod", "default/g-0", "default/g-1")
        world.happen(*events)

    world.happen = after_what_went_meanwhile  # type: ignore[method-assign]
    since = world.now = world.now + SECOND
    (statement,) = world.decide().statements
    assert [(op.verb, op.key) for op in statement.operations] == [("bind", "default/g-2")]
    assert world.state.stranded == {"default/g": since}
    world.update_pod("default/g-2", node="n", phase="Running")
    world.now += 61 * SECOND
    assert evictions(world.cycle()) == ["default/g-2"]


def test_not_for_long_where_it_has_its_minimum_without_that_pod() -> None:
    world = left_amid_the_session(again=False, minimum=2)
    world.put(gang("other", 1, cpu=1))
    world.cycle()
    assert not world.state.stranded


def test_it_is_not_released_before_its_time() -> None:
    world = partly_bound()
    world.now += 50 * SECOND
    assert evictions(world.cycle()) == []


def test_it_is_released_after_the_stated_time() -> None:
    world = partly_bound()
    world.now += 61 * SECOND
    assert evictions(world.cycle()) == ["default/g-0", "default/g-1"]
    assert world.placed() == {}
    world.cycle()
    assert not world.state.stranded


def test_the_time_counts_from_the_first_attempt_that_failed() -> None:
    world = partly_bound()
    world.put(node("n", cpu=3))
    since = dict(world.state.stranded)
    for _ in range(3):
        world.now += 15 * SECOND
        plan = world.decide()
        ((number, statement),) = enumerate(plan.statements)
        assert [(op.verb, op.key) for op in statement.operations] == [("bind", "default/g-2")]
        world.happen(ev.OperationDone(world.state.session, number, 0, "failed", "refused"))
        assert world.state.stranded == since
    world.now += 16 * SECOND
    assert evictions(world.cycle()) == ["default/g-0", "default/g-1"]


ROLES = {"minTaskMember": {"ps": 1, "worker": 4}}
SUB_GROUPS = {"subGroupPolicy": [{"name": "p", "matchLabelKeys": [TASK_SPEC], "subGroupSize": 1, "minSubGroups": 2}]}


@pytest.mark.parametrize("divided", [ROLES, SUB_GROUPS])
def test_so_is_one_of_which_only_a_role_or_a_sub_group_is_denied_for_ever(
    divided: Manifest,
) -> None:
    members = [pod(f"g-{n}", group="g", cpu=1, labels={TASK_SPEC: "ps" if n == 5 else "worker"}) for n in range(6)]
    world = World(node("n", cpu=6), group("g", members=5, **divided), members, conf=BARE)
    workers, since = [f"default/g-{n}" for n in range(5)], world.now
    for _ in range(6):
        plan = world.decide()
        for number, statement in enumerate(plan.statements):
            for position, operation in enumerate(statement.operations):
                if operation.verb == "bind" and operation.key == "default/g-5":
                    world.happen(ev.OperationDone(world.state.session, number, position, "failed", "refused"))
                elif operation.verb == "bind":
                    world.update_pod(operation.key, node=operation.node, phase="Running")
                    world.happen(ev.OperationDone(world.state.session, number, position, "done"))
        if found := evictions(plan):
            assert found == workers
            assert 60 * SECOND <= world.now - since < 80 * SECOND
            return
        world.now += 15 * SECOND
    pytest.fail("it holds its room without end")


def test_one_with_sub_groups_that_was_completed_is_forgotten_though_more_of_it_wait() -> None:
    members = [pod(f"g-{n}", group="g", cpu=1, labels={TASK_SPEC: f"w{n}"}) for n in range(3)]
    elastic = pod("g-3", group="g", cpu=100, labels={TASK_SPEC: "w3"})
    policy = {"name": "p", "matchLabelKeys": [TASK_SPEC], "subGroupSize": 1, "minSubGroups": 3}
    world = World(node("n", cpu=3), group("g", members=3, subGroupPolicy=[policy]), members, elastic, conf=BARE)
    ((statement),) = world.decide().statements
    for position, operation in enumerate(statement.operations):
        if operation.key == "default/g-2":
            world.happen(ev.OperationDone(world.state.session, 0, position, "failed", "refused"))
        else:
            world.update_pod(operation.key, node="n", phase="Running")
    assert list(world.state.stranded) == ["default/g"]
    world.cycle()
    world.cycle()
    assert (len(world.placed()), list(world.state.stranded)) == (3, [])


def test_one_that_was_completed_is_forgotten() -> None:
    world = partly_bound()
    world.put(node("n", cpu=3))
    world.cycle()
    assert len(world.placed()) == 3
    world.now += 100 * SECOND
    assert evictions(world.cycle()) == []
    assert not world.state.stranded


def test_a_checkpoint_keeps_it() -> None:
    state = partly_bound().state
    assert ClusterState.load(state.dump()).stranded == state.stranded


def test_where_no_plugin_asks_for_whole_gangs_none_is_released() -> None:
    world = partly_bound("actions: allocate\ntiers:\n- plugins:\n  - name: priority\n")
    world.now += 61 * SECOND
    assert evictions(world.cycle()) == []
    assert len(world.placed()) == 2


def test_a_pod_that_failed_completes_no_gang() -> None:
    """A gang of three, of which one failed, and is replaced; of two others that are replaced one is refused."""
    world = World(node("n", cpu=3), gang("g", 3, on=["n"] * 3, cpu=1), conf=BARE)
    world.update_pod("default/g-0", phase="Failed")
    world.put(pod("g-3", group="g", cpu=1))
    world.cycle()
    world.remove("Pod", "default/g-1")
    world.put(pod("g-4", group="g", cpu=1))
    world.decide()
    world.happen(ev.OperationDone(world.state.session, 0, 0, "failed", "refused"))
    world.put(node("n", cpu=2))
    world.cycle()
    assert list(world.state.stranded) == ["default/g"]
    world.now += 61 * SECOND
    world.cycle()
    assert sorted(world.evicted) == ["default/g-2", "default/g-3"]
