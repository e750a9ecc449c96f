"""How bytes get to the API server and back: requests by libcurl, streams and WebSockets by aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

import aiohttp
from yarl import URL

from vcd.kube.connection import Connection
from vcd.kube.curl import Curl, HttpRequest, Response
from vcd.kube.errors import ApiError, Malformed, Silent, Unanswered

_READ_BUFFER = 1 << 19
_SOCKET_TIMEOUT = aiohttp.ClientWSTimeout(ws_close=1.0)
"""Seconds that the server has to say that a WebSocket ends."""
_SOCKET_MESSAGE = 32 << 20
"""Bytes of a message of a WebSocket at most."""


class Stream(NamedTuple):
    """An answer that goes on: its status, the seconds after which to ask again (0: not said), and its body so far as
    it comes. Reading it raises Unanswered, and Silent."""

    status: int
    retry_after: int
    chunks: AsyncIterator[bytes]


def retry_after(headers: Mapping[str, str]) -> int:
    """The seconds after which a server wants to be asked again; 0 where it says nothing, or a date."""
    said = headers.get("Retry-After", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0


class Transport(Protocol):
    """All that a client needs of a network. Paths begin with a slash and are percent-encoded; times are seconds."""

    async def open(self) -> None:
        """Be ready for requests of this loop."""

    async def close(self) -> None:
        """End all connections, and the requests that wait for their answers."""

    async def request(self, asked: HttpRequest) -> Response:
        """Make one request. Raises Unanswered, Fenced."""

    def stream(
        self, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> AbstractAsyncContextManager[Stream]:
        """Ask for what never ends by itself; ``timeout`` is for connecting. Raises Unanswered."""

    async def socket(
        self, path: str, headers: Mapping[str, str], protocol: str, timeout: float
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket that speaks a protocol. Raises ApiError, Unanswered, Malformed."""


class HttpTransport:
    """The network. What it could not deliver within ``patience`` seconds is dropped."""

    def __init__(self, connection: Connection, patience: float) -> None:
        self._connection = connection
        self._curl = Curl(connection, patience)
        self._session: aiohttp.ClientSession | None = None
        self._options: dict[str, Any] = {}
        if connection.proxy:
            self._options["proxy"] = connection.proxy
        if connection.server_hostname:
            self._options["server_hostname"] = connection.server_hostname

    async def open(self) -> None:
        """Be ready for requests of this loop."""
        # no limit here: watches hold connections for good, and writes are bounded by admission. None is kept: it would
        # go on showing the certificate that it began with
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_READ_BUFFER
        )
        self._curl.open()

    async def close(self) -> None:
        """End all connections, and the requests that wait for their answers."""
        if self._session is not None:
            self._curl.close()
            await self._session.close()

    async def request(self, asked: HttpRequest) -> Response:
        """Make one request. Raises Unanswered, Fenced."""
        self._opened()
        return await self._curl.request(asked)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> AsyncIterator[Stream]:
        """Ask for what never ends by itself; ``timeout`` is for connecting. Raises Unanswered, and Silent where nothing
        came for ``idle_timeout``."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=idle_timeout)
        options = {**self._options_now(), "allow_redirects": False}
        agreed = False
        try:
            async with self._opened().get(self._url(path), headers=headers, timeout=limits, **options) as response:
                agreed = response.status == 200
                yield Stream(response.status, retry_after(response.headers), response.content.iter_any())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if agreed and isinstance(error, aiohttp.SocketTimeoutError):
                raise Silent(f"watch {path}: silent for {idle_timeout:g} s") from error
            raise _unanswered("watch", path, error) from error

    async def socket(
        self, path: str, headers: Mapping[str, str], protocol: str, timeout: float
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket that speaks a protocol. Raises ApiError without a message, Unanswered, Malformed."""
        try:
            async with asyncio.timeout(timeout):
                socket: aiohttp.ClientWebSocketResponse = await self._opened().ws_connect(
                    self._url(path),
                    protocols=[protocol],
                    headers=headers,
                    max_msg_size=_SOCKET_MESSAGE,
                    timeout=_SOCKET_TIMEOUT,
                    **self._options_now(),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "", error.message) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unanswered("GET", path, error) from error
        if socket.protocol != protocol:
            await socket.close()
            raise Malformed(f"{path.partition('?')[0]}: the server speaks {socket.protocol or 'no protocol'}")
        return socket

    def _options_now(self) -> dict[str, Any]:
        context = self._connection.credentials.ssl_context
        return self._options if context is None else {**self._options, "ssl": context}

    def _url(self, path: str) -> URL:
        return URL(self._connection.base_url + path, encoded=True)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("KubeClient is not open: use it in 'async with'")
        return self._session


def _unanswered(method: str, path: str, error: Exception) -> Unanswered:
    sent = not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    return Unanswered(f"{method} {path.partition('?')[0]}: {str(error) or type(error).__name__}", sent=sent)
