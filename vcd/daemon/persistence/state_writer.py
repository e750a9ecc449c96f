"""Writes events to the log and then folds them into the state: the only path into the state (law 1 of docs/laws.md).

Any number of tasks may write at a time; the log numbers their events, and the fold follows these numbers. If an append
or a fold fails, nothing is folded any more, and the process has to restart from the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from vcd.daemon.concurrency.followup import in_slices
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.log_writer import EventLog
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
from vcd.state.cluster_state import ClusterState

_QUIET = (SessionDecided, KindListed, ClockJumped, PluginLate, InstallationFault)
"""Events that are no reason for another session by themselves."""


def restore(path: Path) -> ClusterState:
    """Return the state from the newest checkpoint and later events. Raises LogError, also if an event was altered."""
    if not path.exists():
        return ClusterState()
    with LogReader(path) as reader, uncollected():
        state = _restored(reader)
        for logged in read_verified(reader, state.sequence):
            state.apply(logged.sequence, logged.event)
    return state


def _restored(reader: LogReader) -> ClusterState:
    """Decode the newest checkpoint. Its bytes are freed before the state is built, because they are about as large."""
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


def _raise_unreported(task: asyncio.Task[int]) -> None:
    """Raise the error of a task whose caller was cancelled, except LogError, which the log reports itself."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LogError):
        raise error


class StateWriter:
    """Appends events to the log and, once they are durable, folds them into the state in the log's order.

    ``changed`` is set when a session could decide something new, ``new_work`` when a pod or group appears that calls
    for a session soon (``ClusterState.is_work``). The cycle clears both. ``observers`` are called with each event after
    it is in the state. ``on_append`` is called with the seconds of each append. An answer to a question is a reason for
    a session only if ``is_relevant`` returns that a plugin depends on it.
    """

    def __init__(
        self,
        log: EventLog,
        state: ClusterState,
        *,
        is_relevant: Callable[[str], bool] = lambda _: True,
        on_append: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.log = log
        self.state = state
        self.changed = asyncio.Event()
        self.new_work = asyncio.Event()
        self.observers: list[Callable[[Event], None]] = []
        self._is_relevant = is_relevant
        self._on_append = on_append
        self.whole = asyncio.Event()
        """Clear while a session is folded in slices of time, when the state is between two sequence numbers."""
        self.whole.set()
        self.checkpointed_at = state.sequence
        """Sequence number of the last checkpoint, or of the restored state."""
        self._next = state.sequence + 1
        self._durable: dict[int, tuple[Sequence[Event], asyncio.Future[None]]] = {}
        self._broken: Exception | None = None
        self._breaks = asyncio.Event()
        self._under_way = 0
        """Number of calls whose events are being logged or folded."""
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
        """Log the events that ``make`` returns, directly after the last event in the state.

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
        await asyncio.sleep(0)  # the first step of that task assigns the sequence numbers
        self._admits.set()
        return await logging

    async def _shielded(self, logging: Coroutine[Any, Any, int]) -> int:
        writing = asyncio.ensure_future(logging)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_raise_unreported)
            raise

    def is_checkpoint_due(self, most: int) -> bool:
        """Return whether a checkpoint is due: after ``most`` events at the latest, earlier for a small state."""
        return self.state.sequence - self.checkpointed_at >= events_between(self.state.size, most)

    async def take(self, logged: Sequence[Logged]) -> None:
        """Fold events copied from another replica, which are durable here; return when they are in the state."""
        await self._take(logged[0].sequence, [one.event for one in logged])

    async def until_broken(self) -> None:
        """Raise the error after which no event is logged or folded any more."""
        await self._breaks.wait()
        raise cast(Exception, self._broken)

    async def checkpoint(self) -> None:
        """Write a checkpoint of the current state, encoded in a thread. Raises the error of an earlier failed fold."""
        await self.whole.wait()
        self._refuse_when_broken()
        sequence, frozen = self.state.sequence, self.state.freeze()
        await self.log.checkpoint(sequence, await asyncio.to_thread(frozen.encode))
        self.checkpointed_at = sequence

    async def _put(self, events: Sequence[Event]) -> int:
        while not self._admits.is_set():  # another call may have closed it again before this one woke
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
        self._on_append(time.perf_counter() - began)
        await self._take(last - len(events) + 1, events)
        return last

    async def _take(self, first: int, events: Sequence[Event]) -> None:
        self._refuse_when_broken()
        folded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._durable[first] = (events, folded)
        if self.whole.is_set():  # else the running fold continues with these
            await self._fold()
        await folded

    async def _fold(self) -> None:
        self.whole.clear()
        try:
            while self._next in self._durable:
                events, folded = self._durable.pop(self._next)
                try:
                    for event in events:
                        await self._fold_one(event)
                except Exception as error:  # noqa: BLE001 - a defect, raised to the caller and by until_broken
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
        """Stop folding, and raise the error in all waiting calls."""
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
        """Return whether an event is no reason for another session by itself."""
        if isinstance(event, ObjectPut):
            return self.state.as_intended
        if isinstance(event, OperationDone):
            return event.result == "done"
        if isinstance(event, Answered):
            return not self._is_relevant(event.question)
        return isinstance(event, _QUIET)
