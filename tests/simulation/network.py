"""The network between replicas and the API server: a transport for the client, and what may happen on the way.

Times that a request takes are drawn; what else goes wrong is said by the faults of its link, one after the other, as
long as they last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.apiserver import Answer, Opened, SimulatedServer
from tests.simulation.loop import PROCESS, SimulatedLoop
from vcd.kube.connection import Connection
from vcd.kube.curl import Response
from vcd.kube.errors import Fenced, Silent, Unanswered
from vcd.kube.transport import Stream

LIMIT = 120.0
"""Seconds after which a connection through which nothing comes is given up by the machines themselves."""


@dataclass
class Way:
    """What becomes of one request. Seconds are beside what the network takes anyhow.

    ``refused``: no connection comes about. ``lost``: it never arrives. ``instead``: what somebody answers in the
    server's place, without doing it. ``afterwards``: what is answered in place of what the server said when it had done
    it. ``forgotten``: the answer never arrives. ``cut``: of the answer's body only so many bytes.
    """

    there: float = 0.0
    back: float = 0.0
    refused: bool = False
    lost: bool = False
    instead: Answer | None = None
    afterwards: Answer | None = None
    forgotten: bool = False
    cut: int | None = None


Draw = Callable[[str, str, Way], None]
"""Changes what becomes of a request, by its method and path."""


@dataclass(eq=False)
class Link:
    """One replica's way to the server and back."""

    loop: SimulatedLoop
    server: SimulatedServer
    identity: str
    up: bool = True
    """Whether what it sends arrives."""
    down: bool = True
    """Whether what is sent to it arrives."""
    latency: float = 0.002
    """Seconds that a way takes in the mean."""
    draws: list[Draw] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    """The open watches."""

    def way(self, method: str, path: str) -> Way:
        """What becomes of a request that is made now."""
        way = Way(self._takes(), self._takes())
        for draw in self.draws:
            draw(method, path, way)
        way.lost |= not self.up
        return way

    def closed(self) -> None:
        """Let all connections end: the program at this end is no more."""
        for line in self.lines:
            line.closed = True

    def _takes(self) -> float:
        return self.latency * self.loop.rng.expovariate(1.0)


class Line:
    """An open watch's connection, to which the server writes."""

    def __init__(self, link: Link, path: str) -> None:
        self.path = path
        self._link = link
        self._chunks: deque[bytes | None] = deque()
        self._came = asyncio.Event()
        self._free = 0.0
        self.closed = False
        self.stalled = False
        """Whether what the server writes does not arrive for now, the connection open."""
        self._kept: list[bytes] = []
        self.late = 0.0
        """Seconds that each piece takes longer."""

    async def write(self, data: bytes) -> None:
        """Send a piece on its way. Raises ConnectionResetError as soon as the other end is gone."""
        if self.closed:
            raise ConnectionResetError
        if self.stalled or not self._link.down:
            self._kept.append(data)
            return
        self._send(data)

    def end(self) -> None:
        """Let the server's end be closed, behind what it wrote."""
        if not self.closed:
            self._send(None)

    def resume(self) -> None:
        """Let arrive what was kept back."""
        self.stalled = False
        kept, self._kept = self._kept, []
        for data in kept:
            self._send(data)

    def cut(self, keep: int | None = None) -> None:
        """End the connection; of what is on its way ``keep`` bytes of one piece arrive, or all."""
        if keep is not None and self._chunks and self._chunks[-1]:
            self._chunks[-1] = self._chunks[-1][:keep] or None
        self._chunks.append(None)
        self._came.set()

    def _send(self, data: bytes | None) -> None:
        loop, link = self._link.loop, self._link
        self._free = max(self._free, loop.time() + link._takes() + self.late) + 1e-9
        loop.call_at(self._free, self._arrive, data, context=loop.world.context())

    def _arrive(self, data: bytes | None) -> None:
        self._chunks.append(data)
        self._came.set()

    async def chunks(self, idle: float) -> AsyncIterator[bytes]:
        """What arrives. Raises Silent after ``idle`` seconds in which nothing did."""
        while True:
            while not self._chunks:
                self._came.clear()
                try:
                    async with asyncio.timeout(idle):
                        await self._came.wait()
                except TimeoutError:
                    raise Silent(f"watch {self.path}: silent for {idle:g} s") from None
            data = self._chunks.popleft()
            if data is None:
                return
            yield data


class SimulatedTransport:
    """A client's transport whose network is the link of the process that opens it."""

    def __init__(self, connection: Connection) -> None:
        process: Any = PROCESS.get()
        self._link: Link = process.link
        self._closed = False

    async def open(self) -> None:
        """Nothing has to be opened."""

    async def close(self) -> None:
        """End all watches."""
        self._closed = True
        for line in list(self._link.lines):
            line.closed = True

    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float,
        fence: Callable[[], bool] | None,
    ) -> Response:
        """Make one request; ``fence`` is asked in the step that sends the body. Raises Unanswered, Fenced."""
        link, asked = self._link, f"{method} {path.partition('?')[0]}"
        way = link.way(method, path)
        sent = False
        exchange = _Exchange(link, way, link.loop.create_future(), until=link.loop.time() + timeout)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(way.there / 2)  # until the connection is there
                if way.refused:
                    raise Unanswered(f"{asked}: connection refused", sent=False)
                if fence is not None and body and not fence():
                    raise Fenced
                sent = True
                exchange.send(method, path, headers, body or b"")
                answer = await exchange.answered
        except TimeoutError:
            raise Unanswered(f"{asked}: no answer within {timeout:g} s", sent=sent) from None
        finally:
            exchange.left = True
        if way.cut is not None and way.cut < len(answer.body):
            raise Unanswered(f"{asked}: the answer was cut short", sent=True)
        wait = answer.headers.get("Retry-After", "")
        return Response(answer.status, int(wait) if wait.isdigit() else 0, answer.body)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> AsyncIterator[Stream]:
        """Ask for what never ends by itself. Raises Unanswered, and Silent where nothing came for ``idle_timeout``."""
        link, line = self._link, Line(self._link, path)
        way = link.way("WATCH", path)
        exchange = _Exchange(link, way, link.loop.create_future(), link.loop.time() + idle_timeout, line)
        try:
            async with asyncio.timeout(timeout if way.refused else idle_timeout):
                if way.refused:
                    raise Unanswered(f"watch {path}: connection refused", sent=False)
                exchange.send("GET", path, headers, b"")
                answer = await exchange.answered
        except TimeoutError:
            raise Unanswered(f"watch {path}: no answer within {idle_timeout:g} s", sent=True) from None
        finally:
            exchange.left = True
        link.lines.append(line)
        try:
            if isinstance(answer, Opened):
                yield Stream(200, 0, line.chunks(idle_timeout))
            else:
                wait = answer.headers.get("Retry-After", "")
                yield Stream(answer.status, int(wait) if wait.isdigit() else 0, _whole(answer.body))
        finally:
            line.closed = True
            link.lines.remove(line)

    async def socket(self, path: str, headers: Mapping[str, str], protocol: str, timeout: float) -> Any:
        """There are none here. Raises Unanswered."""
        raise Unanswered(f"GET {path}: no WebSockets", sent=False)


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


@dataclass(eq=False)
class _Exchange:
    """One request on its way to the server, and its answer on the way back."""

    link: Link
    way: Way
    answered: asyncio.Future[Any]
    until: float
    """When the client, and the server, give it up."""
    line: Line | None = None
    left: bool = False
    """Whether the client waits no longer, and has closed the connection."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send it on its way."""
        if self.way.lost:
            return
        loop = self.link.loop
        context = loop.world.context()
        work = self._serve(method, path, dict(headers), body)
        loop.call_later(self.way.there, lambda: loop.create_task(work, context=context), context=context)

    async def _serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """What happens at the server, in the world's own time."""
        if self.left and (self.link.loop.time() >= self.until or self.link.loop.rng.random() < 0.5):
            return  # the connection was closed before anybody read what came
        if self.way.instead is not None:
            self._reply(self.way.instead)
            return
        answer = await self.link.server.answer(self.link.identity, method, path, headers, body)
        if isinstance(answer, Opened):
            assert self.line is not None
            self._reply(answer)
            try:
                await answer.serve(self.line)
            except ConnectionResetError:
                return  # the client left
            self.line.end()
            return
        self._reply(self.way.afterwards or answer)

    def _reply(self, answer: Any) -> None:
        if self.way.forgotten or not self.link.down:
            return
        loop = self.link.loop
        loop.call_later(self.way.back, self._arrive, answer, context=loop.world.context())

    def _arrive(self, answer: Any) -> None:
        if not self.answered.done():
            self.answered.set_result(answer)
