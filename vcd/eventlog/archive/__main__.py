"""``python -m vcd.eventlog.archive``: one piece of work with an archive, in a process of its own.

So the session that is decided beside it is not held up, and what an S3 client needs of memory is given back. The work
is a line of JSON on standard input, what became of it are lines on standard output; it ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import msgspec

from vcd.eventlog.archive.restoring import Empty, Restore, restore
from vcd.eventlog.archive.shipping import Ship, ship
from vcd.eventlog.archive.worker import Failed
from vcd.eventlog.errors import LogError

_PATIENCE = 10
"""By how much it is nicer than the process that schedules."""


def _say(told: msgspec.Struct) -> None:
    os.write(1, msgspec.json.encode(told) + b"\n")


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> int:
    """Do what standard input says; the exit code."""
    os.nice(_PATIENCE)
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Ship | Restore)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if isinstance(job, Ship):
            ship(job, _say)
        else:
            _say(asyncio.run(restore(job, _say)))
    except LogError as error:
        _say(Failed(str(error), isinstance(error, Empty)))
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the thread that waits for the input's end does not end by itself
