"""Publishes in a file next to the log whether this replica leads, follows or is cut off, for the page and ``vcd top``.

The file's format and location are in `vcd.eventlog.writer_status`. Readers treat an old file as unknown, so it is
rewritten once per second, by the machine's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from vcd.daemon.replicas.log_follower import LogFollower
from vcd.eventlog.writer_status import WriterStatus, remove_status, write_status
from vcd.kube.clock import Clock
from vcd.kube.lease import LeaderElector

_log = structlog.get_logger(__name__)

EACH = 1.0
"""Seconds between updates; a follower receives heartbeats as often."""


class HearingClock:
    """Measures how long ago a follower last had its leader's whole log."""

    def __init__(self, follower: LogFollower, clock: Clock) -> None:
        self._follower = follower
        self._clock = clock
        self._heard = 0
        self._looked_at: float | None = None
        self._complete_at: float | None = None

    def behind(self) -> float | None:
        """Return an upper bound in seconds; None if the follower never had everything."""
        follower, now = self._follower, self._clock.monotonic()
        before, self._looked_at = self._looked_at, now
        if follower.heard != self._heard and not follower.lag:
            # a heartbeat since the last look may be as old as that look: the process may have been stopped
            self._heard, self._complete_at = follower.heard, now if before is None else before
        return None if self._complete_at is None else now - self._complete_at


@dataclass(eq=False)
class StatusNote:
    """Updates the status next to the log at ``path``.

    ``follower`` is there if replicas share a log. ``leads`` returns whether this replica decides.
    """

    path: Path
    elector: LeaderElector
    follower: LogFollower | None
    leads: Callable[[], bool]

    def __post_init__(self) -> None:
        self._hearing = None if self.follower is None else HearingClock(self.follower, self.elector.clock)
        self._source = ""

    async def run(self) -> None:
        """Update the status until cancelled, then remove it."""
        last_error = ""
        try:
            while True:
                try:
                    await asyncio.to_thread(write_status, self.path, self.now())
                    last_error = ""
                except OSError as error:
                    if str(error) != last_error:
                        last_error = str(error)
                        _log.warning(
                            "the status file of the log cannot be written", event_log=str(self.path), reason=last_error
                        )
                await asyncio.sleep(EACH)  # not the simulated clock: readers compare with the machine's time
        finally:
            remove_status(self.path)

    def now(self) -> WriterStatus:
        """Return the current status."""
        elector, name = self.elector, self.elector.identity
        lease, seen = f"{elector.namespace}/{elector.name}", elector.observed_at
        since = elector.clock.monotonic() - seen if seen else None
        if elector.is_leader() or self.leads():
            return WriterStatus("leader", name, lease, name, since)
        if self.follower is None or self._hearing is None or (elector.holder and not self._is_followed(elector)):
            return WriterStatus("apart", name, lease, elector.holder, since)
        behind = self._hearing.behind()
        self._source = self.follower.leader or self._source or (elector.holder if elector.holder != name else "")
        return WriterStatus("follower", name, lease, elector.holder, since, self._source, behind, self.follower.lag)

    def _is_followed(self, elector: LeaderElector) -> bool:
        """Return whether the holder serves its log. A replica that lost the Lease may still see itself as holder."""
        return bool(elector.holder_address) or elector.holder == elector.identity
