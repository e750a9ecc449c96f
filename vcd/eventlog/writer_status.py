"""A status file next to a log, written every second by the log's writer: its role, the Lease's holder, and its lag.

Readers use it to determine how current a log is. It applies only to the file whose device and inode it names, so a copy
of the log has no status.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

SUFFIX = "-standing"

Role = Literal["leader", "follower", "apart", "reader"]
"""The writer decides; follows the Lease holder's log; logs on its own; or only reads the cluster for a command."""


class WriterStatus(msgspec.Struct, frozen=True):
    """The status at ``written`` (seconds since the epoch, by this machine's clock).

    Attributes:
        lease: NAMESPACE/NAME.
        holder: Holder of the Lease as last observed; empty for none.
        holder_seen: Seconds since that observation; None if the Lease was never observed.
        source: The replica whose log is followed.
        behind: Seconds since all of that log was here; None if it never was.
        events: Events of that log that are known to be missing here.
        file: Device and inode of the log.
    """

    role: Role
    name: str
    lease: str
    holder: str
    holder_seen: float | None
    source: str = ""
    behind: float | None = None
    events: int = 0
    written: float = 0.0
    file: tuple[int, int] = (0, 0)


def write_status(log: Path, new_status: WriterStatus) -> None:
    """Replace the status of a log. Raises OSError."""
    status = log.stat()
    stamped = msgspec.structs.replace(new_status, written=time.time(), file=(status.st_dev, status.st_ino))
    path = _path(log)
    new = path.with_name(path.name + ".new")
    with open(new, "wb", opener=partial(os.open, mode=0o600)) as file:
        file.write(msgspec.json.encode(stamped))
    new.replace(path)


def remove_status(log: Path) -> None:
    """Remove the status of a log."""
    with suppress(OSError):  # a status that remains is outdated, which readers notice
        _path(log).unlink(missing_ok=True)


def read_status(log: Path) -> WriterStatus | None:
    """Return the status of a log; None if there is none, or it is of another file."""
    try:
        status = log.stat()
        found = msgspec.json.decode(_path(log).read_bytes(), type=WriterStatus)
    except (OSError, msgspec.MsgspecError):  # no usable status
        return None
    return found if found.file == (status.st_dev, status.st_ino) else None


def _path(log: Path) -> Path:
    log = log.resolve()
    return log.with_name(log.name + SUFFIX)
