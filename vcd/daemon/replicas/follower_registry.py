"""Who follows this replica's log, how far, and whether what it decided is elsewhere, too, before it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.waits import first_of

PATIENCE = 1.0
"""Seconds that a decision waits for a follower to have it; one that takes longer is waited for no more for a while."""
SHORTEST, LONGEST = 2.0, 64.0
"""Seconds for which one that was late is not waited for: at first, and at most, twice as long each time."""
FORGOTTEN = 600.0
"""Seconds after which it does not count any more that one was late."""


class Follower:
    """Who follows: up to which event its log is durable, and whether it keeps up. One without an address of its own
    reads, and is no replica: nobody counts on what it has."""

    def __init__(self, name: str, address: str = "") -> None:
        self.name = name
        self.address = address
        self.has = 0
        self.told = -1
        """Where it was last told that the log ends, after all that was sent before; -1 for not yet."""
        self.keeps_up = False
        """Whether it is a replica that had all that it was told of, and was not late for a while."""
        self._late_at = -FORGOTTEN
        self._pause = 0.0

    def was_late(self, now: float) -> None:
        """It is not waited for, for a while."""
        again = now - self._late_at < FORGOTTEN
        self._pause = min(2 * self._pause, LONGEST) if again else SHORTEST
        self._late_at = now
        self.keeps_up = False

    def has_all_up_to(self, sequence: int, now: float) -> None:
        """It says up to which event its log is durable."""
        self.has = max(self.has, sequence)
        caught_up = 0 <= self.told <= self.has and now - self._late_at >= self._pause
        self.keeps_up = self.keeps_up or (bool(self.address) and caught_up)


class Followers:
    """Those that follow now."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._moved = asyncio.Event()
        self.connected: list[Follower] = []
        self.damaged = 0
        """The last event up to which the served log was found to be damaged: copies begin with a later checkpoint."""
        self.sent = 0
        """Bytes that were sent to them."""
        self.late = 0
        """How often a decision was not waited for any longer."""
        self.dismissed = asyncio.Event()
        """Set once this replica leads no more: each is let go of when it has all."""
        self._expected = False
        """Whether those who followed the leader before may be about to follow this one."""

    def expect(self) -> None:
        """Let the next decision wait for who follows from now on: this replica takes the lead."""
        self._expected = True

    def replicas(self) -> list[Follower]:
        """Those of them that are replicas."""
        return [one for one in self.connected if one.address]

    @contextmanager
    def joined(self, name: str, address: str = "") -> Iterator[Follower]:
        """A follower, as long as it is connected."""
        follower = Follower(name, address)
        self.connected.append(follower)
        try:
            yield follower
        finally:
            self.connected.remove(follower)
            self._tell()

    def has(self, follower: Follower, sequence: int) -> None:
        """A follower says up to which event its log is durable."""
        follower.has_all_up_to(sequence, self._clock.monotonic())
        self._tell()

    async def have(self, sequence: int) -> bool:
        """Wait until a follower that keeps up has an event; False where none does, nor is expected to, or none has it
        in time."""
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
            await first_of(self._moved.wait(), self._clock.sleep(left))

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
