"""The wait timeline of one job, or of one of its pods, by a log."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from vcd.diagnosis.loggedtimeline import read_timeline
from vcd.diagnosis.waittimeline import Reasons, WholeWait, clipped
from vcd.timetravel.history import WHOLE, History, LogWindow


def waits_of(history: History, group: str, window: LogWindow = WHOLE) -> list[WholeWait]:
    """Return the waits of a group, the oldest first; those of a deleted group of the same name are left out. Raises
    LogError."""
    timeline = read_timeline(history.reader, (group,), partial(_waiting_at, history), window.until)
    return clipped(timeline.waits(group, window.end(history.reader)), window.since)


def _waiting_at(history: History, sequence: int) -> Mapping[str, Reasons]:
    return history.state(sequence, jump=True).waiting
