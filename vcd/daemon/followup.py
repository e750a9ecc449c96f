"""What is made of a session once it is decided, off the cycle's way: computed in a thread, told in slices of time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

SLICE = 0.02
"""Seconds of telling after which the event loop gets a turn."""


MOST = 64
"""Items that may wait before who gives them should wait, too: each may have a session with it."""


class FollowUp:
    """Does what it is given, in order, while ``run`` runs."""

    def __init__(self) -> None:
        self._items: deque[tuple[Callable[[], Any], Callable[[Any], Iterator[None]]]] = deque()
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while all that was given is done."""
        self.idle.set()
        self._room = asyncio.Event()
        """Set while no more than ``MOST`` items wait."""
        self._room.set()

    async def room(self) -> None:
        """Wait while more than ``MOST`` items wait."""
        await self._room.wait()

    def add(self, compute: Callable[[], T], tell: Callable[[T], Iterator[None]]) -> None:
        """Call ``compute`` in a thread, then go through ``tell`` of its result on the event loop.

        ``tell`` yields wherever it may pause.
        """
        self._items.append((compute, tell))
        self.idle.clear()
        if len(self._items) > MOST:
            self._room.clear()
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled; raises what the work raises."""
        while True:
            while self._items:
                compute, tell = self._items.popleft()
                if len(self._items) <= MOST:
                    self._room.set()
                await in_slices(tell(await asyncio.to_thread(compute)))
            self.idle.set()
            self._wake.clear()
            await self._wake.wait()


async def in_slices(steps: Iterator[None]) -> None:
    """Go through ``steps``, and give the event loop a turn after each slice of time."""
    end = time.perf_counter() + SLICE
    for _ in steps:
        if time.perf_counter() > end:
            await asyncio.sleep(0)
            end = time.perf_counter() + SLICE
