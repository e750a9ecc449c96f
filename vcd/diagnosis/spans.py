"""How long a job waited for what: the spans in which the sessions gave the same reasons, and the cause that held
longest."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from vcd.diagnosis.case import Diagnosis
from vcd.eventlog import LogError, LogReader
from vcd.eventlog.reader import is_decision
from vcd.model import events as ev
from vcd.state.checkpoint import decoded

Kind = frozenset[tuple[str, str]]
"""Gates and codes of a wait's reasons: what makes two waits alike, whatever their figures."""
_ENOUGH = 0.9
"""Of a wait so much is looked into."""
_MOST = 3
"""Kinds of spans that are looked into at most: each costs a session that is asked again."""
_FEW = 8
"""Groups whose names are looked for in plans before these are decoded."""


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


class HeldFor(NamedTuple):
    """For how long (ns) a group waited for reasons of a kind, and the longest span of that."""

    length: int
    span: WaitSpan


def held_of(spans: Iterable[WaitSpan]) -> dict[Kind, HeldFor]:
    """By kind of reasons how long it held in some spans, and the longest of them."""
    found: dict[Kind, HeldFor] = {}
    for span in spans:
        before = found.get(span.kind)
        longer = span if before is None or span.weight > before.span.weight else before.span
        found[span.kind] = HeldFor(span.weight + (0 if before is None else before.length), longer)
    return found


class WaitCourse:
    """A group's wait, told from session to session: how long which kinds of reasons held."""

    def __init__(self, kind: Kind = frozenset()) -> None:
        self.kind = kind
        """What it waits for; nothing where it does not wait."""
        self.first: WaitSpan | None = None
        """The first span that ended."""
        self.ended = 0
        """The last session of the last span that ended."""
        self._held: dict[Kind, HeldFor] = {}
        self._start, self._first = 0, 0

    def turn(self, kind: Kind, time: int, session: int, last: int) -> None:
        """From a time and session on it waits for reasons of another kind, or for nothing; ``last`` is the session
        before (0: none was told)."""
        if self.kind and last:
            self._held, self.first, self.ended = self.held(time, last), self.since(time, last), last
        self.kind, self._start, self._first = kind, time, session

    def held(self, time: int, last: int) -> dict[Kind, HeldFor]:
        """By kind, how long it held, as of a time and the last session until then."""
        if not self.kind or not last:
            return self._held
        span, before = self._span(time, last), self._held.get(self.kind)
        longest = span if before is None or span.weight > before.span.weight else before.span
        return {**self._held, self.kind: HeldFor(span.weight + (0 if before is None else before.length), longest)}

    def since(self, time: int, last: int) -> WaitSpan | None:
        """The first span, as of a time and the last session until then; None where it never waited."""
        return self.first or (self._span(time, last) if self.kind and last else None)

    def _span(self, end: int, last: int) -> WaitSpan:
        return WaitSpan(self.kind, self._start, max(end, self._start), self._first, last)


class WaitCourses(NamedTuple):
    """How groups waited, by key, as of the last session (0: none)."""

    of: dict[str, WaitCourse]
    last: int


def courses_of(reader: LogReader, groups: Collection[str], before: int | None = None) -> WaitCourses:
    """How groups waited by a log, in one pass: up to its end, or before a session. Raises LogError."""
    oldest = _oldest(reader)
    courses = {group: WaitCourse(kind_of(oldest.get(group, ()))) for group in groups}
    words = [group.encode() for group in groups] if len(groups) <= _FEW else []
    gone, segments, last = _gone(reader, groups), reader.segments(), 0
    for logged in reader.find(type="session"):
        record = logged.event
        assert isinstance(record, ev.SessionDecided)
        if not is_decision(segments, logged.sequence):
            continue
        if record.session == before:
            break
        if not last:
            for course in courses.values():
                course.turn(course.kind, logged.time, record.session, 0)
        while gone and gone[0][0] < logged.sequence:
            _, time, group = gone.popleft()
            courses[group].turn(Kind(), time, record.session, last)
        if not words or any(word in record.plan for word in words):  # else it need not be decoded
            tell(courses, ev.waits_by_group(ev.decode_plan(record.plan).waiting), logged.time, record.session, last)
        last = record.session
    return WaitCourses(courses, last)


def tell(
    courses: Mapping[str, WaitCourse], changes: Mapping[str, tuple[ev.Waiting, ...]], time: int, session: int, last: int
) -> list[str]:
    """Tell courses what a session says of who waits; the groups that wait for something else since."""
    turned = []
    for group, reasons in changes.items():
        course, kind = courses.get(group), kind_of(reasons)
        if course is not None and course.kind != kind:
            course.turn(kind, time, session, last)
            turned.append(group)
    return turned


def _oldest(reader: LogReader) -> dict[str, tuple[ev.Waiting, ...]]:
    """Who waited for what where a log begins."""
    first = reader.oldest()
    if not first:
        return {}
    try:
        return decoded(reader.base(first).state).waiting
    except msgspec.MsgspecError as error:
        where = f"event log {reader.path}"
        raise LogError(f"{where}: this version cannot read the checkpoint at {first}: {error}") from error


def _gone(reader: LogReader, groups: Collection[str]) -> deque[tuple[int, int, str]]:
    """The ends of groups, in order: sequence number, time, key."""
    if len(groups) > _FEW:
        told = reader.find(kind="PodGroup", type="gone")
    else:
        told = (one for group in groups for one in reader.object_history("PodGroup", group))
    ends = [(one.sequence, one.time, one.event.key) for one in told if isinstance(one.event, ev.ObjectGone)]
    return deque(sorted(end for end in ends if end[2] in groups))


def kind_of(reasons: Iterable[ev.Waiting]) -> Kind:
    """What makes a wait like another one."""
    found = [(one.gate, one.reason) for one in reasons if one.gate]
    return Kind((gate, reason if isinstance(reason, str) else reason.code) for gate, reason in found)


def longest(held: Mapping[Kind, HeldFor]) -> list[HeldFor]:
    """The kinds of reasons that held longest, until they are most of the wait."""
    waited, covered, chosen = sum(one.length for one in held.values()), 0, list[HeldFor]()
    for kind in sorted(held, key=lambda kind: (-held[kind].length, sorted(kind)))[:_MOST]:
        chosen.append(held[kind])
        covered += held[kind].length
        if covered >= waited * _ENOUGH:
            break
    return chosen


def dominant(diagnosed: Iterable[tuple[int, Diagnosis]]) -> tuple[int, int]:
    """Of diagnoses with how long (ns) each held, the longest first: the place of the first of the cause that held
    longest, and how long that cause held."""
    lengths: dict[str, int] = {}
    places: dict[str, int] = {}
    for place, (length, diagnosis) in enumerate(diagnosed):
        lengths[diagnosis.cause] = lengths.get(diagnosis.cause, 0) + length
        places.setdefault(diagnosis.cause, place)
    cause = max(lengths, key=lengths.__getitem__)
    return places[cause], lengths[cause]
