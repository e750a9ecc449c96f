"""Base class for writers that send updates to the API server in the background, with retries, while this replica leads.

A writer coalesces updates by key, so only the newest value of an object is sent. It gives an update up after
`ATTEMPTS`; the next session submits it again if it still matters. Subclasses decide what one attempt sends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from vcd.kube.api_errors import KubeError, LeadershipLost, ObsoleteWrite
from vcd.kube.client import KubeClient, pause_after
from vcd.kube.clock import Backoff, Clock, Random
from vcd.kube.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Fence = Callable[[], bool]
"""Returns whether this replica may send a request now."""

ATTEMPTS = 5
"""Attempts per value."""


@dataclass(eq=False)
class BackgroundWriter(Generic[K, V]):
    """Write the values put into ``_work`` with ``_workers`` concurrent workers."""

    _client: KubeClient
    _fence: Fence
    _work: WorkQueue[K, V]
    _workers: int
    _clock: Clock
    _random: Random
    _term = 0

    def begin_term(self) -> None:
        """Start a new term as leader: updates submitted in an earlier term are dropped."""
        self._term += 1
        self._on_leadership_lost()

    @property
    def pending_count(self) -> int:
        """Return the number of updates that are queued or being written."""
        return len(self._work)

    async def run(self) -> NoReturn:
        await self._work.serve(self._workers, self._write_with_retries)

    async def wait_until_idle(self) -> None:
        """Return once every update is written or given up."""
        await self._work.idle.wait()

    async def _write_with_retries(self, key: K, value: V) -> None:
        backoff, term = Backoff(0.2, 5.0, self._random), self._term

        def may_write() -> bool:
            # the next term of this replica can begin while a request is queued in the client
            return self._term == term and self._fence()

        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._write(key, value, may_write)
                return
            except LeadershipLost:
                if self._term == term:
                    self._on_leadership_lost()
                return
            except ObsoleteWrite:
                return
            except KubeError as error:
                if not self._should_retry(key, error):
                    return
                if attempt == ATTEMPTS:
                    self._report_given_up(key, error)
                    return
                await self._clock.sleep(pause_after(error, backoff))
                if self._term != term:
                    return
                value = self._newest(key, value)

    def _newest(self, key: K, value: V) -> V:
        return self._work.pending(key) or value

    async def _write(self, key: K, value: V, fence: Fence) -> None:
        """Make one attempt, with requests under ``fence``. Raises KubeError."""
        raise NotImplementedError

    def _on_leadership_lost(self) -> None:
        """Discard what another leader may have made obsolete."""

    def _should_retry(self, key: K, error: KubeError) -> bool:
        """Return whether a failed update is attempted again; report it if not."""
        raise NotImplementedError

    def _report_given_up(self, key: K, error: KubeError) -> None:
        raise NotImplementedError
