"""Runs sessions one after the other: snapshot, decide in a thread, verify, log, hand over to the committer.

It decides when a session is due: after a change, at a deadline of the state, or after a period for plugins that depend
on time. What a session decides is `vcd.scheduling`; calls to the API server are `vcd.kube.committer`.

Before changing it: between the snapshot and the log, other events arrive. ``_log`` verifies the plan against the state
at the log's head, in the same step in which the session gets its place in the log (law 3 of docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, NamedTuple

import structlog

from vcd.daemon.concurrency.threads import in_thread
from vcd.daemon.cycle.replay_check import ReplayCheck
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.watching.consistent_reads import ReadObjects
from vcd.model import events as ev
from vcd.model.status import TaskStatus
from vcd.model.wording import SECOND
from vcd.scheduling.decide import run, versions
from vcd.scheduling.framework import execution, guard
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import is_timed, kinds
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import NOBODY, Outside, Recorder, Remembered
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.scheduling.statement_verification import Reference, stale_statements
from vcd.state.deadlines import next_deadline
from vcd.state.snapshot import Snapshot, SnapshotMaker

_log = structlog.get_logger(__name__)

Handover = Callable[[ev.SessionDecided | None, ev.Plan, Session, dict[str, float]], None]
Read = Callable[[ev.Plan, Snapshot], Awaitable[ReadObjects]]
"""Reads objects at the API server that a plan depends on and whose watches may be behind."""
Gather = Callable[[int, asyncio.Event], Awaitable[None]]
"""Waits after a change for related changes, so that one session decides on all of them. Arguments: the number of
successive sessions that decided nothing, and the event that is set for new work."""

_GATHERING = 0.02
"""Seconds to wait for related changes."""
_MOST_FRUITLESS = 4
"""Fruitless sessions after which the wait grows no longer."""


async def wait_for_more(fruitless: int, new_work: asyncio.Event) -> None:
    """Wait a short time for related changes, and longer while changes call for no decision (confirmed binds).

    New work ends the longer wait.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GATHERING * min(fruitless, _MOST_FRUITLESS)):
            await new_work.wait()
    await asyncio.sleep(_GATHERING)


async def _at_once() -> None:
    """Return at once: no session has to wait."""


async def _nothing_read(plan: ev.Plan, snapshot: Snapshot) -> ReadObjects:
    """Read nothing: trust the watches."""
    return ReadObjects()


def _has_content(plan: ev.Plan) -> bool:
    return plan != ev.Plan()


class _Decided(NamedTuple):
    """A plan and its input."""

    snapshot: Snapshot
    policy: Policy
    now: int
    seed: int
    epoch: int
    session: Session
    plan: ev.Plan
    encoded: bytes
    asked: tuple[ev.Asked, ...]


@dataclass(eq=False)
class Cycle:
    """Decides one session at a time whenever something changed, while ``may_decide`` returns an epoch.

    ``handover`` receives every session, with its record if it was logged, and the seconds of its phases. ``outside``
    answers plugins, and its answers are recorded. ``read`` reads objects again that the plan depends on. A plan that
    is not ``is_news`` is not logged, because replaying the last session explains it as well. If ``is_done``, decisions
    are carried out, so a session that left work is followed by the next one at once. ``room`` is awaited before each
    session, so that reporting cannot fall behind without bound.
    """

    state_writer: StateWriter
    policy: Callable[[], Policy]
    may_decide: Callable[[], int | None]
    handover: Handover
    _: KW_ONLY
    seed: int = 0
    period: float = 1.0
    gather: Gather = wait_for_more
    room: Callable[[], Awaitable[None]] = _at_once
    in_session: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Entered while a session is decided and logged. Writes of statuses and Events pause."""
    clock: Callable[[], int] = time.time_ns
    until: Callable[[int], Awaitable[None]] | None = None
    """Returns at a time of ``clock`` (ns since the epoch); uses the event loop's time unless given."""
    outside: Outside = NOBODY
    watchdog: InitVar[Watchdog | None] = None
    check: ReplayCheck | None = None
    is_news: Callable[[ev.Plan], bool] = _has_content
    is_done: bool = True
    read: Read = _nothing_read
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a session is decided and logged, and while a verdict calls plugins."""

    def __post_init__(self, watchdog: Watchdog | None) -> None:
        self._watchdog = watchdog or Watchdog(self.state_writer)
        self._memory = Memory()
        self._maker = SnapshotMaker(self.state_writer.state)
        self._epoch: int | None = None
        self._last_usage: tuple[tuple[ev.QueueUsage, ...], int] | None = None
        """Queue usage of the last session logged under the epoch, and the time of that session."""
        self._wakes = _Wakes()
        self._looked_at = 0
        """The time of the last session (ns since the epoch), or of the last check by a replica that does not lead. A
        later deadline still calls for a session, even if it has passed: a session takes time."""
        self._round_began: int | None = None
        """Start of the round while jobs wait for their turn (ns since the epoch)."""
        self._held_back = False
        """Whether the last session only repeated queue usage, or waits for a watch that is behind. The next session is
        due after a period even if nothing changes."""
        self._fruitless = 0
        """Successive sessions without a pause between them that decided nothing about any pod."""
        self.idle = asyncio.Event()
        """Set while there is nothing to decide."""
        self.logged = 0
        """Sequence number of the last logged session."""
        self.sessions = 0

    async def run(self) -> None:
        """Decide until cancelled: after each change, and when time alone may change a decision."""
        changed = self.state_writer.changed
        while True:
            if not changed.is_set():
                self._fruitless = 0
                self.idle.set()
                await self._wait_for_change()
            self.idle.clear()
            await self.gather(self._fruitless, self.state_writer.new_work)
            await self.room()
            changed.clear()
            self.state_writer.new_work.clear()
            epoch = self.may_decide()
            if epoch is None:
                self._held_back, self._looked_at = False, self.clock()  # the leader logs it
                continue
            with self.in_session():
                goes_on = await self.once(epoch)
            if goes_on:
                changed.set()

    async def _wait_for_change(self) -> None:
        """Return after a change, or at a time at which the decision can differ without a change."""
        ends: list[Coroutine[Any, Any, object]] = [self.state_writer.changed.wait()]
        if self._held_back or is_timed(self.policy()):
            ends.append(asyncio.sleep(self.period))
        due = next_deadline(self.state_writer.state, self._looked_at, self._wakes.ahead)
        if due is not None:
            ends.append(self._until(due))
        waiting = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _until(self, due: int) -> None:
        if self.until is not None:
            await self.until(due)
        else:
            await asyncio.sleep(max(due - self.clock(), 0) / 1e9)

    async def once(self, epoch: int) -> bool:
        """Decide one session under ``epoch``; return whether the next one must follow at once."""
        if epoch != self._epoch:
            self._memory, self._epoch, self._last_usage = Memory(), epoch, None
        structlog.contextvars.bind_contextvars(session=self.state_writer.log.last_session + 1)
        async with self.deciding:
            return await self._once(epoch)

    async def _once(self, epoch: int) -> bool:
        policy, seed, now = self.policy(), self.seed, self.clock()
        self._looked_at = now
        durations: dict[str, float] = {}
        stopwatch = _Stopwatch(durations)
        stopwatch.restart()
        snapshot = self._maker.snapshot()
        stopwatch("snapshot")
        recorder = Recorder(self.outside, time.monotonic_ns)
        late = self._watchdog.begin(now)
        deciding = in_thread(self._decide, snapshot, policy, now, seed, stopwatch, recorder, late)
        session, plan, encoded = await self._watchdog.attend(deciding)
        session.outside = Remembered(recorder.asked)  # verdicts must get the recorded answers
        decided = _Decided(snapshot, policy, now, seed, epoch, session, plan, encoded, recorder.asked)
        if (again := self._is_void(decided)) is not None:
            return again
        self._fruitless = 0 if plan.statements else self._fruitless + 1
        self._wakes.note(session, plan)
        news = self.is_news(plan)
        self._held_back = news and self._repeats(plan, now)
        if self._held_back or not news:
            self.handover(None, plan, session, durations)
            return False
        goes_on = await self._log(decided, stopwatch, durations)
        return self._ends_round_late(now) or goes_on

    def _ends_round_late(self, now: int) -> bool:
        """Return whether a round ended in which a deadline passed after some jobs had their turn."""
        if self.state_writer.state.turns:
            self._round_began = now if self._round_began is None else self._round_began
            return False
        began, self._round_began = self._round_began, None
        due = None if began is None else next_deadline(self.state_writer.state, began, self._wakes.ahead)
        return due is not None and due <= self.clock()

    async def _log(self, decided: _Decided, stopwatch: _Stopwatch, durations: dict[str, float]) -> bool:
        """Verify a plan, log it as a session and hand it over; return whether the next session must follow at once."""
        snapshot, plan, session = decided.snapshot, decided.plan, decided.session
        stopwatch.restart()
        readings = await self.read(plan, snapshot)
        stopwatch("read")
        doubts: dict[Reference, str] = {}
        records: list[ev.SessionDecided] = []
        void: bool | None = None

        def verified() -> list[ev.SessionDecided]:
            nonlocal void
            stopwatch.restart()
            void = self._is_void(decided)
            if void is None:
                head = self._maker.snapshot()
                doubts.update(readings.doubts(head))
                records.append(self._record(decided, head, doubts))
            stopwatch("verify")
            return records

        logged = await self.state_writer.put_at_head(verified)
        if logged is None:
            return bool(void)
        (record,) = records
        self.logged = logged
        self.sessions += 1
        self._last_usage = plan.queues, decided.now
        if self.check is not None:
            self.check.see(snapshot, decided.policy, record)
        durations["total"] = stopwatch.total()
        self.handover(record, plan, session, durations)
        if doubts:  # the next event of the watch that is behind starts the next session
            self._held_back = True
            return self.is_done and plan.more
        return self.is_done and (plan.more or bool(record.stale))

    def _record(self, decided: _Decided, head: Snapshot, doubts: Mapping[Reference, str]) -> ev.SessionDecided:
        stale: tuple[tuple[int, str], ...] = ()
        if head.sequence != decided.snapshot.sequence or doubts:
            stale = stale_statements(decided.plan, head, decided.snapshot, doubts)
        return ev.SessionDecided(
            session=self.state_writer.log.last_session + 1,
            head=decided.snapshot.sequence,
            policy=decided.policy.digest,
            now=decided.now,
            seed=decided.seed,
            epoch=decided.epoch,
            versions=versions(),
            plan=decided.encoded,
            stale=stale,
            asked=decided.asked,
            interrupted=decided.session.interrupted,
        )

    def _is_void(self, decided: _Decided) -> bool | None:
        """Return None if a plan may be logged, else whether to decide again at once. Release a void session."""
        if self.may_decide() != decided.epoch:
            _log.warning("leadership was lost while deciding; the plan is dropped", epoch=decided.epoch)
            decided.session.release()
            return False
        if self._is_about_others(decided.plan, decided.snapshot):
            decided.session.release()
            return True
        return None

    def _is_about_others(self, plan: ev.Plan, snapshot: Snapshot) -> bool:
        """Return whether a PodGroup of the plan was deleted and created again since the snapshot."""
        there, decided = self.state_writer.state.groups, snapshot.groups
        return self.state_writer.state.sequence != snapshot.sequence and any(
            there[key].group.metadata.uid != decided[key].group.metadata.uid
            for key in (*(status.key for status in plan.groups), *(waiting.group for waiting in plan.waiting))
            if key in there and key in decided
        )

    def _repeats(self, plan: ev.Plan, now: int) -> bool:
        """Return whether a plan only repeats the queue usage of a session within the period, which is being written."""
        if self._last_usage is None or not plan.queues or plan != ev.Plan(queues=plan.queues):
            return False
        queues, at = self._last_usage
        return queues == plan.queues and 0 <= now - at < self.period * 1e9

    def _decide(
        self,
        snapshot: Snapshot,
        policy: Policy,
        now: int,
        seed: int,
        mark: Callable[[str], None],
        outside: Recorder,
        late: tuple[str, ...],
    ) -> tuple[Session, ev.Plan, bytes]:
        watch = self._watchdog
        while True:
            try:
                session = run(
                    snapshot, policy, now, seed, self._memory, mark, outside=outside, watch=watch, interrupted=late
                )
                execution.take_gauges(framework_of(session), watch)
                execution.take_wakes(framework_of(session))
                execution.take_problems(framework_of(session), kinds(), watch)
                plan = plan_of(session)
                return session, plan, ev.encode_plan(plan)
            except guard.Interrupted:
                late = (*late, watch.verdict())
                outside.restart()


class _Wakes:
    """The times at which plugins request a session, even without an event.

    They are ignored once `_SESSIONS` sessions and `_SPAN` nanoseconds passed without a decision or a change in the
    numbers of groups and pending pods. Otherwise a plugin with a daily window would keep a finished simulation running.
    """

    _SESSIONS, _SPAN = 60, 24 * 3600 * SECOND

    def __init__(self) -> None:
        self.ahead: tuple[int, ...] = ()
        self._work = (-1, -1)
        """Numbers of groups and of pending pods."""
        self._vain = 0
        self._since = 0

    def note(self, session: Session, plan: ev.Plan) -> None:
        """Note the times that plugins requested in a session."""
        work = len(session.jobs), int(session.jobs.counts[:, TaskStatus.PENDING].sum())
        if plan.statements or work != self._work:
            self._work, self._vain, self._since = work, 0, session.now
        self._vain += 1
        is_vain = self._vain > self._SESSIONS and session.now - self._since > self._SPAN
        self.ahead = () if is_vain else session.wakes


class _Stopwatch:
    """Seconds between marks, by name."""

    def __init__(self, durations: dict[str, float]) -> None:
        self._durations = durations
        self._began = self._last = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self._durations[name] = self._durations.get(name, 0.0) + now - self._last
        self._last = now

    def restart(self) -> None:
        """Ignore the time since the last mark."""
        self._last = time.perf_counter()

    def total(self) -> float:
        return time.perf_counter() - self._began
