"""The wait timeline: which job waited for which reasons, since when, since which session, with the latest quantities.

`WaitTimeline` folds the waits that sessions state; no other code folds them. `loggedtimeline.py` feeds it from a log
and `vcd/daemon/reporting/wait_history.py` from a running daemon. Every answer about the time of waits reads
`WholeWait` and `WaitSpan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from vcd.diagnosis.waiting_job import field_of
from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.scheduling.framework.declared_reasons import keeps_back

Kind = frozenset[tuple[str, str, str]]
"""Gate, code and subject of each reason of a wait. Two waits of one kind differ at most in their quantities."""
Reasons = tuple[ev.Waiting, ...]
Pods = Callable[[str, Reasons], int]
"""Returns how many pods of a group wait for some reasons."""

MOST_SPANS = 64
"""Spans of one wait that are stored one by one. Of more, the older half is summed by kind."""
_ABOUT = ("queue", "quota")
"""Roles of the names that distinguish reasons of one code."""


class WaitSpan(NamedTuple):
    """A time (ns) in which a job waited for reasons of one kind, or the sum of several such times.

    ``first`` is the first session that ended in it and ``last`` the last one; ``reasons`` are those of the last
    session, ``opening`` those at the start. ``held`` is how long (ns) the reasons held, ``lost`` the time multiplied by
    the waiting pods. ``older``: the wait began before ``start``.
    """

    kind: Kind
    start: int
    end: int
    first: int
    last: int
    reasons: Reasons
    opening: Reasons
    held: int = 0
    lost: int = 0
    older: bool = False

    @property
    def weight(self) -> int:
        """``held``, at least 1 ns: a wait that lasts no time counts."""
        return max(self.held, 1)

    def until(self, time: int, last: int, pods: int) -> WaitSpan:
        """Return the span extended to a time and the last session before it."""
        more = max(time - self.end, 0)
        held, lost = self.held + more, self.lost + more * pods
        return self._replace(end=self.end + more, last=last, held=held, lost=lost)

    def plus(self, later: WaitSpan) -> WaitSpan:
        """Return the sum of two spans of one kind."""
        held, lost = self.weight + later.weight, max(self.lost, 1) + max(later.lost, 1)
        return self._replace(end=later.end, last=later.last, reasons=later.reasons, held=held, lost=lost)

    def after(self, time: int) -> WaitSpan:
        """Return the part of the span after a time (ns)."""
        if self.start >= time:
            return self
        held = min(self.held, self.end - time)
        lost = self.lost * held // self.weight
        return self._replace(start=time, held=held, lost=lost)


class WholeWait(NamedTuple):
    """A wait of a job without a break: its spans in order, at least one; its times (ns) and sessions are theirs.

    ``lasting``: it has not ended. ``older``: it began before ``start``.
    """

    spans: tuple[WaitSpan, ...]
    lasting: bool
    start: int
    end: int
    first: int
    last: int
    older: bool

    @classmethod
    def of(cls, spans: Iterable[WaitSpan], *, lasting: bool) -> WholeWait:
        """Return the wait that has some spans."""
        spans = tuple(spans)
        begin, end = spans[0], spans[-1]
        return cls(spans, lasting, begin.start, end.end, begin.first, end.last, begin.older)

    @property
    def length(self) -> int:
        """How long it lasted (ns), at least one for each span."""
        return sum(span.weight for span in self.spans)

    def held(self) -> dict[Kind, WaitSpan]:
        """Return the sum of its spans of each kind."""
        return {span.kind: span for span in summed(self.spans)}


def summed(spans: Iterable[WaitSpan]) -> list[WaitSpan]:
    """Return the sums of spans by kind, in the order of their starts."""
    found: dict[Kind, WaitSpan] = {}
    for span in spans:
        found[span.kind] = found[span.kind].plus(span) if span.kind in found else span
    return list(found.values())


class JobTimeline:
    """The waits of one group: those that ended, and the spans of the one that lasts."""

    def __init__(self, most_spans: int) -> None:
        self.ended: list[WholeWait] = []
        """The oldest first."""
        self.former = 0
        """How many of these waits belong to deleted groups of the same name."""
        self.is_deleted = False
        self._most = most_spans
        self._spans: list[WaitSpan] = []
        self._open: WaitSpan | None = None
        self._pods = 0

    @property
    def kind(self) -> Kind:
        """The kind of the reasons for which it waits now; empty if it does not wait."""
        return Kind() if self._open is None else self._open.kind

    def turn(self, span: WaitSpan, last: int, pods: int) -> bool:
        """Begin a span; one without a kind ends the wait. Return whether the kind changed.

        ``last`` is the last session before the span, ``pods`` how many pods wait in it.
        """
        before, current = self.kind, self._open
        if current is not None:
            current = current.until(span.start, last, self._pods)
        if current is not None and span.kind == before:
            self._open = current._replace(reasons=span.reasons)
        else:
            self._close(current)
            if not span.kind and self._spans:
                self.ended.append(WholeWait.of(self._spans, lasting=False))
                self._spans = []
            self._open = span._replace(older=span.older and not before) if span.kind else None
        self._pods = pods
        return span.kind != before

    def waits(self, time: int, last: int) -> list[WholeWait]:
        """Return all waits, also those of deleted groups, as of a time (ns) and the last session before it, the oldest
        first."""
        spans = self._spans
        if self._open is not None and last >= self._open.first:
            spans = [*spans, self._open.until(time, last, self._pods)]
        return [*self.ended, WholeWait.of(spans, lasting=self._open is not None)] if spans else self.ended

    def observed(self) -> None:
        """Note that the group exists. After a deletion, the same name is a new group."""
        if self.is_deleted:
            self.former, self.is_deleted = len(self.ended), False

    def forget_earlier(self) -> None:
        """Forget the ended waits of deleted groups, and of this group all but the last."""
        del self.ended[: max(self.former, len(self.ended) - 1)]
        self.former = 0

    def _close(self, span: WaitSpan | None) -> None:
        """Store a span that ended, if it lasted to the end of a session."""
        if span is None or span.last < span.first:
            return
        self._spans.append(span)
        if len(self._spans) > self._most:
            half = len(self._spans) // 2
            self._spans = [*summed(self._spans[:half]), *self._spans[half:]]


class WaitTimeline:
    """The waits of the groups that ``about`` selects, folded from sessions and the groups' own events.

    ``pods`` returns how many pods of a group wait. ``concerning`` selects reasons, such as those of one pod.
    """

    def __init__(
        self,
        about: Callable[[str], bool] = lambda _: True,
        *,
        pods: Pods = lambda *_: 1,
        concerning: Callable[[Reasons], Reasons] = lambda reasons: reasons,
        most_spans: int = MOST_SPANS,
    ) -> None:
        self.jobs: dict[str, JobTimeline] = {}
        self.last = 0
        """The last session before the next folded event."""
        self.about = about
        self._pods, self._concerning, self._most = pods, concerning, most_spans
        self._absent: dict[str, int] = {}
        """The groups that are deleted or cannot be read, and the number of the event that states so, until all later
        sessions have seen that event."""

    def decided(self, session: int, head: int, time: int, changes: Mapping[str, Reasons]) -> list[str]:
        """Fold the changed reasons that a session states of groups that exist. Return the groups whose kind of reasons
        changed. ``head`` is the last event that the session saw."""
        there = [(group, of) for group, of in changes.items() if self._absent.get(group, 0) <= head]
        turned = [group for group, reasons in there if self._turn(group, reasons, time, session)]
        self._absent = {group: number for group, number in self._absent.items() if number > head}
        self.last = session
        return turned

    def known(self, time: int, waiting: Mapping[str, Reasons], first: int = 0) -> None:
        """Fold all waits that a state has: where a log begins, or another replica's history continues.

        ``first`` is the session at whose end the groups wait (0: the next one).
        """
        for group in sorted(self.jobs.keys() | waiting.keys()):
            self._turn(group, waiting.get(group, ()), time, first or self.last + 1, older=True)

    def set_aside(self, group: str, time: int, sequence: int) -> None:
        """Fold the event that a group cannot be read: it does not wait until it can be."""
        self._absent[group] = sequence
        if group in self.jobs:
            self._turn(group, (), time, self.last + 1)

    def deleted(self, group: str, time: int, sequence: int) -> None:
        """Fold the event that a group is deleted."""
        self.set_aside(group, time, sequence)
        if group in self.jobs:
            self.jobs[group].is_deleted = True

    def observed(self, group: str) -> None:
        """Fold an observed group."""
        self._absent.pop(group, None)
        if group in self.jobs:
            self.jobs[group].observed()

    def groups(self) -> list[str]:
        """Return the stored groups, in key order."""
        return sorted(self.jobs.keys() | self._absent.keys())

    def forget(self, group: str) -> None:
        """Forget a group that is gone."""
        self.jobs.pop(group, None)
        self._absent.pop(group, None)

    def every_wait(self, group: str, time: int) -> list[WholeWait]:
        """Return the waits of all groups of a name as of a time (ns) after the last session, the oldest first."""
        job = self.jobs.get(group)
        return [] if job is None else job.waits(time, self.last)

    def waits(self, group: str, time: int) -> list[WholeWait]:
        """Return the same without the waits of deleted groups of that name."""
        waits = self.every_wait(group, time)
        return waits[self.jobs[group].former :] if waits else []

    def _turn(self, group: str, reasons: Reasons, time: int, session: int, *, older: bool = False) -> bool:
        reasons = self._concerning(reasons)
        kind = kind_of(reasons)
        if kind:
            self.observed(group)
        job = self.jobs.get(group)
        if job is None:
            if not kind or not self.about(group):
                return False
            job = self.jobs[group] = JobTimeline(self._most)
        pods = self._pods(group, tuple(filter(keeps_back, reasons))) if kind else 0
        span = WaitSpan(kind, time, time, session, session, reasons, reasons, older=older)
        return job.turn(span, self.last, pods)


def clipped(waits: Iterable[WholeWait], since: int) -> list[WholeWait]:
    """Return the parts of some waits after a time (ns)."""
    later = [([span.after(since) for span in wait.spans if span.end >= since], wait) for wait in waits]
    return [WholeWait.of(spans, lasting=wait.lasting) for spans, wait in later if spans]


def kind_of(reasons: Iterable[ev.Waiting]) -> Kind:
    """Return the kind of a wait's reasons. Remarks do not count; with remarks alone, the kind is empty."""
    return Kind((one.gate, *_subject(one.reason)) for one in reasons if keeps_back(one))


def _subject(reason: Reason | str) -> tuple[str, str]:
    """Return a reason's code and the queue, quota and field that it is about. For reasons of vcd 0.1, the words are
    the code."""
    if isinstance(reason, str):
        return reason, ""
    names = [name for role, name in reason.names if role in _ABOUT]
    return reason.code, " ".join(filter(None, [*names, field_of(reason)]))
