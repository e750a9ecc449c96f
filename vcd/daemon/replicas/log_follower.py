"""Following the log of the replica that leads: what it logs is written here as it is there, and folded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

import structlog
from aiohttp import ClientError, WSMsgType

from vcd.daemon.replicas import wire
from vcd.daemon.replicas.network import SILENCE, Socket
from vcd.eventlog.copying import Events, Kept, LogSource, Piece, write_copy
from vcd.eventlog.errors import LogError
from vcd.eventlog.log import EventLog
from vcd.eventlog.rows import Logged
from vcd.kube.waits import ended

_log = structlog.get_logger(__name__)


class Parted(Exception):
    """This replica's log went another way than the leader's: it has to go back to an event (None: begin anew) first."""

    def __init__(self, to: int | None, leader: str) -> None:
        super().__init__(f"the log of {leader} and this one part after event {to or 0}")
        self.to = to


class BegunAnew(Exception):
    """This replica's log begins with a checkpoint of the leader's from now on: its state has to be restored from it."""


class Behind(LogError):
    """The leader has not all that this replica has, and logged nothing else: it is about to take that over."""


class LogFollower:
    """Follows one leader over a connection; ``fold`` takes what is durable here over into the state, ``kept`` is told
    of each checkpoint that is here, too."""

    def __init__(
        self,
        name: str,
        log: EventLog,
        fold: Callable[[Sequence[Logged]], Awaitable[None]],
        kept: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._log = log
        self._fold = fold
        self._kept = kept
        self.leader = ""
        """Who is followed; empty for nobody."""
        self.head = 0
        """Where the leader's log ended when it was last heard."""
        self.heard = 0
        """How often the leader said where its log ends."""
        self.peers: list[wire.Peer] = []
        """The other replicas that followed it then."""
        self.began = False
        """Whether this replica agreed with a leader on where to go on."""
        self.caught_up = asyncio.Event()
        """Set once all was here that the leader had when it said so."""

    @property
    def has(self) -> int:
        """The last event that is durable here."""
        return self._log.head

    @property
    def fails(self) -> bool:
        """Whether the own log cannot be written any more."""
        return self._log.failure is not None

    @property
    def lag(self) -> int:
        """How many events the leader has that are not here."""
        return max(self.head - self._log.head, 0)

    async def follow(self, socket: Socket, leader: str, address: str = "") -> None:
        """Follow a leader until the connection ends; ``address`` is where this replica's own log is followed.

        Raises Parted where the own log has to be changed before it can follow, BegunAnew, Behind, and LogError for what
        is no log or cannot be written.
        """
        try:
            await self._begin(socket, leader, address)
            async for message in socket:
                if message.type is WSMsgType.ERROR:
                    return
                await self._take(socket, wire.from_leader(message.data))
        except (ClientError, ConnectionError, TimeoutError) as error:
            _log.info("no longer following", leader=self.leader, reason=repr(error))
        finally:
            self.leader = ""

    async def _begin(self, socket: Socket, leader: str, address: str) -> None:
        """Agree on where to go on."""
        with ExitStack() as stack:
            own = await ended(asyncio.to_thread(lambda: stack.enter_context(LogSource(self._log.path))))
            known, sealed = await ended(asyncio.to_thread(lambda: (own.positions(), own.seals_at(self._log.head))))
            await socket.send_bytes(wire.packed(wire.Hello(wire.VERSION, self._name, known, sealed, address)))
            welcome = await _welcomed(socket)
            if welcome.name != leader:
                raise LogError(f"{welcome.name} answers where {leader} is to be followed")
            self.leader, self.head = leader, 0 if welcome.head is None else welcome.head.sequence
            if not self._log.head:
                follow = wire.Follow(None, [])
            elif welcome.shared == self._log.head and set(sealed) <= set(welcome.sealed):
                follow = wire.Follow(self._log.head, sealed)
            elif welcome.head is None or await ended(asyncio.to_thread(own.has, welcome.head)):
                raise Behind(f"{self.leader} has event {self.head}, and this replica {self._log.head}")
            elif welcome.shared is None:
                raise Parted(None, self.leader)
            else:
                raise Parted(await _last_in_common(socket, own, welcome.shared), self.leader)
        await socket.send_bytes(wire.packed(follow))
        self.began = True
        _log.info("following", leader=self.leader, after=follow.after, head=self.head)

    async def _take(self, socket: Socket, message: wire.ToFollower) -> None:
        if isinstance(message, wire.LogEnd):
            self.head, self.heard = message.sequence, self.heard + 1
            self.peers = [peer for peer in message.peers if peer.name != self._name]
            if self._log.head >= message.sequence:
                self.caught_up.set()
            await socket.send_bytes(wire.packed(wire.Have(self._log.head)))
        elif isinstance(message, wire.Welcome):
            raise wire.BadMessage("the leader says Welcome twice")
        else:
            await ended(self._write(socket, message))  # so that what is durable is in the state, too

    async def _write(self, socket: Socket, piece: Piece) -> None:
        logged = await write_copy(self._log, piece)
        if isinstance(piece, Kept):
            if piece.after is None:
                raise BegunAnew
            self._kept(piece.sequence)
        if logged:
            try:
                await socket.send_bytes(wire.packed(wire.Have(self._log.head)))  # the leader's calls wait for this
            finally:
                await self._fold(logged)  # what is durable is in the state, whether the leader hears of it or not


async def _last_in_common(socket: Socket, own: LogSource, shared: int) -> int:
    """The last event up to which two logs are the same, by what the leader has after ``shared``, up to which they are:
    who went back further would lack what both had until it is sent again. Raises what ``LogFollower.follow`` does."""
    sealed = await ended(asyncio.to_thread(own.seals_at, shared))
    await socket.send_bytes(wire.packed(wire.Follow(shared, sealed)))
    last = shared
    async for message in socket:
        if message.type is WSMsgType.ERROR:
            break
        said = wire.from_leader(message.data)
        if isinstance(said, Events):
            theirs = {content[0]: link for content, link in said.rows}
            same = await ended(asyncio.to_thread(own.same, theirs))
            last = max(same, default=last)
            if len(same) < len(theirs):
                return last
        elif isinstance(said, wire.LogEnd) and last >= said.sequence:
            return last
    raise ConnectionError("the connection ended before it was known where the logs part")


async def _welcomed(socket: Socket) -> wire.Welcome:
    answer = await socket.receive(SILENCE)
    if answer.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING):
        raise LogError(f"the leader does not serve its log: {answer.extra or 'it closed the connection'}")
    welcome = wire.from_leader(answer.data)
    if not isinstance(welcome, wire.Welcome):
        raise wire.BadMessage("the leader must answer Hello with Welcome")
    return welcome
