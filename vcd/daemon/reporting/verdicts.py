"""Diagnoses waiting groups between sessions: the cause that held for the largest share of each group's wait.

The result is that of `vcd explain job`. It is computed from the last session, which stays open for it, and from the
wait timeline; the log is read once per term. Before changing it: it runs in a thread while no session is decided, one
group at a time, and must not delay the next session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from vcd.daemon.concurrency.threads import in_thread
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.daemon.reporting.wait_history import ReportedSession, WaitHistory
from vcd.diagnosis.dominant_cause import Dominant, dominant
from vcd.diagnosis.group_wait import GroupWait
from vcd.diagnosis.job_diagnosis import by_itself, diagnosed
from vcd.diagnosis.waiting_job import Served
from vcd.diagnosis.waittimeline import Kind, WaitSpan, WholeWait
from vcd.kube.asyncio_tasks import run_until_first
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.model.wording import SECOND
from vcd.scheduling.framework.guard import Interrupted, at_fault
from vcd.scheduling.holdnotes import remarks_on
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState
from vcd.text.causes import for_namespace, said, shortened
from vcd.text.condition_texts import unschedulable
from vcd.text.reason_sentences import reason_for_namespace

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
OWN_NAME = "vcd"
"""The name that is reported for a failure outside plugins."""


class _Report(NamedTuple):
    """A reported diagnosis."""

    cause: str
    subject: dict[str, str]
    message: str


@dataclass
class _GroupDiagnoses:
    """The last diagnosis of a group by kind of reasons, the time of it (``diagnosed_at``), and the last report
    (``reported``) and its time. Times are monotonic seconds."""

    diagnoses: dict[Kind, Diagnosis] = field(default_factory=dict)
    diagnosed_at: float = 0.0
    reported: _Report | None = None
    reported_at: float = 0.0


@dataclass(eq=False)
class Verdicts:
    """Diagnoses waiting groups, one at a time, while ``deciding`` is not locked.

    ``report(group, message, first)`` receives each message, and whether it applies only to a group without one;
    ``count`` the causes by group; ``failed`` a plugin's name and its error. ``clock`` paces it.
    """

    path: Path
    state: ClusterState
    deciding: asyncio.Lock
    watchdog: Watchdog
    report: Callable[[str, str, bool], None]
    count: Callable[[Mapping[str, str]], None]
    failed: Callable[[str, Exception], None]
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self.idle = asyncio.Event()
        """Set while there is no work, or during a pause."""
        self.idle.set()
        self._wake = asyncio.Event()
        self._items: deque[ReportedSession] = deque()
        self._session: ReportedSession | None = None
        self._since = 0.0
        """The last session, and when it was taken (monotonic seconds)."""
        self._restored = False
        """Whether the timeline was restored in this term."""
        self._waits = WaitHistory(self.path, self.state)
        self._reset()

    # --- what happens -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a term: the timeline has to be restored, as another replica may have led."""
        self._restored = False

    def _reset(self) -> None:
        self._known: dict[str, _GroupDiagnoses] = {}
        self._waits.reset()
        self._due: dict[str, None] = {}
        """Groups whose reasons changed since their last diagnosis, in order."""
        self._diagnosed: dict[str, None] = {}
        """The other waiting groups, by the time of their last diagnosis."""
        self._overtaken: dict[str, float] = {}
        """When the present cause of a group will have held longest, if no session is decided before (monotonic
        seconds)."""
        self._delayed: dict[str, _Report] = {}
        """Messages with new quantities, to be reported later."""

    def session(self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, at: int) -> None:
        """Take over a reported session and its time (ns), and release it when the next one comes."""
        waits = ev.waits_by_group(plan.waiting)
        if not (self._items or self.state.waiting or waits):
            session.release()
            if not self._restored:  # no group waits, so the log has nothing to restore
                self._restored = True
                self._reset()
            return
        number = self.state.session + 1 if record is None else record.session
        self._items.append(ReportedSession(record, number, at, session, waits, _binds(record, plan)))
        self.idle.clear()
        self._wake.set()

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state."""
        if not isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad):
            return
        if event.kind == "Pod" and isinstance(event, ev.ObjectGone):
            self._waits.forget_pod(event.key)
        elif event.kind == "PodGroup" and event.key not in self.state.groups:  # deleted or invalid
            self._waits.forget(event.key)
            self._known.pop(event.key, None)
            self._forget(event.key)

    def _forget(self, group: str) -> None:
        self._due.pop(group, None)
        self._diagnosed.pop(group, None)
        self._overtaken.pop(group, None)
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
                self.idle.clear()
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
                await self._take(self._items.popleft())
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

    async def _take(self, reported: ReportedSession) -> None:
        """Fold a session into the timeline, and diagnose by it from now on."""
        if not self._restored:
            self._reset()
            self._restored = True
            self._due = dict.fromkeys(await self._waits.restore(reported))
        self._release_session()
        self._session, self._since = reported, self.clock.monotonic()
        for group in self._waits.fold(reported):
            self._forget(group)
            if self._waits.waits(group):
                self._due[group] = None
            elif group in self._known:  # the next wait of the group is a new one
                self._known[group].diagnoses.clear()

    def _next(self) -> str | None:
        """Return the group to diagnose next, or None if none is due.

        Groups with changed reasons come first, then those of which another cause has held longest since, then those
        whose last diagnosis is from an earlier session, oldest first.
        """
        if self._session is None:
            return None
        now = self.clock.monotonic()
        overtaken = (group for group, time in self._overtaken.items() if time <= now)
        for group in chain(self._due, overtaken):
            return group
        for group in self._diagnosed:
            diagnosed_at = self._known[group].diagnosed_at
            return group if diagnosed_at < self._since and diagnosed_at <= now - REPEAT_DELAY else None
        return None

    def _pause(self) -> float | None:
        """Return the seconds until more work is due without a new session; None if none will be."""
        if self._due or self._delayed:
            return PAUSE
        times = list(self._overtaken.values())
        for group in self._diagnosed:
            diagnosed_at = self._known[group].diagnosed_at
            if diagnosed_at < self._since:
                times.append(diagnosed_at + REPEAT_DELAY)
            break
        return max(PAUSE, min(times) - self.clock.monotonic()) if times else None

    async def _diagnose(self, group: str) -> str | None:
        """Diagnose a group by the last session. Return the cause that held longest, None if it is not known."""
        session, known, time = self._session, self._known.setdefault(group, _GroupDiagnoses()), self.clock.monotonic()
        self._due.pop(group, None)
        self._diagnosed.pop(group, None)
        self._overtaken.pop(group, None)
        wait = None if session is None else self._waits.last(group, session.at + round((time - self._since) * SECOND))
        if session is None or wait is None or not wait.lasting:
            return None
        self._diagnosed[group], known.diagnosed_at = None, time
        self.watchdog.begin(session.at)
        served = self._waits.bound_since(wait.first, session.session)
        answering = in_thread(self._answer, group, wait, dict(known.diagnoses), session.session, served)
        answer = await self.watchdog.attend(answering)
        if answer.error is not None:
            self.failed(at_fault(answer.error) or OWN_NAME, answer.error)
        if self._known.get(group) is not known:  # deleted since
            return None
        known.diagnoses[wait.spans[-1].kind] = answer.diagnosis
        found = answer.dominant
        if found.ahead:
            self._overtaken[group] = time + found.ahead / SECOND
        is_known = found.held.kind in known.diagnoses
        self._report(group, known, answer, found.diagnosis if is_known else None)
        return found.diagnosis.cause if is_known else None

    def _answer(
        self, group: str, wait: WholeWait, diagnoses: dict[Kind, Diagnosis], session: Session, served: Served
    ) -> _Answer:
        """Diagnose the last reasons of a wait, and find the cause that held longest. For reasons from before this
        process, which has no ``diagnoses`` of them, the session is used that is open."""
        last, errors = wait.spans[-1], list[Exception]()

        def diagnose(span: WaitSpan) -> Diagnosis:
            given = GroupWait(group, session, span.reasons)
            try:
                found = diagnosed(given, served, errors.append)
            except Interrupted:
                self.watchdog.verdict()
                found = by_itself(span.reasons)
            return msgspec.structs.replace(found, funnel=[])

        diagnosis = diagnoses[last.kind] = diagnose(last)
        found = dominant(wait, lambda span: diagnoses[span.kind] if span.kind in diagnoses else diagnose(span))
        job = GroupWait(group, session, last.reasons).job
        missing, tasks = (0, 0) if job is None else (job.min_available - job.ready_count, job.task_count)
        return _Answer(diagnosis, found, missing, tasks, errors[0] if errors else None, last.reasons)

    def _report(self, group: str, known: _GroupDiagnoses, answer: _Answer, longest: Diagnosis | None) -> None:
        """Report a message at once if cause or subject changed; if only quantities changed, later.

        Until then the last message is reported again, because a session may have replaced it with its reasons.
        """
        self._delayed.pop(group, None)
        namespace = group.partition("/")[0]
        if longest is None:  # an earlier process may have diagnosed and reported it
            self.report(group, answer.message(answer.diagnosis, namespace), True)
            return
        new, before = _Report(longest.cause, longest.subject, answer.message(longest, namespace)), known.reported
        if before is None or new[:2] != before[:2]:
            self._report_now(group, known, new)
            return
        if new != before:
            self._delayed[group] = new
        self.report(group, before.message, False)

    def _report_delayed(self) -> None:
        """Report messages that are due."""
        for group, new in list(self._delayed.items()):
            known = self._known[group]
            if self.clock.monotonic() >= known.reported_at + QUANTITIES_DELAY:
                del self._delayed[group]
                self._report_now(group, known, new)

    def _report_now(self, group: str, known: _GroupDiagnoses, report: _Report) -> None:
        known.reported, known.reported_at = report, self.clock.monotonic()
        self.report(group, report.message, False)


class _Answer(NamedTuple):
    """A diagnosis of the last reasons of a wait, with the cause that held longest, how many of the group's tasks are
    missing, any error, and these reasons.

    ``tasks`` is 0 for a group whose queue does not exist, as it is no job.
    """

    diagnosis: Diagnosis
    dominant: Dominant
    missing: int
    tasks: int
    error: Exception | None
    reasons: tuple[ev.Waiting, ...]

    def message(self, diagnosis: Diagnosis, namespace: str) -> str:
        """Return the condition's message in a namespace: the diagnosis, and remarks on holds that explain it."""
        remarks = map(reason_for_namespace, remarks_on(diagnosis.cause, self.reasons))
        words = "; ".join([shortened(said(for_namespace(diagnosis, namespace))), *remarks])
        return unschedulable(self.missing, self.tasks, words) if self.tasks else words


def _binds(record: ev.SessionDecided | None, plan: ev.Plan) -> list[str]:
    """Return the keys of the pods that a session binds."""
    stale = () if record is None else dict(record.stale)
    statements = [statement for number, statement in enumerate(plan.statements) if number not in stale]
    return [one.key for statement in statements for one in statement.operations if one.verb == "bind"]
