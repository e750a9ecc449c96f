"""The one way into the state: through the log first (docs/laws.md, law 1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from vcd.daemon.concurrency.followup import in_slices
from vcd.eventlog.errors import LogError
from vcd.eventlog.log import EventLog
from vcd.eventlog.reader import LogReader
from vcd.eventlog.rows import Logged
from vcd.eventlog.verified_reads import read_verified
from vcd.model.events import (
    Answered,
    ClockJumped,
    Event,
    InstallationFault,
    KindListed,
    ObjectPut,
    OperationDone,
    PluginLate,
    SessionDecided,
)
from vcd.state.checkpoint import decoded, events_between, uncollected
from vcd.state.cluster import ClusterState

_QUIET = (SessionDecided, KindListed, ClockJumped, PluginLate, InstallationFault)
"""Events that give no reason for another cycle by themselves."""


def restore(path: Path) -> ClusterState:
    """The state that a log's newest checkpoint and the events after it give. Raises LogError, also where one of them is
    not as it was logged."""
    if not path.exists():
        return ClusterState()
    with LogReader(path) as reader, uncollected():
        state = _restored(reader)
        for logged in read_verified(reader, state.sequence):
            state.apply(logged.sequence, logged.event)
    return state


def _restored(reader: LogReader) -> ClusterState:
    """The state of the newest checkpoint, whose bytes are let go before: they are as large as much of the state."""
    checkpoint = reader.base(reader.head())
    if not checkpoint.state:  # the log's beginning, or that of another replica's history in an import
        state = ClusterState()
        state.sequence = checkpoint.sequence
        return state
    try:
        dump = decoded(checkpoint.state)
    except msgspec.MsgspecError as error:
        where = f"event log {reader.path}: checkpoint {checkpoint.sequence}"
        raise LogError(f"{where} was written by another vcd, which this one cannot read: {error}") from error
    del checkpoint
    return ClusterState.of(dump)


def _unwatched(task: asyncio.Task[int]) -> None:
    """See to the end of a task that nobody waits for: a log that fails tells so itself, anything else is a defect."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LogError):
        raise error


class StateWriter:
    """Appends events to the log and, once they are durable, folds them into the state in the log's order.

    ``changed`` is set when something happened that a cycle could decide on, ``new_work`` when a pod without a node or a
    group that is not admitted was among it; whoever decides clears both. ``observers`` are told each event after it
    was folded; ``appended`` how many seconds an append took. ``minded`` tells whether someone decides by the answers
    to a question: only then does one give a reason for a cycle.
    """

    def __init__(self, log: EventLog, state: ClusterState) -> None:
        self.log = log
        self.state = state
        self.changed = asyncio.Event()
        self.new_work = asyncio.Event()
        self.observers: list[Callable[[Event], None]] = []
        self.appended: Callable[[float], None] = lambda _: None
        self.minded: Callable[[str], bool] = lambda _: True
        self.whole = asyncio.Event()
        """Set while the state is that of its sequence number: not amid a session that is folded in slices of time."""
        self.whole.set()
        self.checkpointed_at = state.sequence
        """How far the state was when it was last kept, or restored."""
        self._next = state.sequence + 1
        self._durable: dict[int, tuple[Sequence[Event], asyncio.Future[None]]] = {}
        self._broken: Exception | None = None
        self._breaks = asyncio.Event()
        self._under_way = 0
        """Calls whose events are being logged or folded."""
        self._is_settled = asyncio.Event()
        """Set while no call is under way."""
        self._is_settled.set()
        self._admits = asyncio.Event()
        """Clear while ``put_at_head`` holds back other calls."""
        self._admits.set()

    async def put(self, events: Sequence[Event]) -> int:
        """Log events and fold them; returns the last one's sequence number when they are in the state, the state's
        without events. Raises LogError when they cannot be logged.

        A caller that is cancelled does not take its events back: they are logged and folded all the same.
        """
        if not events:
            return self.state.sequence
        return await self._shielded(self._put(events))

    async def put_at_head(self, make: Callable[[], Sequence[Event]]) -> int | None:
        """Log the events that ``make`` returns, directly behind those that the state holds when it is called.

        ``make`` sees every event that precedes its own in the log. Events that arrive later are logged behind them, so
        the wait is bounded by the calls under way, however many events arrive. Return the last event's sequence number
        once it is in the state, or None when ``make`` returns no events. Raises as ``put``.
        """
        while not self._admits.is_set():
            await self._admits.wait()
        self._admits.clear()
        events: Sequence[Event] = ()
        try:
            self.log.flush_soon()
            await self._is_settled.wait()
            self._refuse_when_broken()
            events = make()
        finally:
            if not events:
                self._admits.set()
        return await self._shielded(self._log_next(events)) if events else None

    async def _log_next(self, events: Sequence[Event]) -> int:
        """Log events and admit other calls as soon as these have their numbers."""
        logging = asyncio.ensure_future(self._log(events))
        await asyncio.sleep(0)  # the first step of that task gives the numbers
        self._admits.set()
        return await logging

    async def _shielded(self, logging: Coroutine[Any, Any, int]) -> int:
        writing = asyncio.ensure_future(logging)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_unwatched)
            raise

    def is_checkpoint_due(self, most: int) -> bool:
        """Whether the state is to be kept again, which is after ``most`` events at the latest."""
        return self.state.sequence - self.checkpointed_at >= events_between(self.state.size, most)

    async def take(self, logged: Sequence[Logged]) -> None:
        """Fold events of another replica's log, which are durable in this one; returns when they are in the state."""
        await self._take(logged[0].sequence, [one.event for one in logged])

    async def until_broken(self) -> None:
        """Raise what an event could not be logged or folded for: no later one is, so the program cannot go on."""
        await self._breaks.wait()
        raise cast(Exception, self._broken)

    async def checkpoint(self) -> None:
        """Keep the state as it is now, encoded in a thread. Raises what an event could not be folded for: the state is
        that of no event then."""
        await self.whole.wait()
        self._refuse_when_broken()
        sequence, frozen = self.state.sequence, self.state.freeze()
        await self.log.checkpoint(sequence, await asyncio.to_thread(frozen.encode))
        self.checkpointed_at = sequence

    async def _put(self, events: Sequence[Event]) -> int:
        while not self._admits.is_set():  # closed again before this call woke: it is behind the next one, too
            await self._admits.wait()
        return await self._log(events)

    async def _log(self, events: Sequence[Event]) -> int:
        self._under_way += 1
        self._is_settled.clear()
        try:
            return await self._log_and_fold(events)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_settled.set()

    async def _log_and_fold(self, events: Sequence[Event]) -> int:
        began = time.perf_counter()
        try:
            last = await self.log.append(events)
        except LogError as error:
            self._break(error)
            raise
        self.appended(time.perf_counter() - began)
        await self._take(last - len(events) + 1, events)
        return last

    async def _take(self, first: int, events: Sequence[Event]) -> None:
        self._refuse_when_broken()
        folded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._durable[first] = (events, folded)
        if self.whole.is_set():  # else who folds goes on with these
            await self._fold()
        await folded

    async def _fold(self) -> None:
        """Fold what is durable, as far as no earlier event is missing."""
        self.whole.clear()
        try:
            while self._next in self._durable:
                events, folded = self._durable.pop(self._next)
                try:
                    for event in events:
                        await self._fold_one(event)
                except Exception as error:  # noqa: BLE001 - a defect, which who put the event and until_broken raise
                    folded.set_exception(error)
                    self._break(error)
                    return
                folded.set_result(None)
        finally:
            self.whole.set()

    def _refuse_when_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _break(self, error: Exception) -> None:
        """Nothing is folded any more: whoever waits for that is told why."""
        self._broken = self._broken or error
        self._breaks.set()
        for _, folded in self._durable.values():
            folded.set_exception(self._broken)
        self._durable.clear()

    async def _fold_one(self, event: Event) -> None:
        may_be_work = isinstance(event, ObjectPut) and self.state.digest(event.kind, event.key) is None
        if isinstance(event, SessionDecided):
            await in_slices(self.state.session_in_steps(self._next, event))
        else:
            self.state.apply(self._next, event)
        self._next += 1
        for observe in self.observers:
            observe(event)
        if not self._is_quiet(event):
            self.changed.set()
        if may_be_work and isinstance(event, ObjectPut) and self.state.is_work(event.kind, event.key):
            self.new_work.set()

    def _is_quiet(self, event: Event) -> bool:
        """Whether an event gives no reason for another cycle by itself."""
        if isinstance(event, ObjectPut):
            return self.state.as_intended
        if isinstance(event, OperationDone):
            return event.result == "done"
        if isinstance(event, Answered):
            return not self.minded(event.question)
        return isinstance(event, _QUIET)
