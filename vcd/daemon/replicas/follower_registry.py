"""Records which replicas follow this one and what they have, and lets a session wait until one has its events.

Waiting is bounded: a follower that is late is ignored for a growing pause, so a slow disk elsewhere does not stop
scheduling. Readers are listed too, but no session waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from vcd.kube.asyncio_tasks import run_until_first
from vcd.kube.clock import SYSTEM_CLOCK, Clock

PATIENCE = 1.0
"""Seconds that a session waits for a follower. A follower that takes longer is ignored for a pause."""
SHORTEST, LONGEST = 2.0, 64.0
"""The first and the longest pause in seconds for which a late follower is ignored. The pause doubles each time."""
FORGOTTEN = 600.0
"""Seconds after which the pause of a follower starts from `SHORTEST` again."""


class Follower:
    """A connected follower. One without an address is a reader: no session waits for it."""

    def __init__(self, name: str, address: str = "") -> None:
        self.name = name
        self.address = address
        self.has = 0
        self.reported = -1
        """The last reported end of the log, sent after all events up to it; -1 before the first report."""
        self.keeps_up = False
        """Whether it is a replica that has everything up to ``reported``, and was not late recently."""
        self._late_at = -FORGOTTEN
        self._pause = 0.0

    def was_late(self, now: float) -> None:
        """Ignore this follower for a pause."""
        again = now - self._late_at < FORGOTTEN
        self._pause = min(2 * self._pause, LONGEST) if again else SHORTEST
        self._late_at = now
        self.keeps_up = False

    def has_all_up_to(self, sequence: int, now: float) -> None:
        """Note up to which event its log is durable."""
        self.has = max(self.has, sequence)
        caught_up = 0 <= self.reported <= self.has and now - self._late_at >= self._pause
        self.keeps_up = self.keeps_up or (bool(self.address) and caught_up)


class Followers:
    """The followers that are connected now."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._moved = asyncio.Event()
        self.connected: list[Follower] = []
        self.damaged = 0
        """The last event up to which the served log was found to be damaged: copies begin with a later checkpoint."""
        self.sent = 0
        """Bytes sent to all followers."""
        self.late = 0
        """How many waits ended without a follower that has the event."""
        self.dismissed = asyncio.Event()
        """Set once this replica no longer leads: each follower is disconnected when it has everything."""
        self._expected = False
        """Whether followers of the last leader may be about to connect."""

    def expect(self) -> None:
        """Let the next session wait for followers that are not connected yet, because this replica takes the lead."""
        self._expected = True

    def replicas(self) -> list[Follower]:
        """Return the followers that are replicas."""
        return [one for one in self.connected if one.address]

    @contextmanager
    def joined(self, name: str, address: str = "") -> Iterator[Follower]:
        """Register a follower while the context lasts."""
        follower = Follower(name, address)
        self.connected.append(follower)
        try:
            yield follower
        finally:
            self.connected.remove(follower)
            self._notify()

    def has(self, follower: Follower, sequence: int) -> None:
        """Note up to which event a follower's log is durable."""
        follower.has_all_up_to(sequence, self._clock.monotonic())
        self._notify()

    async def have(self, sequence: int) -> bool:
        """Wait until a follower that keeps up has an event; False if none keeps up or is expected, or on timeout."""
        until = self._clock.monotonic() + PATIENCE
        while True:
            keeping_up = [one for one in self.connected if one.keeps_up]
            if any(one.has >= sequence for one in keeping_up):
                self._expected = False
                return True
            if not keeping_up and not self._expected:
                return False
            now = self._clock.monotonic()
            left = until - now
            if left <= 0:
                self._expected = False
                self.late += bool(keeping_up)
                for one in keeping_up:
                    one.was_late(now)
                return False
            await run_until_first(self._moved.wait(), self._clock.sleep(left))

    def _notify(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
