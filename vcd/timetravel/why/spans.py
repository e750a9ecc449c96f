"""How long a job waited for what, by its log: the spans in which the sessions gave the same reasons."""

from __future__ import annotations

from vcd.diagnosis.spans import Kind, WaitSpan, kind_of
from vcd.eventlog.reader import LAST
from vcd.model import events as ev
from vcd.timetravel.history import WHOLE, History, LogWindow


def spans_of(history: History, group: str, window: LogWindow = WHOLE) -> list[WaitSpan]:
    """The spans in which a group waited, in the order of time. Raises LogError."""
    spans, since = _spans(history, group, window), window.since
    return [span._replace(start=max(span.start, since)) for span in spans if span.end >= since]


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
        record = naming.get(sequence)
        if isinstance(record, ev.SessionDecided):
            waits = ev.waits_by_group(ev.decode_plan(record.plan).waiting)
            said = kind_of(waits[group]) if group in waits else said
        if said != kind:
            if kind and last:
                found.append(WaitSpan(kind, start, end, first, last))
            kind, start, first = said, time, number
        last = number
    if kind and last:
        found.append(WaitSpan(kind, start, max(window.end(history.reader), start), first, last))
    return found
