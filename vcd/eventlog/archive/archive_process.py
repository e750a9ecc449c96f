"""Run archive jobs in a process of their own: see ``__main__``."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator

import msgspec

from vcd.eventlog.archive.restoration import EmptyArchive, Restored, RestoreJob, RestoreProgress
from vcd.eventlog.archive.shipping import ShipJob, ShipProgress
from vcd.eventlog.archive.stores import ArchiveError

_MAX_LINE = 1 << 20
_KILL_TIMEOUT = 5.0
"""Seconds to wait for a killed process. A process that waits for a dead file server ends when the server responds."""


class JobFailed(msgspec.Struct, frozen=True, tag="failed"):
    reason: str
    is_empty: bool = False
    """Whether the archive has no segments yet."""


Progress = ShipProgress | RestoreProgress | Restored
_decoder: msgspec.json.Decoder[Progress | JobFailed] = msgspec.json.Decoder(Progress | JobFailed)


async def run_job(job: ShipJob | RestoreJob, silence: float) -> AsyncGenerator[Progress, None]:
    """Run a job in a process and yield its progress and result.

    The process is killed if the generator is closed or cancelled, or after ``silence`` seconds without progress,
    because a store may never respond. Raises ArchiveError if the job fails, EmptyArchive if there is nothing to
    restore.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "vcd.eventlog.archive",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_MAX_LINE,
        )  # fmt: skip
    except OSError as error:
        raise ArchiveError(f"archive {job.where}: no process can be started for it: {error}") from error
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        await process.stdin.drain()
        while line := await asyncio.wait_for(process.stdout.readline(), silence):
            message = _decoder.decode(line)
            if isinstance(message, JobFailed):
                raise EmptyArchive(job.where) if message.is_empty else ArchiveError(message.reason)
            yield message
        if code := await process.wait():
            raise ArchiveError(f"archive {job.where}: the process that works with it ended with code {code}")
    except TimeoutError:
        raise ArchiveError(f"archive {job.where}: the store did not answer for {silence:.0f} s") from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ArchiveError(f"archive {job.where}: the process that works with it failed: {error}") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _KILL_TIMEOUT)
