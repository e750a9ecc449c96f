"""What is done beside scheduling now and then: checkpoints and retention of the log, and a look at the wall clock."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from vcd.daemon.metrics.collector import Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.archiver import Archiver
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.eventlog.log import EventLog
from vcd.eventlog.retention import read_size
from vcd.kube.clock import Clock, SteadyClock
from vcd.model.events import ClockJumped

_log = structlog.get_logger(__name__)

_CLOCK_LOOK = 1.0
"""Seconds between looks at whether the wall clock jumped."""
_STEPS = 8
"""The state is kept whenever the file has grown by this part of ``--log-retention-size``: few large events fill a log,
too, and history is removed in steps from one checkpoint to the next."""
_BLOCK = 512
"""Bytes of what ``st_blocks`` counts."""


async def maintain_log(
    options: Options,
    state_writer: StateWriter,
    metrics: Metrics,
    clock: Clock,
    also: Callable[[], None],
    writes: Callable[[], bool] = lambda: True,
    archiver: Archiver | None = None,
) -> None:
    """Checkpoints, retention and gauges of the log, and what is ``also`` to be done then, until cancelled.

    A checkpoint is due after a number of events, or of bytes if the file's size is limited. Retention follows each
    checkpoint. Where this replica does not write the log it has the checkpoints of the one that it follows. Raises
    LogError where the log's file is no longer in its place.
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
            # while nobody can tell how old history is, none goes for its age
            unsteady = isinstance(clock, SteadyClock) and not clock.is_steady()
            elsewhere = None if archiver is None else archiver.elsewhere()
            done = await log.retain(None if unsteady else options.retention_age, options.retention_size, elsewhere)
            size = done.size  # a state that is larger than the limit is not kept again before the log grows
            if archiver is not None and elsewhere is not None:
                archiver.missed(elsewhere, done.begins)


async def watch_wall_clock(clock: SteadyClock, state_writer: StateWriter, metrics: Metrics) -> None:
    """Tell, and log, where the machine's wall clock jumps, until cancelled."""
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
    """The bytes of a log, and those of its volume, of which the log's folder may have ``limit``: all, and those that
    are free for this process. Raises LogError where the log's file is no longer in its place."""
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
    """The bytes on the disk of what is in a folder; files come and go meanwhile."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += Path(place, name).lstat().st_blocks * _BLOCK
    return found
