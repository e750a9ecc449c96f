"""What is written to the API server in the background, as often as it takes, and only while this replica leads."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from vcd.kube.client import KubeClient, pause_after
from vcd.kube.clock import Backoff, Clock, Random
from vcd.kube.errors import Fenced, KubeError, Superseded
from vcd.kube.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Fence = Callable[[], bool]
"""Whether a request may be sent now."""

ATTEMPTS = 5
"""For one value; then it is given up."""


@dataclass(eq=False)
class Writer(Generic[K, V]):
    """Writes what is put into ``work``, with so many workers; ``fence`` says whether this replica may."""

    _client: KubeClient
    _fence: Fence
    _work: WorkQueue[K, V]
    _workers: int
    _clock: Clock
    _random: Random
    _term = 0

    def begin(self) -> None:
        """A term begins: what was to be written in another one is not written any more."""
        self._term += 1
        self._lost_lease()

    @property
    def waiting(self) -> int:
        """How much is still to be written."""
        return len(self._work)

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        await self._work.serve(self._workers, self._attend)

    async def idle(self) -> None:
        """Return once all is written or given up."""
        await self._work.idle.wait()

    async def _attend(self, key: K, value: V) -> None:
        backoff, term = Backoff(0.2, 5.0, self._random), self._term

        def may_write() -> bool:
            """A request that waited to be sent may find the next term of this replica begun."""
            return self._term == term and self._fence()

        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._write(key, value, may_write, again=attempt > 1)
                return
            except Fenced:
                if self._term == term:
                    self._lost_lease()
                return
            except Superseded:
                return
            except KubeError as error:
                if not self._may_pass(key, error):
                    return
                if attempt == ATTEMPTS:
                    self._tell_lost(key, error)
                    return
                await self._clock.sleep(pause_after(error, backoff))
                if self._term != term:
                    return
                value = self._newest(key, value)

    def _newest(self, key: K, value: V) -> V:
        """What is to be written in place of a value that was to be written."""
        return self._work.pending(key) or value

    async def _write(self, key: K, value: V, fence: Fence, *, again: bool) -> None:
        """Make one attempt with requests under ``fence``, ``again`` after one that failed. Raises KubeError."""
        raise NotImplementedError

    def _lost_lease(self) -> None:
        """Another replica writes now."""

    def _may_pass(self, key: K, error: KubeError) -> bool:
        """Whether to try once more; what is lost for good is told."""
        raise NotImplementedError

    def _tell_lost(self, key: K, error: KubeError) -> None:
        """The last attempt failed."""
        raise NotImplementedError
