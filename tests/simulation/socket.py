"""One end of a WebSocket between two replicas, with the behaviour of aiohttp's client and server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiohttp import WSMessage, WSMsgType

from tests.simulation.versions import said_to
from vcd.daemon.replicas.replica_network import SILENCE

if TYPE_CHECKING:
    from tests.simulation.peers import Peers
    from tests.simulation.replica import Machine

WINDOW = 1 << 18
"""Unread bytes from which on the sender has to wait."""
_PATIENCE = {True: 1.0, False: 10.0}
"""Seconds that the client, and the server, wait for the other side's close frame after their own."""
_CLOSED = WSMessage(WSMsgType.CLOSED, None, None)


class Frame(Enum):
    """The kinds of frames on a connection."""

    OPEN = auto()
    OPENED = auto()
    REFUSED = auto()
    """Carries the status."""
    DATA = auto()
    PING = auto()
    PONG = auto()
    CLOSE = auto()
    """Carries code and reason."""
    LOST = auto()
    """The connection itself has ended."""


_TO_READ = (Frame.DATA, Frame.PING, Frame.CLOSE, Frame.LOST)
"""Frames that wait until the program reads them."""


class End:
    """An end of a connection, at a machine; ``dialled`` for the end that connected.

    Frames arrive in that machine's program, and do not arrive while it is stopped.
    """

    other: End
    come: Callable[[End], None]
    """Called at the listening end when a client has connected."""

    def __init__(self, peers: Peers, machine: Machine, *, dialled: bool) -> None:
        self.peers, self.machine, self.dialled = peers, machine, dialled
        self._loop, self._context = peers.loop, machine.context()
        self.url = ""
        """The address that the client connected to."""
        self.began_at = peers.loop.time()
        self.ended_at: float | None = None
        """The time of its end. ``left``: this end closed it without a fault."""
        self.left = False
        self.opened: asyncio.Future[None] = peers.loop.create_future()
        self._queue: deque[tuple[Frame, Any]] = deque()
        self._came = asyncio.Event()
        self._room = asyncio.Event()
        self._on_the_way = 0
        """Bytes that were sent from here and not read at the other end."""
        self._free = 0.0
        self._kept: list[tuple[Frame, Any]] = []
        self._heard = peers.loop.time()
        self._gone = False
        """Whether this end can neither send nor receive."""
        self._closed = False
        self._closing = False
        """Whether the other side sent a close frame."""
        self._waiting = False

    @property
    def lives(self) -> bool:
        """Return whether the connection is open: this end knows of no end and has not closed it."""
        return not (self._gone or self._closed)

    # --- in transit ---------------------------------------------------------------------------------------------------

    def send(self, frame: Frame, said: Any = None) -> None:
        """Send a frame. Raises ClientConnectionResetError if the connection has ended."""
        if self._gone:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        if frame is Frame.DATA:
            for told in [*self.peers.sent, *self.peers.plans[True]]:
                told(self, said)
            if self._gone or not self.machine.alive:
                return  # the planned fault ended it
            said = said_to(self, said)
            self._on_the_way += len(said)
        self._pass(frame, said)

    def _pass(self, frame: Frame, said: Any) -> None:
        direction = self.peers.directions[self.machine.replica, self.other.machine.replica]
        if self._kept or not direction.open:
            self._kept.append((frame, said))
            return
        takes = self.peers.takes(self.machine.replica, self.other.machine.replica)
        self._free = max(self._free, self._loop.time() + takes) + 1e-9
        self._loop.call_at(self._free, self.other._arrive, frame, said, context=self.other._context)

    def resume(self) -> None:
        """Send the delayed frames, unless another fault still delays them."""
        if self.peers.directions[self.machine.replica, self.other.machine.replica].open:
            kept, self._kept = self._kept, []
            for frame, said in kept:
                self._pass(frame, said)

    def _arrive(self, frame: Frame, said: Any) -> None:
        if self._gone:
            return
        self._heard = self._loop.time()
        if frame is Frame.OPEN:
            self.come(self)
        elif frame is Frame.OPENED and not self.opened.done():
            self.opened.set_result(None)
        elif frame is Frame.REFUSED and not self.opened.done():
            self.opened.set_exception(aiohttp.WSServerHandshakeError(None, (), status=said))  # type: ignore[arg-type]
        elif frame in _TO_READ:
            self._queue.append((frame, said))
            self._came.set()
        if frame is Frame.LOST:
            self._end()
            if not self.opened.done():
                self.opened.set_exception(aiohttp.ServerDisconnectedError())

    # --- ends ---------------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """End the connection from here; the other side notices when it can."""
        if not self._gone:
            self._pass(Frame.LOST, None)
            self._end()

    def vanish(self) -> None:
        """Send nothing from here any more, and notify nobody of the end."""
        self._kept.clear()
        self._end()

    def cut(self) -> None:
        """A device in the network ends the connection; both sides notice when they can."""
        for end in (self, self.other):
            if not end._gone:
                self._loop.call_later(
                    self.peers.takes(end.other.machine.replica, end.machine.replica), end._arrive, Frame.LOST, None,
                    context=end._context,
                )  # fmt: skip

    def _end(self) -> None:
        self._gone = True
        self.ended_at = self._loop.time()
        self._room.set()
        if self in self.peers.ends:
            self.peers.ends.remove(self)

    def begin(self) -> None:
        """Check from now on whether the other side is there."""
        self._loop.call_later(SILENCE, self._beat, context=self._context)

    def _beat(self) -> None:
        if self._gone or self._closed:
            return
        left = self._heard + SILENCE - self._loop.time()
        if left > 1e-6:
            self._loop.call_later(left, self._beat, context=self._context)
            return
        self.send(Frame.PING)
        self._loop.call_later(SILENCE / 2, self._pong_is_due, self._loop.time(), context=self._context)

    def _pong_is_due(self, since: float) -> None:
        if self._gone or self._closed:
            return
        if self._heard > since:
            self._beat()
            return
        self._closed = True
        self.drop()
        if self._waiting:
            self._queue.append((Frame.LOST, None))
        self._came.set()

    # --- operations of the program ------------------------------------------------------------------------------------

    async def send_bytes(self, data: bytes) -> None:
        """Send a message; wait while too many bytes are unread. Raises ClientConnectionResetError."""
        if self._closed or self._closing:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        self.send(Frame.DATA, data)
        while self._on_the_way > WINDOW and not self._gone:
            self._room.clear()
            await self._room.wait()

    async def receive(self, timeout: float | None = None) -> WSMessage:
        """Return the next message. Raises TimeoutError."""
        while not self._closed:
            async with asyncio.timeout(timeout):
                frame, said = await self._next()
            if frame is Frame.DATA:
                for told in [*self.peers.read, *self.peers.plans[False]]:
                    told(self, said)
                if not self.machine.alive:
                    await self._loop.create_future()  # never done: the connection ended here
                return WSMessage(WSMsgType.BINARY, said, None)
            if frame is Frame.PING:
                self.send(Frame.PONG)
            elif frame is Frame.CLOSE:
                self._closing = True
                await self.close()
                return WSMessage(WSMsgType.CLOSE, *said)
            elif frame is Frame.LOST:
                self._closed = True
                return WSMessage(WSMsgType.ERROR, aiohttp.ClientConnectionResetError("Connection lost"), None)
        return _CLOSED

    async def _next(self) -> tuple[Frame, Any]:
        self._waiting = True
        try:
            while not self._queue:
                if self._closed or self._gone:
                    return Frame.LOST, None
                self._came.clear()
                await self._came.wait()
        finally:
            self._waiting = False
        frame, said = self._queue.popleft()
        if frame is Frame.DATA:
            self.other._on_the_way -= len(said)
            self.other._room.set()
        return frame, said

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        """End the connection with a reason, and wait for the other side's close frame."""
        if self._closed:
            self.drop()
            return False
        self._closed = True
        try:
            if not self._gone:
                self.left = not self._closing
                self.send(Frame.CLOSE, (code, message.decode()))
                await self._answered()
        finally:
            self.drop()
        return True

    async def _answered(self) -> None:
        """Return when the other side has closed the connection, too, or its time is over."""
        try:
            async with asyncio.timeout(_PATIENCE[self.dialled]):
                while not self._closing:
                    while not self._queue and not self._gone:
                        self._came.clear()
                        await self._came.wait()
                    if not self._queue or self._queue.popleft()[0] in (Frame.CLOSE, Frame.LOST):
                        return
        except TimeoutError:
            return

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WSMessage:
        """Return the next message; iteration ends with the connection."""
        message = await self.receive()
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
            raise StopAsyncIteration
        return message
