"""The network layer below `KubeClient`: requests over libcurl, watches and WebSockets over aiohttp.

Simulations replace `HttpTransport` with their own implementation of `Transport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

import aiohttp
from yarl import URL

from vcd.kube.api_errors import ApiError, BadResponse, IdleWatch, NoResponse
from vcd.kube.curl import Curl, HttpRequest, Response
from vcd.kube.kube_connection import Connection

_READ_BUFFER_SIZE = 1 << 19
_WEBSOCKET_TIMEOUT = aiohttp.ClientWSTimeout(ws_close=1.0)
"""Seconds for the server to confirm the close of a WebSocket."""
_MAX_WEBSOCKET_MESSAGE = 32 << 20
"""Bytes."""


class Stream(NamedTuple):
    """A streaming response: HTTP status, Retry-After in seconds (0: none) and its body as it arrives.

    Iterating ``chunks`` raises NoResponse and IdleWatch.
    """

    status: int
    retry_after: int
    chunks: AsyncIterator[bytes]


def retry_after(headers: Mapping[str, str]) -> int:
    """Return the seconds in a Retry-After header; 0 if it is absent or a date."""
    value = headers.get("Retry-After", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


class Transport(Protocol):
    """The operations that `KubeClient` needs. Paths are percent-encoded and begin with a slash; times are seconds."""

    async def open(self) -> None:
        """Prepare for requests on the running event loop."""

    async def close(self) -> None:
        """Close all connections; pending requests fail."""

    async def request(self, request: HttpRequest) -> Response:
        """Make one request. Raises NoResponse, LeadershipLost."""

    def stream(
        self, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a streaming response; ``timeout`` is for connecting. Raises NoResponse."""

    async def open_websocket(
        self, path: str, headers: Mapping[str, str], protocol: str, timeout: float
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket with a subprotocol. Raises ApiError, NoResponse, BadResponse."""


class HttpTransport:
    """The transport over a real network. Bytes not received after ``patience`` seconds are discarded."""

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
        # no limit: each watch occupies a connection, and `WriteLimiter` bounds writes. No reuse: an old connection
        # would still present the client certificate that it was opened with
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_READ_BUFFER_SIZE
        )
        self._curl.open()

    async def close(self) -> None:
        if self._session is not None:
            self._curl.close()
            await self._session.close()

    async def request(self, request: HttpRequest) -> Response:
        self._require_session()
        return await self._curl.request(request)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], timeout: float, idle_timeout: float
    ) -> AsyncIterator[Stream]:
        """Open a streaming response. Raises NoResponse, and IdleWatch if nothing arrives for ``idle_timeout``."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=idle_timeout)
        options = {**self._current_options(), "allow_redirects": False}
        is_accepted = False
        try:
            opened = self._require_session().get(self._url(path), headers=headers, timeout=limits, **options)
            async with opened as response:
                is_accepted = response.status == 200
                yield Stream(response.status, retry_after(response.headers), response.content.iter_any())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if is_accepted and isinstance(error, aiohttp.SocketTimeoutError):
                raise IdleWatch(f"watch {path}: silent for {idle_timeout:g} s") from error
            raise _no_response("watch", path, error) from error

    async def open_websocket(
        self, path: str, headers: Mapping[str, str], protocol: str, timeout: float
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket. Raises ApiError without a message, because a refused upgrade has none."""
        try:
            async with asyncio.timeout(timeout):
                socket: aiohttp.ClientWebSocketResponse = await self._require_session().ws_connect(
                    self._url(path),
                    protocols=[protocol],
                    headers=headers,
                    max_msg_size=_MAX_WEBSOCKET_MESSAGE,
                    timeout=_WEBSOCKET_TIMEOUT,
                    **self._current_options(),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "", error.message) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_response("GET", path, error) from error
        if socket.protocol != protocol:
            await socket.close()
            raise BadResponse(f"{path.partition('?')[0]}: the server speaks {socket.protocol or 'no protocol'}")
        return socket

    def _current_options(self) -> dict[str, Any]:
        context = self._connection.credentials.ssl_context
        return self._options if context is None else {**self._options, "ssl": context}

    def _url(self, path: str) -> URL:
        return URL(self._connection.base_url + path, encoded=True)

    def _require_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("KubeClient is not open: use it in 'async with'")
        return self._session


def _no_response(method: str, path: str, error: Exception) -> NoResponse:
    sent = not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    return NoResponse(f"{method} {path.partition('?')[0]}: {str(error) or type(error).__name__}", sent=sent)
