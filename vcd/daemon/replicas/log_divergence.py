"""Rewinds a log that diverged from the leader's, and preserves the removed sessions in a file next to it.

Call it only while no process writes the log. `log_follower` finds out where two logs diverge.
"""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from pathlib import Path

from vcd.diagnosis.log_fold import fold
from vcd.eventlog import LogReader, export
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_file import NOTE_SUFFIX
from vcd.eventlog.rewind import rewind

MOST, MOST_BYTES = 100, 1 << 30
"""The maximum number of preserved files, and the maximum bytes of all but the newest. The oldest files are removed."""
_SUFFIXES = ("-wal", "-shm")


def rewind_and_preserve(path: Path, to: int | None) -> Path | None:
    """Rewind a log to event ``to`` (None: remove it), and return the path of the log with the removed sessions.

    Returns None if no session was removed. The whole log is set aside if it cannot be read, or if the removed part
    cannot be exported because retention removed the state before it or the disk changed an event. Raises LogError and
    OSError.
    """
    path = path.resolve()  # a link to it stays
    try:
        with LogReader(path) as reader:
            gone = next((info for info in reader.sessions() if to is None or info.sequence > to), None)
            if to is not None and (to if gone is None else min(to, gone.head)) < reader.oldest():
                to = None
    except DamagedLog:
        return _set_aside(path)
    lost = None if gone is None else gone.number
    if to is not None and lost is not None:
        try:
            export(path, aside := _choose_path(path), fold, lost)
        except DamagedLog:
            to = None
    if to is not None:
        rewind(path, to)
        return None if lost is None else aside
    if lost is None:
        for each in (path, *(path.with_name(path.name + suffix) for suffix in _SUFFIXES)):
            each.unlink(missing_ok=True)
        return None
    return _set_aside(path)


def _set_aside(path: Path) -> Path:
    aside = _choose_path(path)
    path.rename(aside)
    for suffix in (*_SUFFIXES, NOTE_SUFFIX):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _choose_path(path: Path) -> Path:
    """Return an unused path for a preserved log, and remove the oldest ones above the limits."""
    named = re.compile(rf"{re.escape(path.stem)}-apart-[0-9]+{re.escape(path.suffix)}")
    found = [each for each in path.parent.iterdir() if named.fullmatch(each.name)]
    kept = sorted(found, key=lambda one: one.stat().st_mtime)
    while kept and (len(kept) >= MOST or sum(map(_bytes, kept)) > MOST_BYTES):
        oldest = kept.pop(0)
        for suffix in ("", *_SUFFIXES, NOTE_SUFFIX, "-lock"):
            oldest.with_name(oldest.name + suffix).unlink(missing_ok=True)
    names = (path.with_name(f"{path.stem}-apart-{number}{path.suffix}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _bytes(log: Path) -> int:
    files = (log.with_name(log.name + suffix) for suffix in ("", *_SUFFIXES))
    return sum(file.stat().st_size for file in files if file.exists())
