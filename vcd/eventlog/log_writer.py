"""The writer of a log: appends with group commit, checkpoints, retention.

One task makes all writes, in the order of the calls. An append is acknowledged only after its transaction is committed
and synced (docs/laws.md, law 1). After a failed write the log stays closed, because what SQLite stored is unknown.
"""

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
from vcd.eventlog.log_connection import BEGIN, COMMIT, LogConnection, open_connection
from vcd.eventlog.log_errors import LogError, explain_error, is_damage
from vcd.eventlog.log_file import check_in_place, note_damage, prepare, writer_lock
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.packing import PART
from vcd.eventlog.rows import Logged, Row, build_inserts, state_digest, to_logged
from vcd.eventlog.sql_statements import statements
from vcd.model.events import Event, SessionDecided

BATCH = 4096
"""The most events that one transaction takes from queued calls. A single call is never split."""
GATHER_SECONDS = 0.01
"""Seconds for which a transaction waits for more calls if the previous one served several."""
GATHER_LIMIT = 100
"""Queued calls with which a transaction starts at once."""


class _CopiedEvents(NamedTuple):
    logged: list[Logged]
    rows: Sequence[tuple[Content, bytes | None]]


Work = Callable[[aiosqlite.Connection], Awaitable[Any]]
Waiter = asyncio.Future[Any]


class EventLog:
    """The event log of one replica, open for writing.

    Calls queued during a transaction share the next one. If a write fails, every further call raises LogError until the
    log is opened again; acknowledged events are in the file.
    """

    def __init__(self, path: Path, clock: Callable[[], int], reader: LogReader, file: int) -> None:
        self.path = path
        self._file = file
        """Descriptor of the locked file."""
        self._clock = clock
        self.head = self._assigned = reader.head()
        """Sequence number of the last durable event; 0 for an empty log."""
        self.last_session = reader.last_session()
        """Number of the last appended session, also if its row was removed; 0 for none."""
        self._time = reader.last_time()
        self._packer = reader.packer()
        self._chain = reader.chain(self.head)
        self._queue: deque[tuple[list[Logged] | _CopiedEvents | Work, Waiter, bool]] = deque()
        """Queued work, the future of its caller, and whether it is urgent."""
        self._wake = asyncio.Event()
        self._flush = asyncio.Event()
        """Set while urgent work or `GATHER_LIMIT` calls are queued, or the log is being closed."""
        self._gather_until = 0.0
        self._growth_event = asyncio.Event()
        self._checkpointing = asyncio.Lock()
        self._retaining = asyncio.Lock()
        self._closing = False
        self.failure: LogError | None = None
        """Why the log refuses writes; None while it accepts them."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Callable[[], int] = time.time_ns,
        create: bool = True,
    ) -> AsyncIterator[EventLog]:
        """Open a log as an async context manager; on exit, queued work is written.

        Args:
            clock: Returns nanoseconds since the epoch.
            create: Create a missing file, with mode 0600.

        Raises LogError if the file is missing, foreign, damaged, not writable, of a newer schema, or has another
        writer.
        """
        path = Path(path)
        with writer_lock(path, create=create) as file:
            await asyncio.to_thread(prepare, path)
            with LogReader(path) as reader:
                log = cls(path, clock, reader, file)
            async with open_connection(path, file) as connection:
                writer = asyncio.create_task(log._run(connection), name="eventlog-writer")
                try:
                    yield log
                finally:
                    log._closing = True
                    log._wake.set()
                    log._flush.set()
                    with anyio.CancelScope(shield=True):
                        await asyncio.wait([writer])

    def size(self) -> int:
        """Return the file's size in bytes. Raises LogError if the path names another file now, or none."""
        return check_in_place(self.path, self._file).st_size

    async def append(self, events: Sequence[Event]) -> int:
        """Append events in one transaction; return the last one's sequence number once it is durable.

        Sequence numbers follow the order of the calls. Cancelling the caller does not cancel the write. Without events,
        returns ``head``. Raises ValueError unless a session's number is the last one's plus 1, and LogError if this or
        an earlier write failed.
        """
        self._check_writable()
        if not events:
            return self.head
        self._number_sessions(events)
        self._time = max(self._clock(), self._time)
        first = self._assigned + 1
        self._assigned += len(events)
        last = self._assigned
        await self._enqueue([Logged(first + i, self._time, event) for i, event in enumerate(events)])
        return last

    def flush_soon(self) -> None:
        """Write the queued events without waiting for more."""
        if self._queue:
            self._flush.set()

    async def append_copied(self, rows: Sequence[tuple[Content, bytes | None]]) -> list[Logged]:
        """Append the next events of another log, with their numbers, times and links.

        Nothing else may be appended to a copy. Raises LogError if the events do not follow the last one, cannot be
        decoded or do not match their links, and as ``append`` does.
        """
        self._check_writable()
        if not rows:
            return []
        try:
            logged = [to_logged(content) for content, _ in rows]
        except msgspec.MsgspecError as error:
            raise LogError(f"event log {self.path}: this version cannot read an event to be copied: {error}") from error
        if [one.sequence for one in logged] != list(range(self._assigned + 1, self._assigned + 1 + len(rows))):
            raise LogError(f"event log {self.path}: the events to copy do not follow event {self._assigned}")
        await asyncio.to_thread(self._check_links, rows)
        sessions = [one.event.session for one in logged if isinstance(one.event, SessionDecided)]
        self._assigned += len(rows)
        self._time, self.last_session = logged[-1].time, max([self.last_session, *sessions])
        await self._enqueue(_CopiedEvents(logged, rows))
        return logged

    async def start_from_checkpoint(self, sequence: int, link: bytes | None, write: Work) -> None:
        """Start an empty log with the checkpoint of an event, which ``write`` writes."""
        if self._assigned:
            raise LogError(f"event log {self.path}: it has events already")
        await self.run_in_transaction(write)
        self.head = self._assigned = sequence
        self._chain = Chain(link)

    async def set_last_session(self, session: int) -> None:
        """Set the number of the session before the first one of an empty log."""
        if session and not self.last_session:
            row = ("session", session)
            await self.run_in_transaction(lambda db: db.execute(statements("append")["session_number"], row))
            self.last_session = session

    def mark(self, after: int, mark: Mark) -> None:
        """Let the next event's link cover a mark that a transaction wrote after an event."""
        self._chain.mark(after, mark)

    async def checkpoint(self, sequence: int, state: bytes) -> None:
        """Store the encoded state at ``sequence``. It counts once all of it is durable.

        The state is written in parts, between appends. An existing checkpoint is left as it is. Raises ValueError for a
        sequence that is not in the log, and LogError as ``append`` does.
        """
        self._check_writable()
        if not 0 < sequence <= self.head:
            raise ValueError(f"no checkpoint at {sequence}: the log's last event is {self.head}")
        sql = statements("checkpoint")
        async with self._checkpointing:
            if await self.run_in_transaction(lambda db: prepare_checkpoint(db, sequence)):
                return
            starts = range(0, len(state), PART)
            for part, start in enumerate(starts):
                data = await asyncio.to_thread(zstandard.compress, memoryview(state)[start : start + PART], 3)
                row = (sequence, part, data)
                await self.run_in_transaction(lambda db, row=row: db.execute(sql["part"], row))  # type: ignore[misc]
            digest = await asyncio.to_thread(state_digest, state)
            self._time = max(self._clock(), self._time)
            complete = (sequence, self._time, len(state), len(starts), digest, None)
            await self.run_in_transaction(lambda db: self._complete(db, complete))

    async def _complete(self, connection: aiosqlite.Connection, row: Row) -> None:
        """Write a checkpoint's row and its seal, which the next event's link covers."""
        sql, (sequence, made, _, _, digest, _) = statements("checkpoint"), row
        await connection.execute(sql["complete"], row)
        await connection.execute(sql["seal"], (self.head, sequence, made, digest))
        self.mark(self.head, chain.seal_mark(sequence, made, digest))

    async def retain(
        self, max_age: int | None = None, max_bytes: int | None = None, archived_until: int | None = None
    ) -> retention.Retained:
        """Remove history older than ``max_age`` (ns) before the last event, or beyond a file of ``max_bytes``.

        If ``archived_until`` is given, events after it are removed only for the file's size. History is removed up to a
        checkpoint, so that every session since the oldest checkpoint can be replayed; the newest checkpoint always
        stays. Many small transactions run between appends, and free pages are returned to the file system. Raises
        LogError as ``append`` does.
        """
        self._check_writable()
        async with self._retaining:
            # limited by the log's own time: a clock that is ahead must not expire history
            before = None if max_age is None else min(self._clock(), self._time) - max_age
            return await retention.retain(self.path, self.run_in_transaction, before, max_bytes, archived_until)

    def growth(self) -> asyncio.Event:
        """Return an event that is set once something new is durable, or the log is closed."""
        return self._growth_event

    async def run_in_transaction(self, work: Work) -> Any:
        """Run ``work`` as a transaction of its own, in order with other calls; return its result."""
        self._check_writable()
        return await self._enqueue(work)

    def _check_writable(self) -> None:
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure
        if self._closing:
            raise self._closed_error()

    def _closed_error(self) -> LogError:
        return LogError(f"event log {self.path}: it is closed")

    def _number_sessions(self, events: Sequence[Event]) -> None:
        number = self.last_session
        for event in events:
            if isinstance(event, SessionDecided):
                number += 1
                if event.session != number:
                    raise ValueError(f"session {event.session} cannot follow session {number - 1}")
        self.last_session = number

    def _enqueue(self, item: list[Logged] | _CopiedEvents | Work) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        urgent = not isinstance(item, list) or any(isinstance(logged.event, SessionDecided) for logged in item)
        self._queue.append((item, waiter, urgent))
        self._wake.set()
        if urgent or len(self._queue) >= GATHER_LIMIT:
            self._flush.set()
        return waiter

    async def _run(self, connection: LogConnection) -> None:
        waiters: list[Waiter] = []
        try:
            while await self._wait_for_work():
                item, waiters = self._next_transaction()
                result = await self._run_transaction(connection, item)
                if len(waiters) > 1:
                    self._gather_until = asyncio.get_running_loop().time() + GATHER_SECONDS
                self._growth_event.set()
                self._growth_event = asyncio.Event()
                if isinstance(item, list | _CopiedEvents):
                    written = item if isinstance(item, list) else item.logged
                    self.head = written[-1].sequence
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(result)
        except Exception as error:  # noqa: BLE001 - every waiting caller gets it
            self.failure = explain_error(self.path, error)
            if is_damage(error):
                note_damage(self.path, str(self.failure))
        finally:
            self.failure = self.failure or self._closed_error()
            self._growth_event.set()
            for waiter in waiters + [waiter for _, waiter, _ in self._queue]:
                if not waiter.done():
                    waiter.set_exception(LogError(str(self.failure)))
            self._queue.clear()

    async def _wait_for_work(self) -> bool:
        while not self._queue:
            if self._closing:
                return False
            self._wake.clear()
            await self._wake.wait()
        left = self._gather_until - asyncio.get_running_loop().time()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._flush.wait(), left)
        return True

    def _next_transaction(self) -> tuple[list[Logged] | _CopiedEvents | Work, list[Waiter]]:
        """Take the next work from the queue, joined with the appends behind it."""
        item, waiter, _ = self._queue.popleft()
        waiters = [waiter]
        if isinstance(item, list):
            while self._queue and len(item) < BATCH and isinstance(more := self._queue[0][0], list):
                item.extend(more)
                waiters.append(self._queue.popleft()[1])
        if not self._closing and len(self._queue) < GATHER_LIMIT and not any(urgent for _, _, urgent in self._queue):
            self._flush.clear()
        return item, waiters

    async def _run_transaction(self, connection: LogConnection, item: list[Logged] | _CopiedEvents | Work) -> Any:
        if isinstance(item, list):
            written = build_inserts(self._packer, self._chain.extend, item)
        elif isinstance(item, _CopiedEvents):
            contents, links = [content for content, _ in item.rows], iter([link for _, link in item.rows])
            written = build_inserts(self._packer, partial(self._use_link, links), item.logged, contents=contents)
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
            if not chain.check_next(content, link):
                raise LogError(f"event {content[0]} to be copied does not match its link")

    def _use_link(self, links: Iterator[bytes | None], content: Content) -> bytes | None:
        link = next(links)
        self._chain.set_link(content[0], link)
        return link


async def prepare_checkpoint(connection: aiosqlite.Connection, sequence: int) -> bool:
    """Remove the parts of unfinished checkpoints; return whether the checkpoint exists."""
    sql = statements("checkpoint")
    await connection.execute(sql["clear"])
    ((count,),) = await connection.execute_fetchall(sql["exists"], (sequence,))
    return bool(count)
