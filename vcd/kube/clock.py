"""Time and chance as parts to be handed in, so that tests drive them; and the pauses between attempts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

Random = Callable[[], float]
"""A number in [0, 1), evenly spread."""

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What this package knows of time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never set back."""

    def wall(self) -> int:
        """Nanoseconds since the epoch, for texts that people and other programs read; decides nothing."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""


@runtime_checkable
class AlarmClock(Protocol):
    """A clock whose wall time does not pass as its ``sleep`` does."""

    async def until(self, wall: int) -> None:
        """Return once it is ``wall`` (ns since the epoch)."""


async def sleep_until(clock: Clock, wall: int) -> None:
    """Return once it is ``wall`` (ns since the epoch) by a clock."""
    if isinstance(clock, AlarmClock):
        await clock.until(wall)
    else:
        await clock.sleep(max(wall - clock.wall(), 0) / 1e9)


class SystemClock:
    """The machine's clock. Its monotonic time goes on while the machine is suspended, as a lease does."""

    def monotonic(self) -> float:
        """Seconds since boot."""
        return time.clock_gettime(_MONOTONIC)

    def wall(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)


class Jump(NamedTuple):
    """A wall clock that went another way than the monotonic one by ``by`` nanoseconds (below 0: back).

    ``followed`` tells whether it was believed in the end; the first news of a jump says that it is not yet.
    """

    by: int
    followed: bool


class SteadyClock:
    """A clock whose wall time goes on evenly where another's jumps.

    A jump is a difference of more than ``JUMP`` seconds to the monotonic clock. Time then goes on as the monotonic
    clock does, until the wall clock is back, or has stood by its new time for ``BELIEVED`` seconds.
    """

    JUMP = 5.0
    BELIEVED = 600.0

    def __init__(self, inner: Clock | None = None) -> None:
        self._inner = inner or SYSTEM_CLOCK
        self._wall, self._at = self._inner.wall(), self._inner.monotonic()
        self._since = self._at
        """Since when both clocks agree, or, while they do not, since when the wall clock has stood by its new time."""
        self._away = 0
        """Nanoseconds that the wall clock is ahead; 0 while both agree."""
        self._news: list[Jump] = []

    def monotonic(self) -> float:
        """As the inner clock."""
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        """As the inner clock."""
        await self._inner.sleep(seconds)

    def wall(self) -> int:
        """Nanoseconds since the epoch, without jumps that pass."""
        wall, at = self._inner.wall(), self._inner.monotonic()
        even = self._wall + round((at - self._at) * 1e9)
        away = wall - even
        if abs(away) <= self.JUMP * 1e9:
            if self._away:
                self._away, self._since = 0, at
        elif abs(away - self._away) > self.JUMP * 1e9:
            self._away, self._since = away, at
            self._news.append(Jump(away, followed=False))
            wall = even
        elif at - self._since >= self.BELIEVED:
            self._away, self._since = 0, at
            self._news.append(Jump(away, followed=True))
        else:
            wall = even
        self._wall, self._at = wall, at
        return wall

    @property
    def ahead(self) -> float:
        """Seconds that the inner wall clock is ahead and not believed (below 0: behind); 0 while both agree."""
        return self._away / 1e9

    def is_steady(self) -> bool:
        """Whether both clocks have agreed for ``BELIEVED`` seconds, so that what is old may be judged by them."""
        self.wall()
        return not self._away and self._at - self._since >= self.BELIEVED

    def news(self) -> list[Jump]:
        """The jumps since it was last asked."""
        self.wall()
        news, self._news = self._news, []
        return news


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_RANDOM: Random = random.random


@dataclass(eq=False)
class Backoff:
    """Growing pauses: the n-th lies in [1/2, 1) of ``base * 2**n`` seconds, and never above ``cap``."""

    base: float
    cap: float
    rand: Random = SYSTEM_RANDOM
    _count: int = field(default=0, init=False)

    def next(self) -> float:
        """Seconds to pause before the next attempt."""
        step = min(self.cap, self.base * 2.0 ** min(self._count, 60))
        self._count += 1
        return step * (0.5 + 0.5 * self.rand())

    def reset(self) -> None:
        """The last attempt succeeded: start again from ``base``."""
        self._count = 0
