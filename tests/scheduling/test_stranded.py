"""Gangs that were let in only in part."""

from __future__ import annotations

from tests.dsl import BARE, gang, node, pod
from tests.world import World
from vcd.model import events as ev
from vcd.state.cluster import ClusterState

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
