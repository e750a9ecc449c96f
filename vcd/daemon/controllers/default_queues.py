"""Creates the queues that Volcano's webhook and controllers expect from the scheduler: ``root`` and the default queue.

It does not restore changed queues. Before changing it: a refusal must not stop scheduling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import NoReturn

import msgspec
import structlog

from vcd.daemon.controllers.write_retry import Retry
from vcd.kube.api_errors import ApiError, KubeError, LeadershipLost
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.write_limiter import Urgency
from vcd.model.events import Event, KindListed
from vcd.model.kinds import KINDS
from vcd.model.objects import ROOT_QUEUE

log = structlog.get_logger(__name__)

_QUEUE = KINDS["Queue"]
_FIRST_PAUSE = 1.0
"""First pause between attempts in seconds."""


@dataclass(eq=False)
class DefaultQueues:
    """Creates missing queues when this replica starts to lead (``due``), and when the API server serves queues again
    after their CRD was deleted and applied.

    ``there`` returns the names of existing queues, ``fence`` whether this replica leads. Each reason of a refusal is
    passed to ``refused`` once per term, and the attempt is repeated after a growing pause.
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
        self._wanted = {ROOT_QUEUE: False, default_queue: True}
        """Whether a queue is reclaimable, by name."""
        self.due = asyncio.Event()
        """Set by the caller when this replica leads and the list of queues is complete."""
        self._is_served = True

    def observe(self, event: Event) -> None:
        """Note whether the API server serves queues: a kind that it does not serve is listed without a version."""
        if isinstance(event, KindListed) and event.kind == "Queue":
            was_served, self._is_served = self._is_served, bool(event.resource_version)
            if self._is_served and not was_served:
                self.due.set()

    async def run(self) -> NoReturn:
        """Create missing queues whenever it is due, until cancelled."""
        while True:
            await self.due.wait()
            self.due.clear()
            retries = {name: Retry(self.clock, _FIRST_PAUSE) for name in self._wanted}
            while self._is_served and (failed := await self._make_missing(retries)):
                for name in failed:
                    await retries[name].pause()

    async def _make_missing(self, retries: dict[str, Retry]) -> list[str]:
        """Create missing queues; return those to try again."""
        failed: list[str] = []
        for name, reclaimable in self._wanted.items():
            if name in self.there():
                continue
            try:
                await self._make(name, reclaimable)
            except LeadershipLost:
                return []  # the next leader does it
            except KubeError as error:
                if isinstance(error, ApiError) and error.status == 409:
                    continue  # it exists now
                failed.append(name)
                if retries[name].is_new_failure(error):
                    self._report(name, error)
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
        log.info("queue created", queue=name)

    def _report(self, name: str, error: KubeError) -> None:
        log.warning("queue missing", queue=name, error=str(error))
        self.refused(f"queue {name} is missing and cannot be created: {error}; create it, or let vcd create queues")
