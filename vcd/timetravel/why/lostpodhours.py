"""The causes of all waits in a part of a log, by lost pod-hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from vcd.diagnosis.job_diagnosis import diagnosed
from vcd.diagnosis.loggedtimeline import fold
from vcd.diagnosis.waiting_job import as_given, in_order
from vcd.diagnosis.waittimeline import Kind, Reasons, WaitSpan, WaitTimeline, WholeWait, clipped
from vcd.eventlog import LogError, Logged, SessionInfo
from vcd.model.diagnosis import Diagnosis
from vcd.model.objects import PodGroup
from vcd.model.reasons import Cause
from vcd.model.wording import SECOND, counted, span_in_words
from vcd.text.causes import said, shortened
from vcd.text.lost_hours_templates import LOST
from vcd.text.remedies import remedy_of
from vcd.text.time_formats import moment
from vcd.timetravel.history import History, object_in
from vcd.timetravel.log_standing import as_of
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.counterfactual import smallest_change
from vcd.timetravel.why.job_waits import wait_at
from vcd.timetravel.why.verdict import served_between

FIRST = 5
"""Causes in the answer, at most."""
ASKED = 12
"""Waits that are examined, at most: each one costs deciding a session again."""
DAY = 24 * 3600 * 1_000_000_000
"""The examined part of the log by default (ns)."""
_HOUR = 3600 * 1_000_000_000
_OF_ROOM = (Cause.SHAPE, Cause.NODE_ROOM, Cause.FRAGMENTATION, Cause.CLUSTER_FULL)
"""Causes that are about a resource, not about its holders."""
_MAIN_ROLES = ("clause", "term", "claim", "quota", "card", "gate", "ahead", "owner", "holder", "node", "field")
"""Roles, in this order, of which the first existing one is the subject in the table for causes without a queue."""


class FirstCause(msgspec.Struct, frozen=True):
    """A cause (a ``Cause``) and its cost: the ``hours`` that pods waited for it, in how many ``jobs``, and the
    ``share`` of all lost hours. ``subject`` is that of most of these hours; ``job`` lost most by it, as ``text``
    states, as of ``session``. ``mend`` is what would let that job start, ``verified`` by deciding again."""

    cause: str
    hours: float
    share: float
    jobs: int
    subject: str
    job: str
    session: int
    text: str
    mend: str
    verified: bool = False

    def lines(self, number: int) -> Iterator[str]:
        """Yield its cost, its worst job and the remedy."""
        facts = {"number": f"{number}", "cause": self.cause, "about": f": {self.subject}" if self.subject else ""}
        facts |= {"hours": _hours(self.hours), "share": f"{self.share:.0%}", "jobs": counted(self.jobs, "job")}
        yield LOST.sentence("cause", facts)
        yield LOST.sentence("worst", {"job": self.job, "text": self.text})
        if self.mend:
            yield LOST.sentence("remedy", {"remedy": self.mend}, ["verified" if self.verified else ""])


class FirstCauses(msgspec.Struct, frozen=True):
    """The causes in a part of a log, those that cost most first, at most FIRST of ``causes_in_all``.

    ``begin`` and ``end`` are times (RFC 3339), ``first`` and ``last`` sessions. ``hours`` are all pod-hours that
    ``jobs`` lost. The waits of ``asked`` jobs were examined, with ``asked_share`` of these hours; ``likened`` is the
    part that was counted as another job's wait with equal reasons, ``as_logged`` the part for which only the logged
    reasons were read.
    """

    begin: str
    end: str
    first: int
    last: int
    whole_day: bool
    hours: float
    jobs: int
    causes_in_all: int
    asked: int
    asked_share: float
    likened: float
    as_logged: float
    causes: list[FirstCause]

    def lines(self) -> Iterator[str]:
        """Yield the total, a paragraph for each cause, and how it was counted."""
        times = {"begin": self.begin, "end": self.end, "first": f"{self.first}", "last": f"{self.last}"}
        facts = {"where": LOST.sentence("where", times, ["day" if self.whole_day else ""])}
        if not self.causes:
            yield LOST.sentence("none", facts)
            return
        yield LOST.sentence("total", {**facts, "hours": _hours(self.hours), "jobs": counted(self.jobs, "job")})
        for number, one in enumerate(self.causes, 1):
            yield from one.lines(number)
        if self.causes_in_all > len(self.causes):
            yield LOST.sentence("more", {"causes": counted(self.causes_in_all - len(self.causes), "cause")})
        parts = {"likened": self.likened, "logged": self.as_logged}
        facts = {code: LOST.sentence(code, {"share": f"{of:.0%}"}) if of else "" for code, of in parts.items()}
        facts |= {"jobs": counted(self.asked, "job"), "share": f"{self.asked_share:.0%}"}
        yield LOST.sentence("examined", facts)


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{round(hours, 9):.2g}"  # a wait without duration counts as 1 ns


def first_causes(
    history: History, first: int | None = None, last: int | None = None, *, change: bool = False
) -> FirstCauses:
    """Return the causes of most lost pod-hours, from one session to another; in the log's last 24 h if neither is
    given.

    A gang counts with its missing pods, another job with its waiting pods. With ``change``, the smallest change is
    searched for the worst job of each cause, which takes a while. Raises LogError for what the log does not have.
    """
    stretch = _stretch(history, first, last)
    tally = _Tally(history, stretch)
    found = _collect_causes(history, stretch, tally)
    return _with_changes(history, found) if change else found


class _Stretch(NamedTuple):
    """The examined part of a log: its times (ns), and the sessions in it."""

    begin: int
    end: int
    first: SessionInfo
    last: SessionInfo
    whole_day: bool


def _stretch(history: History, first: int | None, last: int | None) -> _Stretch:
    reader = history.reader
    sessions, day = list(reader.sessions(first, last)), first is None and last is None
    if not sessions:
        raise LogError(f"event log {reader.path}: no session from {first or 1} to {last or 'the end'} is in it")
    end = as_of(reader) if sessions[-1].number == reader.last_session() else sessions[-1].time
    begin = max(sessions[0].time, end - DAY) if day else sessions[0].time
    inside = [info for info in sessions if info.time >= begin] or sessions[-1:]
    return _Stretch(begin, end, inside[0], sessions[-1], day)


# --- losses -----------------------------------------------------------------------------------------------------------


class _Loss(msgspec.Struct):
    """What a job lost by reasons of one kind in a queue, the longest span of them, and the session at which that wait
    began."""

    group: str
    queue: str
    held: WaitSpan
    first: int

    @property
    def kind(self) -> Kind:
        """The kind of the reasons."""
        return self.held.kind

    @property
    def lost(self) -> int:
        """The loss in pods times ns."""
        return max(self.held.lost, 1)


class _Tally:
    """Sums what each job lost by each kind of reasons, from plans and PodGroups alone, without deciding again."""

    def __init__(self, history: History, stretch: _Stretch) -> None:
        begin, until, first = stretch.first.head, stretch.last.sequence, stretch.first.number
        state = history.state(begin, jump=True)
        self._settings = state.settings
        self._groups = {key: record.group for key, record in state.groups.items()}
        timeline = WaitTimeline(pods=self._pods)
        # a group that waits before the first session does so at the end of the previous one, if the log has that
        timeline.last = first - 1
        timeline.known(stretch.begin, state.waiting, first if stretch.first.time <= stretch.begin else first - 1)

        def waiting_at(sequence: int) -> Mapping[str, Reasons]:
            state = history.state(sequence, jump=True)
            self._groups.update((key, record.group) for key, record in state.groups.items())
            return state.waiting

        events = history.reader.find_concerning(("PodGroup",), ("session",), begin, until)
        fold(timeline, history.reader, events, begin, until, waiting_at, self._see)
        self.losses: dict[tuple[str, Kind], _Loss] = {}
        for group in timeline.jobs:
            for wait in clipped(timeline.every_wait(group, stretch.end), stretch.begin):
                self._add(group, wait)

    def _see(self, logged: Logged) -> None:
        if isinstance(group := object_in(logged.event), PodGroup):
            self._groups[group.key] = group

    def _add(self, group: str, wait: WholeWait) -> None:
        known = self._groups.get(group)
        queue = "" if known is None else self._settings.queue_of(known)
        for kind, held in wait.held().items():
            before = self.losses.get((group, kind))
            both = held if before is None else before.held.plus(held)
            first = wait.first if before is None or both.last == held.last else before.first
            self.losses[group, kind] = _Loss(group, queue, both, first)

    def _pods(self, group: str, reasons: Reasons) -> int:
        """Return how many pods wait: those named by the reasons, each once; for a group that waits as a whole, the
        pods missing to its minimum."""
        named = max(*(one.tasks for one in reasons), len({pod for one in reasons for pod in one.pods}))
        known = self._groups.get(group)
        if known is None or all(one.tasks for one in reasons):
            return max(named, 1)
        return max(known.spec.min_member - known.status.running, named, 1)


# --- diagnoses --------------------------------------------------------------------------------------------------------


class _DiagnosedLoss(NamedTuple):
    """A loss with its diagnosis."""

    loss: _Loss
    diagnosis: Diagnosis

    @property
    def subject(self) -> str:
        """The subject in a few words: a queue with its field, a clause, a card ..."""
        names = self.diagnosis.subject
        resource = next(filter(None, self.diagnosis.amounts), "")
        if self.diagnosis.cause in _OF_ROOM and resource:
            return resource
        if "queue" in names:
            return " ".join(filter(None, (f"queue {names['queue']}", names.get("card", ""), names.get("field", ""))))
        role = next((role for role in _MAIN_ROLES if role in names), "")
        if role in ("", "clause", "term", "field"):
            return names.get(role, "")
        return f"{'behind' if role == 'ahead' else role} {names[role]}"


def _collect_causes(history: History, stretch: _Stretch, tally: _Tally) -> FirstCauses:
    losses = sorted(tally.losses.values(), key=lambda loss: (-loss.lost, loss.group, sorted(loss.kind)))
    total = max(sum(loss.lost for loss in losses), 1)
    examined = _diagnose_examined(history, losses)
    found, likened, logged = list(examined.values()), 0, 0
    diagnosis_of: dict[tuple[Kind, str], Diagnosis] = {}
    for one in examined.values():
        diagnosis_of.setdefault((one.loss.kind, one.loss.queue), one.diagnosis)
    for loss in losses:
        if (loss.group, loss.kind) in examined:
            continue
        known = diagnosis_of.get((loss.kind, loss.queue))
        likened, logged = likened + loss.lost * (known is not None), logged + loss.lost * (known is None)
        found.append(_DiagnosedLoss(loss, known or _logged_diagnosis(loss)))
    by_cause: dict[str, list[_DiagnosedLoss]] = {}
    for one in found:
        by_cause.setdefault(one.diagnosis.cause, []).append(one)
    causes = [_cause(of, total) for of in by_cause.values()]
    causes.sort(key=lambda cause: (-cause.hours, cause.cause))
    return FirstCauses(
        moment(stretch.begin), moment(stretch.end), stretch.first.number, stretch.last.number, stretch.whole_day,
        sum(loss.lost for loss in losses) / _HOUR, len({loss.group for loss in losses}), len(causes),
        len({group for group, _ in examined}), sum(one.loss.lost for one in examined.values()) / total, likened / total,
        logged / total, causes[:FIRST],
    )  # fmt: skip


def _diagnose_examined(history: History, losses: list[_Loss]) -> dict[tuple[str, Kind], _DiagnosedLoss]:
    """Diagnose the examined waits: for each kind of reasons in each queue the one that cost most, then those that cost
    most of the others."""
    first_of: dict[tuple[Kind, str], _Loss] = {}
    for loss in losses:
        first_of.setdefault((loss.kind, loss.queue), loss)
    heads = list(first_of.values())
    chosen = [*heads, *(loss for loss in losses if loss not in heads)][:ASKED]
    found = {}
    # in order, since going back in the history is slow
    for loss in sorted(chosen, key=lambda loss: (loss.held.last, loss.group)):
        try:
            wait = wait_at(history, loss.group, loss.held.last)
        except NotFound:  # this version decides differently: the logged reasons are used
            continue
        served = served_between(history, loss.first, loss.held.last)
        found[loss.group, loss.kind] = _DiagnosedLoss(loss, diagnosed(wait, served))
    return found


def _logged_diagnosis(loss: _Loss) -> Diagnosis:
    """Return the diagnosis of the logged reasons, of which the first in the order of gates counts."""
    reason = in_order(loss.held.reasons)[0]
    given = as_given(reason)
    queue = {"queue": loss.queue} if reason.gate in ("enqueue", "queue") and loss.queue else {}
    return msgspec.structs.replace(given, subject={**queue, **given.subject})


def _cause(found: list[_DiagnosedLoss], total: int) -> FirstCause:
    """Return the sum of the losses with one cause."""
    lost, by_subject = sum(one.loss.lost for one in found), dict[str, int]()
    for one in found:
        by_subject[one.subject] = by_subject.get(one.subject, 0) + one.loss.lost
    worst = max(found, key=lambda one: (one.loss.lost, one.loss.group))
    span = span_in_words(round(worst.loss.held.weight / SECOND, 6))
    return FirstCause(
        worst.diagnosis.cause,
        lost / _HOUR,
        lost / total,
        len({one.loss.group for one in found}),
        max(sorted(by_subject), key=by_subject.__getitem__),
        worst.loss.group,
        worst.loss.held.last,
        shortened(LOST.sentence("waited", {"span": span, "why": said(worst.diagnosis)})),
        remedy_of(worst.diagnosis, worst.loss.held.reasons),
    )


def _with_changes(history: History, found: FirstCauses) -> FirstCauses:
    """Add the smallest change for the worst job of each cause."""
    causes = []
    for one in found.causes:
        try:
            change = smallest_change(history, one.job, one.session).change
        except NotFound:  # this version decides differently
            change = None
        with_it = {} if change is None else {"mend": change.text(), "verified": True}
        causes.append(msgspec.structs.replace(one, **with_it))
    return msgspec.structs.replace(found, causes=causes)
