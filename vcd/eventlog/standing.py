"""What a log's writer says beside it: whose the log is among the replicas', who holds the Lease, and what it lacks.

A file beside the log, written anew each second. It counts for that very file alone: a copy of the log has no standing,
wherever it is and whatever lies beside it.
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
"""It decides; it follows the log of who holds the Lease; it logs by itself what it sees; it is no replica and reads."""


class WriterStanding(msgspec.Struct, frozen=True):
    """How things stood when it was written, ``written`` (s since the epoch) by this machine's clock.

    ``lease`` is NAMESPACE/NAME, ``holder`` who held it by the last look (empty: nobody), ``holder_seen`` how many
    seconds before that was (None: it was never seen). ``source`` is whose log is taken over, ``behind`` how many
    seconds before all was here that it had (None: not yet), ``events`` how many it is known to have beside. ``file`` is
    the log's device and inode.
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


def say_standing(log: Path, standing: WriterStanding) -> None:
    """Write it beside a log, instead of what was said before. Raises OSError."""
    status = log.stat()
    told = msgspec.structs.replace(standing, written=time.time(), file=(status.st_dev, status.st_ino))
    path = _path(log)
    new = path.with_name(path.name + ".new")
    with open(new, "wb", opener=partial(os.open, mode=0o600)) as file:
        file.write(msgspec.json.encode(told))
    new.replace(path)


def unsay_standing(log: Path) -> None:
    """Say nothing any more."""
    with suppress(OSError):  # it grows old then, and who reads it says so
        _path(log).unlink(missing_ok=True)


def standing_beside(log: Path) -> WriterStanding | None:
    """What was last said of a log; None where nothing was, or of another file."""
    try:
        status = log.stat()
        found = msgspec.json.decode(_path(log).read_bytes(), type=WriterStanding)
    except (OSError, msgspec.MsgspecError):  # nobody says anything that could be used, as of a copy
        return None
    return found if found.file == (status.st_dev, status.st_ino) else None


def _path(log: Path) -> Path:
    log = log.resolve()
    return log.with_name(log.name + SUFFIX)
