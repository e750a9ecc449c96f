"""A namespace that is held back: no session decides on its pending pods, until a stated time and nowhere else."""

from __future__ import annotations

import pytest

from tests.dsl import Manifest, gang, group, node, pod, priority_class, queue
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.state.cluster_state import ClusterState
from vcd.state.deadlines import next_deadline
from vcd.state.snapshot import SnapshotMaker

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: predicates
  - name: capacity
"""
ALL = f'actions: "enqueue, allocate, backfill, preempt, reclaim"{TIERS}'
OTHERWISE = f'actions: "preempt, backfill, reclaim, allocate"{TIERS}'
MINUTE = 60 * 10**9
NOTHING = ev.encode_plan(ev.Plan())


def held(*objects: Manifest | list[Manifest], conf: str = ALL, memory: bool = True) -> World:
    """A cluster in which another scheduler binds pods of the namespace `a` for the next minute."""
    world = World(*objects, conf=conf, memory=memory)
    world.happen(ev.ForeignBound("a/theirs", "u", "n", world.now + MINUTE))
    return world


def of_namespace(namespace: str, **amounts: float) -> list[Manifest]:
    """A group of one pod, which differs from those of other namespaces by its name."""
    name = f"{namespace}-0"
    return [group(name, namespace=namespace, phase="Pending"), pod(name, group=name, namespace=namespace, **amounts)]


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@pytest.mark.parametrize("conf", [ALL, OTHERWISE])
def test_a_gang_whose_pods_are_alike_waits(size: int, phase: str, conf: str) -> None:
    """Pods that are alike were placed at once, and nobody asked about their namespace."""
    pods = [pod(f"a-{number}", group="a", namespace="a", cpu=1) for number in range(size)]
    world = held(node("n", cpu=8), group("a", namespace="a", members=size, phase=phase), *pods, conf=conf)
    for _ in range(3):
        world.cycle()
    assert world.placed() == {}
    world.now = world.state.held_namespaces["a"]
    for _ in range(3):
        world.cycle()
    assert len(world.placed()) == size


def reason_in(world: World) -> str:
    """Why the group of namespace `a` waits."""
    return "; ".join(f"{told.gate}: {told.reason}" for told in all_told(world.state.waiting.get("a/a-0", ())))


@pytest.mark.parametrize("conf", [ALL, OTHERWISE])
@pytest.mark.parametrize("amounts", [{"cpu": 1}, {}], ids=["cpu", "best effort"])
@pytest.mark.parametrize("memory", [True, False])
def test_pods_of_other_namespaces_are_placed_beside_equal_ones_that_wait(
    amounts: dict[str, float], conf: str, memory: bool
) -> None:
    others = [of_namespace(name, **amounts) for name in ("b", "c")]
    world = held(node("n", cpu=8), of_namespace("a", **amounts), *others, conf=conf, memory=memory)
    for _ in range(3):
        world.cycle()
    assert sorted(world.placed()) == ["b-0", "c-0"]
    assert "vcd holds the namespace back until" in reason_in(world)


def test_it_ends_at_the_stated_time_without_an_event() -> None:
    world = held(node("n", cpu=8), of_namespace("a", cpu=1))
    world.cycle()
    assert next_deadline(world.state, world.now) == world.state.held_namespaces["a"]
    world.now = world.state.held_namespaces["a"]
    world.cycle()
    assert world.state.held_namespaces == {}
    world.cycle()
    assert list(world.placed()) == ["a-0"]


def test_a_pod_that_waits_so_takes_nothing_from_others_and_has_nothing_evicted_for_it() -> None:
    world = held(
        node("n", cpu=2),
        queue("q", capability={"cpu": 2}),
        priority_class("high", 100),
        gang("low", 1, cpu=1, queue="q", on=["n"], phase="Running"),
        group("a-0", namespace="a", queue="q", priorityClassName="high"),
        pod("a-0", group="a-0", namespace="a", cpu=2, spec={"priority": 100}),
        gang("next", 1, cpu=1, queue="q"),
    )
    for _ in range(3):
        world.cycle()
    assert world.evicted == []
    assert "next-0" in world.placed()


def test_the_state_has_it_after_a_checkpoint() -> None:
    world = held(node("n", cpu=8), of_namespace("a", cpu=1))
    assert ClusterState.load(world.state.dump()).held_namespaces == world.state.held_namespaces != {}


def test_a_group_that_was_admitted_before_reserves_nothing_meanwhile() -> None:
    world = World(
        node("n", cpu=4),
        gang("filler", 1, cpu=3, on=["n"], phase="Running"),
        queue("q", capability={"cpu": 2}),
        group("a-0", namespace="a", queue="q", minimum={"cpu": 2}),
        pod("a-0", group="a-0", namespace="a", cpu=2),
        conf=ALL,
    )
    world.cycle()
    world.happen(ev.ForeignBound("a/theirs", "u", "n", world.now + MINUTE))
    world.put(gang("next", 1, cpu=1, queue="q", phase="Pending", minimum={"cpu": 1}))
    for _ in range(3):
        world.cycle()
    assert list(world.placed()) == ["filler-0", "next-0"]
    world.now += MINUTE
    world.remove("Pod", "default/next-0", "default/filler-0")
    for _ in range(3):
        world.cycle()
    assert list(world.placed()) == ["a-0"]


def test_groups_that_did_not_change_are_summed_up_anew_when_a_hold_begins_and_ends() -> None:
    jobs = [of_namespace(name, cpu=4) for name in "abcdefgh"]
    world = World(node("n", cpu=8, unschedulable=True), *jobs)
    world.rest()
    ended = ev.SessionDecided(world.state.session + 1, 0, "p", MINUTE, 0, 1, {}, NOTHING)
    for event in (ev.ForeignBound("a/theirs", "u", "n", MINUTE), ended):
        world.happen(event)
        columns, anew = world.maker.snapshot().group_columns, SnapshotMaker(world.state).snapshot().group_columns
        assert (columns.held_back == anew.held_back).all()
