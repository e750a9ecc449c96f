"""The embedded cluster's clock: real time, time at a given speed, or time that jumps to what is due next.

Whatever happens later in the cluster (a pod that ends, a retry, an arrival) is a timer of this one clock. In jumping
mode time stands still while anything is going on, and moves straight to the next timer once the whole cluster is at
rest: no controller has work left, and ``quiescent()`` says that nobody outside has any either. The scheduler is such
an outsider, reached over HTTP; who wires the cluster supplies the predicate that asks it.
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
"""How far ahead of its beginning, in seconds, a clock gets: the event log has no times behind the year 2262."""
_SHORTEST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.05


async def _always_quiescent() -> bool:
    return True


@lru_cache(maxsize=4096)
def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 text. Raises ValueError for anything else."""
    return datetime.fromisoformat(text).timestamp()


def parse_seconds(text: str) -> float:
    """A number of seconds; it may be infinite. Raises ValueError for anything else."""
    seconds = float(text)
    if math.isnan(seconds):
        raise ValueError(f"{text!r} is no number of seconds")
    return seconds


@dataclass(slots=True, order=True)
class Timer:
    """A function due at a time; ``cancel`` takes it back."""

    when: float
    order: int
    fn: Callable[[], None] = field(compare=False)
    background: bool = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Take the timer back; nothing happens when it is due. A second call changes nothing."""
        self.cancelled = True


class ClusterClock:
    """Time of the embedded cluster in seconds since the epoch, and its timers.

    ``speed`` is how many cluster seconds pass in one real second (1.0: real time); None makes the clock jump.
    ``start`` is the time at which it begins, the present by default. ``monotonic`` is the source of real time.
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
        """Whether time moves only from timer to timer."""
        return self.speed is None

    def now(self) -> float:
        """Cluster time, in seconds since the epoch."""
        if self.speed is None:
            return self._now
        return min(self._start + (self._monotonic() - self._origin) * self.speed, self._end)

    def call_at(self, when: float, fn: Callable[[], None], *, background: bool = False) -> Timer:
        """Have ``fn`` called once it is ``when``; timers of one time run in the order in which they were made.

        A background timer (a heartbeat, a retry) fires at its time, but is never what time jumps for, and a cluster
        with only such timers left is idle. What lies beyond FARTHEST never comes, and nobody waits for it.
        """
        self._order += 1
        timer = Timer(when, self._order, fn, background)
        if when <= self._end:
            heapq.heappush(self._timers, timer)
        self.touch()
        return timer

    def call_later(self, delay: float, fn: Callable[[], None], *, background: bool = False) -> Timer:
        """Have ``fn`` called in ``delay`` cluster seconds."""
        return self.call_at(self.now() + delay, fn, background=background)

    def add_busy(self, busy: Callable[[], bool]) -> None:
        """Add to what keeps the cluster from rest; ``busy`` is asked before every jump."""
        self._busy.append(busy)

    def touch(self) -> None:
        """Say that something happened: an answer of ``quiescent()`` that is under way no longer counts."""
        self._activity += 1
        self._wake.set()

    def next_due(self) -> float | None:
        """When the next timer is due that is no background one; None: nothing is left to happen."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        if self._timers and not self._timers[0].background:
            return self._timers[0].when
        due = (timer.when for timer in self._timers if not (timer.background or timer.cancelled))
        return min(due, default=None)

    def fire_due(self) -> int:
        """Call what is due by now, in order; returns how many calls that were."""
        fired = 0
        while self._timers and self._timers[0].when <= self.now():
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                fired += 1
                timer.fn()
        return fired

    async def run(self) -> None:
        """Keep time until cancelled: call the timers as they fall due, and jump when all is at rest."""
        while True:
            fired = self.fire_due()
            if fired:
                await asyncio.sleep(0)
            elif self.speed is None:
                await self._jump()
            else:
                await self._sleep()

    async def at_rest(self) -> bool:
        """Whether nothing is going on at the present time, here or outside, and stayed so while we asked."""
        seen = self._activity
        if self._anything_busy() or not await self.quiescent():
            return False
        return seen == self._activity and not self._anything_busy()

    async def wait_idle(self) -> None:
        """Return once the cluster is at rest and no timer is left but background ones."""
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
            # what is due on the way happens at its own time
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
        """Wait for something to happen, ``pause`` real seconds at most; returns how long to wait the next time.

        What happened since the last pause counts: then it only gives way to other tasks.
        """
        await self._wait(0 if self._wake.is_set() else pause)
        woken = self._wake.is_set()
        self._wake.clear()
        return _SHORTEST_PAUSE if woken else min(2 * pause, _LONGEST_PAUSE)

    async def _wait(self, seconds: float) -> None:
        """Wait until woken, ``seconds`` real seconds at most; shorter waits just give way to other tasks."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
