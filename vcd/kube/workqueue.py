"""A queue of work keyed by object: a newer value replaces a queued one, and a key is worked on by one worker at a time.

Keys belong to lanes, such as namespaces, which are served round-robin. A lane that floods the queue delays only itself:
between two keys of one lane, every other lane is served at most once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NoReturn, TypeVar

import structlog

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

log = structlog.get_logger(__name__)


def namespace_lane(key: str) -> str:
    """Return the namespace of an object's key; "" for cluster-scoped objects."""
    namespace, slash, _ = key.partition("/")
    return namespace if slash else ""


class _FairQueue(Generic[K]):
    """Ready keys. Lanes take turns; within a lane, lower ranks go first, then earlier keys."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._lanes: dict[str, list[deque[K]]] = {}
        self._order: deque[str] = deque()

    def append(self, lane: str, rank: int, key: K) -> None:
        if lane not in self._lanes:
            self._lanes[lane] = [deque() for _ in range(self._ranks)]
            self._order.append(lane)
        self._lanes[lane][rank].append(key)

    def pop(self) -> K | None:
        """Remove and return the next key; None if there is none."""
        while self._order:
            lane = self._order.popleft()
            for keys in self._lanes[lane]:
                if keys:
                    self._order.append(lane)
                    return keys.popleft()
            del self._lanes[lane]
        return None

    def pop_surplus(self, lane: str) -> K | None:
        """Remove and return the last key of the longest lane; None unless that lane is longer than ``lane``."""
        longest = max(self._lanes, key=self._length, default=lane)
        if self._length(longest) <= self._length(lane):
            return None
        return next(keys for keys in reversed(self._lanes[longest]) if keys).pop()

    def clear(self) -> None:
        self._lanes.clear()
        self._order.clear()

    def _length(self, lane: str) -> int:
        return sum(map(len, self._lanes.get(lane, ())))


class WorkQueue(Generic[K, V]):
    """A bounded, coalescing queue with lanes and ranks. Within a lane, lower ranks go first.

    Args:
        capacity: Maximum number of queued keys. Above it, the longest lane loses its last key.
        ranks: Number of ranks.
        on_dropped: Called with each lost key.
        lane_of: Returns the lane of a key.
    """

    def __init__(
        self,
        capacity: int,
        ranks: int = 1,
        on_dropped: Callable[[K], None] = lambda _: None,
        lane_of: Callable[[K], str] = lambda _: "",
    ) -> None:
        self._capacity = capacity
        self._on_dropped = on_dropped
        self._lane_of = lane_of
        self._overflowed = False
        """Whether a lost key was logged; reset once the queue is half empty, so that an overflow is logged once."""
        self._values: dict[K, V] = {}
        self._ranks: dict[K, int] = {}
        self._ready: _FairQueue[K] = _FairQueue(ranks)
        self._busy: dict[K, V | None] = {}
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while no key is queued or worked on."""
        self.idle.set()

    def __len__(self) -> int:
        """Return the number of keys that are queued or worked on."""
        return len(self._values) + len(self._busy.keys() - self._values.keys())

    def pending(self, key: K) -> V | None:
        return self._values.get(key)

    def newest(self, key: K) -> V | None:
        """Return the value that is queued or, if none is, the one that is worked on and was queued since ``clear``."""
        return self._values.get(key, self._busy.get(key))

    def put(self, key: K, value: V, rank: int = 0) -> None:
        """Queue a value, replacing the queued value of the same key. Never blocks."""
        if key in self._values:
            self._values[key] = value
            return
        if len(self._values) >= self._capacity:
            surplus = self._ready.pop_surplus(self._lane_of(key))
            self._drop(key if surplus is None else surplus)
            if surplus is None:
                return
        self._values[key] = value
        self._ranks[key] = rank
        if key not in self._busy:
            self._make_ready(key)
        self.idle.clear()

    def _make_ready(self, key: K) -> None:
        self._ready.append(self._lane_of(key), self._ranks[key], key)
        self._wake.set()

    def _drop(self, key: K) -> None:
        self._values.pop(key, None)
        self._ranks.pop(key, None)
        self._on_dropped(key)
        if not self._overflowed:
            self._overflowed = True
            log.warning("work_dropped", key=key, capacity=self._capacity)

    def clear(self) -> None:
        self._busy = dict.fromkeys(self._busy)
        self._values.clear()
        self._ranks.clear()
        self._ready.clear()
        self._settle()

    async def serve(self, workers: int, work: Callable[[K, V], Awaitable[None]]) -> NoReturn:
        """Call ``work`` for each value with ``workers`` concurrent workers until cancelled; log its exceptions."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._serve(work))
        raise RuntimeError("workers ended")

    async def _serve(self, work: Callable[[K, V], Awaitable[None]]) -> None:
        while True:
            key = self._ready.pop()
            if key is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            value = self._values.pop(key)
            self._ranks.pop(key)
            self._busy[key] = value
            try:
                await work(key, value)
            except Exception:
                log.exception("work_failed", key=key)
            finally:
                self._busy.pop(key)
                if key in self._values:
                    self._make_ready(key)
                self._settle()

    def _settle(self) -> None:
        if 2 * len(self._values) <= self._capacity:
            self._overflowed = False
        if not self._values and not self._busy:
            self.idle.set()
