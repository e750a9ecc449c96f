"""What failed and is tried again: after ever longer pauses, and told once for each reason."""

from __future__ import annotations

from vcd.kube.client import pause_after
from vcd.kube.clock import Backoff, Clock
from vcd.kube.errors import KubeError

LONGEST_PAUSE = 60.0
"""Seconds between two attempts at most: a right that is missing may be granted while the program runs."""


class Retry:
    """A piece of work that fails, until it succeeds. ``first_pause`` is in seconds, as is all time here."""

    def __init__(self, clock: Clock, first_pause: float) -> None:
        self._clock = clock
        self._pauses = Backoff(first_pause, LONGEST_PAUSE)
        self._told = ""
        self.attempts = 0
        """That failed."""
        self.due = 0.0
        """When the next one may be, by the monotonic clock."""

    @property
    def rests(self) -> bool:
        """Whether the next attempt is not due yet."""
        return self._clock.monotonic() < self.due

    def failed(self, error: KubeError | None = None) -> None:
        """Rest after one more attempt: longer than before, and as long as the server that refused it asks for."""
        pause = self._pauses.next() if error is None else pause_after(error, self._pauses)
        self.due = self._clock.monotonic() + pause
        self.attempts += 1

    def failed_anew(self, error: KubeError) -> bool:
        """As ``failed``; returns whether it is for another reason than was told last."""
        self.failed(error)
        return self.is_news(str(error))

    def is_news(self, reason: str) -> bool:
        """Whether another reason was told last; this one is told from now on."""
        before, self._told = self._told, reason
        return reason != before

    async def pause(self) -> None:
        """Return when the next attempt is due."""
        await self._clock.sleep(max(0.0, self.due - self._clock.monotonic()))
