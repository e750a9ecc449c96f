"""A forecast begins with the back-offs of the state that it begins with."""

from __future__ import annotations

from typing import cast

import pytest

from tests.dsl import gang, node
from tests.scheduling.test_backoff import Refusing, binds_of
from tests.world import World
from vcd.eventlog import LogReader
from vcd.state.records import Settings
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.present_workload import Present, PresentWorkload
from vcd.timetravel.whatif.run_measures import Measure
from vcd.timetravel.whatif.runtimes import RunTimes
from vcd.timetravel.whatif.simulated_cluster import SimulatedCluster

SECOND = 1_000_000_000


def goes_on(world: World) -> SimulatedCluster:
    """What follows a world when nothing more comes."""
    past = Workload(world.now, world.now, None, Settings())
    here = Present(world.state, len(world.log), world.now, world.state.session)
    work = PresentWorkload(cast(LogReader, None), here, past).workload()
    cluster = SimulatedCluster(work, world.policy, Measure(work.begin, "nvidia.com/gpu"), RunTimes.of(past))
    cluster.run()
    return cluster


def started(cluster: SimulatedCluster, group: str) -> int:
    """Seconds from the beginning to a job's start."""
    at = cluster.measure.jobs[f"default/{group}"].started
    assert at is not None
    return (at - cluster.measure.begin) // SECOND


@pytest.mark.parametrize(("seconds", "least"), [(8, 6), (40, 20)])
def test_a_pod_that_backs_off_starts_after_its_back_off(seconds: int, least: int) -> None:
    world = Refusing(node("n", cpu=4), gang("bad", 1, cpu=1), refuses=binds_of("bad-0"))
    world.run(seconds)
    left = -(-(world.state.backoffs["default/bad-0"].until - world.now) // SECOND)
    assert left >= least
    assert started(goes_on(world), "bad") == left


def test_a_gang_that_was_released_starts_after_its_back_off() -> None:
    world = Refusing(node("n", cpu=3), gang("g", 3, cpu=1), refuses=binds_of("g-2"))
    world.leave = world.again  # type: ignore[method-assign]
    world.run(100)
    while "default/g" not in world.state.released or world.state.released["default/g"].until - world.now < 20 * SECOND:
        world.run(10)
    left = -(-(world.state.released["default/g"].until - world.now) // SECOND)
    assert started(goes_on(world), "g") == left
