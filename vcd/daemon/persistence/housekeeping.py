"""Periodic maintenance: checkpoints and retention of the log, its metrics, and checks of the wall clock.

Before changing it: retention removes history only up to a checkpoint, and only what the archive has if there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.archiver import Archiver
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.eventlog.log_writer import EventLog
from vcd.eventlog.retention import read_size
from vcd.kube.clock import Clock, SteadyClock
from vcd.model.events import ClockJumped

_log = structlog.get_logger(__name__)

_CLOCK_LOOK = 1.0
"""Seconds between checks of the wall clock."""
_STEPS = 8
"""A checkpoint is due after growth by this fraction of ``--log-retention-size``, because retention removes history in
steps from one checkpoint to the next."""
_BLOCK = 512
"""Unit of ``st_blocks`` in bytes."""


async def maintain_log(
    options: Options,
    state_writer: StateWriter,
    metrics: Metrics,
    clock: Clock,
    also: Callable[[], None],
    writes: Callable[[], bool] = lambda: True,
    archiver: Archiver | None = None,
) -> None:
    """Write checkpoints, run retention and update gauges of the log, and call ``also``, until cancelled.

    A checkpoint is due after a number of events, or of bytes if the file's size is limited. Retention follows each
    checkpoint. A follower has the checkpoints of its leader. Raises LogError if the log's file was moved or removed.
    """
    log, retained_at = state_writer.log, state_writer.checkpointed_at
    limit = options.retention_size or math.inf
    size = min(await read_size(log.run_in_transaction), limit)
    while True:
        await asyncio.sleep(options.housekeeping_period)
        metrics.series.show("vcd_event_log_sequence", log.head)
        for name, bytes_ in (await asyncio.to_thread(_sizes, log, options.volume_size)).items():
            metrics.series.show(name, bytes_)
        also()
        if archiver is not None:
            archiver.show()
        has_grown = log.failure is None and await read_size(log.run_in_transaction) - size >= limit / _STEPS
        if writes() and (has_grown or state_writer.is_checkpoint_due(options.checkpoint_interval)):
            await state_writer.checkpoint()
        if state_writer.checkpointed_at != retained_at:
            retained_at = state_writer.checkpointed_at
            # while the wall clock is unsteady, the age of history is unknown: remove nothing by age
            unsteady = isinstance(clock, SteadyClock) and not clock.is_steady()
            elsewhere = None if archiver is None else archiver.elsewhere()
            done = await log.retain(None if unsteady else options.retention_age, options.retention_size, elsewhere)
            size = (
                done.size
            )  # with a state above the limit, growth counts from here, or each look would write a checkpoint
            if archiver is not None and elsewhere is not None:
                archiver.missed(elsewhere, done.begins)


async def watch_wall_clock(clock: SteadyClock, state_writer: StateWriter, metrics: Metrics) -> None:
    """Report and log jumps of the machine's wall clock, until cancelled."""
    while True:
        await clock.sleep(_CLOCK_LOOK)
        for jump in clock.take_jumps():
            metrics.series.add("vcd_clock_jumps_total")
            _log.error(
                "the machine's wall clock jumped" + ("; it is believed now" if jump.accepted else ""),
                seconds=round(jump.offset / 1e9, 3),
            )
            await state_writer.put([ClockJumped(jump.offset, jump.accepted)])
        metrics.series.show("vcd_clock_ahead_seconds", clock.wall_offset)


def _sizes(log: EventLog, limit: int | None) -> dict[str, int]:
    """Return the bytes of the log, and the size and free bytes of its volume, capped at ``limit`` for the log's folder.

    Raises LogError if the log's file was moved or removed.
    """
    size, folder = log.size(), log.path.parent
    total, _, free = shutil.disk_usage(folder)
    if limit is not None:
        total, free = min(total, limit), min(free, max(0, limit - _used(folder)))
    return {
        "vcd_event_log_bytes": size,
        "vcd_event_log_volume_bytes": total,
        "vcd_event_log_volume_free_bytes": free,
    }


def _used(folder: Path) -> int:
    """Return the disk usage of a folder in bytes. Files that disappear are ignored."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += Path(place, name).lstat().st_blocks * _BLOCK
    return found
