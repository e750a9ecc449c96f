"""The embedded cluster without its API server: constructs and starts store, clock, controllers and kubelets.

It runs on one asyncio loop together with the HTTP server (`server`). It has no part in scheduling: a scheduler binds
pods through the API.
"""

from __future__ import annotations

import asyncio
from typing import Final

from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.controller_base import Controller, Manager
from vcd.embedded.controllers.deployment_controller import DeploymentController
from vcd.embedded.controllers.disruption_controller import DisruptionController
from vcd.embedded.controllers.event_expiry import EventExpiry
from vcd.embedded.controllers.garbage_collection import GarbageCollector, PodGarbageCollector
from vcd.embedded.controllers.job_controller import JobController
from vcd.embedded.controllers.node_lifecycle_controller import NodeLifecycleController
from vcd.embedded.controllers.podgroup_controller import PodGroupController
from vcd.embedded.controllers.queue_controller import QueueController
from vcd.embedded.controllers.quota_controller import QuotaController
from vcd.embedded.controllers.replicaset_controller import ReplicaSetController
from vcd.embedded.controllers.volume_controller import VolumeController
from vcd.embedded.kubelet import Kubelets
from vcd.embedded.store import Store

_CONTROLLERS: Final[tuple[type[Controller], ...]] = (
    GarbageCollector,
    PodGarbageCollector,
    NodeLifecycleController,
    Kubelets,
    DeploymentController,
    ReplicaSetController,
    QueueController,
    PodGroupController,
    JobController,
    DisruptionController,
    QuotaController,
    VolumeController,
)


class EmbeddedCluster:
    """Store, clock, controllers and kubelets of one cluster.

    ``start`` runs controllers and clock on the current asyncio loop, ``stop`` ends them; ``async with`` does both.
    """

    def __init__(self, store: Store, clock: ClusterClock) -> None:
        self.store = store
        self.clock = clock
        self.manager = manager = Manager(store, clock)
        manager.add(*(controller(manager) for controller in _CONTROLLERS))
        self._expiry = EventExpiry(store, clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._end_activity = store.subscribe([rtype.storage for rtype in store.registry], lambda *_: clock.touch())

    async def start(self) -> None:
        """Pass existing objects to the controllers, and start controllers and clock."""
        self.manager.start()
        self._expiry.start()
        for work in (self.manager.run(), self.clock.run()):
            self._tasks.append(asyncio.create_task(work))

    async def stop(self) -> None:
        """Stop controllers and clock; the store retains its objects. Raises the error of one that failed before."""
        self.manager.stop()
        self._end_activity()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def __aenter__(self) -> EmbeddedCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait_idle(self) -> None:
        """Return once the cluster has no work and no timer. Raises the error of a failed controller or clock."""
        idle = asyncio.create_task(self.clock.wait_idle())
        try:
            await self.wait(idle)
        finally:
            idle.cancel()

    async def wait(self, *others: asyncio.Task[None]) -> None:
        """Return once one of the given tasks is done. Raises its error, or that of a failed controller or clock."""
        done, _ = await asyncio.wait([*others, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
