"""Why groups wait, by the cause that held longest: counted from session to session, asked for between sessions.

The same as `vcd explain job` says on the daemon's log, of reasons that this process saw: it asks the session at hand
again, and the log only for how long which reasons held before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from vcd.daemon.concurrency.threads import in_thread
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.daemon.reporting.wait_history import KnownWaits, ToldSession
from vcd.diagnosis.case import Served
from vcd.diagnosis.diagnosis import by_itself, diagnosed
from vcd.diagnosis.dominant import dominant
from vcd.diagnosis.waiting import GroupWait
from vcd.diagnosis.waittimeline import Kind, kind_of
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

MOST = 200
"""Groups that are asked about in a row, at most."""
SECONDS = 0.1
"""After so long no other group is asked about in a row."""
PAUSE = 1.0
"""Seconds until it goes on after that."""
AGAIN = 5.0
"""Seconds after which a group is asked about again whose kinds of reasons are as they were."""
FIGURES = 60.0
"""Seconds after which other figures are told where cause and subject are as they were."""
OURS = "vcd"
"""Who failed, where it was no plugin."""


class _Said(NamedTuple):
    """What a group's condition tells."""

    cause: str
    subject: dict[str, str]
    message: str


@dataclass
class _Known:
    """What is known of a group: what each kind of the reasons of its wait came to when it was last asked about, and
    when that was (s); what was told, and when."""

    diagnoses: dict[Kind, Diagnosis] = field(default_factory=dict)
    asked: float = 0.0
    said: _Said | None = None
    since: float = 0.0


@dataclass(eq=False)
class Verdicts:
    """Asks groups' sessions why they wait, one group at a time, while nobody holds ``deciding``.

    ``show`` is told the message of a group's condition, if it is to have one, and whether that is only where it shows
    none yet; ``count`` the causes of groups, ``failed`` who failed at being asked. ``clock`` paces it.
    """

    path: Path
    state: ClusterState
    deciding: asyncio.Lock
    watchdog: Watchdog
    show: Callable[[str, str, bool], None]
    count: Callable[[Mapping[str, str]], None]
    failed: Callable[[str, Exception], None]
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self.idle = asyncio.Event()
        """Set while there is nothing to be done, or it pauses."""
        self.idle.set()
        self._wake = asyncio.Event()
        self._items: deque[ToldSession] = deque()
        self._session: ToldSession | None = None
        self._since = 0.0
        """The session at hand, and since when it is (s)."""
        self._restored = False
        """Whether what is known is of this term."""
        self._waits = KnownWaits(self.path, self.state)
        self._reset()

    # --- what happens -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A term begins: what was known is of another one."""
        self._restored = False

    def _reset(self) -> None:
        self._known: dict[str, _Known] = {}
        self._waits.reset()
        self._due: dict[str, None] = {}
        """Groups that wait for other reasons than when they were last asked about, in order."""
        self._asked: dict[str, None] = {}
        """The others that wait; who was asked about first is first."""
        self._held: dict[str, _Said] = {}
        """What is told later."""

    def session(self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, at: int) -> None:
        """A session was decided at a time (ns) and told; it may be asked from now on, and is released in the end."""
        waits = ev.waits_by_group(plan.waiting)
        if not (self._items or self.state.waiting or waits):
            session.release()
            if not self._restored:  # there is nothing to ask the log for
                self._restored = True
                self._reset()
            return
        number = self.state.session + 1 if record is None else record.session
        self._items.append(ToldSession(record, number, at, session, waits, _binds(record, plan)))
        self.idle.clear()
        self._wake.set()

    def observe(self, event: ev.Event) -> None:
        """An event was folded."""
        if not isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad):
            return
        if event.kind == "Pod" and isinstance(event, ev.ObjectGone):
            self._waits.forget_pod(event.key)
        elif event.kind == "PodGroup" and event.key not in self.state.groups:  # it is deleted, or cannot be read
            self._waits.forget(event.key)
            self._known.pop(event.key, None)
            self._forget(event.key)

    def _forget(self, group: str) -> None:
        self._due.pop(group, None)
        self._asked.pop(group, None)
        self._held.pop(group, None)

    def _let_go(self) -> None:
        if self._session is not None:
            self._session.session.release()
            self._session = None

    # --- its work ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._ask_some()
            self._show_held()
            if not self._items:
                self.idle.set()
                await self._wait(self._pause())
                self._wake.clear()

    async def _wait(self, seconds: float | None) -> None:
        """Until there is a new session, or for so long."""
        passing = () if seconds is None else (self.clock.sleep(seconds),)
        await run_until_first(self._wake.wait(), *passing)

    async def _ask_some(self) -> None:
        """Ask about some groups."""
        until, causes = self.clock.monotonic() + SECONDS, dict[str, str]()
        for _ in range(MOST):
            while self._items:
                await self._take(self._items.popleft())
            if self._next() is None:
                break
            async with self.deciding:
                group = self._next()  # a group may have gone while that was waited for
                if group is not None and (cause := await self._ask(group)) is not None:
                    causes[group] = cause
            if self.clock.monotonic() > until:
                break
        if causes:
            self.count(causes)

    async def _take(self, told: ToldSession) -> None:
        """Count what a session says of who waits, and have it at hand."""
        if not self._restored:
            self._reset()
            self._restored = True
            self._due = dict.fromkeys(await self._waits.restore(told))
        self._let_go()
        self._session, self._since = told, self.clock.monotonic()
        for group in self._waits.count(told):
            self._forget(group)
            if self._waits.waits(group):
                self._due[group] = None
            elif group in self._known:  # a wait that comes is another one
                self._known[group].diagnoses.clear()

    def _next(self) -> str | None:
        """The group to ask about: one that was not asked about since its kinds of reasons changed, else the one that
        was asked about longest ago, by an earlier session; None where no time has come."""
        if self._session is None:
            return None
        for group in self._due:
            return group
        for group in self._asked:
            asked = self._known[group].asked
            return group if asked < self._since and asked <= self.clock.monotonic() - AGAIN else None
        return None

    def _pause(self) -> float | None:
        """Seconds until it goes on where no session comes; None where there is nothing to go on with."""
        if self._due or self._held:
            return PAUSE
        for group in self._asked:
            asked = self._known[group].asked
            return max(PAUSE, asked + AGAIN - self.clock.monotonic()) if asked < self._since else None
        return None

    async def _ask(self, group: str) -> str | None:
        """Ask the session at hand why a group waits; the cause that held longest, None where that is not known."""
        told, wait, known = self._session, self._waits.last(group), self._known.setdefault(group, _Known())
        self._due.pop(group, None)
        self._asked.pop(group, None)
        if told is None or wait is None or not wait.lasting:
            return None
        reasons = wait.spans[-1].reasons
        self._asked[group], known.asked = None, self.clock.monotonic()
        self.watchdog.begin(told.at)
        served = self._waits.served_since(wait.first, told.session)
        asking = in_thread(self._answer, GroupWait(group, told.session, reasons), served)
        answer = await self.watchdog.attend(asking)
        if answer.error is not None:
            self.failed(at_fault(answer.error) or OURS, answer.error)
        if self._known.get(group) is not known:  # it is gone meanwhile
            return None
        known.diagnoses[kind_of(reasons)] = answer.diagnosis
        found = dominant(wait, lambda one: known.diagnoses.get(one.kind))
        self._tell(group, known, answer, None if found is None else found.diagnosis)
        return None if found is None else found.diagnosis.cause

    def _answer(self, wait: GroupWait, served: Served) -> _Answer:
        job, errors = wait.job, list[Exception]()
        missing, tasks = (0, 0) if job is None else (job.min_available - job.ready_count, job.task_count)
        try:
            diagnosis = diagnosed(wait, served, errors.append)
        except Interrupted:
            self.watchdog.verdict()
            diagnosis = by_itself(wait.reasons)
        error = errors[0] if errors else None
        return _Answer(msgspec.structs.replace(diagnosis, funnel=[]), missing, tasks, error, wait.reasons)

    def _tell(self, group: str, known: _Known, answer: _Answer, longest: Diagnosis | None) -> None:
        """Show a message where it is about something else; one that has other figures some time after the last one.
        The last one is shown again: a session may have told its reasons since, or nobody took it."""
        self._held.pop(group, None)
        namespace = group.partition("/")[0]
        if longest is None:  # that was told to a process before, which may have shown it
            self.show(group, answer.message(answer.diagnosis, namespace), True)
            return
        new, before = _Said(longest.cause, longest.subject, answer.message(longest, namespace)), known.said
        if before is None or new[:2] != before[:2]:
            self._show(group, known, new)
            return
        if new != before:
            self._held[group] = new
        self.show(group, before.message, False)

    def _show_held(self) -> None:
        """Show messages that had to wait, once it is time."""
        for group, new in list(self._held.items()):
            known = self._known[group]
            if self.clock.monotonic() >= known.since + FIGURES:
                del self._held[group]
                self._show(group, known, new)

    def _show(self, group: str, known: _Known, said: _Said) -> None:
        known.said, known.since = said, self.clock.monotonic()
        self.show(group, said.message, False)


class _Answer(NamedTuple):
    """What a group's wait comes to, how many of its tasks are missing of how many, and what went wrong. Whose queue is
    not there is no job, and has no tasks. ``reasons`` are those of the session that was asked."""

    diagnosis: Diagnosis
    missing: int
    tasks: int
    error: Exception | None
    reasons: tuple[ev.Waiting, ...]

    def message(self, diagnosis: Diagnosis, namespace: str) -> str:
        """Return that of the condition of a group of this namespace, where it waits for that reason; with the remarks
        on holds that explain it."""
        remarks = map(reason_for_namespace, remarks_on(diagnosis.cause, self.reasons))
        words = "; ".join([shortened(said(for_namespace(diagnosis, namespace))), *remarks])
        return unschedulable(self.missing, self.tasks, words) if self.tasks else words


def _binds(record: ev.SessionDecided | None, plan: ev.Plan) -> list[str]:
    """The pods that a session gives nodes."""
    stale = () if record is None else dict(record.stale)
    statements = [statement for number, statement in enumerate(plan.statements) if number not in stale]
    return [one.key for statement in statements for one in statement.operations if one.verb == "bind"]
