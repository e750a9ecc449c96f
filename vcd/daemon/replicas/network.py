"""How replicas reach each other: TLS with a certificate that is known, and a WebSocket inside of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Protocol, Self

import aiohttp
from aiohttp import web

from vcd.daemon.options import join_address
from vcd.daemon.replicas import wire
from vcd.daemon.replicas.identity import Address, certificate
from vcd.eventlog.errors import LogError
from vcd.serving import connections
from vcd.serving.addresses import AddressError

SILENCE = 10.0
"""Seconds without a word of the other side, or a ping answered, after which a connection counts as lost."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)
"""Seconds that the other side has to say that a connection ends."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Socket(Protocol):
    """A connection over which messages of bytes go both ways; that of aiohttp, at either end."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a message. Raises ConnectionError where the connection has ended."""

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:
        """What comes next, be it that the connection ends. Raises TimeoutError after ``timeout`` seconds."""

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        """End the connection, and say why."""

    def __aiter__(self) -> Self:
        """What comes, until the connection ends."""

    async def __anext__(self) -> aiohttp.WSMessage:
        """The next of it."""


@contextlib.asynccontextmanager
async def listening(
    name: str, host: str, port: int, advertised: str, answer: Answer, admitted: Collection[object]
) -> AsyncIterator[Address]:
    """Answer who comes to an address (port 0: any free one), meanwhile; ``advertised`` is the host by which others
    reach it. Of connections that are not ``admitted`` a bounded number stays open, each for ``SILENCE`` without a
    request. Raises AddressError."""
    context, fingerprint = certificate(name, advertised, datetime.now(UTC))
    application = web.Application()
    application.router.add_get(wire.PATH, answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, keepalive_timeout=SILENCE)
    async with contextlib.AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(connections.listening(runner, host, port, context, spared=admitted))
        except OSError as error:
            raise AddressError.of("--replicas-address", join_address(host, port), error) from error
        yield Address.of(advertised, bound, fingerprint)


async def accepted(request: web.Request) -> web.WebSocketResponse:
    """The socket of a request that ``listening`` was asked to answer."""
    socket = web.WebSocketResponse(heartbeat=SILENCE, max_msg_size=wire.LARGEST_ASKED)
    await socket.prepare(request)
    return socket


def reached(where: Address, headers: Mapping[str, str]) -> contextlib.AbstractAsyncContextManager[Socket]:
    """A connection to who listens at an address and has the certificate that it names; see ``connected``."""
    return connected(where.url, headers, aiohttp.TCPConnector(ssl=where.pinned()))


@contextlib.asynccontextmanager
async def connected(url: str, headers: Mapping[str, str], connector: aiohttp.BaseConnector) -> AsyncIterator[Socket]:
    """A connection to where a log is followed, which is closed with the context; ``headers`` are what is shown there.

    Raises what aiohttp does, TimeoutError, LogError where somebody else answers, and ValueError for headers that are
    none.
    """
    async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as client:
        try:
            async with asyncio.timeout(SILENCE):
                socket = await client.ws_connect(
                    url, headers=headers, max_msg_size=wire.LARGEST, heartbeat=SILENCE, timeout=_CLOSING
                )
        except aiohttp.ServerFingerprintMismatch as error:
            raise LogError(f"{url} shows another certificate: it began anew, or is somebody else") from error
        try:
            yield socket
        finally:
            await socket.close()
