"""Retries of writes to the API server: growing pauses, and one report for each new reason."""

from __future__ import annotations

from vcd.kube.api_errors import KubeError
from vcd.kube.client import pause_after
from vcd.kube.clock import Backoff, Clock

LONGEST_PAUSE = 60.0
"""Longest pause in seconds; a missing right may be granted while the process runs."""


class Retry:
    """State of one write that fails. All times are in seconds."""

    def __init__(self, clock: Clock, first_pause: float) -> None:
        self._clock = clock
        self._pauses = Backoff(first_pause, LONGEST_PAUSE)
        self._last_reported = ""
        self.attempts = 0
        """Failed attempts."""
        self.due = 0.0
        """When the next attempt is due, by the monotonic clock."""

    @property
    def rests(self) -> bool:
        """Return whether the next attempt is not due yet."""
        return self._clock.monotonic() < self.due

    def failed(self, error: KubeError | None = None) -> None:
        """Note a failed attempt; the pause grows, and is at least what the server demands."""
        pause = self._pauses.next() if error is None else pause_after(error, self._pauses)
        self.due = self._clock.monotonic() + pause
        self.attempts += 1

    def is_new_failure(self, error: KubeError) -> bool:
        """Note a failed attempt; return whether its reason is new."""
        self.failed(error)
        return self.is_new_reason(str(error))

    def is_new_reason(self, reason: str) -> bool:
        """Return whether a reason differs from the last reported one, and remember it."""
        before, self._last_reported = self._last_reported, reason
        return reason != before

    async def pause(self) -> None:
        """Return when the next attempt is due."""
        await self._clock.sleep(max(0.0, self.due - self._clock.monotonic()))
