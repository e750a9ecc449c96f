"""The network between replicas and the API server: a transport for the client, and faults of the network.

Durations of requests are drawn. All other faults come from the faults of the link, one after the other, for as long as
they last.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.apiserver import Opened, SimulatedServer
from tests.simulation.line import Line
from tests.simulation.loop import PROCESS, SimulatedLoop
from tests.simulation.road import Asked, Road, Way
from vcd.kube.api_errors import LeadershipLost, NoResponse
from vcd.kube.curl import HttpRequest, Response
from vcd.kube.kube_connection import Connection
from vcd.kube.transport import Stream, retry_after

SERVER_LIMIT = 60.0
"""Seconds after which a server ends a request without a timeout of its own (--request-timeout)."""
_TIMEOUT = re.compile(r"[?&]timeout=([\d.]+)s")
LIMIT = 120.0
"""Seconds of silence after which the machines themselves end a connection."""


@dataclass(eq=False)
class Link:
    """The connections of one program of a replica to the server."""

    loop: SimulatedLoop
    server: SimulatedServer
    identity: str
    road: Road = field(default_factory=Road)
    latency: float = 0.002
    """Mean seconds that a message takes in one direction."""
    lines: list[Line] = field(default_factory=list)
    """The open watches."""
    exchanges: list[Exchange] = field(default_factory=list)
    """The requests without an answer so far."""
    heard: Callable[[str, Asked], None] = lambda what, asked: None
    """Called for each request when it is made ("asked"), before it leaves ("sent"), and at its end ("over")."""

    def ask(self, method: str, path: str, body: bytes = b"") -> Asked:
        """Begin a request."""
        asked = Asked(self.identity, self.loop.time(), method, path, body)
        self.heard("asked", asked)
        return asked

    def over(self, asked: Asked, status: int, wait: int = 0) -> None:
        """End a request, with a status, or 0 for none."""
        asked.status, asked.wait = status, wait
        self.heard("over", asked)

    def way(self, asked: Asked) -> Way:
        """Return the outcome that the faults give to a request made now."""
        method, path = asked.method, asked.path
        way = Way(asked, self.takes(), self.takes())
        for draw in list(self.road.draws):
            draw(method, path, way)
        way.lost |= not self.road.up
        return way

    def closed(self) -> None:
        """End all connections, because the program at this end has ended."""
        for line in self.lines:
            line.closed = True
        for exchange in self.exchanges:
            exchange.left = True
        self.exchanges.clear()

    def reset(self) -> None:
        """End all connections: the other end, or a device between, dropped them."""
        for line in list(self.lines):
            line.reset()
        for exchange in list(self.exchanges):
            exchange.reset()

    def reset_lost(self) -> None:
        """End the connections over which nothing arrives any more."""
        for exchange in list(self.exchanges):
            if exchange.way.lost or exchange.way.forgotten:
                exchange.reset()

    def resume(self) -> None:
        """Deliver the delayed pieces of connections that are open again."""
        for line in list(self.lines):
            line.resume()

    def takes(self) -> float:
        """Return the seconds that a piece takes in one direction."""
        return self.latency * self.loop.rng.expovariate(1.0)


class SimulatedTransport:
    """A client's transport whose network is the link of the process that opens it."""

    def __init__(self, connection: Connection, patience: float) -> None:
        process: Any = PROCESS.get()
        self._link: Link = process.link

    async def open(self) -> None:
        """Do nothing: there is nothing to open."""

    async def close(self) -> None:
        """End all watches."""
        for line in list(self._link.lines):
            line.closed = True

    async def request(self, request: HttpRequest) -> Response:
        """Make one request. Raises NoResponse, LeadershipLost."""
        link, (method, path, headers, body, timeout, fence) = self._link, request
        told = link.ask(method, path, body or b"")
        way = link.way(told)
        sent = fenced = False
        status = wait = 0
        exchange = Exchange(link, way, link.loop.create_future(), link.loop.time() + timeout)
        try:
            async with asyncio.timeout(timeout):
                await exchange.connect()
                if way.refused:
                    raise NoResponse(f"{request}: connection refused", sent=False)
                if fence is not None and body and not fence():
                    fenced = True
                    raise LeadershipLost
                sent = True
                link.heard("sent", told)
                exchange.send(method, path, headers, body or b"")
                answer = await exchange.answered
            if way.cut is not None and way.cut < len(answer.body):
                raise NoResponse(f"{request}: the answer was cut short", sent=True)
            status, wait = answer.status, retry_after(answer.headers)
        except TimeoutError:
            raise NoResponse(f"{request}: no answer within {timeout:g} s", sent=sent) from None
        finally:
            exchange.leave()
            if not fenced:
                link.over(told, status, wait)
        return Response(answer.status, wait, answer.body)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> AsyncIterator[Stream]:
        """Open a stream. Raises NoResponse, and IdleWatch after ``idle_timeout`` seconds of silence."""
        link, line = self._link, Line(self._link, path)
        link.lines.append(line)
        try:
            answer = await self._asked(line, path, headers, timeout, idle_timeout)
            if isinstance(answer, Opened):
                yield Stream(200, 0, line.chunks(idle_timeout))
            else:
                yield Stream(answer.status, retry_after(answer.headers), _whole(answer.body))
        finally:
            line.closed = True
            link.lines.remove(line)

    async def _asked(
        self, line: Line, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> Any:
        """Return the server's answer to a watch. Raises NoResponse."""
        link, told, status, wait = self._link, self._link.ask("WATCH", path), 0, 0
        way = link.way(told)
        connected = link.road.up and link.road.down
        exchange = Exchange(link, way, link.loop.create_future(), link.loop.time() + idle_timeout, line)
        try:
            async with asyncio.timeout(idle_timeout if connected else timeout):
                await exchange.connect()
                if way.refused:
                    raise NoResponse(f"watch {path}: connection refused", sent=False)
                if connected:
                    exchange.send("GET", path, headers, b"")
                answer = await exchange.answered
            opened = isinstance(answer, Opened)
            status, wait = (200, 0) if opened else (answer.status, retry_after(answer.headers))
            return answer
        except TimeoutError:
            why = f"answer within {idle_timeout:g} s" if connected else f"connection within {timeout:g} s"
            raise NoResponse(f"watch {path}: no {why}", sent=connected) from None
        finally:
            exchange.leave()
            link.over(told, status, wait)

    async def open_websocket(self, path: str, headers: Mapping[str, str], protocol: str, timeout: float) -> Any:
        """Raise NoResponse: there are no WebSockets here."""
        raise NoResponse(f"GET {path}: no WebSockets", sent=False)


def _given(path: str) -> float:
    """Return the seconds after which the server ends a request."""
    found = _TIMEOUT.search(path)
    return float(found.group(1)) if found else SERVER_LIMIT


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


@dataclass(eq=False)
class Exchange:
    """One request on its way to the server, and its answer on the way back."""

    link: Link
    way: Way
    answered: asyncio.Future[Any]
    until: float
    """The time at which the client gives up, and the machines stop delivering it."""
    line: Line | None = None
    left: bool = False
    """Whether the client has stopped waiting and closed the connection."""
    dropped: bool = False
    """Whether the connection has ended, so that nothing in transit arrives."""

    async def connect(self) -> None:
        """Wait until the connection is established."""
        if self.way.connecting is None:
            await asyncio.sleep(self.way.there / 2)
            return
        await asyncio.sleep(self.way.there / 4)
        self.way.connecting()
        await asyncio.sleep(self.way.there / 4)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send the request."""
        self.link.exchanges.append(self)
        if self.way.impatient is not None:
            self._reply(self.way.impatient)
        if self.way.lost:
            return
        loop = self.link.loop
        context = loop.world.context()

        def arrive() -> None:
            loop.create_task(self._serve(method, self.way.path or path, dict(headers), body), context=context)

        loop.call_later(self.way.there, arrive, context=context)

    def leave(self) -> None:
        """Stop waiting."""
        self.left = True
        if self in self.link.exchanges:
            self.link.exchanges.remove(self)

    def reset(self) -> None:
        """Drop the connection; the client notices it if it can."""
        self.dropped = True
        if self.link.road.down and not self.answered.done():
            self.answered.set_exception(NoResponse("connection reset", sent=True))

    async def _serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Execute the request at the server, in the world's own process."""
        if self.dropped or self.link.loop.time() >= self.until:
            return
        if self.left and self.way.impatient is None and self.link.loop.rng.random() < 0.5:
            return  # the connection was closed before the client read the answer
        if self.way.instead is not None:
            self._reply(self.way.instead)
            return
        if self.way.held:
            await asyncio.sleep(self.way.held * _given(path))
        answer = await self.link.server.answer(self.link.identity, method, path, headers, body)
        if self.way.done is not None:
            self.way.done()
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
        self.way.forgotten |= not self.link.road.down
        if self.way.forgotten or self.dropped:
            return
        loop = self.link.loop
        loop.call_later(self.way.back, self._arrive, answer, context=loop.world.context())

    def _arrive(self, answer: Any) -> None:
        if not self.dropped and not self.answered.done():
            self.answered.set_result(answer)
