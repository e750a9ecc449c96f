"""``python -m vcd.eventlog.archive``: run one archive job in its own process.

A separate process does not delay sessions and returns the memory of the S3 client. The job is one line of JSON on
standard input; progress and result are lines on standard output. The process ends when standard input is closed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import msgspec

from vcd.eventlog.archive.archive_process import JobFailed
from vcd.eventlog.archive.restoration import EmptyArchive, RestoreJob, restore
from vcd.eventlog.archive.shipping import ShipJob, ship
from vcd.eventlog.log_errors import LogError

_NICENESS = 10
"""Added to the niceness of the scheduler's process."""


def _report(message: msgspec.Struct) -> None:
    os.write(1, msgspec.json.encode(message) + b"\n")


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> int:
    """Run the job on standard input; return the exit code."""
    os.nice(_NICENESS)
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=ShipJob | RestoreJob)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if isinstance(job, ShipJob):
            ship(job, _report)
        else:
            _report(asyncio.run(restore(job, _report)))
    except LogError as error:
        _report(JobFailed(str(error), isinstance(error, EmptyArchive)))
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the thread that reads standard input would keep the process alive
