"""This replica among those of one log: it serves its own, and follows that of who holds the Lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import structlog
from aiohttp import web

from vcd.daemon.persistence.state_writer import Keeper
from vcd.daemon.replicas import network, wire
from vcd.daemon.replicas.follower_registry import Followers
from vcd.daemon.replicas.identity import Address
from vcd.daemon.replicas.log_follower import BegunAnew, LogFollower
from vcd.daemon.replicas.log_server import LogServer
from vcd.daemon.replicas.network import Socket
from vcd.daemon.replicas.takeover import take_over
from vcd.eventlog.errors import LogError
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock
from vcd.kube.lease import LeaderElector
from vcd.kube.waits import first_of, is_cancelled

_log = structlog.get_logger(__name__)

READERS = 32
"""Those at most of all connections that only read, so that they keep no replica out."""
LOOK = 0.2
"""Seconds between looks at who holds the Lease."""
GRACE = 10.0
"""Seconds, beside those of the Lease, in which a replica that lost its leader should have found another."""
SHORTEST, LONGEST = 0.2, 5.0
"""Seconds between attempts to follow: at first, and at most."""

Admit = Callable[[web.Request], Awaitable[bool]]
"""Lets a request pass, or raises what it is answered with; whether it is a replica's."""


class Unseated(Exception):
    """This replica leads no more: its log may go another way than the next leader's, which it has to follow. It stands
    for election again at a moment of the monotonic clock."""

    def __init__(self, why: str, rests_until: float) -> None:
        super().__init__(why)
        self.rests_until = rests_until


class Replica:
    """Follows whoever holds the Lease, as long as that is another one; is followed by others.

    ``admit`` judges who wants to follow; ``headers`` are what this replica shows of itself. A leader that says nowhere
    where its log is followed is an older vcd, or vc-scheduler: then there is nothing to follow.
    """

    def __init__(
        self,
        keeper: Keeper,
        elector: LeaderElector,
        admit: Admit,
        headers: Callable[[], dict[str, str]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._keeper = keeper
        self._elector = elector
        self._admit = admit
        self._headers = headers
        self._clock = clock
        self._following: asyncio.Task[None] | None = None
        self._leads = asyncio.Event()
        self._admitted: set[object] = set()
        """Connections of those that follow."""
        self._lost_at = 0.0
        """When this replica followed last."""
        elector.may_stand = self._may_stand
        self.followers = Followers(clock)
        self.follower = self._made_follower()
        self._led_by: dict[str, wire.Peer] = {}
        """Who was followed last."""
        self.lacks = False
        """Whether this replica began anew by another's log, of which not all was here then."""

    def _made_follower(self) -> LogFollower:
        return LogFollower(self._elector.identity, self._keeper.log, self._keeper.take, self._note_checkpoint)

    def _note_checkpoint(self, sequence: int) -> None:
        self._keeper.checkpointed_at = sequence

    # --- being followed ---------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def served(self, host: str, port: int, advertised: str) -> AsyncIterator[None]:
        """Serve the log on an address (port 0: any free one), and let the Lease say so while this replica holds it;
        ``advertised`` is the host by which others reach it. Raises OSError."""
        name = self._elector.identity
        async with network.listening(name, host, port, advertised, self._serve, self._admitted) as address:
            self._elector.address = str(address)
            _log.info("listening", address=address.url, pages=[wire.PATH])
            yield

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        is_replica = await self._admit(request)
        if is_replica:
            self._elector.look()  # it takes the lead, or takes this replica for its leader
        readers = sum(not one.address for one in self.followers.connected)
        if not is_replica and readers >= READERS:
            raise web.HTTPServiceUnavailable(text=f"{readers} read the log already; try again later, or at a replica")
        self._admitted.add(request.protocol)
        try:
            server = LogServer(self._elector.identity, self._keeper.log, self.followers, self._clock)
            return await server.serve(request, is_replica=is_replica)
        finally:
            self._admitted.discard(request.protocol)

    async def have_all(self, sequence: int | None = None) -> bool:
        """Wait until a replica that follows has all up to an event, or that is logged here; False where none does in
        time."""
        return await self.followers.have(self._keeper.log.head if sequence is None else sequence)

    # --- following --------------------------------------------------------------------------------------------------

    def behind(self) -> str | None:
        """Why this replica does not have the log; None where it does, leads, or there is nobody to have it from. One
        that had it and lost the connection has it for as long as a change of leaders takes."""
        other, follower = self._followed(), self.follower
        if other is None:
            return None
        lost = self._clock.monotonic() - self._lost_at
        if follower.caught_up.is_set() and (follower.leader or lost < self._elector.lease_duration + GRACE):
            return None
        lacks = f"{follower.lag} events of {follower.head} are missing" if follower.leader else "it is not followed"
        return f"the log of {other[0]} is taken over: {lacks}"

    def _may_stand(self) -> bool:
        """Not while nothing of another's log is here, or not yet all: one that has more may come back."""
        lacks = (self.lacks or self.follower.began) and not self.follower.caught_up.is_set()
        return bool(self._keeper.log.head and not lacks) or not self._elector.has_log

    async def take_the_lead(self) -> None:
        """Follow nobody any more: this replica writes the log from now on, after all that another one has of it. Raises
        BegunAnew where the state is not that of the log."""
        self._leads.set()
        self.followers.expect()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        peers = {peer.name: peer for peer in self.follower.peers}
        await take_over([*(self._led_by | peers).values()], self._connection, self._made_follower)
        if self._keeper.state.sequence != self._keeper.log.head:
            raise BegunAnew

    async def run(self) -> None:
        """Follow whoever leads until this replica does. Raises Parted, BegunAnew, and LogError where the own log is not
        written."""
        pauses = Backoff(SHORTEST, LONGEST, SYSTEM_RANDOM)
        while not self._leads.is_set():
            other = self._followed()
            if other is None:
                await self._clock.sleep(LOOK)
                continue
            self._following = asyncio.ensure_future(self._follow(*other))
            try:
                await asyncio.shield(self._following)
                pauses.reset()
            except asyncio.CancelledError:
                if not self._leads.is_set() or is_cancelled():
                    self._following.cancel()
                    await asyncio.gather(self._following, return_exceptions=True)
                    raise
            except (LogError, aiohttp.ClientError, OSError, TimeoutError) as error:
                if self._keeper.log.failure is not None:
                    raise
                _log.warning("the leader's log is not followed", leader=other[0], reason=str(error) or repr(error))
            if not self._leads.is_set():
                self._elector.look()
                await first_of(self._clock.sleep(pauses.next()), self._replaced(other[0]))
                if self._elector.holder != other[0]:
                    pauses.reset()
        await asyncio.Event().wait()

    def _followed(self) -> tuple[str, str] | None:
        """Whose log is to be followed, and where; None for nobody's."""
        elector = self._elector
        if self._leads.is_set() or not elector.holder_address or elector.holder == elector.identity:
            return None
        return elector.holder, elector.holder_address

    async def _follow(self, holder: str, address: str) -> None:
        """Follow one leader until the connection ends, or another holds the Lease."""
        self._led_by = {holder: wire.Peer(holder, address)}
        await first_of(self._connected(holder, address), self._replaced(holder))

    async def _connected(self, holder: str, address: str) -> None:
        heard = self.follower.heard
        async with self._connection(holder, address) as socket:
            try:
                await self.follower.follow(socket, holder, self._elector.address)
            finally:
                if self.follower.heard != heard:
                    self._lost_at = self._clock.monotonic()

    @contextlib.asynccontextmanager
    async def _connection(self, name: str, address: str) -> AsyncIterator[Socket]:
        """A connection to another replica, which is closed with the context."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                socket = await stack.enter_async_context(network.reached(Address.read(address), self._headers()))
            except ValueError as error:  # of what the Lease or the token's file says; not of what is folded
                raise LogError(f"{name} cannot be asked for its log: {error}") from error
            yield socket

    async def _replaced(self, holder: str) -> None:
        while self._elector.holder == holder:
            await self._clock.sleep(LOOK)
