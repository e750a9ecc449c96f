"""Copies the leader's log into this replica's log, event by event, and passes the events on to be folded.

It agrees with the leader on the last common event, appends what follows, and reports what is durable. It does not
decide which replica to follow (`replica`), and it does not rewind a log that diverged (`log_divergence`).

Before changing it: rows are copied with their numbers, times and links. A copy that differs in any of them has another
hash chain, and no replica can follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

import structlog
from aiohttp import ClientError, WSMsgType

from vcd.daemon.replicas import replica_protocol
from vcd.daemon.replicas.replica_network import SILENCE, Socket
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_writer import EventLog
from vcd.eventlog.replication import CheckpointPiece, EventsPiece, LogSource, Piece, write_piece
from vcd.eventlog.rows import Logged
from vcd.kube.asyncio_tasks import run_to_completion

_log = structlog.get_logger(__name__)


class LogDiverged(Exception):
    """This replica's log and the leader's differ after event ``to`` (None: from the beginning): rewind to it first."""

    def __init__(self, to: int | None, leader: str) -> None:
        super().__init__(f"the log of {leader} and this one diverge after event {to or 0}")
        self.to = to


class OwnLogDamaged(LogDiverged):
    """This replica's log is damaged: set the file aside, and copy the log of the leader."""

    def __init__(self, error: Exception) -> None:
        Exception.__init__(self, str(error))
        self.to = None


class LogReplaced(Exception):
    """This log now begins with a checkpoint of the leader: the state must be restored from it."""


class LeaderBehind(LogError):
    """The leader's log is a part of this one: the leader is about to fetch the rest (`takeover`)."""


class LogFollower:
    """Follows one leader over a connection.

    ``fold`` is called with events once they are durable here, ``kept`` with the sequence number of each checkpoint.
    """

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
        """The name of the followed replica; empty while there is no connection."""
        self.head = 0
        """The last event of the leader's log, by its last message."""
        self.heard = 0
        """How many times the leader reported the end of its log."""
        self.peers: list[replica_protocol.Peer] = []
        """The leader's followers, by its last message."""
        self.began = False
        """Whether this replica and a leader ever agreed on the last common event."""
        self.caught_up = asyncio.Event()
        """Set once this log had all events that the leader had reported."""

    @property
    def has(self) -> int:
        """Return the last event that is durable here."""
        return self._log.head

    @property
    def fails(self) -> bool:
        """Return whether the own log can no longer be written."""
        return self._log.failure is not None

    @property
    def lag(self) -> int:
        """Return how many events of the leader are missing here."""
        return max(self.head - self._log.head, 0)

    async def follow(self, socket: Socket, leader: str, address: str = "") -> None:
        """Follow a leader until the connection ends; ``address`` is where this replica serves its own log.

        Raises LogDiverged, LogReplaced, LeaderBehind, and LogError for invalid messages and failed writes.
        """
        try:
            await self._begin(socket, leader, address)
            async for message in socket:
                if message.type is WSMsgType.ERROR:
                    return
                await self._take(socket, replica_protocol.from_leader(message.data))
        except (ClientError, ConnectionError, TimeoutError) as error:
            _log.info("no longer following", leader=self.leader, reason=repr(error))
        finally:
            self.leader = ""

    async def _begin(self, socket: Socket, leader: str, address: str) -> None:
        """Agree on the last common event."""
        with ExitStack() as stack:
            own = await run_to_completion(asyncio.to_thread(lambda: stack.enter_context(LogSource(self._log.path))))
            known, sealed = await run_to_completion(
                asyncio.to_thread(lambda: (own.positions(), own.seals_at(self._log.head)))
            )
            await socket.send_bytes(
                replica_protocol.packed(
                    replica_protocol.Hello(replica_protocol.VERSION, self._name, known, sealed, address)
                )
            )
            welcome = await _receive_welcome(socket)
            if welcome.name != leader:
                raise LogError(f"{welcome.name} answers at the address of {leader}")
            self.leader, self.head = leader, 0 if welcome.head is None else welcome.head.sequence
            if not self._log.head:
                follow = replica_protocol.Follow(None, [])
            elif welcome.shared == self._log.head and set(sealed) <= set(welcome.sealed):
                follow = replica_protocol.Follow(self._log.head, sealed)
            elif welcome.head is None or await run_to_completion(asyncio.to_thread(own.has, welcome.head)):
                raise LeaderBehind(f"{self.leader} has event {self.head}, and this replica {self._log.head}")
            elif welcome.shared is None:
                raise LogDiverged(None, self.leader)
            else:
                raise LogDiverged(await _last_in_common(socket, own, welcome.shared), self.leader)
        await socket.send_bytes(replica_protocol.packed(follow))
        self.began = True
        _log.info("following", leader=self.leader, after=follow.after, head=self.head)

    async def _take(self, socket: Socket, message: replica_protocol.ToFollower) -> None:
        if isinstance(message, replica_protocol.LogEnd):
            self.head, self.heard = message.sequence, self.heard + 1
            self.peers = [peer for peer in message.peers if peer.name != self._name]
            if self._log.head >= message.sequence:
                self.caught_up.set()
            await socket.send_bytes(replica_protocol.packed(replica_protocol.Have(self._log.head)))
        elif isinstance(message, replica_protocol.Welcome):
            raise replica_protocol.BadMessage("the leader sent Welcome twice")
        else:
            # completed even if cancelled, so that each durable event is in the state, too
            await run_to_completion(self._write(socket, message))

    async def _write(self, socket: Socket, piece: Piece) -> None:
        logged = await write_piece(self._log, piece)
        if isinstance(piece, CheckpointPiece):
            if piece.after is None:
                raise LogReplaced
            self._kept(piece.sequence)
        if logged:
            try:
                await socket.send_bytes(
                    replica_protocol.packed(replica_protocol.Have(self._log.head))
                )  # the leader's calls wait for this
            finally:
                await self._fold(logged)  # each durable event is in the state, even if the acknowledgement fails


async def _last_in_common(socket: Socket, own: LogSource, shared: int) -> int:
    """Return the last event that both logs have, by comparing links after ``shared``, which both are known to have.

    Rewinding further than necessary would lose common events until they are sent again. Raises what
    ``LogFollower.follow`` does.
    """
    sealed = await run_to_completion(asyncio.to_thread(own.seals_at, shared))
    await socket.send_bytes(replica_protocol.packed(replica_protocol.Follow(shared, sealed)))
    last = shared
    async for message in socket:
        if message.type is WSMsgType.ERROR:
            break
        said = replica_protocol.from_leader(message.data)
        if isinstance(said, EventsPiece):
            theirs = {content[0]: link for content, link in said.rows}
            same = await run_to_completion(asyncio.to_thread(own.matching_prefix, theirs))
            last = max(same, default=last)
            if len(same) < len(theirs):
                return last
        elif isinstance(said, replica_protocol.LogEnd) and last >= said.sequence:
            return last
    raise ConnectionError("the connection ended before the last common event was found")


async def _receive_welcome(socket: Socket) -> replica_protocol.Welcome:
    answer = await socket.receive(SILENCE)
    if answer.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING):
        raise LogError(f"the leader does not serve its log: {answer.extra or 'it closed the connection'}")
    welcome = replica_protocol.from_leader(answer.data)
    if not isinstance(welcome, replica_protocol.Welcome):
        raise replica_protocol.BadMessage("the leader must answer Hello with Welcome")
    return welcome
