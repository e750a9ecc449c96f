"""Work keyed by object: only the newest per key is kept, and a key is worked on by one worker at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NoReturn, TypeVar

import structlog

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

log = structlog.get_logger(__name__)


class WorkQueue(Generic[K, V]):
    """A bounded, coalescing queue with ranks; a lower rank goes first.

    ``capacity`` bounds the keys that wait; a new key beyond it is dropped, and told to ``dropped``.
    """

    def __init__(self, capacity: int, ranks: int = 1, dropped: Callable[[K], None] = lambda _: None) -> None:
        self._capacity = capacity
        self._dropped = dropped
        self._overflowed = False
        """Whether it was logged that keys are dropped; it is again once half of the room was free."""
        self._values: dict[K, V] = {}
        self._ranks: dict[K, int] = {}
        self._ready: list[deque[K]] = [deque() for _ in range(ranks)]
        self._busy: set[K] = set()
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing waits and nothing is worked on."""
        self.idle.set()

    def __len__(self) -> int:
        """How many keys wait or are worked on."""
        return len(self._values) + len(self._busy - self._values.keys())

    def pending(self, key: K) -> V | None:
        """What waits for a key, if anything."""
        return self._values.get(key)

    def put(self, key: K, value: V, rank: int = 0) -> None:
        """Add work, in place of what waits for the same key. Never blocks."""
        if key in self._values:
            self._values[key] = value
            return
        if len(self._values) >= self._capacity:
            self._drop(key)
            return
        self._values[key] = value
        self._ranks[key] = rank
        if key not in self._busy:
            self._ready[rank].append(key)
            self._wake.set()
        self.idle.clear()

    def _drop(self, key: K) -> None:
        self._dropped(key)
        if not self._overflowed:
            self._overflowed = True
            log.warning("work_dropped", key=key, capacity=self._capacity)

    def clear(self) -> None:
        """Forget all that waits."""
        self._values.clear()
        self._ranks.clear()
        for ready in self._ready:
            ready.clear()
        self._settle()

    async def serve(self, workers: int, work: Callable[[K, V], Awaitable[None]]) -> NoReturn:
        """Call ``work`` for all that comes, with so many workers, until cancelled. What it raises is told."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._serve(work))
        raise RuntimeError("workers ended")

    async def _serve(self, work: Callable[[K, V], Awaitable[None]]) -> None:
        while True:
            key = self._next()
            if key is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            value = self._values.pop(key)
            self._ranks.pop(key)
            self._busy.add(key)
            try:
                await work(key, value)
            except Exception:
                log.exception("work_failed", key=key)
            finally:
                self._busy.discard(key)
                if key in self._values:
                    self._ready[self._ranks[key]].append(key)
                    self._wake.set()
                self._settle()

    def _next(self) -> K | None:
        for ready in self._ready:
            if ready:
                return ready.popleft()
        return None

    def _settle(self) -> None:
        if 2 * len(self._values) <= self._capacity:
            self._overflowed = False
        if not self._values and not self._busy:
            self.idle.set()
