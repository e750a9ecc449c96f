"""Queue of work after sessions (metrics, conditions, Events): computed in a thread, then applied on the event loop.

It is applied in short slices of time, and pauses while a session is decided, so that watches and the Lease stay
responsive and a session has the processor.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

SLICE = 0.002
"""Seconds of work after which the event loop gets a turn."""


MOST = 64
"""Queued items above which sessions wait, because each item may hold a session in memory."""


class FollowUp:
    """Processes items in order while ``run`` runs."""

    def __init__(self) -> None:
        self._items: deque[tuple[Callable[[], Any], Callable[[Any], Iterator[None]]]] = deque()
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no item is queued or being processed."""
        self.idle.set()
        self._room = asyncio.Event()
        """Set while at most ``MOST`` items are queued."""
        self._room.set()
        self._no_session = asyncio.Event()
        self._no_session.set()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Pause while a session is decided, which needs the processor."""
        self._no_session.clear()
        try:
            yield
        finally:
            self._no_session.set()

    async def room(self) -> None:
        """Wait while more than ``MOST`` items are queued."""
        await self._room.wait()

    def add(self, compute: Callable[[], T], tell: Callable[[T], Iterator[None]]) -> None:
        """Call ``compute`` in a thread, then run ``tell`` with its result on the event loop.

        ``tell`` yields where it may pause.
        """
        self._items.append((compute, tell))
        self.idle.clear()
        if len(self._items) > MOST:
            self._room.clear()
        self._wake.set()

    async def run(self) -> None:
        """Process items until cancelled; raises what an item raises."""
        while True:
            while self._items:
                compute, tell = self._items.popleft()
                if len(self._items) <= MOST:
                    self._room.set()
                found = await asyncio.to_thread(compute)
                await self._no_session.wait()
                await in_slices(tell(found), self._no_session.wait)
            self.idle.set()
            self._wake.clear()
            await self._wake.wait()


async def _at_once() -> None:
    """Return at once: no condition holds back the next slice."""


async def in_slices(steps: Iterator[None], may_go_on: Callable[[], Awaitable[object]] = _at_once) -> None:
    """Run ``steps``; after each slice of time, yield to the event loop and await ``may_go_on``."""
    end = time.perf_counter() + SLICE
    for _ in steps:
        if time.perf_counter() > end:
            await asyncio.sleep(0)
            await may_go_on()
            end = time.perf_counter() + SLICE
