"""Connections between replicas: a WebSocket over TLS with a pinned certificate.

The simulation replaces this layer (`Socket`, `listening`, `reached`). The messages are in `wire`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Protocol, Self

import aiohttp
from aiohttp import web

from vcd.daemon.options import join_address
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.replicas.replica_identity import Address, certificate
from vcd.eventlog.log_errors import LogError
from vcd.serving import connection_limits
from vcd.serving.listen_addresses import AddressError

SILENCE = 10.0
"""Seconds without a message or an answered ping after which a connection counts as lost."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)
"""Seconds to wait for the other side's close message."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Socket(Protocol):
    """The part of aiohttp's WebSocket that both ends use."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a message. Raises ConnectionError where the connection has ended."""

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:
        """Return the next message, which may be the end. Raises TimeoutError after ``timeout`` seconds."""

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        """End the connection with a code and a reason."""

    def __aiter__(self) -> Self:
        """Iterate over messages until the connection ends."""

    async def __anext__(self) -> aiohttp.WSMessage:
        """Return the next message."""


@contextlib.asynccontextmanager
async def listening(
    name: str, host: str, port: int, advertised: str, answer: Answer, admitted: Collection[object]
) -> AsyncIterator[Address]:
    """Answer requests at an address (port 0: any free port) while the context lasts.

    ``advertised`` is the host name for other replicas. Connections that are not in ``admitted`` are bounded in number,
    and closed after ``SILENCE`` seconds without a request. Raises AddressError.
    """
    context, fingerprint = certificate(name, advertised, datetime.now(UTC))
    application = web.Application()
    application.router.add_get(replica_protocol.PATH, answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, keepalive_timeout=SILENCE)
    async with contextlib.AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(
                connection_limits.listening(runner, host, port, context, spared=admitted)
            )
        except OSError as error:
            raise AddressError.of("--replicas-address", join_address(host, port), error) from error
        yield Address.of(advertised, bound, fingerprint)


async def accepted(request: web.Request) -> web.WebSocketResponse:
    """Upgrade a request that ``listening`` received."""
    socket = web.WebSocketResponse(heartbeat=SILENCE, max_msg_size=replica_protocol.LARGEST_REQUEST)
    await socket.prepare(request)
    return socket


def reached(where: Address, headers: Mapping[str, str]) -> contextlib.AbstractAsyncContextManager[Socket]:
    """Connect to an address and check the certificate against its fingerprint; see ``connected``."""
    return connected(where.url, headers, aiohttp.TCPConnector(ssl=where.pinned()))


@contextlib.asynccontextmanager
async def connected(url: str, headers: Mapping[str, str], connector: aiohttp.BaseConnector) -> AsyncIterator[Socket]:
    """Connect to a served log, and close the connection with the context.

    Raises what aiohttp raises, TimeoutError, LogError if the certificate differs, and ValueError for invalid headers.
    """
    async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as client:
        try:
            async with asyncio.timeout(SILENCE):
                socket = await client.ws_connect(
                    url, headers=headers, max_msg_size=replica_protocol.LARGEST, heartbeat=SILENCE, timeout=_CLOSING
                )
        except aiohttp.ServerFingerprintMismatch as error:
            raise LogError(
                f"{url} has another certificate than the Lease names: it restarted, or is another server"
            ) from error
        try:
            yield socket
        finally:
            await socket.close()
