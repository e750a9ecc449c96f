"""How long a job waited for what, by its log: the spans in which the sessions gave the same reasons."""

from __future__ import annotations

from vcd.diagnosis.spans import Kind, WaitSpan, kind_of
from vcd.eventlog.reader import LAST
from vcd.model import events as ev
from vcd.timetravel.history import WHOLE, History, LogWindow


def spans_of(history: History, group: str, window: LogWindow = WHOLE) -> list[WaitSpan]:
    """The spans in which a group waited, in the order of time; of a name that came again those since. Raises
    LogError."""
    spans, since = _spans(history, group, window), max(window.since, _came_again(history, group, window))
    return [span._replace(start=max(span.start, since)) for span in spans if span.end >= since]


def _came_again(history: History, group: str, window: LogWindow) -> int:
    """When a group came that had been deleted before (ns); 0 where none did."""
    gone, found = False, 0
    for logged in history.reader.object_history("PodGroup", group):
        if window.until is not None and logged.sequence > window.until:
            break
        if isinstance(logged.event, ev.ObjectGone):
            gone = True
        elif gone:
            gone, found = False, logged.time
    return found


def _spans(history: History, group: str, window: LogWindow) -> list[WaitSpan]:
    events = history.reader.object_history("PodGroup", group)
    gone = [(logged.sequence, logged.time) for logged in events if isinstance(logged.event, ev.ObjectGone)]
    word, found = group.encode(), list[WaitSpan]()
    kind = kind_of(history.oldest().waiting.get(group, ()))
    start, first, last = 0, 0, 0
    naming = {logged.sequence: logged.event for logged in history.reader.sessions_naming(word, 0, window.until)}
    for number, sequence, time in history.reader.rows("session_times", until=window.until or LAST):
        start, first = start or time, first or number
        said, end = kind, time
        while gone and gone[0][0] < sequence:
            said, end = Kind(), gone.pop(0)[1]
            if kind and last:
                found.append(WaitSpan(kind, start, end, first, last))
            kind, start, first = said, time, number
        record = naming.get(sequence)
        if isinstance(record, ev.SessionDecided):
            waits = ev.waits_by_group(ev.decode_plan(record.plan).waiting)
            said = kind_of(waits[group]) if group in waits else said
        if said != kind:
            if kind and last:
                found.append(WaitSpan(kind, start, end, first, last))
            kind, start, first = said, time, number
        last = number
    if gone and kind and last:  # no session was decided since
        found.append(WaitSpan(kind, start, gone[0][1], first, last))
    elif kind and last:
        found.append(WaitSpan(kind, start, max(window.end(history.reader), start), first, last))
    return found
