"""Diagnoses waiting groups between sessions, and reports each diagnosis for the group's condition and Events.

The result is that of `vcd explain job` and of all lists, since it depends on the last logged session alone, which stays
open for it. Before changing it: it runs in a thread while no session is decided, one group at a time, and must not
delay the next session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from vcd.daemon.concurrency.threads import in_thread
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.diagnosis.diagnosis import by_itself, diagnosed
from vcd.diagnosis.waiting import GroupWait
from vcd.diagnosis.waittimeline import Kind, Reasons, kind_of
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.tasks import run_until_first
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.scheduling.framework.guard import Interrupted, at_fault
from vcd.scheduling.holdnotes import remarks_on
from vcd.scheduling.session.session import Session
from vcd.state.cluster import ClusterState
from vcd.text.causes import for_namespace, said, shortened
from vcd.text.conditions import unschedulable
from vcd.text.reasons import reason_for_namespace

MAX_GROUPS = 200
"""The most groups that are diagnosed without a pause."""
MAX_SECONDS = 0.1
"""The longest time without a pause."""
PAUSE = 1.0
"""Seconds of a pause."""
REPEAT_DELAY = 5.0
"""Seconds until a group is diagnosed again if its kinds of reasons did not change."""
QUANTITIES_DELAY = 60.0
"""Seconds until a message is replaced of which only the quantities changed."""
LONGEST_DELAY = 300.0
"""Seconds, at most, until a message is replaced whose cause or subject changed. The delay doubles with each such
change, so that a group between two causes is not written again and again."""
OWN_NAME = "vcd"
"""The name that is reported for a failure outside plugins."""


class _Report(NamedTuple):
    """A reported diagnosis."""

    cause: str
    subject: dict[str, str]
    message: str


@dataclass
class _GroupDiagnosis:
    """The kind of a group's diagnosed reasons, the last report, and the delay of the next change. Times are monotonic
    seconds."""

    kind: Kind = field(default_factory=Kind)
    diagnosed_at: float = 0.0
    reported: _Report | None = None
    reported_at: float = 0.0
    delay: float = 0.0


class _ReportedSession(NamedTuple):
    """A reported session, its time (ns), and the new reasons of groups."""

    session: Session
    at: int
    changes: dict[str, Reasons]

    def reasons_of(self, group: str) -> Reasons:
        """Return the reasons for which a group waits after the session."""
        return self.changes.get(group, self.session.snapshot.waiting.get(group, ()))


@dataclass(eq=False)
class Verdicts:
    """Diagnoses waiting groups, one at a time, while ``deciding`` is not locked.

    ``report(group, message)`` receives each message, ``count`` the causes by group, and ``failed`` a plugin's name and
    its error. ``clock`` paces it.
    """

    state: ClusterState
    deciding: asyncio.Lock
    watchdog: Watchdog
    report: Callable[[str, str], None]
    count: Callable[[Mapping[str, str]], None]
    failed: Callable[[str, Exception], None]
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self.idle = asyncio.Event()
        """Set while there is no work, or during a pause."""
        self.idle.set()
        self._wake = asyncio.Event()
        self._items: deque[_ReportedSession] = deque()
        self._session: _ReportedSession | None = None
        self._since = 0.0
        """The last session, and when it was taken (monotonic seconds)."""
        self._is_new_term = True
        """Whether no session of this term was taken over."""
        self._reset()

    # --- what happens -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a term: all groups are diagnosed again, as another replica may have led."""
        self._is_new_term = True

    def _reset(self) -> None:
        self._known: dict[str, _GroupDiagnosis] = {}
        self._due: dict[str, None] = {}
        """Groups whose reasons changed since their last diagnosis, in order."""
        self._diagnosed: dict[str, None] = {}
        """The other waiting groups, by the time of their last diagnosis."""
        self._delayed: dict[str, tuple[float, _Report]] = {}
        """Changed messages, and when they are reported."""

    def session(self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, at: int) -> None:
        """Take over a reported session and its time (ns), and release it when the next one comes.

        A session that was not logged is used only if it is the first one of a term: readers of the log do not have it.
        """
        waits = ev.waits_by_group(plan.waiting)
        if not (self._items or self.state.waiting or waits):
            self._is_new_term = False
            self._reset()
            session.release()
            return
        if record is None and not self._is_new_term:
            session.release()
            return
        if self._is_new_term:
            self._is_new_term = False
            self._reset()
            waits = dict(ev.waits_after(session.snapshot.waiting, plan.waiting))
        self._items.append(_ReportedSession(session, at, waits))
        self.idle.clear()
        self._wake.set()

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state."""
        if not isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad):
            return
        if event.kind == "PodGroup" and event.key not in self.state.groups:  # deleted or invalid
            self._forget(event.key)

    def _forget(self, group: str) -> None:
        self._known.pop(group, None)
        self._due.pop(group, None)
        self._diagnosed.pop(group, None)
        self._delayed.pop(group, None)

    def _release_session(self) -> None:
        if self._session is not None:
            self._session.session.release()
            self._session = None

    # --- its work ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._diagnose_some()
            self._report_delayed()
            if not self._items:
                self.idle.set()
                await self._wait(self._pause())
                self._wake.clear()

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a new session, at most so many seconds."""
        passing = () if seconds is None else (self.clock.sleep(seconds),)
        await run_until_first(self._wake.wait(), *passing)

    async def _diagnose_some(self) -> None:
        """Diagnose groups until the next pause is due."""
        until, causes = self.clock.monotonic() + MAX_SECONDS, dict[str, str]()
        for _ in range(MAX_GROUPS):
            while self._items:
                self._take(self._items.popleft())
            if self._next() is None:
                break
            async with self.deciding:
                group = self._next()  # the last choice may be outdated after the wait for the lock
                if group is not None and (cause := await self._diagnose(group)) is not None:
                    causes[group] = cause
            if self.clock.monotonic() > until:
                break
        if causes:
            self.count(causes)

    def _take(self, reported: _ReportedSession) -> None:
        """Diagnose by a session from now on; at once the groups with reasons of another kind."""
        self._release_session()
        self._session, self._since = reported, self.clock.monotonic()
        for group, reasons in reported.changes.items():
            kind, known = kind_of(reasons), self._known.get(group)
            if not kind or group not in self.state.groups:
                self._forget(group)
            elif known is None or known.kind != kind:
                self._due[group] = None

    def _next(self) -> str | None:
        """Return the group to diagnose next, or None if none is due.

        Groups with changed reasons come first, then those whose last diagnosis is from an earlier session, oldest
        first.
        """
        if self._session is None:
            return None
        for group in self._due:
            return group
        for group in self._diagnosed:
            diagnosed_at = self._known[group].diagnosed_at
            return (
                group if diagnosed_at < self._since and diagnosed_at <= self.clock.monotonic() - REPEAT_DELAY else None
            )
        return None

    def _pause(self) -> float | None:
        """Return the seconds until more work is due without a new session; None if none will be."""
        if self._due or self._delayed:
            return PAUSE
        for group in self._diagnosed:
            diagnosed_at = self._known[group].diagnosed_at
            return (
                max(PAUSE, diagnosed_at + REPEAT_DELAY - self.clock.monotonic()) if diagnosed_at < self._since else None
            )
        return None

    async def _diagnose(self, group: str) -> str | None:
        """Diagnose a group by the last session. Return the cause; None if the group does not wait."""
        session = self._session
        self._due.pop(group, None)
        self._diagnosed.pop(group, None)
        reasons = () if session is None else session.reasons_of(group)
        if session is None or not reasons:
            return None
        known = self._known.setdefault(group, _GroupDiagnosis())
        self._diagnosed[group], known.kind, known.diagnosed_at = None, kind_of(reasons), self.clock.monotonic()
        self.watchdog.begin(session.at)
        answer = await self.watchdog.attend(in_thread(self._answer, GroupWait(group, session.session, reasons)))
        if answer.error is not None:
            self.failed(at_fault(answer.error) or OWN_NAME, answer.error)
        if self._known.get(group) is not known:  # deleted since
            return None
        self._report(group, known, answer)
        return answer.diagnosis.cause

    def _answer(self, wait: GroupWait) -> _Answer:
        job, errors = wait.job, list[Exception]()
        missing, tasks = (0, 0) if job is None else (job.min_available - job.ready_count, job.task_count)
        try:
            diagnosis = diagnosed(wait, errors.append)
        except Interrupted:
            self.watchdog.verdict()
            diagnosis = by_itself(wait.reasons)
        error = errors[0] if errors else None
        return _Answer(msgspec.structs.replace(diagnosis, funnel=[]), missing, tasks, error, wait.reasons)

    def _report(self, group: str, known: _GroupDiagnosis, answer: _Answer) -> None:
        """Report a message, now or later if it changed recently.

        Until then the last message is reported again, because a session may have replaced it with its reasons.
        """
        self._delayed.pop(group, None)
        diagnosis, before, now = answer.diagnosis, known.reported, self.clock.monotonic()
        new = _Report(diagnosis.cause, diagnosis.subject, answer.message(group.partition("/")[0]))
        if before is None:
            self._report_now(group, known, new)
            return
        due = known.reported_at + (known.delay if new[:2] != before[:2] else QUANTITIES_DELAY)
        if new == before or now < due:
            self.report(group, before.message)
            if new != before:
                self._delayed[group] = due, new
            return
        self._report_now(group, known, new)

    def _report_delayed(self) -> None:
        """Report messages that are due."""
        for group, (due, new) in list(self._delayed.items()):
            if self.clock.monotonic() >= due:
                del self._delayed[group]
                self._report_now(group, self._known[group], new)

    def _report_now(self, group: str, known: _GroupDiagnosis, new: _Report) -> None:
        if known.reported is not None and known.reported[:2] != new[:2]:
            known.delay = min(max(2 * known.delay, REPEAT_DELAY), LONGEST_DELAY)
        known.reported, known.reported_at = new, self.clock.monotonic()
        self.report(group, new.message)


class _Answer(NamedTuple):
    """A diagnosis by one session, with the reasons in it, how many of the group's tasks are missing, and any error.

    ``tasks`` is 0 for a group whose queue does not exist, as it is no job.
    """

    diagnosis: Diagnosis
    missing: int
    tasks: int
    error: Exception | None
    reasons: tuple[ev.Waiting, ...]

    def message(self, namespace: str) -> str:
        """Return the condition's message in a namespace: the diagnosis, and remarks on holds that explain it."""
        remarks = map(reason_for_namespace, remarks_on(self.diagnosis.cause, self.reasons))
        words = "; ".join([shortened(said(for_namespace(self.diagnosis, namespace))), *remarks])
        return unschedulable(self.missing, self.tasks, words) if self.tasks else words
