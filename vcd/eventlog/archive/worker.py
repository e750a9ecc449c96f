"""A process of its own for each piece of work with an archive: see ``__main__``."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator

import msgspec

from vcd.eventlog.archive.restoring import Empty, Fetched, Restore, Restored
from vcd.eventlog.archive.shipping import Ship, Shipped
from vcd.eventlog.archive.stores import ArchiveError

_LINE = 1 << 20
_ENDING = 5.0
"""Seconds for a process to end that was killed; one that waits for a dead file server ends when that answers."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It could not be done, and why."""

    reason: str
    is_empty: bool = False
    """Whether the archive holds nothing yet."""


_decoder: msgspec.json.Decoder[Shipped | Fetched | Restored | Failed] = msgspec.json.Decoder(
    Shipped | Fetched | Restored | Failed
)


async def done(job: Ship | Restore, silence: float) -> AsyncGenerator[Shipped | Fetched | Restored, None]:
    """Let a process do a piece of work; what it says, as it comes. Given up, or cancelled, it is ended at once; also
    where it says nothing for ``silence`` seconds: the store may never answer.

    Raises ArchiveError where it could not be done, Empty where there is nothing to restore.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "vcd.eventlog.archive",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE,
        )  # fmt: skip
    except OSError as error:  # no room for one more process
        raise ArchiveError(f"archive {job.where}: no process can be begun to work with it: {error}") from error
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        await process.stdin.drain()
        while line := await asyncio.wait_for(process.stdout.readline(), silence):
            told = _decoder.decode(line)
            if isinstance(told, Failed):
                raise Empty(job.where) if told.is_empty else ArchiveError(told.reason)
            yield told
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
                await asyncio.wait_for(process.wait(), _ENDING)
