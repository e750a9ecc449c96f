"""Clocks, random numbers and backoff, passed in as parameters so that tests can control them.

Durations and deadlines use the monotonic clock. Wall time is only for timestamps that people or other programs read.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

Random = Callable[[], float]
"""Returns a uniformly distributed number in [0, 1)."""

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The clock interface of this package."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never decreases."""

    def wall(self) -> int:
        """Return nanoseconds since the epoch, for timestamps only: it can jump."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""


@runtime_checkable
class AlarmClock(Protocol):
    """A clock on which wall time does not advance at the rate of its ``sleep``, as in a simulation."""

    async def until(self, wall: int) -> None:
        """Sleep until the wall time ``wall`` (ns since the epoch)."""


async def sleep_until(clock: Clock, wall: int) -> None:
    """Sleep until the wall time ``wall`` (ns since the epoch)."""
    if isinstance(clock, AlarmClock):
        await clock.until(wall)
    else:
        await clock.sleep(max(wall - clock.wall(), 0) / 1e9)


class SystemClock:
    """The machine's clock. Its monotonic time advances during suspend, because a Lease expires then, too."""

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    def wall(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ClockJump(NamedTuple):
    """A divergence of ``offset`` nanoseconds between wall clock and monotonic clock; negative: the wall clock is
    behind.

    A jump is reported when it happens, with ``accepted`` False, and again when its time is adopted.
    """

    offset: int
    accepted: bool


class SteadyClock:
    """A clock whose wall time ignores short-lived jumps of another clock.

    A jump is a divergence of more than ``JUMP`` seconds from the monotonic clock. After one, wall time advances with
    the monotonic clock until the inner wall clock returns, or has stayed at its new time for ``ACCEPT_AFTER`` seconds.
    """

    JUMP = 5.0
    ACCEPT_AFTER = 600.0

    def __init__(self, inner: Clock | None = None) -> None:
        self._inner = inner or SYSTEM_CLOCK
        self._last_wall, self._last_at = self._inner.wall(), self._inner.monotonic()
        self._stable_since = self._last_at
        """Monotonic seconds since which the offset has not changed by more than ``JUMP``."""
        self._offset = 0
        """Nanoseconds by which the inner wall clock is ahead and not accepted; 0 without a jump."""
        self._jumps: list[ClockJump] = []

    def monotonic(self) -> float:
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    def wall(self) -> int:
        """Return nanoseconds since the epoch, without jumps that are not accepted."""
        wall, at = self._inner.wall(), self._inner.monotonic()
        expected = self._last_wall + round((at - self._last_at) * 1e9)
        offset = wall - expected
        if abs(offset) <= self.JUMP * 1e9:
            if self._offset:
                self._offset, self._stable_since = 0, at
        elif abs(offset - self._offset) > self.JUMP * 1e9:
            self._offset, self._stable_since = offset, at
            self._jumps.append(ClockJump(offset, accepted=False))
            wall = expected
        elif at - self._stable_since >= self.ACCEPT_AFTER:
            self._offset, self._stable_since = 0, at
            self._jumps.append(ClockJump(offset, accepted=True))
        else:
            wall = expected
        self._last_wall, self._last_at = wall, at
        return wall

    @property
    def wall_offset(self) -> float:
        """Seconds by which the inner wall clock is ahead and not accepted (negative: behind); 0 without a jump."""
        return self._offset / 1e9

    def is_steady(self) -> bool:
        """Return whether there was no jump for ``ACCEPT_AFTER`` seconds, so that wall times give ages."""
        self.wall()
        return not self._offset and self._last_at - self._stable_since >= self.ACCEPT_AFTER

    def take_jumps(self) -> list[ClockJump]:
        """Return and clear the jumps since the last call."""
        self.wall()
        news, self._jumps = self._jumps, []
        return news


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_RANDOM: Random = random.random


@dataclass(eq=False)
class Backoff:
    """Exponential backoff: the n-th pause lies in [1/2, 1) of ``min(cap, base * 2**n)`` seconds."""

    base: float
    cap: float
    rand: Random = SYSTEM_RANDOM
    _count: int = field(default=0, init=False)

    def next(self) -> float:
        """Return the seconds to pause before the next attempt."""
        step = min(self.cap, self.base * 2.0 ** min(self._count, 60))
        self._count += 1
        return step * (0.5 + 0.5 * self.rand())

    def reset(self) -> None:
        """Start again from ``base``, after a success."""
        self._count = 0
