"""Copies a cluster's log into the cache, once or continuously.

Processes share the cache: one of them copies, the others wait until the file is complete. The connection is made by
`leader_connection`, the copying itself is `LogFollower`, as in a replica.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec

from vcd.daemon.options import parse_options
from vcd.daemon.reader.kubeconfig import ClusterError, Way, greet
from vcd.daemon.reader.leader_connection import reached
from vcd.daemon.reader.leader_finder import Finder, Lease, NoLeader
from vcd.daemon.reader.log_cache import Busy, Cache, State, explained_errors
from vcd.daemon.replicas.log_follower import LeaderBehind, LogDiverged, LogFollower, LogReplaced
from vcd.daemon.replicas.replica_network import Socket
from vcd.eventlog import LogError, LogReader
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_writer import EventLog
from vcd.eventlog.rows import Logged
from vcd.eventlog.writer_status import WriterStatus, write_status
from vcd.kube.api_errors import KubeError
from vcd.kube.asyncio_tasks import run_to_completion, run_until_first
from vcd.kube.client import KubeClient

PATIENCE = 30.0
"""Seconds for finding and reaching a leader; a change of leaders takes no longer."""
ANSWER_TIMEOUT = 10.0
"""Seconds for one request to the API server."""
MOST_REFUSALS = 5
"""Protocol errors of a leader before the command fails."""
PAUSE = 0.5
"""Seconds between attempts, and between checks of another process."""
UNMENDED = 5.0
"""Seconds between attempts if a user has to fix something first."""
HOUSEKEEPING = 60.0
"""Seconds between runs of retention on a followed file."""
REPORT_PERIOD = 3.0
"""Seconds between progress messages."""
FRESH = 3.0
"""Seconds for which a complete file counts as current: another process follows the log."""

_NAME = f"reader at {socket.gethostname()}"

_PASSES = (NoLeader, KubeError, LogError, aiohttp.ClientError, OSError, TimeoutError)
"""Errors after which another attempt may succeed."""

Say = Callable[[str], None]


class ReadUpTo(msgspec.Struct, frozen=True):
    """The extent of a copy: the leader, its last session (0: none) and that session's time (ns), the events copied for
    this command, and the seconds since the copy was last complete (0: it is current)."""

    leader: str
    session: int
    time: int
    events: int
    age: float


class LogCopier:
    """Copies one log. ``where`` chooses the Lease (see ``Finder.lease``), ``token_file`` names a token; ``say``
    receives progress messages and errors after which it tries again."""

    def __init__(self, way: Way, where: str, token_file: Path | None, say: Say) -> None:
        self._way = way
        self._where = where
        self._token_file = token_file
        self._say = say
        self._cache: Cache | None = None
        self._ready: asyncio.Event = asyncio.Event()
        self._events = 0
        self._reported_at = 0.0

    @property
    def cache(self) -> Cache:
        """Return the cache, once the Lease is known."""
        assert self._cache is not None
        return self._cache

    async def once(self) -> ReadUpTo:
        """Copy all that the leader has, or wait while another process does. Raises ClusterError, LogError."""
        await run_until_first(self._work(), self._ready.wait())
        return self._describe()

    async def forever(self, ready: Callable[[ReadUpTo], None]) -> None:
        """Copy until cancelled; call ``ready`` once the copy is complete for the first time.

        Raises ClusterError and LogError before that; afterwards it tries again.
        """

        async def tell() -> None:
            await self._ready.wait()
            ready(await asyncio.to_thread(self._describe))  # may wait for the lock while retention runs
            await asyncio.Event().wait()

        await run_until_first(self._work(), tell())

    def _describe(self) -> ReadUpTo:
        state = self.cache.state
        assert state is not None
        with self.cache.reading() as path, LogReader(path) as reader:
            last = next(iter(reader.sessions(max(1, reader.last_session()))), None)
        age = time.time() - state.complete_at
        session, at = (0, 0) if last is None else (last.number, last.time)
        return ReadUpTo(state.leader, session, at, self._events, age if age > FRESH else 0.0)

    # --- among processes ---------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Write the cache, or wait for the process that does, until cancelled."""
        server = self._way.connection.base_url
        async with KubeClient(self._way.connection, user_agent="vcd", request_timeout=ANSWER_TIMEOUT) as client:
            await greet(client, server)
            finder = Finder(client, server)
            lease = await self._led(finder)
            self._cache = Cache.of(server, f"{lease.namespace}/{lease.name}")
            waiting = _Waiting(self._cache)
            while True:
                with suppress(Busy), self._cache.writing():
                    await self._write(client, finder, lease)
                if not self._ready.is_set() and waiting.is_over():
                    self._ready.set()
                if not self._ready.is_set():
                    self._report("another command is copying this log; waiting for it")
                await asyncio.sleep(PAUSE)

    async def _led(self, finder: Finder) -> Lease:
        """Return the Lease once it has a holder."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return await finder.lease(self._where)
            except _PASSES as error:
                if time.monotonic() > until:
                    raise ClusterError(f"no leader was found within {PATIENCE:.0f} s: {error}") from None
                self._report(str(error))
                await asyncio.sleep(PAUSE)

    def _report(self, text: str) -> None:
        """Report progress at most once per `REPORT_PERIOD` seconds, and not in the first ones."""
        now = time.monotonic()
        self._reported_at = self._reported_at or now
        if now - self._reported_at >= REPORT_PERIOD:
            self._reported_at = now
            self._say(text)

    # --- as the writing process --------------------------------------------------------------------------------------

    async def _write(self, client: KubeClient, finder: Finder, lease: Lease) -> None:
        """Follow the leader until cancelled."""
        await self._alone(self.cache.clear)
        where, until, refused, begun = f"{lease.namespace}/{lease.name}", time.monotonic() + PATIENCE, 0, 0
        while True:
            pause = PAUSE
            try:
                async with reached(client, finder, lease, self._token_file) as stream:
                    await self._follow(stream, lease)
            except LogReplaced:
                begun += 1
                if begun < MOST_REFUSALS:  # more than twice means a defect on one side
                    continue
            except ClusterError as error:
                if not self._ready.is_set():
                    raise
                self._report(str(error))
                pause = UNMENDED
            except _PASSES as error:
                refused += isinstance(error, LogError)
                if not self._ready.is_set() and (time.monotonic() > until or refused >= MOST_REFUSALS):
                    raise ClusterError(f"the log of {lease.holder} cannot be read: {error or repr(error)}") from None
                self._report(f"the log of {lease.holder} is not reached ({error or repr(error)}); trying again")
            await asyncio.sleep(pause)
            with suppress(ClusterError, *_PASSES):
                lease = await finder.lease(where)

    async def _follow(self, stream: Socket, lease: Lease) -> None:
        """Follow one leader until the connection ends; rewind the file first if the leader lacks some of it.

        Raises LogReplaced, and what ``LogFollower.follow`` raises for invalid messages.
        """
        async with self._opened() as log:
            follower = LogFollower(_NAME, log, self._count)
            try:
                noted = self._note(log, follower, lease)
                await run_until_first(follower.follow(stream, lease.holder), noted, self._maintain_copy(log))
                return
            except LogDiverged as parted:
                back = parted.to
            except LeaderBehind:
                back = follower.head or None
            except LogError as error:
                failure = log.failure or error
                if isinstance(failure, DamagedLog):
                    self._say(f"{failure}; copying the log again")
                    back = None
                elif log.failure is not None:
                    with explained_errors(log.path):
                        raise failure from error
                else:
                    raise
        await self._alone(self.cache.go_back, back)
        raise LogReplaced

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[EventLog]:
        """Open the file to write; report a damaged file and begin another. Raises ClusterError."""
        async with AsyncExitStack() as stack:
            try:
                log = await self._open_log(stack)
            except DamagedLog as error:
                self._say(f"{error}; copying the log again")
                await self._alone(self.cache.go_back, None)
                log = await self._open_log(stack)
            yield log

    async def _open_log(self, stack: AsyncExitStack) -> EventLog:
        path = self.cache.written
        with explained_errors(path):
            return await stack.enter_async_context(EventLog.open(path))

    async def _alone(self, work: Callable[..., None], *given: int | None) -> None:
        """Work on the files in a thread, to its end even if cancelled: the next writer must not meet it."""
        await run_to_completion(asyncio.to_thread(work, *given))

    async def _count(self, logged: Sequence[Logged]) -> None:
        self._events += len(logged)

    async def _note(self, log: EventLog, follower: LogFollower, lease: Lease) -> None:
        """Publish and report the file's extent until cancelled. The file becomes the newest once it is complete."""
        before, heard, newest, mine = self.cache.state, 0, self.cache.path.name, log.path.name
        leader = lease.holder
        complete_at = before.complete_at if before is not None and newest == mine else 0.0
        while True:
            complete = follower.heard != heard and not follower.lag
            if complete:
                heard, complete_at, newest = follower.heard, time.time(), mine
            successor = "" if newest == mine else mine
            self.cache.publish(State(newest, leader, log.head, follower.head, complete_at, successor))
            with explained_errors(log.path):
                write_status(log.path, _standing(lease, follower, complete_at))
            if complete and not self._ready.is_set():
                if self._events:
                    await self._retain(log)
                self._ready.set()
            elif follower.lag:
                self._report(f"taking over the log of {leader}: event {log.head:,} of {follower.head:,}")
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await (asyncio.Event() if self._ready.is_set() else follower.caught_up).wait()

    async def _maintain_copy(self, log: EventLog) -> None:
        """Apply retention and remove unused files periodically, until cancelled."""
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            await self._retain(log)
            await self._alone(self.cache.clear)

    async def _retain(self, log: EventLog) -> None:
        """Apply the default retention to the file, unless a command reads it."""
        options = parse_options({}, {})
        with suppress(Busy), self.cache.unread():
            await log.retain(options.retention_age, options.retention_size)


def _standing(lease: Lease, follower: LogFollower, complete_at: float) -> WriterStatus:
    behind = max(0.0, time.time() - complete_at) if complete_at else None
    where = f"{lease.namespace}/{lease.name}"
    return WriterStatus("reader", _NAME, where, lease.holder, 0.0, lease.holder, behind, follower.lag)


class _Waiting:
    """Waits for another process that writes the cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._seen: State | None = None
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Return whether the newest file may be read: it is current, or its writer makes no progress.

        Raises ClusterError if the file is empty then.
        """
        state = self._cache.state
        if state is not None and time.time() - state.complete_at < FRESH:
            return True
        if state != self._seen:
            self._seen, self._since = state, time.monotonic()
        if time.monotonic() - self._since < PATIENCE:
            return False
        if state is None or not state.complete_at:
            raise ClusterError(
                f"another command makes no progress with its copy of the log: {self._cache.folder}; end it"
            )
        return True
