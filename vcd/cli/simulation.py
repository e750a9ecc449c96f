"""The embedded cluster and a scheduler replica that reaches it over HTTP, as one thing to run and to look at."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcd.daemon.options import Options
from vcd.daemon.service import DEFAULT_NAMESPACE, Service, assembled
from vcd.embedded.clock import ClusterClock
from vcd.embedded.cluster import EmbeddedCluster
from vcd.embedded.server import ApiServer
from vcd.embedded.store import Store
from vcd.embedded.workload import Arrival, Feeder, install

Obj = dict[str, Any]

GATHER_LIMIT = 0.25
"""Real seconds that a decision waits at most for what else happens at the present time of a jumping clock."""


class _ClusterTime:
    """The cluster's clock as the daemon's: wall time is the cluster's, waiting is real."""

    def __init__(self, clock: ClusterClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> int:
        return int(self._clock.now() * 1_000_000_000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Plan:
    """What to simulate. ``speed`` None lets the clock jump to what is due next."""

    event_log: Path
    nodes: list[Obj]
    queues: list[Obj] = field(default_factory=list)
    arrivals: Iterable[Arrival] = ()
    conf: Path | None = None
    seed: int = 0
    speed: float | None = None
    start: float | None = None
    host: str = "127.0.0.1"
    port: int = 0


class Simulation:
    """Store, API server, controllers, kubelets and one replica, started in order; ``async with`` does it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock = ClusterClock(start=plan.start, speed=plan.speed)
        self.store = Store(self.clock.now, random.Random(plan.seed))
        self.server = ApiServer(self.store)
        self.cluster = EmbeddedCluster(self.store, self.clock)
        self.feeder = Feeder(self.store, self.clock, plan.arrivals)
        self.service: Service | None = None
        self.versions: dict[str, int] = {}
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Service] | None = None
        self._kinds = {kind.storage: kind.kind for kind in self.store.registry}
        self._unsubscribe: Callable[[], None] = self.store.subscribe(list(self._kinds), self._note)

    def _note(self, event: str, resource: str, obj: Mapping[str, Any]) -> None:
        self.versions[self._kinds[resource]] = int(obj["metadata"]["resourceVersion"])

    async def __aenter__(self) -> Simulation:
        self.store.create("namespaces", {"metadata": {"name": DEFAULT_NAMESPACE}})  # the Lease lives there
        install(self.store, self.plan.nodes, self.plan.queues)
        await self.server.start(self.plan.host, self.plan.port)
        self.clock.quiescent = self._scheduler_rests
        await self.cluster.start()
        self._ready = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve())
        await asyncio.wait([self._ready, self._serving], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            self._serving.result()
        self.feeder.start()
        return self

    async def _serve(self) -> None:
        options = Options(
            event_log=self.plan.event_log,
            scheduler_conf=self.plan.conf,
            master=self.server.url,
            seed=self.plan.seed,
            enable_metrics=False,
            enable_healthz=False,
        )
        more = {"gather": self._gather} if self.clock.jumping else {}
        async with assembled(options, _ClusterTime(self.clock), **more) as service:
            assert self._ready is not None
            self.service = service
            self._ready.set_result(service)
            await service.run(self._stop)

    async def _gather(self) -> None:
        """Where time stands still, all that happens at one time is decided on together, as far as it comes soon."""
        assert self.service is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_LIMIT):
                await self.service.caught_up(self.versions)
                while self.cluster.manager.busy():
                    await asyncio.sleep(0)
                    await self.service.caught_up(self.versions)

    async def _scheduler_rests(self) -> bool:
        if self.service is None:
            return False
        await self.service.rest(self.versions)
        return True

    async def wait_idle(self) -> None:
        """Return once all arrivals came and nothing is left to happen. Raises what ended a part."""
        assert self._serving is not None
        idle = asyncio.create_task(self.cluster.wait_idle())
        try:
            done, _ = await asyncio.wait([idle, self._serving], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            idle.cancel()

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        try:
            if self._serving is not None:
                await self._serving
        finally:
            self._unsubscribe()
            await self.cluster.stop()
            await self.server.stop()
