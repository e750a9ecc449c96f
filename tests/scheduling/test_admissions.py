"""Reservations of admitted groups (docs/laws.md, law 8): those that lack pods end, completed groups have none."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.dsl import Manifest, gang, group, node, pod, queue
from tests.plugins.opened import conf
from tests.world import World
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState
from vcd.state.deadlines import next_deadline
from vcd.state.records import Settings

SECOND = 1_000_000_000
PLUGINS = ["overcommit", "proportion", "capacity", "capacity-card"]


def timed(*objects: Manifest | Iterable[Manifest], plugin: str = "overcommit", timeout: int = 300) -> World:
    world = World(*objects, conf=conf("priority", "gang", "predicates", plugin, actions="enqueue, allocate"))
    settings = Settings(admission_timeout=timeout).as_text()
    world.happen(ev.PolicyLoaded(world.policy.digest, world.policy.text, settings))
    return world


def ghosts(plugin: str = "overcommit", timeout: int = 300) -> World:
    """A cluster whose resources two admitted groups without pods reserve, and a group that waits for them."""
    world = timed(node("n", cpu=8), queue("q", capability={"cpu": 8, "memory": "1Ti"}), plugin=plugin, timeout=timeout)
    world.put(group(f"ghost{n}", queue="q", phase="Pending", minimum={"cpu": 4}, created=n) for n in range(2))
    world.cycle()
    assert [phase_of(world, f"ghost{n}") for n in range(2)] == ["Inqueue"] * 2
    world.put(gang("new", 1, queue="q", cpu=4, phase="Pending", minimum={"cpu": 4}, created=9))
    return world


def phase_of(world: World, name: str) -> str:
    return world.state.groups[f"default/{name}"].group.status.phase


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_reservation_without_pods_ends_in_time(plugin: str) -> None:
    world = ghosts(plugin)
    for _ in range(3):
        world.now += 90 * SECOND
        world.cycle()
        assert not world.placed()
    due = next_deadline(world.state, world.now)
    assert due is not None
    world.now = due
    assert world.cycle().more  # the next session follows at once
    world.cycle()
    world.cycle()
    assert list(world.placed()) == ["new-0"]
    assert [phase_of(world, f"ghost{n}") for n in range(2)] == ["Inqueue"] * 2
    assert "it was admitted, and has fewer pods than its minimum for 300 s" in world.reasons("ghost0")
    assert next_deadline(world.state, world.now) is None


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize(("phase", "there"), [("", 1), ("", 3), ("Succeeded", 3)])
def test_a_reservation_of_an_incomplete_group_ends_in_time(plugin: str, phase: str, there: int) -> None:
    """Its controller makes no more pods, or a ResourceQuota refuses them."""
    world = timed(node("n", cpu=4), queue("q", capability={"cpu": 4, "memory": "1Ti"}), plugin=plugin)
    world.put(group("ghost", queue="q", members=4, minimum={"cpu": 4}))
    world.put(pod(f"ghost-{n}", group="ghost", cpu=1, phase=phase, on="n" if phase else "") for n in range(there))
    world.cycle()
    world.put(gang("new", 1, queue="q", cpu=4, phase="Pending", minimum={"cpu": 4}, created=9))
    world.now += 200 * SECOND
    world.rest()
    assert not world.placed("new")
    world.now += 101 * SECOND
    for _ in range(3):
        world.cycle()
    assert world.placed("new")
    world.remove("Pod", "default/new-0")
    world.remove("PodGroup", "default/new")
    world.put(pod(f"ghost-{n}", group="ghost", cpu=1) for n in range(there, 4))
    world.rest()
    assert not world.state.admissions
    assert len(world.placed("ghost")) == 4


def test_the_time_of_an_incomplete_group_goes_on_while_its_pods_come_and_change() -> None:
    world = timed(node("n", cpu=1), group("g", members=3, minimum={"cpu": 3}))
    world.cycle()
    since = world.state.admissions["default/g"].since
    for n in range(3):
        world.now += 10 * SECOND
        world.put(pod(f"g-{n}", group="g", cpu=1))
        assert [one.since for one in world.state.admissions.values()] == [since] * (n < 2)
        world.put(pod(f"g-{n}", group="g", cpu=1, labels={"changed": "yes"}))
        assert [one.since for one in world.state.admissions.values()] == [since] * (n < 2)
    world.cycle()
    world.remove("Pod", "default/g-0")
    assert world.state.admissions["default/g"].since == world.now - SECOND


def test_with_no_time_for_them_it_never_does() -> None:
    world = ghosts(timeout=0)
    world.now += 10**6 * SECOND
    world.cycle()
    world.cycle()
    assert not world.placed()
    assert not world.state.admissions


def test_pods_that_come_late_are_placed_and_what_they_miss_is_reserved_again() -> None:
    world = ghosts()
    world.now += 301 * SECOND
    world.rest()
    world.put(pod("ghost0-0", group="ghost0", cpu=4))
    world.rest()
    assert sorted(world.placed()) == ["ghost0-0", "new-0"]
    assert world.why("ghost0") == []
    assert list(world.state.admissions) == ["default/ghost1"]


def test_the_time_begins_again_when_the_last_pod_is_gone() -> None:
    world = timed(node("n", cpu=4), group("g", minimum={"cpu": 4}), pod("g-0", group="g", cpu=5))
    world.cycle()
    assert not world.state.admissions
    world.now += 1000 * SECOND
    world.put(gang("other", 1, cpu=5))
    world.cycle()
    world.remove("Pod", "default/g-0")
    assert world.state.admissions["default/g"].since == world.now - SECOND


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("minimum", [1, 2])
def test_a_completed_group_whose_pods_are_deleted_stays_so_and_reserves_nothing(phase: str, minimum: int) -> None:
    world = timed(node("n", cpu=4), gang("old", 2, members=minimum, cpu=2, phase="Pending", minimum={"cpu": 4}))
    world.rest()
    for n in range(2):
        world.update_pod(f"default/old-{n}", phase=phase)
    world.rest()
    assert phase_of(world, "old") == "Completed"
    world.remove("Pod", "default/old-0", "default/old-1")
    world.rest()
    assert phase_of(world, "old") == "Completed"
    world.put(gang("new", 1, cpu=4, phase="Pending", minimum={"cpu": 4}))
    world.rest()
    assert list(world.placed()) == ["new-0"]
    world.put(pod("old-2", group="old", cpu=9))  # it wants something again
    world.cycle()
    assert phase_of(world, "old") == "Pending"


def test_groups_that_were_admitted_before_there_was_a_time_have_it_from_then_on() -> None:
    """As in the log of a version that states none: its sessions replay as they were decided."""
    world = ghosts(timeout=0)
    world.now += 1000 * SECOND
    world.happen(ev.PolicyLoaded(world.policy.digest, world.policy.text, Settings().as_text()))
    assert set(world.state.admissions) == {"default/ghost0", "default/ghost1"}
    assert all(ClusterState.load(world.state.dump()).admissions)


@pytest.mark.parametrize("seconds", [0, 301, 302])
def test_a_checkpoint_holds_them(seconds: int) -> None:
    world = ghosts()
    world.now += seconds * SECOND
    world.cycle()
    resumed = ClusterState.load(world.state.dump())
    assert resumed.admissions == world.state.admissions
    assert resumed.dump() == world.state.dump()
