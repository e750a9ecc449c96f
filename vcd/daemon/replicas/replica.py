"""One replica among those that share a log: it serves its own log and follows the log of the Lease holder.

This module connects the parts: `log_server` sends, `log_follower` receives, `follower_registry` tracks how far each
follower's log reaches, and `takeover` fetches missing events before this replica leads. `wire` has the protocol,
`network` the connections.

Before changing it: a replica that loses the Lease raises `TermEnded` and restarts in its process. Its log may
hold events that the next leader does not have, so its state must not be used any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import structlog
from aiohttp import web

from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.replicas import replica_network, replica_protocol
from vcd.daemon.replicas.follower_registry import Followers
from vcd.daemon.replicas.log_follower import LogFollower, LogReplaced, OwnLogDamaged
from vcd.daemon.replicas.log_server import LogServer
from vcd.daemon.replicas.replica_identity import Address
from vcd.daemon.replicas.replica_network import Socket
from vcd.daemon.replicas.takeover import take_over
from vcd.eventlog.log_errors import DamagedLog, LogError
from vcd.kube.asyncio_tasks import is_being_cancelled, run_until_first
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock
from vcd.kube.lease import LeaderElector

_log = structlog.get_logger(__name__)

READERS = 32
"""Maximum connections of readers (commands with --from-cluster). Replicas can connect beyond it."""
LOOK = 0.2
"""Seconds between checks of the Lease's holder."""
GRACE = 10.0
"""Seconds, in addition to the Lease's duration, in which a replica should find the next leader."""
SHORTEST, LONGEST = 0.2, 5.0
"""The first and the longest pause between attempts to follow, in seconds."""

Admit = Callable[[web.Request], Awaitable[bool]]
"""Return whether a request is a replica's. Raises the HTTP error for one that is refused."""


class TermEnded(Exception):
    """This replica no longer leads, and its log may diverge from the next leader's, which it has to follow.

    It stands for election again from `abstains_until` on, by the monotonic clock.
    """

    def __init__(self, why: str, abstains_until: float) -> None:
        super().__init__(why)
        self.abstains_until = abstains_until


class Replica:
    """Follows the Lease holder while another replica holds the Lease, and lets other replicas follow.

    ``admit`` authorizes followers, ``headers`` authenticate this replica. A holder whose Lease names no address is an
    older vcd, or vc-scheduler: there is no log to follow.
    """

    def __init__(
        self,
        state_writer: StateWriter,
        elector: LeaderElector,
        admit: Admit,
        headers: Callable[[], dict[str, str]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._state_writer = state_writer
        self._elector = elector
        self._admit = admit
        self._headers = headers
        self._clock = clock
        self._following: asyncio.Task[None] | None = None
        self._leads = asyncio.Event()
        self._admitted: set[object] = set()
        """Connections of authorized followers."""
        self._lost_at = 0.0
        """When the last connection to a leader ended, by the monotonic clock."""
        elector.can_lead = self._may_stand
        self.followers = Followers(clock)
        self.follower = self._create_follower()
        self._led_by: dict[str, replica_protocol.Peer] = {}
        """The leader that was followed last, by name."""
        self.lacks = False
        """Whether this replica restarted with the incomplete log of another replica."""

    def _create_follower(self) -> LogFollower:
        return LogFollower(
            self._elector.identity, self._state_writer.log, self._state_writer.take, self._note_checkpoint
        )

    def _note_checkpoint(self, sequence: int) -> None:
        self._state_writer.checkpointed_at = sequence

    # --- being followed ---------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def served(self, host: str, port: int, advertised: str) -> AsyncIterator[None]:
        """Serve the log on an address (port 0: any free port) while the context lasts.

        The Lease states the address, with ``advertised`` as the host, while this replica holds it. Raises OSError.
        """
        name = self._elector.identity
        async with replica_network.listening(name, host, port, advertised, self._serve, self._admitted) as address:
            self._elector.address = str(address)
            _log.info("listening", address=address.url, pages=[replica_protocol.PATH])
            yield

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        is_replica = await self._admit(request)
        if is_replica:
            self._elector.check_now()  # the caller is about to lead, or this replica leads and has not noticed yet
        readers = sum(not one.address for one in self.followers.connected)
        if not is_replica and readers >= READERS:
            raise web.HTTPServiceUnavailable(
                text=f"{readers} connections read the log, which is the limit; try again later, or at another replica"
            )
        self._admitted.add(request.protocol)
        try:
            server = LogServer(self._elector.identity, self._state_writer.log, self.followers, self._clock)
            return await server.serve(request, is_replica=is_replica)
        finally:
            self._admitted.discard(request.protocol)

    async def have_all(self, sequence: int | None = None) -> bool:
        """Wait until a follower has all events up to ``sequence`` (default: this log's head); False on timeout."""
        return await self.followers.have(self._state_writer.log.head if sequence is None else sequence)

    # --- following --------------------------------------------------------------------------------------------------

    def behind(self) -> str | None:
        """Return why this replica's copy of the log is incomplete; None if it is complete, or there is no other leader.

        After a lost connection the copy counts as complete for as long as a change of leaders takes.
        """
        other, follower = self._followed(), self.follower
        if other is None:
            return None
        lost = self._clock.monotonic() - self._lost_at
        if follower.caught_up.is_set() and (follower.leader or lost < self._elector.lease_duration + GRACE):
            return None
        lacks = f"{follower.lag} events of {follower.head} are missing" if follower.leader else "there is no connection"
        return f"the log of {other[0]} is not complete here: {lacks}"

    def _may_stand(self) -> bool:
        """Return whether this replica may become leader: not with an empty or incomplete copy of another's log, because
        a replica that has more may return."""
        lacks = (self.lacks or self.follower.began) and not self.follower.caught_up.is_set()
        return bool(self._state_writer.log.head and not lacks) or not self._elector.has_log

    async def become_leader(self) -> None:
        """Stop following and fetch what any other replica has: from now on this replica writes the log.

        Raises LogReplaced if the state is not the fold of the log.
        """
        self._leads.set()
        self.followers.expect()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        peers = {peer.name: peer for peer in self.follower.peers}
        await take_over([*(self._led_by | peers).values()], self._connection, self._create_follower)
        if self._state_writer.state.sequence != self._state_writer.log.head:
            raise LogReplaced

    async def run(self) -> None:
        """Follow the leader until this replica leads.

        Raises LogDiverged, LogReplaced, and LogError if the own log cannot be written.
        """
        pauses = Backoff(SHORTEST, LONGEST, SYSTEM_RANDOM)
        reported = ""
        while not self._leads.is_set():
            other = self._followed()
            if other is None:
                await self._clock.sleep(LOOK)
                continue
            self._following = asyncio.ensure_future(self._follow(*other))
            try:
                await asyncio.shield(self._following)
                pauses.reset()
                reported = ""
            except asyncio.CancelledError:
                if not self._leads.is_set() or is_being_cancelled():
                    self._following.cancel()
                    await asyncio.gather(self._following, return_exceptions=True)
                    raise
            except (LogError, aiohttp.ClientError, OSError, TimeoutError) as error:
                failure = self._state_writer.log.failure
                if isinstance(failure or error, DamagedLog):
                    raise OwnLogDamaged(failure or error) from error
                if failure is not None:
                    raise
                reason = str(error) or repr(error)
                if reason != reported:
                    _log.warning("the leader's log is not followed", leader=other[0], reason=reason)
                reported = reason
            if not self._leads.is_set():
                self._elector.check_now()
                await run_until_first(self._clock.sleep(pauses.next()), self._replaced(other[0]))
                if self._elector.holder != other[0]:
                    pauses.reset()
        await asyncio.Event().wait()

    def _followed(self) -> tuple[str, str] | None:
        """Return the name and address of the leader to follow, if there is one."""
        elector = self._elector
        if self._leads.is_set() or not elector.holder_address or elector.holder == elector.identity:
            return None
        return elector.holder, elector.holder_address

    async def _follow(self, holder: str, address: str) -> None:
        """Follow one leader until the connection ends, or another replica holds the Lease."""
        self._led_by = {holder: replica_protocol.Peer(holder, address)}
        await run_until_first(self._connected(holder, address), self._replaced(holder))

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
        async with contextlib.AsyncExitStack() as stack:
            try:
                socket = await stack.enter_async_context(
                    replica_network.reached(Address.read(address), self._headers())
                )
            except (
                ValueError
            ) as error:  # from the address in the Lease or the token file; errors of the fold must not be caught here
                raise LogError(f"the log of {name} cannot be requested: {error}") from error
            yield socket

    async def _replaced(self, holder: str) -> None:
        while self._elector.holder == holder:
            await self._clock.sleep(LOOK)
