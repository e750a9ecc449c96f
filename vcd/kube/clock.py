"""Time and chance as parts to be handed in, so that tests drive them; and the pauses between attempts."""

from __future__ import annotations

import asyncio
import datetime
import random
import time
from collections.abc import Callable
from typing import Protocol

Random = Callable[[], float]
"""A number in [0, 1), evenly spread."""

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What this package knows of time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never set back."""
        ...

    def wall(self) -> int:
        """Nanoseconds since the epoch, for texts that people and other programs read; decides nothing."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        ...


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


SYSTEM_CLOCK = SystemClock()
SYSTEM_RANDOM: Random = random.random


def rfc3339(nanoseconds: int, *, micro: bool = False) -> str:
    """A wall time as Kubernetes writes it: to the second (``metav1.Time``) or microsecond (``metav1.MicroTime``)."""
    moment = datetime.datetime.fromtimestamp(nanoseconds // 1_000_000_000, datetime.UTC)
    if micro:
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000 // 1000:06d}Z"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class Backoff:
    """Growing pauses: the n-th lies in [1/2, 1) of ``base * 2**n`` seconds, and never above ``cap``."""

    def __init__(self, base: float, cap: float, rand: Random = SYSTEM_RANDOM) -> None:
        self._base = base
        self._cap = cap
        self._random = rand
        self._count = 0

    def next(self) -> float:
        """Seconds to pause before the next attempt."""
        step = min(self._cap, self._base * 2.0 ** min(self._count, 60))
        self._count += 1
        return step * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """The last attempt succeeded: start again from ``base``."""
        self._count = 0
