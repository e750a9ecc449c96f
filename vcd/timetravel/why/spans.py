"""How long a job waited for what, by its log: the spans in which the sessions gave the same reasons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from vcd.eventlog.reader import LAST
from vcd.model import events as ev
from vcd.timetravel.history import WHOLE, History, LogWindow

Kind = frozenset[tuple[str, str]]
"""Gates and codes of a wait's reasons: what makes two waits alike, whatever their figures."""


class WaitSpan(NamedTuple):
    """A time (ns) in which a group waited for the same kinds of reasons, and the first and last session in it."""

    kind: Kind
    start: int
    end: int
    first: int
    last: int

    @property
    def weight(self) -> int:
        """Its length in ns; at least one, so that a wait of a moment counts."""
        return max(self.end - self.start, 1)


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


def kind_of(reasons: Iterable[ev.Waiting]) -> Kind:
    """What makes a wait like another one."""
    found = [(one.gate, one.reason) for one in reasons if one.gate]
    return Kind((gate, reason if isinstance(reason, str) else reason.code) for gate, reason in found)
