"""Taking the log of a running cluster over into a file: all that is new since the last time, once or for ever."""

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
from vcd.daemon.reader.cache import Busy, Cache, State, mendable
from vcd.daemon.reader.kubeconfig import ClusterError, Way, greet
from vcd.daemon.reader.leader import Finder, Lease, NoLeader
from vcd.daemon.reader.leader_connection import reached
from vcd.daemon.replicas.log_follower import LeaderBehind, LogDiverged, LogFollower, LogReplaced
from vcd.daemon.replicas.network import Socket
from vcd.eventlog import LogError, LogReader
from vcd.eventlog.errors import DamagedLog
from vcd.eventlog.log import EventLog
from vcd.eventlog.rows import Logged
from vcd.eventlog.standing import WriterStanding, say_standing
from vcd.kube.client import KubeClient
from vcd.kube.errors import KubeError
from vcd.kube.waits import ended, first_of

PATIENCE = 30.0
"""Seconds in which a leader has to be reached, or another one to be found: a change of leaders takes no longer."""
ANSWER_TIMEOUT = 10.0
"""Seconds that one request to the API server may take."""
MOST_REFUSALS = 5
"""How often a leader may say, or do, what is no part of following, before that is taken as its answer."""
PAUSE = 0.5
"""Seconds between two attempts, and between two looks at what another process does."""
UNMENDED = 5.0
"""Seconds between two attempts where somebody has to mend something first."""
HOUSEKEEPING = 60.0
"""Seconds between two looks at how large a file is that is followed."""
TELL = 3.0
"""Seconds after which it is told how far a file is, and again after as many."""
FRESH = 3.0
"""A file that had all of the leader's log so many seconds ago is as good as that log: it is being followed."""

_NAME = f"reader at {socket.gethostname()}"

_PASSES = (NoLeader, KubeError, LogError, aiohttp.ClientError, OSError, TimeoutError)
"""What another attempt may mend."""

Say = Callable[[str], None]


class ReadUpTo(msgspec.Struct, frozen=True):
    """What there is of a log: whose it was, its last session (0: none) and that one's time (ns), how many events were
    taken over for this question, and since how many seconds it was not compared with the leader's (0: it just was)."""

    leader: str
    session: int
    time: int
    events: int
    age: float


class LogCopier:
    """Takes one log over. ``where`` chooses the Lease (see ``Finder.lease``), ``token_file`` names a token; ``say`` is
    told what takes time, and what went wrong and is tried again."""

    def __init__(self, way: Way, where: str, token_file: Path | None, say: Say) -> None:
        self._way = way
        self._where = where
        self._token_file = token_file
        self._say = say
        self._cache: Cache | None = None
        self._ready: asyncio.Event = asyncio.Event()
        self._events = 0
        self._told_at = 0.0

    @property
    def cache(self) -> Cache:
        """The files; there are some once something was taken over."""
        assert self._cache is not None
        return self._cache

    async def once(self) -> ReadUpTo:
        """Take over all that the leader has, or wait while another process does. Raises ClusterError, LogError."""
        await first_of(self._work(), self._ready.wait())
        return self._taken()

    async def forever(self, ready: Callable[[ReadUpTo], None]) -> None:
        """Take over all that comes, until cancelled; ``ready`` is told once all is here that there was at first.

        Raises ClusterError and LogError, before ``ready`` was told; afterwards all is tried again.
        """

        async def tell() -> None:
            await self._ready.wait()
            ready(await asyncio.to_thread(self._taken))  # which may have to wait until history is removed
            await asyncio.Event().wait()

        await first_of(self._work(), tell())

    def _taken(self) -> ReadUpTo:
        state = self.cache.state
        assert state is not None
        with self.cache.reading() as path, LogReader(path) as reader:
            last = next(iter(reader.sessions(max(1, reader.last_session()))), None)
        age = time.time() - state.complete_at
        session, at = (0, 0) if last is None else (last.number, last.time)
        return ReadUpTo(state.leader, session, at, self._events, age if age > FRESH else 0.0)

    # --- among processes --------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Write the files, or wait for who does; without end."""
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
                    self._tell("another command takes this log over; waiting for it")
                await asyncio.sleep(PAUSE)

    async def _led(self, finder: Finder) -> Lease:
        """The Lease, once somebody holds it."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return await finder.lease(self._where)
            except _PASSES as error:
                if time.monotonic() > until:
                    raise ClusterError(f"no leader was found within {PATIENCE:.0f} s: {error}") from None
                self._tell(str(error))
                await asyncio.sleep(PAUSE)

    def _tell(self, text: str) -> None:
        """Say it, unless something was said a moment ago; nothing that passes quickly is said."""
        now = time.monotonic()
        self._told_at = self._told_at or now
        if now - self._told_at >= TELL:
            self._told_at = now
            self._say(text)

    # --- as the one who writes --------------------------------------------------------------------------------------

    async def _write(self, client: KubeClient, finder: Finder, lease: Lease) -> None:
        """Follow whoever leads; without end."""
        await self._alone(self.cache.clear)
        where, until, refused, begun = f"{lease.namespace}/{lease.name}", time.monotonic() + PATIENCE, 0, 0
        while True:
            pause = PAUSE
            try:
                async with reached(client, finder, lease, self._token_file) as stream:
                    await self._follow(stream, lease)
            except LogReplaced:
                begun += 1
                if begun < MOST_REFUSALS:  # no more than once or twice, unless one of both sides errs
                    continue
            except ClusterError as error:
                if not self._ready.is_set():
                    raise
                self._tell(str(error))
                pause = UNMENDED
            except _PASSES as error:
                refused += isinstance(error, LogError)
                if not self._ready.is_set() and (time.monotonic() > until or refused >= MOST_REFUSALS):
                    raise ClusterError(f"the log of {lease.holder} cannot be read: {error or repr(error)}") from None
                self._tell(f"the log of {lease.holder} is not reached ({error or repr(error)}); trying again")
            await asyncio.sleep(pause)
            with suppress(ClusterError, *_PASSES):
                lease = await finder.lease(where)

    async def _follow(self, stream: Socket, lease: Lease) -> None:
        """Follow one leader until the connection ends; where the file has what the leader has not, that is taken out.
        Raises LogReplaced, and what ``LogFollower.follow`` does of a leader that is none."""
        async with self._opened() as log:
            follower = LogFollower(_NAME, log, self._count)
            try:
                noted = self._note(log, follower, lease)
                await first_of(follower.follow(stream, lease.holder), noted, self._keep_house(log))
                return
            except LogDiverged as parted:
                back = parted.to
            except LeaderBehind:
                back = follower.head or None
            except LogError as error:
                failure = log.failure or error
                if isinstance(failure, DamagedLog):
                    self._say(f"{failure}; the log is taken over anew")
                    back = None
                elif log.failure is not None:
                    with mendable(log.path):
                        raise failure from error
                else:
                    raise
        await self._alone(self.cache.go_back, back)
        raise LogReplaced

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[EventLog]:
        """The file that is written; one that is damaged is told of, and another begun. Raises ClusterError."""
        async with AsyncExitStack() as stack:
            try:
                log = await self._entered(stack)
            except DamagedLog as error:
                self._say(f"{error}; the log is taken over anew")
                await self._alone(self.cache.go_back, None)
                log = await self._entered(stack)
            yield log

    async def _entered(self, stack: AsyncExitStack) -> EventLog:
        path = self.cache.written
        with mendable(path):
            return await stack.enter_async_context(EventLog.open(path))

    async def _alone(self, work: Callable[..., None], *given: int | None) -> None:
        """Work on the files in a thread, to its end: whoever writes next must not meet it."""
        await ended(asyncio.to_thread(work, *given))

    async def _count(self, logged: Sequence[Logged]) -> None:
        self._events += len(logged)

    async def _note(self, log: EventLog, follower: LogFollower, lease: Lease) -> None:
        """Publish how far the file is, again and again, and say so; without end. It is the newest once it has all."""
        before, heard, newest, mine = self.cache.state, 0, self.cache.path.name, log.path.name
        leader = lease.holder
        complete_at = before.complete_at if before is not None and newest == mine else 0.0
        while True:
            complete = follower.heard != heard and not follower.lag
            if complete:
                heard, complete_at, newest = follower.heard, time.time(), mine
            successor = "" if newest == mine else mine
            self.cache.publish(State(newest, leader, log.head, follower.head, complete_at, successor))
            with mendable(log.path):
                say_standing(log.path, _standing(lease, follower, complete_at))
            if complete and not self._ready.is_set():
                if self._events:
                    await self._retain(log)
                self._ready.set()
            elif follower.lag:
                self._tell(f"taking over the log of {leader}: event {log.head:,} of {follower.head:,}")
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await (asyncio.Event() if self._ready.is_set() else follower.caught_up).wait()

    async def _keep_house(self, log: EventLog) -> None:
        """Hold the file to its bounds, and remove others that nobody reads any more, again and again; without end."""
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            await self._retain(log)
            await self._alone(self.cache.clear)

    async def _retain(self, log: EventLog) -> None:
        """Let the file hold no more than a replica's would, unless somebody reads it."""
        options = parse_options({}, {})
        with suppress(Busy), self.cache.unread():
            await log.retain(options.retention_age, options.retention_size)


def _standing(lease: Lease, follower: LogFollower, complete_at: float) -> WriterStanding:
    behind = max(0.0, time.time() - complete_at) if complete_at else None
    where = f"{lease.namespace}/{lease.name}"
    return WriterStanding("reader", _NAME, where, lease.holder, 0.0, lease.holder, behind, follower.lag)


class _Waiting:
    """Waiting for another process that writes the files."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._seen: State | None = None
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether the newest file may be read as it is: it is being followed, or who writes it gets no further.

        Raises ClusterError where there is nothing in it then.
        """
        state = self._cache.state
        if state is not None and time.time() - state.complete_at < FRESH:
            return True
        if state != self._seen:
            self._seen, self._since = state, time.monotonic()
        if time.monotonic() - self._since < PATIENCE:
            return False
        if state is None or not state.complete_at:
            raise ClusterError(f"another command takes the log over ({self._cache.folder}) and gets no further; end it")
        return True
