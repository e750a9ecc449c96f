"""Limit and order the writes that one client sends to the API server.

Binds and evictions are sent before statuses and Events, because a tenant can cause any number of the latter. Reads and
the Lease bypass this limiter.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from vcd.kube.clock import SYSTEM_CLOCK, Clock


class Urgency(enum.IntEnum):
    """Order in which queued writes are sent, most urgent first."""

    LEASE = 0
    COMMIT = 1
    STATUS = 2
    EVENT = 3


_MAX_YIELD = {Urgency.LEASE: 0.0, Urgency.COMMIT: 0.0, Urgency.STATUS: 5.0, Urgency.EVENT: 30.0}
"""Seconds during which a queued write lets more urgent writes overtake it, so that no write starves."""


_BACKGROUND_LIMIT, _BACKGROUND_LIMIT_DURING_COMMITS = 16, 2
"""Maximum number of statuses and Events in flight: normally, and while binds or evictions are queued or in flight."""
_MAX_SESSION_HOLD = 0.2
"""Seconds for which a session holds back all statuses and Events. A longer session may be stuck."""
_LOOP_TURNS = 10
"""Iterations of the event loop between the end of a session and the queueing of its binds and evictions."""
_MIN_REFILL_WAIT = 1e-6
"""Seconds."""


class _QueuedWrite(NamedTuple):
    """A queued write. The smallest tuple is sent next."""

    yields_until: float
    order: int
    granted: asyncio.Future[None]


class WriteLimiter:
    """Admit at most ``in_flight`` writes at once and ``qps`` writes per second with bursts of ``burst``.

    The most urgent write goes first, within `_MAX_YIELD`. A ``qps`` of 0 or less means no rate limit, as in client-go.

    Statuses and Events are background writes. They pause while a session runs, because the session needs the processor.
    They are reduced while binds and evictions are in flight, because these share the event loop and the API server.
    """

    def __init__(self, qps: float, burst: int, in_flight: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._in_flight_limit = in_flight
        self._clock = clock
        self._tokens = float(self._burst)
        self._refilled_at = clock.monotonic()
        self._in_flight = {True: 0, False: 0}
        """Number of writes, by whether they are background writes."""
        self._queues: dict[bool, list[_QueuedWrite]] = {True: [], False: []}
        self._background_limit = _BACKGROUND_LIMIT
        self._limit_change: asyncio.Task[None] | None = None
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None

    async def acquire(self, urgency: Urgency) -> None:
        """Wait for a slot. The caller must give it back with ``release``."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        yields_until = self._clock.monotonic() + _MAX_YIELD[urgency]
        heapq.heappush(self._queues[urgency > Urgency.COMMIT], _QueuedWrite(yields_until, next(self._order), granted))
        self._grant_slots()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(urgency)
            raise

    @property
    def is_idle(self) -> bool:
        return not any(self._in_flight.values())

    def release(self, urgency: Urgency, *, unused: bool = False) -> None:
        """Give a slot back. ``unused`` means that no request was sent, so the rate token is returned, too."""
        self._in_flight[urgency > Urgency.COMMIT] -= 1
        self._tokens += unused
        self._grant_slots()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold back background writes until the session in this context is decided and its binds are queued."""
        self._background_limit = 0
        self._set_background_limit_after(lambda: self._clock.sleep(_MAX_SESSION_HOLD), _BACKGROUND_LIMIT_DURING_COMMITS)
        try:
            yield
        finally:
            self._set_background_limit_after(_yield_to_commits, _BACKGROUND_LIMIT)
            # if sessions follow each other without a pause, only here can background writes be sent
            self._grant_slots()

    def _set_background_limit_after(self, pause: Callable[[], Awaitable[None]], writes: int) -> None:
        async def change() -> None:
            await pause()
            self._background_limit = writes
            self._grant_slots()

        if self._limit_change is not None:
            self._limit_change.cancel()
        self._limit_change = asyncio.get_running_loop().create_task(change())

    def close(self) -> None:
        for timer in (self._timer, self._limit_change):
            if timer is not None:
                timer.cancel()

    def _grant_slots(self) -> None:
        while (queue := self._next_queue()) is not None:
            if not self._take_token():
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().create_task(self._grant_after_refill())
                return
            self._in_flight[queue is self._queues[True]] += 1
            heapq.heappop(queue).granted.set_result(None)

    def _next_queue(self) -> list[_QueuedWrite] | None:
        for queue in self._queues.values():
            while queue and queue[0].granted.done():  # its caller was cancelled
                heapq.heappop(queue)
        if sum(self._in_flight.values()) >= self._in_flight_limit:
            return None
        ready = [queue for background, queue in self._queues.items() if queue and self._has_slot(background)]
        return min(ready, key=lambda queue: queue[0], default=None)

    def _has_slot(self, background: bool) -> bool:
        if not background:
            return True
        limit = self._background_limit
        if self._queues[True][0].yields_until <= self._clock.monotonic():
            limit = max(limit, _BACKGROUND_LIMIT_DURING_COMMITS)
        if self._in_flight[False] or self._queues[False]:
            limit = min(limit, _BACKGROUND_LIMIT_DURING_COMMITS)
        return self._in_flight[True] < limit

    def _take_token(self) -> bool:
        if self._qps > 0:
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._qps)
            self._refilled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
        return True

    async def _grant_after_refill(self) -> None:
        # rounding can leave a wait below the clock's resolution, which would repeat without end
        await self._clock.sleep(max(_MIN_REFILL_WAIT, (1 - self._tokens) / self._qps))
        self._timer = None
        self._grant_slots()


async def _yield_to_commits() -> None:
    for _ in range(_LOOP_TURNS):
        await asyncio.sleep(0)
