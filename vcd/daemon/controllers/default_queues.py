"""The two queues that Volcano's webhook and controllers expect the scheduler to make: ``root``, and the default one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import NoReturn

import msgspec
import structlog

from vcd.daemon.controllers.retry import Retry
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.errors import ApiError, KubeError, LeadershipLost
from vcd.kube.write_limiter import Urgency
from vcd.model.events import Event, KindListed
from vcd.model.kinds import KINDS

log = structlog.get_logger(__name__)

ROOT = "root"
_QUEUE = KINDS["Queue"]
_FIRST_PAUSE = 1.0
"""Seconds between two attempts at first."""


@dataclass(eq=False)
class DefaultQueues:
    """Makes the queues that are missing each time this replica begins to lead (``due``), and once the API server serves
    queues again: their CRD was applied anew, without any of them.

    ``there`` tells the names of the queues that there are, ``fence`` whether this replica leads. A refusal keeps
    nobody from scheduling: each reason is told to ``refused`` once in a term, and tried again after a growing pause.
    Source: Volcano ``pkg/scheduler/cache``.
    """

    client: KubeClient
    default_queue: InitVar[str]
    there: Callable[[], Collection[str]]
    fence: Callable[[], bool]
    refused: Callable[[str], None]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self, default_queue: str) -> None:
        self._wanted = {ROOT: False, default_queue: True}
        """Whether what a queue holds may be reclaimed, by its name."""
        self.due = asyncio.Event()
        """To be set when this replica leads, and knows all queues."""
        self._is_served = True

    def observe(self, event: Event) -> None:
        """Note whether the API server serves queues: a kind that it does not serve is listed without a version."""
        if isinstance(event, KindListed) and event.kind == "Queue":
            was_served, self._is_served = self._is_served, bool(event.resource_version)
            if self._is_served and not was_served:
                self.due.set()

    async def run(self) -> NoReturn:
        """Make what is missing whenever it is due, until cancelled."""
        while True:
            await self.due.wait()
            self.due.clear()
            retries = {name: Retry(self.clock, _FIRST_PAUSE) for name in self._wanted}
            while self._is_served and (failed := await self._make_missing(retries)):
                for name in failed:
                    await retries[name].pause()

    async def _make_missing(self, retries: dict[str, Retry]) -> list[str]:
        """The queues that are to be tried again."""
        failed: list[str] = []
        for name, reclaimable in self._wanted.items():
            if name in self.there():
                continue
            try:
                await self._make(name, reclaimable)
            except LeadershipLost:
                return []  # the next leader looks for itself
            except KubeError as error:
                if isinstance(error, ApiError) and error.status == 409:
                    continue  # somebody else was faster
                failed.append(name)
                if retries[name].failed_anew(error):
                    self._tell(name, error)
        return failed

    async def _make(self, name: str, reclaimable: bool) -> None:
        body = {
            "apiVersion": f"{_QUEUE.group}/{_QUEUE.version}",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1, "reclaimable": reclaimable},
        }
        raw = msgspec.json.encode(body)
        await self.client.request("POST", _QUEUE.path, raw, urgency=Urgency.STATUS, fence=self.fence)
        log.info("queue made", queue=name)

    def _tell(self, name: str, error: KubeError) -> None:
        log.warning("queue missing", queue=name, error=str(error))
        self.refused(f"queue {name} is missing and cannot be made: {error}; create it, or let vcd create queues")
