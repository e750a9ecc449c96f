"""The cluster on an asyncio loop: it works, rests, jumps and stops; its queue of work retries and sets aside."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from tests.embedded.simulated import (
    PODGROUPS,
    PODS,
    START,
    Obj,
    Simulated,
    deployment,
    job,
    jump_to,
    pod,
    settle,
    task,
)
from tests.waiting import WAIT_LIMIT
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.controller_base import DEPLOYMENTS, EVENTS, JOBS, NODES, Controller, Key, Manager, key_of
from vcd.embedded.controllers.pod_properties import node_of, phase_of
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.status_errors import StatusError, forbidden
from vcd.embedded.store import Store
from vcd.embedded.workload_generator import Arrival, Feeder, Mix, generate, install, parse_nodes


class Binder:
    """A stand-in for a scheduler that takes its time: it acts a few turns of the loop after it saw a change."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.store = cluster.store
        self.seen = self.done = 0
        self.wake = asyncio.Event()
        cluster.store.subscribe([PODS, PODGROUPS], self.changed)
        cluster.clock.quiescent = self.quiescent
        self.clock = cluster.clock

    def changed(self, _event: str, _resource: str, _obj: Obj) -> None:
        self.seen += 1
        self.wake.set()

    async def quiescent(self) -> bool:
        await asyncio.sleep(0)
        return self.seen == self.done

    async def run(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            for _ in range(3):
                await asyncio.sleep(0)
            seen = self.seen
            self.cycle()
            self.done = seen
            self.clock.touch()

    def cycle(self) -> None:
        for group in self.store.list(PODGROUPS):
            if (group.get("status") or {}).get("phase", "Pending") == "Pending":
                self.store.update(PODGROUPS, {**group, "status": {"phase": "Inqueue"}})
        for each in self.store.list(PODS):
            if not node_of(each) and not each["metadata"].get("deletionTimestamp"):
                self.store.bind(*key_of(each), {"target": {"name": "node-0"}})


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    clock = ClusterClock(start=START, speed=None)
    made = EmbeddedCluster(Store(clock.now, Random(3)), clock)
    install(made.store, parse_nodes("cpu=10000,memory=100Ti,pods=10000"))
    async with made:
        yield made


@pytest.fixture
async def bound(cluster: EmbeddedCluster) -> AsyncIterator[EmbeddedCluster]:
    binder = asyncio.create_task(Binder(cluster).run())
    yield cluster
    binder.cancel()


async def idle(cluster: EmbeddedCluster) -> None:
    async with asyncio.timeout(WAIT_LIMIT):
        await cluster.wait_idle()


async def test_a_mix_runs_to_its_end(bound: EmbeddedCluster) -> None:
    mix = Mix(gangs=5, jobs=5, deployments=0, pods=5)
    arrivals = list(generate(mix, ["default"], seed=5))
    feeder = Feeder(bound.store, bound.clock, arrivals)
    feeder.start()
    await idle(bound)
    assert (feeder.created, feeder.refused) == (sum(len(each.objects) for each in arrivals), [])
    assert {phase_of(each) for each in bound.store.list(PODS)} == {"Succeeded"}
    assert {each["status"]["state"]["phase"] for each in bound.store.list(JOBS)} == {"Completed"}


async def test_hours_pass_in_no_time(bound: EmbeddedCluster) -> None:
    bound.store.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": "360000"}))
    await idle(bound)
    assert bound.clock.now() == START + 1 + 360_000


async def test_no_time_passes_between_an_arrival_and_its_bind(bound: EmbeddedCluster) -> None:
    made = pod("a", annotations={"vcd.sim/run-seconds": "10"})
    Feeder(bound.store, bound.clock, [Arrival(100, ((PODS, made),)), Arrival(101, ())]).start()
    await idle(bound)
    scheduled = bound.store.get(PODS, "default", "a")["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["lastTransitionTime"]) == ("PodScheduled", "2023-11-14T22:15:00Z")


async def test_the_cluster_is_not_at_rest_while_controllers_have_work(cluster: EmbeddedCluster) -> None:
    await idle(cluster)
    cluster.store.create(DEPLOYMENTS, deployment())
    assert not await cluster.clock.at_rest()


async def test_a_cluster_with_nothing_due_is_idle(cluster: EmbeddedCluster) -> None:
    cluster.store.create(PODS, pod("a"))
    await idle(cluster)
    assert cluster.clock.now() == START


async def test_equal_seeds_give_equal_histories() -> None:
    async def history() -> list[Obj]:
        clock = ClusterClock(start=START, speed=None)
        made = EmbeddedCluster(Store(clock.now, Random(3)), clock)
        install(made.store, parse_nodes("cpu=10000,memory=100Ti,pods=10000"))
        seen: list[Obj] = []
        made.store.subscribe([PODS, PODGROUPS, JOBS], lambda event, resource, obj: seen.append(obj))
        binder = Binder(made)
        async with made:
            running = asyncio.create_task(binder.run())
            Feeder(made.store, clock, generate(Mix(gangs=3, jobs=3, pods=3), ["default"], seed=5)).start()
            await idle(made)
            running.cancel()
        return seen

    assert await history() == await history()


async def test_a_stopped_cluster_does_nothing_more() -> None:
    clock = ClusterClock(start=START, speed=None)
    made = EmbeddedCluster(Store(clock.now, Random(3)), clock)
    async with made:
        pass
    made.store.create(DEPLOYMENTS, deployment())
    for _ in range(5):
        await asyncio.sleep(0)
    assert made.store.list(PODS) == []


class Broken(Controller):
    """A controller that raises what it is given, once a key."""

    name = "broken"
    resources = ("configmaps",)

    def __init__(self, manager: Manager, error: Exception) -> None:
        super().__init__(manager)
        self.error = error
        self.tried: list[float] = []

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        self.enqueue(key_of(obj))

    def reconcile(self, key: Key) -> None:
        self.tried.append(self.clock.now() - START)
        if len(self.tried) < 4:
            raise self.error


async def test_others_get_their_turn_after_a_number_of_keys_however_long_these_took() -> None:
    clock = ClusterClock(start=START, speed=None)
    manager = Manager(Store(clock.now, Random(3)), clock)
    working = Broken(manager, ValueError())
    working.tried = [0.0] * 4
    for index in range(60):
        working.enqueue(("", str(index)))
    running = asyncio.create_task(manager.run())
    seen: list[int] = []
    while manager.busy():
        await asyncio.sleep(0)
        seen.append(len(working.tried) - 4)
    running.cancel()
    assert seen == [25, 50, 60]


def with_broken(error: Exception) -> tuple[Simulated, Broken]:
    sim = Simulated()
    broken = Broken(sim.cluster.manager, error)
    sim.cluster.manager.add(broken)
    sim.cluster.manager.watch("configmaps")
    return sim, broken


def test_what_is_refused_is_tried_again_ever_later() -> None:
    sim, broken = with_broken(forbidden("pods", "x", "no"))
    sim.create("configmaps", {"metadata": {"name": "a"}})
    sim.advance(100)
    assert broken.tried == [0, 1, 3, 7]


def test_what_no_controller_can_work_with_is_set_aside_until_it_changes() -> None:
    sim, broken = with_broken(ValueError("odd"))
    with capture_logs() as logs:
        sim.create("configmaps", {"metadata": {"name": "a"}})
        sim.advance(100)
    assert [each["event"] for each in logs] == ["object set aside"]
    sim.patch("configmaps", "a", {"data": {"x": "y"}})
    assert broken.tried == [0, 100]


def test_an_odd_object_does_not_fail_the_write_that_shows_it() -> None:
    sim = Simulated()

    class Picky(Broken):
        name = "picky"

        def observe(self, event: str, resource: str, obj: Obj) -> None:
            raise KeyError("spec")

    sim.cluster.manager.add(Picky(sim.cluster.manager, ValueError()))
    sim.cluster.manager.watch("configmaps")
    with capture_logs() as logs:
        sim.create("configmaps", {"metadata": {"name": "a"}})
    assert [(each["controller"], each["key"]) for each in logs] == [("picky", ("default", "a"))]


def test_of_two_times_the_earlier_counts() -> None:
    sim = Simulated()
    broken = Broken(sim.cluster.manager, ValueError())
    broken.tried = [0.0] * 4
    for delay in (50, 20, 80):
        broken.enqueue_at(("", "a"), START + delay)
    sim.advance(100)
    assert broken.tried[4:] == [20]


async def test_an_error_of_a_controller_ends_the_wait() -> None:
    clock = ClusterClock(start=START, speed=None)
    made = EmbeddedCluster(Store(clock.now, Random(3)), clock)
    made.manager.add(Broken(made.manager, RuntimeError("a fault")))
    await made.start()
    made.store.create("configmaps", {"metadata": {"name": "a"}})
    with pytest.raises(RuntimeError, match="a fault"):
        await made.wait_idle()
    with pytest.raises(RuntimeError, match="a fault"):
        await made.stop()


def test_an_event_that_repeats_is_counted() -> None:
    sim = Simulated()
    node = sim.get(NODES, "n0", "")
    for _ in range(3):
        sim.cluster.manager.events.record("test", node, "Normal", "Seen", "again")
    events = sim.store.list(EVENTS)
    assert [(each["reason"], each["count"]) for each in events] == [("Seen", 3)]


def test_an_event_that_is_refused_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a webhook that denies what is created."""
    sim = Simulated()
    node = sim.get(NODES, "n0", "")
    monkeypatch.setattr(sim.store, "create", Mock(side_effect=StatusError(403, "Forbidden", "denied")))
    sim.cluster.manager.events.record("test", node, "Normal", "Seen", "refused")
    assert sim.store.list(EVENTS) == []


def test_controllers_see_what_was_there_before_them() -> None:
    clock = ClusterClock(start=START, speed=None)
    store = Store(clock.now, Random(3))
    store.create(JOBS, job(task("a")))
    settle(EmbeddedCluster(store, clock))
    assert len(store.list(PODGROUPS)) == 1


async def test_events_go_an_hour_after_they_were_written_last_and_are_written_anew() -> None:
    clock = ClusterClock(start=START, speed=None)
    async with EmbeddedCluster(Store(clock.now, Random(3)), clock) as cluster:
        writer, store = cluster.manager.events, cluster.store
        one, other = (store.create(NODES, {"metadata": {"name": name}}) for name in ("n1", "n2"))
        began = cluster.clock.now()
        for node in (one, other):
            writer.record("kubelet", node, "Normal", "Starting", "starting")
        jump_to(cluster.clock, began + 1800)
        writer.record("kubelet", other, "Normal", "Starting", "starting")
        jump_to(cluster.clock, began + 4300)
        assert [(event["involvedObject"]["name"], event["count"]) for event in store.list(EVENTS)] == [("n2", 2)]
        writer.record("kubelet", one, "Normal", "Starting", "starting")
        counts = {event["involvedObject"]["name"]: event["count"] for event in store.list(EVENTS)}
        assert counts == {"n1": 1, "n2": 2}
        jump_to(cluster.clock, began + 9000)
        assert (store.list(EVENTS), writer._names, writer._seen) == ([], {}, {})
