"""Which write to the API server goes first, and how many at once.

Binds and evictions always go before statuses and Events, of which a tenant may cause any number.
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
    """Which write goes first while writes have to queue, within bounds. The Lease never queues."""

    LEASE = 0
    COMMIT = 1
    STATUS = 2
    EVENT = 3


_PATIENCE = {Urgency.LEASE: 0.0, Urgency.COMMIT: 0.0, Urgency.STATUS: 5.0, Urgency.EVENT: 30.0}
"""Seconds for which a write lets later ones that are more urgent go first: none waits for ever."""


_BACKGROUND, _BESIDE_COMMITS = 16, 2
"""Statuses and Events that are sent at once; and while binds and evictions are under way."""
_HELD_BACK = 0.2
"""Seconds for which a session holds back statuses and Events. A longer session, which may be stuck, lets as many go as
binds and evictions do."""
_TURNS = 10
"""Turns of the event loop after a session, within which its binds and evictions come here: they go first."""
_SHORTEST_WAIT = 1e-6
"""Seconds for which a write waits at least where it has to wait for its rate."""


class _Waiting(NamedTuple):
    """A write that waits; of those that may be sent, the least one is next."""

    latest: float
    order: int
    turn: asyncio.Future[None]


class Admission:
    """Admits writes: at most ``in_flight`` at once, ``qps`` a second with bursts of ``burst``, the most urgent first.

    Statuses and Events are background writes. None is sent while a session is decided, which needs the processor, and
    few are while binds and evictions are: the event loop and the API server answer them in turn. Few of those that have
    waited for long are sent beside a session, too.

    Less urgent writes let others go first for a bounded time only. A ``qps`` of 0 or less sets no rate, as in
    client-go.
    """

    def __init__(self, qps: float, burst: int, in_flight: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._places = in_flight
        self._clock = clock
        self._tokens = float(self._burst)
        self._filled = clock.monotonic()
        self._sent = {True: 0, False: 0}
        """Writes under way: background, and others."""
        self._queues: dict[bool, list[_Waiting]] = {True: [], False: []}
        self._spared = _BACKGROUND
        """How many background writes a session lets go at once."""
        self._sparing: asyncio.Task[None] | None = None
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None

    async def enter(self, urgency: Urgency) -> None:
        """Wait for a place; each must be given back by ``leave``."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        latest = self._clock.monotonic() + _PATIENCE[urgency]
        heapq.heappush(self._queues[urgency > Urgency.COMMIT], _Waiting(latest, next(self._order), turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(urgency)
            raise

    @property
    def is_empty(self) -> bool:
        """Whether all places are free."""
        return not any(self._sent.values())

    def leave(self, urgency: Urgency, *, unused: bool = False) -> None:
        """Give a place back; ``unused``: no call was made by it, so that the next one goes at once."""
        self._sent[urgency > Urgency.COMMIT] -= 1
        self._tokens += unused
        self._grant()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold back background writes while a session is decided, and until its binds are on their way."""
        self._spared = 0
        self._spare_after(lambda: self._clock.sleep(_HELD_BACK), _BESIDE_COMMITS)
        try:
            yield
        finally:
            self._spare_after(_let_commits_begin, _BACKGROUND)
            self._grant()  # sessions may follow each other without a pause

    def _spare_after(self, pause: Callable[[], Awaitable[None]], writes: int) -> None:
        async def spare() -> None:
            await pause()
            self._spared = writes
            self._grant()

        if self._sparing is not None:
            self._sparing.cancel()
        self._sparing = asyncio.get_running_loop().create_task(spare())

    def close(self) -> None:
        """Stop waiting for tokens, and for a session's end."""
        for timer in (self._timer, self._sparing):
            if timer is not None:
                timer.cancel()

    def _grant(self) -> None:
        while (queue := self._next()) is not None:
            if not self._take_token():
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().create_task(self._refill())
                return
            self._sent[queue is self._queues[True]] += 1
            heapq.heappop(queue).turn.set_result(None)

    def _next(self) -> list[_Waiting] | None:
        """Return the queue whose first write is next and has a place."""
        for queue in self._queues.values():
            while queue and queue[0].turn.done():  # its caller was cancelled
                heapq.heappop(queue)
        if sum(self._sent.values()) >= self._places:
            return None
        may_go = [queue for background, queue in self._queues.items() if queue and self._has_place(background)]
        return min(may_go, key=lambda queue: queue[0], default=None)

    def _has_place(self, background: bool) -> bool:
        if not background:
            return True
        beside_commits = _BESIDE_COMMITS if self._sent[False] or self._queues[False] else _BACKGROUND
        is_late = self._queues[True][0].latest <= self._clock.monotonic()
        spared = max(self._spared, _BESIDE_COMMITS) if is_late else self._spared
        return self._sent[True] < min(spared, beside_commits)

    def _take_token(self) -> bool:
        if self._qps > 0:
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
            self._filled = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
        return True

    async def _refill(self) -> None:
        # what rounding leaves of a token is less than a clock tells, and would be waited for without end
        await self._clock.sleep(max(_SHORTEST_WAIT, (1 - self._tokens) / self._qps))
        self._timer = None
        self._grant()


async def _let_commits_begin() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
