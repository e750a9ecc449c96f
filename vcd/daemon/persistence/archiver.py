"""Ships the leader's log to an archive, and restores a missing log from it.

Shipping and restoring run in a separate process (`vcd.eventlog.archive.archive_process`). Before changing it:
scheduling never waits for the archive; a replica that cannot restore its log in time begins without history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing
from pathlib import Path

import structlog

from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.eventlog.archive.archive_process import run_job
from vcd.eventlog.archive.restoration import EmptyArchive, Restored, RestoreJob, remove_partial
from vcd.eventlog.archive.shipping import ShipJob, ShipProgress
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_writer import EventLog
from vcd.kube.asyncio_tasks import run_until_first
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock

_log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between checks whether a run is due."""
SHORTEST = 2.0
"""First pause in seconds after a failed run; it doubles up to --archive-every."""
LAST_RUN = 10.0
"""Seconds for the last run of a leader at shutdown."""
SHIPPING_SILENCE = 300.0
"""Seconds without progress after which a run fails."""
ATTEMPTS = 4
"""Attempts to restore a log before a replica begins without one."""
SILENCE = 120.0
"""Seconds without progress after which such an attempt fails."""
LONGEST = 600.0
"""Seconds for all attempts; then a replica begins without, because scheduling does not wait for a store."""


class Archiver:
    """Ships the log while ``epoch`` returns this replica's epoch as leader.

    Followers of a shared log only read how far it is shipped, because their retention depends on it.
    """

    def __init__(
        self,
        options: Options,
        log: EventLog,
        metrics: Metrics,
        identity: str,
        epoch: Callable[[], int | None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._log = log
        self._metrics = metrics
        self._identity = identity
        self._epoch = epoch
        self._clock = clock
        self._shipped = ShipProgress(0, 0)
        self._is_known = False
        """Whether the archive's content was ever read."""
        self._missed_to = 0
        """The last event that was reported as missing in the archive."""
        self._led: int | None = None
        """The epoch of the last run; None while this replica does not lead."""
        self._behind_since: float | None = None
        """Since when (s) this leader has events that are not in the archive, if it has any."""

    async def run(self) -> None:
        """Ship periodically until cancelled. A failed run is logged, counted, and repeated."""
        if not self._options.archive:
            return
        pauses = Backoff(SHORTEST, self._options.archive_every, SYSTEM_RANDOM)
        due = 0.0
        while True:
            epoch, now = self._epoch(), self._clock.monotonic()
            if now >= due or epoch != self._led:
                self._led = epoch
                try:
                    await self._ship(epoch)
                    pauses.reset()
                    due = now + self._options.archive_every
                except LogError as error:
                    self._metrics.series.add("vcd_log_archive_failures_total")
                    due = self._clock.monotonic() + pauses.next()
                    _log.warning("the event log is not shipped", reason=str(error))
            await self._clock.sleep(LOOK)

    async def finish(self, led: int | None) -> None:
        """Ship the rest of the log at the end of a leader with an epoch."""
        if not self._options.archive or led is None:
            return
        try:
            async with asyncio.timeout(LAST_RUN):
                await self._ship(led)
        except (LogError, TimeoutError) as error:
            _log.warning("the end of the event log is not shipped", reason=str(error) or "timeout")

    async def _ship(self, epoch: int | None) -> None:
        """Ship once. Raises LogError."""
        if epoch is None and not self._options.replicas_address:
            return
        options = self._options
        path = str(self._log.path.absolute())
        job = ShipJob(path, options.archive, self._identity, epoch, options.archive_age, options.archive_size)
        began = self._shipped.sequence
        async with aclosing(run_job(job, SHIPPING_SILENCE)) as steps:
            async for step in steps:
                assert isinstance(step, ShipProgress)
                self._shipped, self._is_known = step, True
                self._metrics.series.add("vcd_log_archive_bytes_total", by=step.bytes)
                self.show()
        if self._shipped.sequence > began and epoch is not None:
            _log.info("shipped", archive=options.archive, last_event=self._shipped.sequence)

    def show(self) -> None:
        """Update the age of the archive: of its newest event, or since when it has none; no value on a follower."""
        now, shipped = self._clock.wall() / 1e9, self._shipped
        if self._led is None or self._log.head <= shipped.sequence:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        # an archive that is empty, or was not read yet, has no event with an age
        age = 0.0 if self._behind_since is None else now - (shipped.time or self._behind_since)
        self._metrics.series.show("vcd_log_archive_age_seconds", {} if self._led is None else max(age, 0.0))

    def elsewhere(self) -> int | None:
        """Return up to which event the log is in the archive; None if history need not be archived."""
        must = self._options.archive and (self._led is not None or self._options.replicas_address)
        return self._shipped.sequence if must else None

    def missed(self, elsewhere: int, begins: int) -> None:
        """Report once that events after ``elsewhere`` and before ``begins`` were removed and are not in the archive.

        Before the archive was read, nothing is reported, because it may have them.
        """
        events = begins - max(elsewhere, self._missed_to)
        self._missed_to = max(begins, self._missed_to)
        if not self._is_known or events <= 0:
            return
        self._metrics.series.add("vcd_log_archive_missed_events_total", by=events)
        _log.error("history was removed that is not in the archive, since the log may not grow any more", events=events)


async def restore_from_archive(
    options: Options, stop: asyncio.Event, restoring: AbstractContextManager[object]
) -> None:
    """Restore the archive's newest log, within its retention, if this replica has no log.

    If that fails or takes too long, it is logged, and the replica begins without history. ``restoring`` is entered
    while the log is restored.
    """
    log = options.event_log.resolve()  # a link may lead to another volume
    if not options.archive or not await asyncio.to_thread(_is_missing, log):
        return
    with restoring:
        await run_until_first(_begun(options, log), stop.wait())


def _is_missing(log: Path) -> bool:
    if log.is_file() and not log.stat().st_size:
        log.unlink()  # created by a process that ended before it wrote
    return not log.exists()


async def _begun(options: Options, log: Path) -> None:
    why = f"{ATTEMPTS} attempts failed"
    try:
        async with asyncio.timeout(LONGEST):
            if await _restored(options, log):
                return
    except TimeoutError:
        why = f"it was not restored within {LONGEST:.0f} s"
    finally:
        await asyncio.to_thread(remove_partial, log)
    _log.error(
        "the event log starts without its history; restore it from the archive with `vcd log restore`",
        archive=options.archive,
        reason=why,
    )


async def _restored(options: Options, log: Path) -> bool:
    """Return whether a log was restored, or the archive is empty."""
    job = RestoreJob(options.archive, str(log), age=options.retention_age)
    pauses = Backoff(SHORTEST, 10.0, SYSTEM_RANDOM)
    for attempt in range(ATTEMPTS):
        try:
            await _restore(job)
        except EmptyArchive:
            _log.info("the archive is empty", archive=options.archive)
            return True
        except LogError as error:
            _log.warning("the event log is not restored", reason=str(error), attempt=attempt + 1)
        if not await asyncio.to_thread(_is_missing, log):
            return True
        if attempt < ATTEMPTS - 1:
            await SYSTEM_CLOCK.sleep(pauses.next())
    return False


async def _restore(job: RestoreJob) -> None:
    """Try once. Raises LogError."""
    async with aclosing(run_job(job, SILENCE)) as steps:
        async for step in steps:
            if isinstance(step, Restored):
                _log.info("restored", archive=job.where, last_event=step.last, session=step.session)
                for gap in step.gaps:
                    _log.warning("the archive has a gap", gap=gap)
