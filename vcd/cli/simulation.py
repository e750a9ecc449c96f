"""The embedded cluster together with one scheduler replica that reaches it over HTTP, as one object to run."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcd.daemon.cycle.session_loop import wait_for_more
from vcd.daemon.options import Options
from vcd.daemon.process import open_service
from vcd.daemon.service import SchedulerService
from vcd.embedded.api_server import ApiServer
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.finished_controller import FinishedController
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.object_counts import ClusterTally
from vcd.embedded.store import Store
from vcd.embedded.workload_generator import Arrival, Feeder, install, scheduled_manifests

Obj = dict[str, Any]

GATHER_LIMIT = 0.25
"""With a jumping clock: the longest wait of a decision, in real seconds, for other events of the same cluster time."""


_MICROSECOND = 1e-6


class _ClusterTime:
    """The daemon's clock: its wall time is the cluster's, its waits take real time."""

    def __init__(self, clock: ClusterClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> int:
        return int(self._clock.now() * 1_000_000_000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, wall: int) -> None:
        due = asyncio.Event()
        timer = self._clock.call_at(wall / 1e9 + _MICROSECOND, due.set)  # rounding must not make it early
        try:
            await due.wait()
        finally:
            timer.cancel()


@dataclass
class Scenario:
    """What to simulate. With ``speed`` None the clock jumps to the next event.

    ``manifests`` are created at the times in their annotations, ``arrivals`` at theirs, both counted from the start in
    cluster seconds. ``refused`` and ``unknown`` list the objects and fields of the user's manifests that are omitted.
    ``remove_after``: cluster seconds from the end of a pod without an owner to its deletion, None for never.
    """

    event_log: Path
    nodes: list[Obj]
    queues: list[Obj] = field(default_factory=list)
    arrivals: Iterable[Arrival] = ()
    manifests: list[Obj] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    conf: Path | None = None
    seed: int = 0
    speed: float | None = None
    remove_after: float | None = None
    host: str = "127.0.0.1"
    port: int = 0


class Simulation:
    """Store, API server, controllers, kubelets and one replica, started in this order by ``async with``.

    Entering raises WorkloadError, StatusError (a refused node or queue), OSError (the address), and what
    ``open_service`` raises; leaving raises the error that ended a part.
    """

    def __init__(self, plan: Scenario) -> None:
        self.plan = plan
        self.clock = ClusterClock(speed=plan.speed)
        self.store = Store(self.clock.now, random.Random(plan.seed))
        self.server = ApiServer(self.store)
        self.cluster = EmbeddedCluster(self.store, self.clock)
        if plan.remove_after is not None:
            self.cluster.manager.add(FinishedController(self.cluster.manager, plan.remove_after))
        timed = scheduled_manifests(self.store, plan.manifests)
        self.feeder = Feeder(self.store, self.clock, heapq.merge(timed, plan.arrivals, key=lambda arrival: arrival.at))
        self.tally = ClusterTally(self.store)
        self.began = self.clock.now()
        self.service: SchedulerService | None = None
        self.versions: dict[str, int] = {}
        """The resource version of the last change to an object of each kind."""
        self._stop = asyncio.Event()
        self._time_is_up = asyncio.Event()
        self.clock.add_busy(self._time_is_up.is_set)  # so that the clock cannot jump past the end of `wait`
        self._serving: asyncio.Task[None] | None = None
        self._kinds = {kind.storage: kind.kind for kind in self.store.registry}
        self._unsubscribe: Callable[[], None] = self.store.subscribe(list(self._kinds), self._note)

    def _note(self, event: str, resource: str, obj: Mapping[str, Any]) -> None:
        self.versions[self._kinds[resource]] = int(obj["metadata"]["resourceVersion"])

    async def __aenter__(self) -> Simulation:
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def _start(self) -> None:
        self.store.create("namespaces", {"metadata": {"name": Options().lease_namespace}})  # for the Lease
        install(self.store, self.plan.nodes, self.plan.queues)
        await self.server.start(self.plan.host, self.plan.port)
        self.clock.quiescent = self._scheduler_rests
        await self.cluster.start()
        ready = asyncio.Event()
        waiting = asyncio.create_task(ready.wait())
        self._serving = asyncio.create_task(self._serve(ready))
        try:
            await asyncio.wait([waiting, self._serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._serving.done():
            serving, self._serving = self._serving, None
            serving.result()
        self.feeder.start()

    async def _serve(self, ready: asyncio.Event) -> None:
        options = Options(
            event_log=self.plan.event_log,
            scheduler_conf=self.plan.conf,
            master=self.server.url,
            seed=self.plan.seed,
            enable_metrics=False,
            enable_healthz=False,
            retention_age=None,  # a jumping clock ages the log by months in minutes
            retention_size=None,
        )
        gather = self._gather if self.clock.jumping else wait_for_more
        async with open_service(options, _ClusterTime(self.clock), gather) as service:
            self.service = service
            ready.set()
            await service.run(self._stop)

    async def _gather(self, *_: object) -> None:
        """Wait until the scheduler has seen all events of the present time, at most GATHER_LIMIT, so that one session
        decides about all of them."""
        assert self.service is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_LIMIT):
                await self.service.rest.caught_up(self.versions)
                while self.cluster.manager.busy():
                    await asyncio.sleep(0)
                    await self.service.rest.caught_up(self.versions)

    async def _scheduler_rests(self) -> bool:
        if self.service is None:
            return False
        await self.service.rest.rest(self.versions)
        return True

    @property
    def elapsed(self) -> float:
        """Cluster seconds since the start."""
        return self.clock.now() - self.began

    @property
    def sessions(self) -> int:
        """Sessions logged so far."""
        return 0 if self.service is None else self.service.cycle.sessions

    async def wait(self, *, idle: bool, seconds: float | None = None, stop: asyncio.Event | None = None) -> None:
        """Return when the cluster is idle (``idle``), this many cluster seconds have passed since the start, or
        ``stop`` is set, whichever is first. Raises the error that ended a part."""
        assert self._serving is not None
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(self.cluster.wait_idle() if idle else self.cluster.wait())]
        if seconds is not None:
            passed = self._time_is_up
            # a jumping clock must not jump past this time; a flowing clock reaches it, and need not wait for it
            self.clock.call_at(self.began + seconds, passed.set, background=idle and not self.clock.jumping)
            ends.append(asyncio.create_task(passed.wait()))
        if stop is not None:
            ends.append(asyncio.create_task(stop.wait()))
        try:
            done, _ = await asyncio.wait([*ends, self._serving], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in ends:
                task.cancel()

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        """Stop all parts, the scheduler first, so that its API calls under way still reach the server."""
        self._stop.set()
        try:
            if self._serving is not None:
                await self._serving
        finally:
            self._unsubscribe()
            self.tally.close()
            await self.cluster.stop()
            await self.server.stop()
