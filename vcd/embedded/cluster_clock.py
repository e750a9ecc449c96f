"""The embedded cluster's clock: real time, time at a constant speed, or time that jumps to the next timer.

All later changes in the cluster (a pod that ends, a retry, an arrival) are timers of this clock. In jumping mode, time
does not advance while the cluster works. It jumps to the next timer once no controller has work, and ``quiescent()``
returns that no component outside the cluster has work, such as the scheduler, which is connected over HTTP. The caller
that constructs the cluster sets this predicate.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

Quiescent = Callable[[], Awaitable[bool]]

FARTHEST = 100 * 365 * 24 * 3600
"""Longest time that a clock can advance, in seconds: the event log has no times after the year 2262."""
_SHORTEST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.05


async def _always_quiescent() -> bool:
    return True


@lru_cache(maxsize=4096)
def parse_timestamp(text: str) -> float:
    """Parse an RFC 3339 time to seconds since the epoch. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()


def parse_seconds(text: str) -> float:
    """Parse a number of seconds, which may be infinite. Raises ValueError."""
    seconds = float(text)
    if math.isnan(seconds):
        raise ValueError(f"{text!r} is not a number of seconds")
    return seconds


@dataclass(slots=True, order=True)
class Timer:
    """A function to call at a time, unless it is cancelled."""

    when: float
    order: int
    fn: Callable[[], None] = field(compare=False)
    background: bool = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Cancel the timer. A second call has no effect."""
        self.cancelled = True


class ClusterClock:
    """Time of the embedded cluster in seconds since the epoch, and its timers.

    ``speed`` is the number of cluster seconds per real second (1.0: real time); None makes the clock jump.
    ``start`` is the first time, by default the current time. ``monotonic`` is the source of real time.
    """

    def __init__(
        self,
        *,
        start: float | None = None,
        speed: float | None = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if speed is not None and not 0 < speed < math.inf:
            raise ValueError(f"clock speed {speed!r} must be above zero; None makes the clock jump")
        self.speed = speed
        self.quiescent: Quiescent = _always_quiescent
        self._monotonic = monotonic
        self._origin = monotonic()
        self._start = time.time() if start is None else start
        self._now = self._start
        self._end = self._start + FARTHEST
        self._timers: list[Timer] = []
        self._order = 0
        self._activity = 0
        self._wake = asyncio.Event()
        self._busy: list[Callable[[], bool]] = []

    @property
    def jumping(self) -> bool:
        """Return whether time jumps from timer to timer."""
        return self.speed is None

    def now(self) -> float:
        """Return the cluster time in seconds since the epoch."""
        if self.speed is None:
            return self._now
        return min(self._start + (self._monotonic() - self._origin) * self.speed, self._end)

    def call_at(self, when: float, fn: Callable[[], None], *, background: bool = False) -> Timer:
        """Call ``fn`` at the time ``when``. Timers of the same time fire in the order of their creation.

        A background timer (a heartbeat, a retry) fires at its time, but time does not jump to it, and a cluster that
        has only background timers is idle. A timer beyond FARTHEST never fires, and does not prevent idleness.
        """
        self._order += 1
        timer = Timer(when, self._order, fn, background)
        if when <= self._end:
            heapq.heappush(self._timers, timer)
        self.touch()
        return timer

    def call_later(self, delay: float, fn: Callable[[], None], *, background: bool = False) -> Timer:
        """Call ``fn`` after ``delay`` cluster seconds."""
        return self.call_at(self.now() + delay, fn, background=background)

    def add_busy(self, busy: Callable[[], bool]) -> None:
        """Add a predicate that is called before each jump; the cluster is not at rest while it returns true."""
        self._busy.append(busy)

    def touch(self) -> None:
        """Note activity, which makes a running call of ``quiescent()`` obsolete."""
        self._activity += 1
        self._wake.set()

    def next_due(self) -> float | None:
        """Return the time of the next timer that is not a background timer; None if there is none."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        if self._timers and not self._timers[0].background:
            return self._timers[0].when
        due = (timer.when for timer in self._timers if not (timer.background or timer.cancelled))
        return min(due, default=None)

    def fire_due(self) -> int:
        """Fire all due timers in order; return their number."""
        fired = 0
        while self._timers and self._timers[0].when <= self.now():
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                fired += 1
                timer.fn()
        return fired

    async def run(self) -> None:
        """Fire timers when they are due until cancelled, and jump when the cluster is at rest."""
        while True:
            fired = self.fire_due()
            if fired:
                await asyncio.sleep(0)
            elif self.speed is None:
                await self._jump()
            else:
                await self._sleep()

    async def at_rest(self) -> bool:
        """Return whether no component has work at the current time, and nothing happened during this check."""
        seen = self._activity
        if self._anything_busy() or not await self.quiescent():
            return False
        return seen == self._activity and not self._anything_busy()

    async def wait_idle(self) -> None:
        """Return once the cluster is at rest and has only background timers."""
        while self.next_due() is not None or not await self.at_rest():  # noqa: ASYNC110 - rest is no event
            await asyncio.sleep(_LONGEST_PAUSE)

    def _anything_busy(self) -> bool:
        return any(busy() for busy in self._busy)

    async def _jump(self) -> None:
        pause = _SHORTEST_PAUSE
        while not await self.at_rest():
            pause = await self._pause(pause)
        due = self.next_due()
        if due is None:
            self._wake.clear()
            await self._wake.wait()
        else:
            # background timers before it fire at their own times
            self._now = max(self._now, min(due, self._timers[0].when))

    async def _sleep(self) -> None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        self._wake.clear()
        if not self._timers:
            await self._wake.wait()
            return
        assert self.speed is not None
        await self._wait((self._timers[0].when - self.now()) / self.speed)

    async def _pause(self, pause: float) -> float:
        """Wait for activity, at most ``pause`` real seconds; return the next pause.

        If there was activity since the last pause, only yield to other tasks.
        """
        await self._wait(0 if self._wake.is_set() else pause)
        woken = self._wake.is_set()
        self._wake.clear()
        return _SHORTEST_PAUSE if woken else min(2 * pause, _LONGEST_PAUSE)

    async def _wait(self, seconds: float) -> None:
        """Wait until woken, at most ``seconds`` real seconds; 0 or less yields once to other tasks."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
