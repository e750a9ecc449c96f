"""Law 4 (docs/laws.md) under random faults: slow, lost, late requests, partitions, stops, kills; time is simulated."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from typing import Any, cast

import pytest

from tests.kube.scripted import FakeClock, Seen
from tests.kube.test_lease import REQUEST, LeaseServer
from tests.sizes import seeds
from vcd.kube.api_errors import ApiError, NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.lease import LeaderElector


class ReplicaClock:
    """A process's clock: no code of a stopped process runs, but its time goes on."""

    def __init__(self, world: FakeClock) -> None:
        self.world = world
        self.stopped_until = 0.0

    def monotonic(self) -> float:
        return self.world.now

    def wall(self) -> int:
        return self.world.wall()

    async def sleep(self, seconds: float) -> None:
        await self.world.sleep(seconds)
        while self.world.now < self.stopped_until:
            await self.world.sleep(self.stopped_until - self.world.now)


class Network:
    """A client whose requests take time, get lost, or arrive long after it gave up on them."""

    request_timeout = REQUEST

    def __init__(self, server: LeaseServer, clock: ReplicaClock, chance: random.Random) -> None:
        self._server, self._clock, self._chance = server, clock, chance
        self.cut_until = 0.0
        self.delays = (0.01, 0.1, 3.0)
        self.in_flight: set[asyncio.Task[None]] = set()

    def later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.in_flight.add(task)
        task.add_done_callback(self.in_flight.discard)

    async def request(self, method: str, path: str, body: bytes | None, *, timeout: float, urgency: Any) -> bytes:
        del urgency
        world, chance = self._clock.world, self._chance
        there, back = (chance.choice(self.delays) * chance.random() for _ in range(2))
        cut = world.now < self.cut_until
        lost = cut and chance.random() < 0.7
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def travel() -> None:
            # the server carries a write out until the deadline that came with it, whoever still listens
            await world.sleep(min(there, timeout))
            if lost or there > timeout:
                return
            done = self._server.apply(Seen(method, path, {}, {}, json.loads(body or b"null")))
            raw = json.dumps(done.body).encode()
            await world.sleep(back)
            if answer.done() or cut:
                return
            if done.status < 300:
                answer.set_result(raw)
            else:
                answer.set_exception(ApiError(done.status, done.body["reason"], ""))

        async def give_up() -> None:
            await self._clock.sleep(timeout)
            if not answer.done():
                answer.set_exception(NoResponse("timeout", sent=True))

        self.later(travel())
        self.later(give_up())
        raw = await answer
        await self._clock.sleep(0.0)  # a stopped process reads the answer when it goes on
        return raw


class Replica:
    """A process: its elector, and a writer that uses the lease as the daemon does."""

    def __init__(self, world: World) -> None:
        self.clock = ReplicaClock(world.clock)
        self.network = Network(world.server, self.clock, world.chance)
        self.elector = LeaderElector(
            cast(KubeClient, self.network), identity=f"r-{next(world.numbers)}", clock=self.clock
        )
        self._world = world
        self.tasks = [asyncio.ensure_future(self.elector.run()), asyncio.ensure_future(self._write())]

    async def _write(self) -> None:
        while True:
            await self.clock.sleep(0.2)
            epoch = self.elector.epoch
            if (
                self.elector.is_leader_in(epoch)
                and await self.elector.wait_until_safe()
                and self.elector.is_leader_in(epoch)
            ):
                self._world.decided(epoch, self.elector.identity)
                self.network.later(self._call(epoch))

    async def _call(self, epoch: int) -> None:
        # carried out at any time until the request's deadline, whatever has become of its sender
        await self._world.clock.sleep(self._world.chance.random() * REQUEST)
        self._world.carried_out(epoch)

    async def kill(self) -> None:
        """As kill -9: nothing more is said; what is under way is still carried out."""
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


class World:
    """Replicas around one lease, and the invariants of law 4."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = FakeClock()
        self.server = LeaseServer()
        self.replicas: list[Replica] = []
        self.leaders: dict[int, str] = {}
        self.numbers = itertools.count()
        self.broken: list[str] = []
        self.newest = -1
        self.calls = 0
        self.idle_since = 0.0
        self.longest_idle = 0.0

    def decided(self, epoch: int, identity: str) -> None:
        if self.leaders.setdefault(epoch, identity) != identity:
            self.broken.append(f"two replicas decided under epoch {epoch}")
        if epoch < self.newest:
            self.broken.append(f"epoch {epoch} decided after {self.newest}")
        self.newest = epoch

    def carried_out(self, epoch: int) -> None:
        if epoch < self.newest:
            self.broken.append(f"a call of epoch {epoch} was carried out after {self.newest} first decided")
        self.calls += 1

    def check(self) -> None:
        leading = [replica.elector for replica in self.replicas if replica.elector.is_leader()]
        if len(leading) > 1:
            self.broken.append("two replicas lead at once")
        if leading:
            self.idle_since = self.clock.now
        self.longest_idle = max(self.longest_idle, self.clock.now - self.idle_since)

    async def settle(self) -> None:
        """Let everything that is due run."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def run(self, seconds: float, fault: Any = None) -> None:
        """Let time pass from one event to the next, checking at each; now and then something breaks."""
        end = self.clock.now + seconds
        self.idle_since = self.clock.now
        while self.clock.now < end:
            await self.settle()
            self.check()
            if fault is not None and self.chance.random() < 0.01:
                await fault(self)
            self.clock.advance(max(0.0, self.clock.next_wake - self.clock.now))

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.kill()
            for task in list(replica.network.in_flight):
                task.cancel()
        await self.settle()


async def break_something(world: World) -> None:
    """One fault at one replica."""
    index = world.chance.randrange(len(world.replicas))
    replica = world.replicas[index]
    now, seconds = world.clock.now, world.chance.choice((1.0, 5.0, 20.0, 60.0)) * world.chance.random()
    match world.chance.choice(("stop", "cut", "kill")):
        case "stop":
            replica.clock.stopped_until = now + seconds
        case "cut":
            replica.network.cut_until = now + seconds
        case "kill":
            await replica.kill()
            world.replicas[index] = Replica(world)
            world.replicas[index].network.in_flight |= replica.network.in_flight


@pytest.mark.parametrize("seed", seeds(5, 10))
async def test_no_fault_lets_two_lead_or_an_old_call_through(seed: int) -> None:
    world = World(seed)
    world.replicas = [Replica(world) for _ in range(3)]
    try:
        await world.run(300, break_something)
        assert world.broken == []
        assert world.calls > 100
        assert len(world.leaders) > 1
    finally:
        await world.close()


@pytest.mark.parametrize("seed", seeds(2, 4))
async def test_without_faults_one_replica_leads_for_good(seed: int) -> None:
    world = World(seed)
    world.replicas = [Replica(world) for _ in range(3)]
    for replica in world.replicas:
        replica.network.delays = (0.01, 0.1, 0.5)
    try:
        await world.run(200)
        assert world.broken == []
        assert len(world.leaders) == 1
        assert world.longest_idle < 1
    finally:
        await world.close()
