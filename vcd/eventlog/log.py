"""The log's one writer: appends with group commit, checkpoints, retention."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiosqlite
import anyio
import msgspec
import zstandard

from vcd.eventlog import chain, retention
from vcd.eventlog.chain import Chain, Content, Mark
from vcd.eventlog.connection import BEGIN, COMMIT, LogConnection, connected
from vcd.eventlog.errors import LogError, explained, is_damage
from vcd.eventlog.packing import PART
from vcd.eventlog.reader import LogReader
from vcd.eventlog.rows import Logged, Row, digest_of, inserts, logged_of
from vcd.eventlog.statements import statements
from vcd.eventlog.store import in_place, note_damage, prepare, writer_lock
from vcd.model.events import Event, SessionDecided

BATCH = 4096
"""Events that one transaction takes from waiting calls; a single call is never split, however long."""
GATHERING = 0.01
"""Seconds after a transaction that several callers shared in which the next waits for them."""
ENOUGH = 100
"""Calls that are worth a transaction of their own: where so many wait, the next one does not wait for more."""


class _Copied(NamedTuple):
    """Events of the log that this one is a copy of, and what their rows say with the links."""

    logged: list[Logged]
    rows: Sequence[tuple[Content, bytes | None]]


Work = Callable[[aiosqlite.Connection], Awaitable[Any]]
Waiter = asyncio.Future[Any]


class EventLog:
    """The event log of one replica, open for writing.

    All writes go through one task, in the order of the calls. Calls that wait while a transaction is written share
    the next one. When a write fails, the log refuses every further call with LogError until it is opened again;
    what was acknowledged before is in the file.
    """

    def __init__(self, path: Path, clock: Callable[[], int], reader: LogReader, file: int) -> None:
        self.path = path
        self._file = file
        """The descriptor of the file that is locked."""
        self._clock = clock
        self.head = self._assigned = reader.head()
        """The last sequence number that is durable; 0 for an empty log."""
        self.last_session = reader.last_session()
        """The number of the last session appended, kept by the file even when its row is not; 0 for none."""
        self._time = reader.last_time()
        self._packer = reader.packer()
        self._chain = reader.chain(self.head)
        self._queue: deque[tuple[list[Logged] | _Copied | Work, Waiter, bool]] = deque()
        """What is to be written, who waits for it, and whether in a hurry."""
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        """Set while something waits that a session's calls, or the end of the log, wait for, or enough calls wait."""
        self._gathers_until = 0.0
        self._growth = asyncio.Event()
        self._checkpointing = asyncio.Lock()
        self._retaining = asyncio.Lock()
        self._closing = False
        self.failure: LogError | None = None
        """Why the log refuses writes, or None while it takes them."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Callable[[], int] = time.time_ns,
        create: bool = True,
    ) -> AsyncIterator[EventLog]:
        """Open a log as an async context manager; leaving it writes what is still waiting.

        ``clock`` gives nanoseconds since the epoch. ``create`` makes the file, mode 0600, when it is missing.
        Raises LogError when the file is missing, foreign, damaged, of a newer schema, locked by another writer, or may
        not be written.
        """
        path = Path(path)
        with writer_lock(path, create=create) as file:
            await asyncio.to_thread(prepare, path)
            with LogReader(path) as reader:
                log = cls(path, clock, reader, file)
            async with connected(path, file) as connection:
                writer = asyncio.create_task(log._write(connection), name="eventlog-writer")
                try:
                    yield log
                finally:
                    log._closing = True
                    log._wake.set()
                    log._hurry.set()
                    with anyio.CancelScope(shield=True):
                        await asyncio.wait([writer])

    def size(self) -> int:
        """The file's bytes. Raises LogError where another one is in its place by now, or none."""
        return in_place(self.path, self._file).st_size

    async def append(self, events: Sequence[Event]) -> int:
        """Append events, together in one transaction; returns the last one's sequence number once it is durable.

        Sequence numbers follow the order of the calls. The events are written even when the caller is cancelled
        while it waits. A session's number must be the last one's plus 1, else ValueError. Raises LogError when
        they could not be written, or an earlier write failed. Without events, returns ``head``.
        """
        self._refuse_after_failure()
        if not events:
            return self.head
        self._number_sessions(events)
        self._time = max(self._clock(), self._time)
        first = self._assigned + 1
        self._assigned += len(events)
        last = self._assigned
        await self._enqueue([Logged(first + i, self._time, event) for i, event in enumerate(events)])
        return last

    def hurry(self) -> None:
        """Write the events that wait now without gathering more: a session waits for them."""
        if self._queue:
            self._hurry.set()

    async def copy(self, rows: Sequence[tuple[Content, bytes | None]]) -> list[Logged]:
        """Write the next events of a log that this one is a copy of, with their numbers, times and links.

        Raises LogError as ``append``, for events that do not follow the last one, for what this version cannot read,
        and for a link that is not the one of its event and of all before it. Nothing else may be appended meanwhile.
        """
        self._refuse_after_failure()
        if not rows:
            return []
        try:
            logged = [logged_of(content) for content, _ in rows]
        except msgspec.MsgspecError as error:
            raise LogError(f"event log {self.path}: this version cannot read an event to be copied: {error}") from error
        if [one.sequence for one in logged] != list(range(self._assigned + 1, self._assigned + 1 + len(rows))):
            raise LogError(f"event log {self.path}: what is to be copied does not follow event {self._assigned}")
        await asyncio.to_thread(self._check_links, rows)
        sessions = [one.event.session for one in logged if isinstance(one.event, SessionDecided)]
        self._assigned += len(rows)
        self._time, self.last_session = logged[-1].time, max([self.last_session, *sessions])
        await self._enqueue(_Copied(logged, rows))
        return logged

    async def begin_with(self, sequence: int, link: bytes | None, write: Work) -> None:
        """Begin an empty log with what ``write`` writes: the checkpoint of an event, with its link."""
        if self._assigned:
            raise LogError(f"event log {self.path}: it has events already")
        await self.transact(write)
        self.head = self._assigned = sequence
        self._chain = Chain(link)

    async def number_from(self, session: int) -> None:
        """Let the first session of an empty log follow one that is not in it."""
        if session and not self.last_session:
            row = ("session", session)
            await self.transact(lambda db: db.execute(statements("append")["session_number"], row))
            self.last_session = session

    def mark(self, after: int, mark: Mark) -> None:
        """Let the next event's link hold what a piece of ``transact``'s work wrote after an event."""
        self._chain.mark(after, mark)

    async def checkpoint(self, sequence: int, state: bytes) -> None:
        """Keep the encoded state as of ``sequence``; it counts once all of it is durable.

        The state is compressed and written in parts, so that appends go on meanwhile. A checkpoint that is there
        already stays as it is. Raises ValueError for a sequence that is not in the log, else as ``append``.
        """
        self._refuse_after_failure()
        if not 0 < sequence <= self.head:
            raise ValueError(f"no checkpoint at {sequence}: the log's last event is {self.head}")
        sql = statements("checkpoint")
        async with self._checkpointing:
            if await self.transact(lambda db: begin_checkpoint(db, sequence)):
                return
            starts = range(0, len(state), PART)
            for part, start in enumerate(starts):
                data = await asyncio.to_thread(zstandard.compress, memoryview(state)[start : start + PART], 3)
                row = (sequence, part, data)
                await self.transact(lambda db, row=row: db.execute(sql["part"], row))  # type: ignore[misc]
            digest = await asyncio.to_thread(digest_of, state)
            self._time = max(self._clock(), self._time)
            complete = (sequence, self._time, len(state), len(starts), digest, None)
            await self.transact(lambda db: self._complete(db, complete))

    async def _complete(self, connection: aiosqlite.Connection, row: Row) -> None:
        """Write a checkpoint's row, and its seal: the next event's link holds it."""
        sql, (sequence, made, _, _, digest, _) = statements("checkpoint"), row
        await connection.execute(sql["complete"], row)
        await connection.execute(sql["seal"], (self.head, sequence, made, digest))
        self.mark(self.head, chain.seal(sequence, made, digest))

    async def retain(
        self, max_age: int | None = None, max_bytes: int | None = None, elsewhere: int | None = None
    ) -> retention.Retained:
        """Remove history of more than ``max_age`` (ns) before the last event, or beyond a file of ``max_bytes``.

        Where it is to be kept elsewhere, too, and is so up to event ``elsewhere``, what is after that goes only for the
        file's size.

        What goes is everything up to a checkpoint, so that every session decided since the oldest kept checkpoint
        can still be replayed; the newest checkpoint always stays. It is done in many small transactions, between
        those of the appends, and the room is given back to the file system. Raises LogError as ``append``.
        """
        self._refuse_after_failure()
        async with self._retaining:
            # of the log's own time: a clock that is ahead must not make history old
            before = None if max_age is None else min(self._clock(), self._time) - max_age
            return await retention.retain(self.path, self.transact, before, max_bytes, elsewhere)

    def growth(self) -> asyncio.Event:
        """Set once something more is durable, or nothing will be."""
        return self._growth

    async def transact(self, work: Work) -> Any:
        """Let the writer run ``work`` as a transaction of its own, in its turn; returns what it returns."""
        self._refuse_after_failure()
        return await self._enqueue(work)

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure
        if self._closing:
            raise self._closed()

    def _closed(self) -> LogError:
        return LogError(f"event log {self.path}: it is closed")

    def _number_sessions(self, events: Sequence[Event]) -> None:
        number = self.last_session
        for event in events:
            if isinstance(event, SessionDecided):
                number += 1
                if event.session != number:
                    raise ValueError(f"session {event.session} cannot follow session {number - 1}")
        self.last_session = number

    def _enqueue(self, item: list[Logged] | _Copied | Work) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        hurry = not isinstance(item, list) or any(isinstance(logged.event, SessionDecided) for logged in item)
        self._queue.append((item, waiter, hurry))
        self._wake.set()
        if hurry or len(self._queue) >= ENOUGH:
            self._hurry.set()
        return waiter

    async def _write(self, connection: LogConnection) -> None:
        """The writer: one transaction after the other, until the log is closed or a write fails."""
        waiters: list[Waiter] = []
        try:
            while await self._work_is_due():
                item, waiters = self._take()
                result = await self._perform(connection, item)
                if len(waiters) > 1:
                    self._gathers_until = asyncio.get_running_loop().time() + GATHERING
                self._growth.set()
                self._growth = asyncio.Event()
                if isinstance(item, list | _Copied):
                    written = item if isinstance(item, list) else item.logged
                    self.head = written[-1].sequence
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(result)
        except Exception as error:  # noqa: BLE001 - whatever it is, each waiting caller is told
            self.failure = explained(self.path, error)
            if is_damage(error):
                note_damage(self.path, str(self.failure))
        finally:
            self.failure = self.failure or self._closed()
            self._growth.set()
            for waiter in waiters + [waiter for _, waiter, _ in self._queue]:
                if not waiter.done():
                    waiter.set_exception(LogError(str(self.failure)))
            self._queue.clear()

    async def _work_is_due(self) -> bool:
        while not self._queue:
            if self._closing:
                return False
            self._wake.clear()
            await self._wake.wait()
        left = self._gathers_until - asyncio.get_running_loop().time()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), left)
        return True

    def _take(self) -> tuple[list[Logged] | _Copied | Work, list[Waiter]]:
        """The next transaction: one piece of work, or the appends that wait at the front of the queue."""
        item, waiter, _ = self._queue.popleft()
        waiters = [waiter]
        if isinstance(item, list):
            while self._queue and len(item) < BATCH and isinstance(more := self._queue[0][0], list):
                item.extend(more)
                waiters.append(self._queue.popleft()[1])
        if not self._closing and len(self._queue) < ENOUGH and not any(hurry for _, _, hurry in self._queue):
            self._hurry.clear()
        return item, waiters

    async def _perform(self, connection: LogConnection, item: list[Logged] | _Copied | Work) -> Any:
        """One transaction."""
        if isinstance(item, list):
            written = inserts(self._packer, self._chain.extend, item)
        elif isinstance(item, _Copied):
            contents, links = [content for content, _ in item.rows], iter([link for _, link in item.rows])
            written = inserts(self._packer, partial(self._follow, links), item.logged, contents=contents)
        else:
            await connection.execute(BEGIN)
            result = await item(connection)
            await connection.execute(COMMIT)
            return result
        await connection.write(written)
        return None

    def _check_links(self, rows: Sequence[tuple[Content, bytes | None]]) -> None:
        chain = self._chain.copy()
        for content, link in rows:
            if not chain.follow(content, link):
                raise LogError(f"event {content[0]} to be copied is not the one that its link is of")

    def _follow(self, links: Iterator[bytes | None], content: Content) -> bytes | None:
        link = next(links)
        self._chain.go_to(content[0], link)
        return link


async def begin_checkpoint(connection: aiosqlite.Connection, sequence: int) -> bool:
    """Clear the parts of unfinished checkpoints; True when the checkpoint is there already."""
    sql = statements("checkpoint")
    await connection.execute(sql["clear"])
    ((count,),) = await connection.execute_fetchall(sql["exists"], (sequence,))
    return bool(count)
