"""Sends this replica's log to followers while it grows.

Every replica serves its log, whether it leads or not: the next leader may need events that only this replica has.
`follower_registry` records what the followers have; authorization happens before (`Replica`).

Before changing it: pieces are read and packed in threads. The event loop of a leader must not wait for a slow follower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from vcd.daemon.replicas import replica_network, replica_protocol
from vcd.daemon.replicas.follower_registry import Follower, Followers
from vcd.daemon.replicas.replica_network import SILENCE, Socket
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_writer import EventLog
from vcd.eventlog.replication import DamagedHistory, LogSource, Piece
from vcd.kube.asyncio_tasks import run_to_completion, run_until_first
from vcd.kube.clock import SYSTEM_CLOCK, Clock

_log = structlog.get_logger(__name__)

HEARTBEAT = 1.0
"""Seconds after which the end of the log is sent again, even if it did not grow."""
READ_EACH = 0.5
"""Seconds between messages to a reader: no session waits for readers, and each message costs the leader time."""
_HEARD = 0.1
"""Seconds between checks whether a dismissed follower has everything."""
_PIECES = 4
"""Pieces that are read in one call of a thread."""


class LogServer:
    """Serves a log that is being written."""

    def __init__(self, name: str, log: EventLog, followers: Followers, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = name
        self._log = log
        self._followers = followers
        self._clock = clock

    async def serve(self, request: web.Request, *, is_replica: bool = True) -> web.StreamResponse:
        """Answer a request to follow the log, until the follower disconnects.

        The address of a follower that is not a replica is ignored, so that no session waits for it.
        """
        socket = await replica_network.accepted(request)
        try:
            with ExitStack() as stack:
                source = await run_to_completion(asyncio.to_thread(lambda: stack.enter_context(self._source())))
                hello, pieces = await self._receive_greeting(socket, source)
                address = hello.address if is_replica else ""
                follower = stack.enter_context(self._followers.joined(hello.name, address))
                _log.info("followed" if address else "read", by=hello.name, ignored=hello.address[len(address) :])
                await run_until_first(self._send(socket, source, pieces, follower), self._listen(socket, follower))
                await socket.close()
        except LogError as error:
            if isinstance(error, DamagedHistory):
                self._followers.damaged = max(self._followers.damaged, error.sequence)
            _log.warning("no longer followed", reason=str(error))
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=str(error).encode()[:120])
        except (ConnectionError, TimeoutError) as error:
            _log.info("no longer followed", reason=repr(error))
        return socket

    def _source(self) -> LogSource:
        return LogSource(self._log.path, self._followers.damaged)

    async def _receive_greeting(
        self, socket: Socket, source: LogSource
    ) -> tuple[replica_protocol.Hello, Iterator[Piece]]:
        """Return the follower's first message, and the pieces to send before new ones."""
        hello = await _heard(socket)
        if not isinstance(hello, replica_protocol.Hello) or hello.version != replica_protocol.VERSION:
            raise replica_protocol.BadMessage(f"a follower must begin with Hello of version {replica_protocol.VERSION}")
        shared = await run_to_completion(asyncio.to_thread(source.last_shared, hello.positions))
        sealed = [] if shared is None else await run_to_completion(asyncio.to_thread(source.seals_at, shared))
        head = await run_to_completion(asyncio.to_thread(source.head))
        welcome = replica_protocol.Welcome(replica_protocol.VERSION, self._name, shared, sealed, head)
        await socket.send_bytes(replica_protocol.packed(welcome))
        follow = await _heard(socket)
        if not isinstance(follow, replica_protocol.Follow):
            raise replica_protocol.BadMessage("a follower must send Follow after Hello")
        if follow.after not in (None, shared):
            raise replica_protocol.BadMessage(f"a follower must continue after event {shared}, or from the beginning")
        if follow.after is None:
            return hello, source.pieces_from_start()
        source.continue_after(follow.after, follow.sealed)
        return hello, iter(())

    async def _send(self, socket: Socket, source: LogSource, pieces: Iterator[Piece], follower: Follower) -> None:
        while True:
            growth, head = self._log.growth(), self._log.head
            for some in (pieces, source.new_pieces()):
                while found := await run_to_completion(asyncio.to_thread(_next, some)):
                    for piece in found:
                        packed = replica_protocol.packed(piece)
                        await socket.send_bytes(packed)
                        self._followers.sent += len(packed)
            follower.reported = head
            peers = [replica_protocol.Peer(one.name, one.address) for one in self._followers.replicas()]
            await socket.send_bytes(replica_protocol.packed(replica_protocol.LogEnd(head, peers)))
            if self._log.failure is not None:
                raise LogError(str(self._log.failure))
            dismissed = self._followers.dismissed
            if dismissed.is_set():
                if follower.has >= head:
                    return
                await self._clock.sleep(_HEARD)
            elif not follower.address:
                await self._clock.sleep(READ_EACH)
            await run_until_first(growth.wait(), dismissed.wait(), self._clock.sleep(HEARTBEAT))

    async def _listen(self, socket: Socket, follower: Follower) -> None:
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                return
            have = replica_protocol.from_follower(message.data)
            if not isinstance(have, replica_protocol.Have):
                raise replica_protocol.BadMessage("a follower may send Have alone")
            self._followers.has(follower, min(have.sequence, self._log.head))


def _next(pieces: Iterator[Piece]) -> list[Piece]:
    """Return the next pieces. Raises DamagedHistory only if damage precedes them; else the next call raises it."""
    found = list[Piece]()
    try:
        found.extend(islice(pieces, _PIECES))
    except DamagedHistory:
        if not found:
            raise
    return found


async def _heard(socket: Socket) -> replica_protocol.ToLeader:
    """Return the next message. Raises ConnectionError if the follower disconnected, TimeoutError, and BadMessage."""
    message = await socket.receive(SILENCE)
    if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
        raise ConnectionResetError("it closed the connection")
    return replica_protocol.from_follower(message.data)
