"""How long jobs waited for what: one fold of what sessions say, told in the order of time by a log or a daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from vcd.diagnosis.case import field_of
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import Reason
from vcd.scheduling.framework.reasons import keeps_back

Kind = frozenset[tuple[str, str, str]]
"""Gates, codes and what these are about of a wait's reasons: what makes two waits alike, whatever their figures."""
Reasons = tuple[ev.Waiting, ...]
Pods = Callable[[str, Reasons], int]
"""How many pods of a group wait for some reasons."""
_ENOUGH = 0.9
"""Of a wait so much is looked into."""
_FEW = 3
"""So many kinds of reasons are looked into though one of them is known to have held longest."""
_MOST = 12
"""Kinds of reasons that are looked into at most: each costs a session that is asked again."""
_ABOUT = ("queue", "quota")
"""Roles of the names that tell reasons of one code apart."""


class WaitSpan(NamedTuple):
    """A time (ns) in which a group waited for the same kinds of reasons, at the end of the first session in it to the
    last; ``reasons`` as they were last, ``lost`` its length times the pods that waited (pods times ns)."""

    kind: Kind
    start: int
    end: int
    first: int
    last: int
    reasons: Reasons = ()
    lost: int = 0

    @property
    def weight(self) -> int:
        """Its length in ns; at least one, so that a wait of a moment counts."""
        return max(self.end - self.start, 1)


class HeldFor(NamedTuple):
    """For how long (ns) a group waited for reasons of a kind, what was lost (pods times ns), and the longest span of
    that."""

    length: int
    lost: int
    span: WaitSpan

    def plus(self, other: HeldFor) -> HeldFor:
        """Both; of spans as long as another the first."""
        longest = other.span if other.span.weight > self.span.weight else self.span
        return HeldFor(self.length + other.length, self.lost + other.lost, longest)


class WholeWait(NamedTuple):
    """A wait of a group without a break, for whatever: from a time to another (ns), the first session in it and the
    last, and by kind of reasons how long these held."""

    start: int
    end: int
    first: int
    last: int
    held: dict[Kind, HeldFor]

    @property
    def length(self) -> int:
        """All that its kinds held (ns); at least one."""
        return sum(one.length for one in self.held.values())

    def plus(self, span: WaitSpan) -> WholeWait:
        """With a span that follows."""
        one = HeldFor(span.weight, max(span.lost, 1), span)
        before = self.held.get(span.kind)
        held = {**self.held, span.kind: one if before is None else before.plus(one)}
        return WholeWait(self.start, span.end, self.first, span.last, held)


class WaitCourse:
    """The waits of one group, told from session to session. What ended before ``since`` (ns) does not count."""

    def __init__(self, since: int = 0) -> None:
        self.over: list[WholeWait] = []
        """Waits that ended, the oldest first."""
        self._since = since
        self._wait: WholeWait | None = None
        self._span: WaitSpan | None = None
        self._pods = 1

    @property
    def kind(self) -> Kind:
        """What it waits for; nothing where it does not wait."""
        return Kind() if self._span is None else self._span.kind

    def turn(self, reasons: Reasons, time: int, session: int, last: int, pods: int = 1) -> bool:
        """From a time and session on so many pods of it wait for this, or it waits for nothing; whether these are
        reasons of another kind. ``last`` is the session before."""
        kind, before = kind_of(reasons), self.kind
        if self._span is not None:
            self._span = self._until(self._span, time, last)
            if kind != before:
                self._wait, self._span = self._with(self._span), None
        if kind and kind == before and self._span is not None:
            self._span = self._span._replace(reasons=reasons)
        elif kind:
            self._span = WaitSpan(kind, time, time, session, last, reasons)
        elif self._wait is not None:
            self.over, self._wait = [*self.over, self._wait], None
        self._pods = pods
        return kind != before

    def waits(self, time: int, last: int) -> list[WholeWait]:
        """All its waits as of a time and the last session until then, the oldest first."""
        going = self._wait if self._span is None else self._with(self._until(self._span, time, last))
        return self.over if going is None else [*self.over, going]

    def _until(self, span: WaitSpan, time: int, last: int) -> WaitSpan:
        end = max(time, span.end)
        return span._replace(end=end, last=last, lost=span.lost + (end - span.end) * self._pods)

    def _with(self, span: WaitSpan) -> WholeWait | None:
        """The wait with a span more, where that held at the end of a session and did not end before all that counts."""
        if span.last < span.first or span.end < self._since:
            return self._wait
        span = span._replace(start=max(span.start, self._since))
        wait = self._wait or WholeWait(span.start, span.end, span.first, span.last, {})
        return wait.plus(span)


class WaitFold:
    """Who waited how long for what, told of sessions, of groups that go and come, and of another replica's knowledge.

    ``about`` says which groups matter, ``pods`` how many of theirs wait; ``last`` is the session before the first, and
    what ended before ``since`` (ns) does not count.
    """

    def __init__(
        self, about: Callable[[str], bool] = lambda _: True, *, last: int = 0, since: int = 0, pods: Pods = lambda *_: 1
    ) -> None:
        self.of: dict[str, WaitCourse] = {}
        """By group, of those whose name came again that of the last."""
        self.former: list[tuple[str, WaitCourse]] = []
        """Groups whose name came again, and how they waited."""
        self.last = last
        """The last session."""
        self.about, self._since, self._pods = about, since, pods
        self._gone: set[str] = set()

    def decided(self, session: int, time: int, changes: Mapping[str, Reasons]) -> list[str]:
        """What a session says of who waits from now on; the groups that wait for something else since."""
        turned = [group for group, reasons in changes.items() if self._turn(group, reasons, time, session)]
        self.last = session
        return turned

    def known(self, time: int, waiting: Mapping[str, Reasons]) -> None:
        """Who waits as another replica knows that takes over, or as a log begins, before the session after the last."""
        for group in sorted(self.of.keys() | waiting.keys()):
            self._turn(group, waiting.get(group, ()), time, self.last + 1)

    def gone(self, group: str, time: int) -> None:
        """A group is deleted."""
        self.set_aside(group, time)
        if group in self.of:
            self._gone.add(group)

    def set_aside(self, group: str, time: int) -> None:
        """A group cannot be read any more: until it can, it waits for nothing."""
        if group in self.of:
            self._turn(group, (), time, self.last + 1)

    def came(self, group: str) -> None:
        """A group is shown: where one of its name was deleted it is another one."""
        if group in self._gone:
            self._gone.discard(group)
            self.former.append((group, self.of.pop(group)))

    def now(self, group: str, time: int) -> list[WholeWait]:
        """The waits of a group as of a time after the last session, the oldest first."""
        course = self.of.get(group)
        return [] if course is None else course.waits(time, self.last)

    def _turn(self, group: str, reasons: Reasons, time: int, session: int) -> bool:
        reasons, course = tuple(filter(keeps_back, reasons)), self.of.get(group)
        if course is None or (group in self._gone and reasons):
            if not reasons or not self.about(group):
                return False
            self.came(group)
            course = self.of[group] = WaitCourse(self._since)
        return course.turn(reasons, time, session, self.last, self._pods(group, reasons) if reasons else 0)


def kind_of(reasons: Iterable[ev.Waiting]) -> Kind:
    """What makes a wait like another one; nothing of reasons that keep nobody back."""
    return Kind((one.gate, *_what(one.reason)) for one in reasons if keeps_back(one))


def _what(reason: Reason | str) -> tuple[str, str]:
    """The code of a reason, and what it is about: a queue, a quota, a field."""
    if isinstance(reason, str):
        return reason, ""
    names = [name for role, name in reason.names if role in _ABOUT]
    return reason.code, " ".join(filter(None, [*names, field_of(reason)]))


def by_length(wait: WholeWait) -> list[HeldFor]:
    """The kinds of a wait's reasons, those first that held longest."""
    return [wait.held[kind] for kind in sorted(wait.held, key=lambda kind: (-wait.held[kind].length, sorted(kind)))]


class Dominant(NamedTuple):
    """The cause that held longest: the one of its kinds that did, how long (ns) the cause did, and how much of the wait
    was looked into."""

    held: HeldFor
    diagnosis: Diagnosis
    length: int
    looked: int


def dominant(wait: WholeWait, ask: Callable[[HeldFor], Diagnosis | None]) -> Dominant | None:
    """The cause of a wait: its kinds are asked about, those first that held longest, until most of it is looked into,
    or no other cause can have held longer. None where that which held longest has no answer."""
    left, lengths, firsts = wait.length, dict[str, int](), dict[str, tuple[HeldFor, Diagnosis]]()
    for count, one in enumerate(by_length(wait)[:_MOST], 1):
        diagnosis = ask(one)
        if diagnosis is None:
            if count == 1:
                return None
            continue
        left -= one.length
        lengths[diagnosis.cause] = lengths.get(diagnosis.cause, 0) + one.length
        firsts.setdefault(diagnosis.cause, (one, diagnosis))
        first, second = (*sorted(lengths.values(), reverse=True), 0)[:2]
        if left <= wait.length * (1 - _ENOUGH) or (count >= _FEW and first >= second + left):
            break
    cause = max(lengths, key=lengths.__getitem__)
    return Dominant(*firsts[cause], lengths[cause], wait.length - left)
