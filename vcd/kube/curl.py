"""HTTP requests over libcurl, for responses that are read as a whole.

The scheduler makes one request per pod, and libcurl uses less than half the CPU of aiohttp. `Curl` integrates libcurl's
"multi_socket" interface (https://curl.se/libcurl/c/libcurl-multi.html) with asyncio. Before a change, note that a bind
must never reach the server after its caller gave up: see `_discard_undelivered` and `_RequestBody`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import pycurl

from vcd.kube.api_errors import LeadershipLost, NoResponse
from vcd.kube.kube_connection import Connection

_MAX_IDLE = 60
"""Seconds for which an unused connection stays open."""
_MAX_CONNECTIONS = 256
_CLOSED = "the client is closed"
_NOT_SENT_CODES = frozenset(
    {
        pycurl.E_COULDNT_CONNECT,
        pycurl.E_COULDNT_RESOLVE_HOST,
        pycurl.E_COULDNT_RESOLVE_PROXY,
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_PEER_FAILED_VERIFICATION,
    }
)

_Tls = tuple[bytes | None, bytes | None, bytes | None]
"""Client certificate, its key, and the server's CA bundle, in PEM."""
_TLS_OPTIONS = (pycurl.SSLCERT_BLOB, pycurl.SSLKEY_BLOB, pycurl.CAINFO_BLOB)
"""The options for `_Tls` (libcurl 7.77). Given by content, not by file name: for an unchanged name, libcurl reuses
connections made with the file's old content and caches the CA bundle for 24 hours."""

_POLL_EVENTS = {
    pycurl.POLL_REMOVE: (),
    pycurl.POLL_IN: (pycurl.CSELECT_IN,),
    pycurl.POLL_OUT: (pycurl.CSELECT_OUT,),
    pycurl.POLL_INOUT: (pycurl.CSELECT_IN, pycurl.CSELECT_OUT),
}
"""The events that the event loop watches for libcurl."""


class HttpRequest(NamedTuple):
    """A request. ``path`` begins with a slash and is percent-encoded; ``timeout`` is in seconds; ``fence`` is called
    immediately before the first byte of the body is sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout: float
    fence: Callable[[], bool] | None

    def __str__(self) -> str:
        """Return method and path without the query, for messages."""
        return f"{self.method} {self.path.partition('?')[0]}"


class Response(NamedTuple):
    """A response: HTTP status, Retry-After in seconds (0: none) and body."""

    status: int
    retry_after: int
    body: bytes


class Curl:
    """A connection pool for one API server. ``open`` and ``close`` must run on the event loop that uses it.

    Bytes that the server did not receive ``patience`` seconds after they were sent are discarded.
    """

    def __init__(self, connection: Connection, patience: float) -> None:
        self._connection = connection
        self._options = _options(connection)
        self._options[pycurl.SOCKOPTFUNCTION] = partial(_discard_undelivered, patience)
        self._base, self._host = _base_url_and_host(connection)
        self._tls = _current_tls(connection)
        self._pending: dict[pycurl.Curl, asyncio.Future[tuple[int, str | None]]] = {}
        self._idle: list[pycurl.Curl] = []
        """Handles without a request, all configured with the current `_Tls`."""
        self._watched: dict[int, tuple[int, ...]] = {}
        """Events that the event loop watches, by socket number."""
        self._timer: asyncio.Handle | None = None
        self._closed = False

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, _MAX_CONNECTIONS)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def close(self) -> None:
        self._closed = True
        for handle, done in list(self._pending.items()):
            self._multi.remove_handle(handle)
            if not done.done():
                done.set_result((pycurl.E_ABORTED_BY_CALLBACK, _CLOSED))
        self._pending.clear()
        self._idle.clear()
        self._multi.close()
        self._set_timer(-1)

    async def request(self, request: HttpRequest) -> Response:
        """Make one request. A request with a body is sent at most once. Raises NoResponse, LeadershipLost."""
        method, path, headers, body, timeout, fence = request
        if self._closed:
            raise NoResponse(f"{request}: {_CLOSED}", sent=False)
        handle, tls = self._take_handle(), self._tls
        sending, received = _RequestBody(body or b"", fence), list[bytes]()
        try:
            handle.setopt(pycurl.URL, self._base + path)
            handle.setopt(pycurl.CUSTOMREQUEST, method)
            handle.setopt(pycurl.HTTPHEADER, [f"Host: {self._host}", "Expect:", *map(": ".join, headers.items())])
        except ValueError as error:  # a character that HTTP cannot carry
            raise NoResponse(f"{request}: it cannot be sent: {error}", sent=False) from error
        handle.setopt(pycurl.TIMEOUT_MS, max(int(timeout * 1000), 1))
        handle.setopt(pycurl.WRITEFUNCTION, received.append)
        if body:
            handle.setopt(pycurl.POST, 1)
            handle.setopt(pycurl.POSTFIELDSIZE_LARGE, len(body))
            handle.setopt(pycurl.READFUNCTION, sending.read)
        else:
            handle.setopt(pycurl.HTTPGET, 1)
        # libcurl repeats a request if a reused connection turns out to be lost; only a GET may be sent twice. A request
        # with a body is safe: libcurl cannot read the body again
        handle.setopt(pycurl.FRESH_CONNECT, int(not body and method != "GET"))
        code, problem = await self._transfer(handle)
        status, retry_after = handle.getinfo(pycurl.RESPONSE_CODE), handle.getinfo(pycurl.RETRY_AFTER)
        if tls == self._tls:
            self._idle.append(handle)
        if sending.is_fenced:
            raise LeadershipLost
        if problem is not None:
            raise NoResponse(f"{request}: {problem}", sent=sending.has_begun if body else code not in _NOT_SENT_CODES)
        # libcurl accepts response headers that were cut off
        if not received and status != 204 and handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T) != 0:
            raise NoResponse(f"{request}: the answer was cut short", sent=True)
        return Response(status, retry_after, b"".join(received))

    async def _transfer(self, handle: pycurl.Curl) -> tuple[int, str | None]:
        """Run a request to its end; return libcurl's error code and message, 0 and None on success."""
        done: asyncio.Future[tuple[int, str | None]] = self._loop.create_future()
        self._pending[handle] = done
        self._multi.add_handle(handle)
        try:
            return await done
        finally:
            if self._pending.pop(handle, None) is not None:  # the caller was cancelled
                self._multi.remove_handle(handle)

    def _take_handle(self) -> pycurl.Curl:
        tls = _current_tls(self._connection)
        if tls != self._tls:
            self._idle.clear()
            self._tls = tls
        if self._idle:
            return self._idle.pop()
        handle = pycurl.Curl()
        for option, value in (self._options | _tls_options(tls)).items():
            handle.setopt(option, value)
        return handle

    # --- callbacks between libcurl and the event loop -----------------------------------------------------------------

    def _watch_socket(self, what: int, number: int, multi: object, data: object) -> None:
        wanted, loop = _POLL_EVENTS[what], self._loop
        watched = self._watched.pop(number, ())
        if wanted:
            self._watched[number] = wanted
        for way, add, remove in (
            (pycurl.CSELECT_IN, loop.add_reader, loop.remove_reader),
            (pycurl.CSELECT_OUT, loop.add_writer, loop.remove_writer),
        ):
            if way in wanted and way not in watched:
                add(number, self._drive, number, way)
            elif way in watched and way not in wanted:
                remove(number)

    def _set_timer(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds >= 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._drive, pycurl.SOCKET_TIMEOUT, 0)

    def _drive(self, number: int, what: int) -> None:
        """Let libcurl handle a socket event or a timeout, then complete the finished requests."""
        self._multi.socket_action(number, what)
        more = 1
        while more:
            more, done, failed = self._multi.info_read()
            for handle in done:
                self._finish(handle, 0, None)
            for handle, code, problem in failed:
                self._finish(handle, code, problem or f"error {code} of libcurl")

    def _finish(self, handle: pycurl.Curl, code: int, problem: str | None) -> None:
        self._multi.remove_handle(handle)
        done = self._pending.pop(handle)
        if not done.done():
            done.set_result((code, problem))


class _RequestBody:
    """The body of a request, read by libcurl piece by piece. The fence is checked before the first piece."""

    def __init__(self, data: bytes, fence: Callable[[], bool] | None) -> None:
        self._data = data
        self._fence = fence
        self._at = 0
        self.has_begun = self.is_fenced = False

    def read(self, size: int) -> bytes | int:
        if not self.has_begun and self._fence is not None and not self._fence():
            self.is_fenced = True
            return pycurl.READFUNC_ABORT
        self.has_begun = True
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece


def _discard_undelivered(patience: float, number: int, purpose: int) -> int:
    """Make the kernel discard unacknowledged bytes on close and after ``patience`` seconds.

    Otherwise the kernel retransmits a bind for minutes after the request was given up or the process ended or was
    suspended, and the bind could arrive while another replica leads.
    """
    one = socket.socket(fileno=number)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends RST
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: also while this process is suspended
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
    finally:
        one.detach()
    return pycurl.SOCKOPT_OK


def _options(connection: Connection) -> dict[int, object]:
    options: dict[int, object] = {
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
        pycurl.MAXAGE_CONN: _MAX_IDLE,
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.NOSIGNAL: 1,
        pycurl.PATH_AS_IS: 1,
        pycurl.SSL_SESSIONID_CACHE: 0,  # a resumed session presents the certificate that it began with
        pycurl.PROXY: connection.proxy or "",  # None would let libcurl read the environment
        pycurl.SSL_VERIFYPEER: int(connection.verify_tls),
        pycurl.SSL_VERIFYHOST: 2 * int(connection.verify_tls),
    }
    if connection.server_hostname:
        url = urlsplit(connection.base_url)
        host = f"[{url.hostname}]" if ":" in str(url.hostname) else url.hostname
        port = url.port or 443
        options[pycurl.CONNECT_TO] = [f"{connection.server_hostname}:{port}:{host}:{port}"]
    return options


def _current_tls(connection: Connection) -> _Tls:
    credentials = connection.credentials
    return (*credentials.certificate, credentials.authority)


def _tls_options(tls: _Tls) -> dict[int, object]:
    options: dict[int, object] = {option: text for option, text in zip(_TLS_OPTIONS, tls, strict=True) if text}
    if pycurl.CAINFO_BLOB in options:
        return options | {pycurl.CAPATH: ""}  # otherwise the system's CAs are trusted, too
    system = ssl.get_default_verify_paths()
    files = {pycurl.CAINFO: system.cafile, pycurl.CAPATH: system.capath}
    return options | {option: where for option, where in files.items() if where}


def _base_url_and_host(connection: Connection) -> tuple[str, str]:
    """Return the base URL and the Host header, which differ if there is a tls-server-name."""
    url = urlsplit(connection.base_url)
    if not connection.server_hostname:
        return connection.base_url, url.netloc
    return url._replace(netloc=f"{connection.server_hostname}:{url.port or 443}").geturl(), url.netloc
