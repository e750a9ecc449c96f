"""The wait timeline of one job, or of one of its pods, from a log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

from vcd.diagnosis.loggedtimeline import read_timeline
from vcd.diagnosis.waittimeline import Reasons, WholeWait, clipped
from vcd.timetravel.history import WHOLE, History, LogWindow


def waits_of(history: History, group: str, window: LogWindow = WHOLE) -> list[WholeWait]:
    """Return the waits of a group, the oldest first, without those of a deleted group of the same name. Raises
    LogError."""
    timeline = read_timeline(history.reader, (group,), partial(_waiting_at, history), window.until)
    return clipped(timeline.waits(group, window.end(history.reader)), window.since)


def every_wait(history: History, group: str, pod: str | None, until: int, time: int) -> list[WholeWait]:
    """Return the waits of a group, or of one of its pods, up to an event and as of a time (ns), with all their spans.
    Raises LogError."""
    timeline = read_timeline(
        history.reader, (group,), partial(_waiting_at, history), until,
        concerning=partial(_concerning, pod), most_spans=sys.maxsize,
    )  # fmt: skip
    return timeline.every_wait(group, time)


def _concerning(pod: str | None, reasons: Reasons) -> Reasons:
    """Return the reasons that may concern a pod: a reason names only the first of many pods. A pod that waits for the
    rest of its gang has the reasons of the rest."""
    matching = tuple(one for one in reasons if not one.pods or pod in one.pods or one.tasks > len(one.pods))
    return reasons if pod is None or all(one.gate == "gang" for one in matching) else matching


def _waiting_at(history: History, sequence: int) -> Mapping[str, Reasons]:
    return history.state(sequence, jump=True).waiting
