"""Requests whose answers are read as a whole, by libcurl: they cost less than half of what aiohttp's do, and a
scheduler makes one for each pod. libcurl is driven by asyncio's loop as its manual says (https://curl.se/libcurl/c/libcurl-multi.html,
"multi_socket").
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

from vcd.kube.connection import Connection
from vcd.kube.errors import Fenced, Unanswered

_IDLE = 60
"""Seconds for which a connection is kept open for the next request."""
_CONNECTIONS = 256
"""Of those, how many at most."""
_CLOSED = "the client is closed"
_BEFORE_SENDING = frozenset(
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
"""The client's certificate, its key, and the server's authorities, in PEM."""
_TLS_TEXTS = (pycurl.SSLCERT_BLOB, pycurl.SSLKEY_BLOB, pycurl.CAINFO_BLOB)
"""Their options, of libcurl 7.77 and later. Not by files' names: so libcurl would take a kept connection again that
showed what a file had before, and believe for 24 hours the authorities that it had."""

_WANTED = {
    pycurl.POLL_REMOVE: (),
    pycurl.POLL_IN: (pycurl.CSELECT_IN,),
    pycurl.POLL_OUT: (pycurl.CSELECT_OUT,),
    pycurl.POLL_INOUT: (pycurl.CSELECT_IN, pycurl.CSELECT_OUT),
}
"""What libcurl wants to be told of a socket."""


class HttpRequest(NamedTuple):
    """What is asked: ``path`` begins with a slash and is percent-encoded; ``timeout`` is the seconds that it may take;
    ``fence`` is asked in the step that sends the body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout: float
    fence: Callable[[], bool] | None

    def __str__(self) -> str:
        """Its method and path, for messages."""
        return f"{self.method} {self.path.partition('?')[0]}"


class Response(NamedTuple):
    """An answer: its status, the seconds after which the server wants to be asked again (0: none) and body."""

    status: int
    retry_after: int
    body: bytes


class Curl:
    """The pool of connections to one API server. ``open`` it in the loop that uses it, and ``close`` it there.

    What was sent on one and not received by the server ``patience`` seconds later never is.
    """

    def __init__(self, connection: Connection, patience: float) -> None:
        self._connection = connection
        self._options = _options(connection)
        self._options[pycurl.SOCKOPTFUNCTION] = partial(_nothing_comes_late, patience)
        self._base, self._host = _base(connection)
        self._tls = _tls_of(connection)
        self._under_way: dict[pycurl.Curl, asyncio.Future[tuple[int, str | None]]] = {}
        self._idle: list[pycurl.Curl] = []
        """Handles without a request, all of the certificates that hold now."""
        self._watched: dict[int, tuple[int, ...]] = {}
        """By a socket's number, whether the loop tells when it can be read, and written."""
        self._timer: asyncio.Handle | None = None
        self._closed = False

    def open(self) -> None:
        """Be ready for requests."""
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, _CONNECTIONS)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def close(self) -> None:
        """End all connections, and the requests that wait for their answers."""
        self._closed = True
        for handle, done in list(self._under_way.items()):
            self._multi.remove_handle(handle)
            if not done.done():
                done.set_result((pycurl.E_ABORTED_BY_CALLBACK, _CLOSED))
        self._under_way.clear()
        self._idle.clear()
        self._multi.close()
        self._set_timer(-1)

    async def request(self, asked: HttpRequest) -> Response:
        """Make one request. One with a body is sent once at most, over however old a connection.

        Raises Unanswered, Fenced.
        """
        method, path, headers, body, timeout, fence = asked
        if self._closed:
            raise Unanswered(f"{asked}: {_CLOSED}", sent=False)
        handle, tls = self._handle(), self._tls
        sending, received = _Body(body or b"", fence), list[bytes]()
        try:
            handle.setopt(pycurl.URL, self._base + path)
            handle.setopt(pycurl.CUSTOMREQUEST, method)
            handle.setopt(pycurl.HTTPHEADER, [f"Host: {self._host}", "Expect:", *map(": ".join, headers.items())])
        except ValueError as error:  # text that is not ASCII, or has a NUL
            raise Unanswered(f"{asked}: no request can say this: {error}", sent=False) from error
        handle.setopt(pycurl.TIMEOUT_MS, max(int(timeout * 1000), 1))
        handle.setopt(pycurl.WRITEFUNCTION, received.append)
        if body:
            handle.setopt(pycurl.POST, 1)
            handle.setopt(pycurl.POSTFIELDSIZE_LARGE, len(body))
            handle.setopt(pycurl.READFUNCTION, sending.read)
        else:
            handle.setopt(pycurl.HTTPGET, 1)
        # a connection that was lost while it was idle lets libcurl ask again, which only a question may be
        handle.setopt(pycurl.FRESH_CONNECT, int(not body and method != "GET"))
        code, problem = await self._perform(handle)
        status, retry_after = handle.getinfo(pycurl.RESPONSE_CODE), handle.getinfo(pycurl.RETRY_AFTER)
        if tls == self._tls:
            self._idle.append(handle)
        if sending.fenced:
            raise Fenced
        if problem is not None:
            raise Unanswered(f"{asked}: {problem}", sent=sending.begun if body else code not in _BEFORE_SENDING)
        # libcurl takes a head that ends in its midst for a whole one
        if not received and status != 204 and handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T) != 0:
            raise Unanswered(f"{asked}: the answer was cut short", sent=True)
        return Response(status, retry_after, b"".join(received))

    async def _perform(self, handle: pycurl.Curl) -> tuple[int, str | None]:
        """Let libcurl do it: its error's code and words, 0 and None for none."""
        done: asyncio.Future[tuple[int, str | None]] = self._loop.create_future()
        self._under_way[handle] = done
        self._multi.add_handle(handle)
        try:
            return await done
        finally:
            if self._under_way.pop(handle, None) is not None:  # who waited was cancelled
                self._multi.remove_handle(handle)

    def _handle(self) -> pycurl.Curl:
        tls = _tls_of(self._connection)
        if tls != self._tls:
            self._idle.clear()
            self._tls = tls
        if self._idle:
            return self._idle.pop()
        handle = pycurl.Curl()
        for option, value in (self._options | _tls_options(tls)).items():
            handle.setopt(option, value)
        return handle

    # --- what libcurl asks of the loop --------------------------------------------------------------------------------

    def _watch_socket(self, what: int, number: int, multi: object, data: object) -> None:
        wanted, loop = _WANTED[what], self._loop
        watched = self._watched.pop(number, ())
        if wanted:
            self._watched[number] = wanted
        for way, add, remove in (
            (pycurl.CSELECT_IN, loop.add_reader, loop.remove_reader),
            (pycurl.CSELECT_OUT, loop.add_writer, loop.remove_writer),
        ):
            if way in wanted and way not in watched:
                add(number, self._act, number, way)
            elif way in watched and way not in wanted:
                remove(number)

    def _set_timer(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds >= 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._act, pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, number: int, what: int) -> None:
        """Something can be read or written, or it is time: let libcurl go on, and tell of what is done."""
        self._multi.socket_action(number, what)
        more = 1
        while more:
            more, done, failed = self._multi.info_read()
            for handle in done:
                self._end(handle, 0, None)
            for handle, code, problem in failed:
                self._end(handle, code, problem or f"error {code} of libcurl")

    def _end(self, handle: pycurl.Curl, code: int, problem: str | None) -> None:
        self._multi.remove_handle(handle)
        done = self._under_way.pop(handle)
        if not done.done():
            done.set_result((code, problem))


class _Body:
    """What is sent, piece by piece as libcurl asks for it: the first only if the fence lets it."""

    def __init__(self, data: bytes, fence: Callable[[], bool] | None) -> None:
        self._data = data
        self._fence = fence
        self._at = 0
        self.begun = self.fenced = False

    def read(self, size: int) -> bytes | int:
        if not self.begun and self._fence is not None and not self._fence():
            self.fenced = True
            return pycurl.READFUNC_ABORT
        self.begun = True
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece


def _nothing_comes_late(patience: float, number: int, purpose: int) -> int:
    """Have the kernel drop what it could not deliver: else it goes on sending a bind for minutes after the request was
    given up, or its program ended or was stopped, and the bind is made when another replica leads."""
    one = socket.socket(fileno=number)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: for who is stopped, and closes nothing
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
    finally:
        one.detach()
    return pycurl.SOCKOPT_OK


def _options(connection: Connection) -> dict[int, object]:
    """What all requests to a server have in common."""
    options: dict[int, object] = {
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
        pycurl.MAXAGE_CONN: _IDLE,
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.NOSIGNAL: 1,
        pycurl.PATH_AS_IS: 1,
        pycurl.SSL_SESSIONID_CACHE: 0,  # a session that goes on shows a certificate that may have been replaced
        pycurl.PROXY: connection.proxy or "",  # else libcurl takes one from the environment
        pycurl.SSL_VERIFYPEER: int(connection.verified),
        pycurl.SSL_VERIFYHOST: 2 * int(connection.verified),
    }
    if connection.server_hostname:
        url = urlsplit(connection.base_url)
        host = f"[{url.hostname}]" if ":" in str(url.hostname) else url.hostname
        port = url.port or 443
        options[pycurl.CONNECT_TO] = [f"{connection.server_hostname}:{port}:{host}:{port}"]
    return options


def _tls_of(connection: Connection) -> _Tls:
    """What holds now; libcurl takes no kept connection again that began with other ones."""
    credentials = connection.credentials
    return (*credentials.certificate, credentials.authority)


def _tls_options(tls: _Tls) -> dict[int, object]:
    options: dict[int, object] = {option: text for option, text in zip(_TLS_TEXTS, tls, strict=True) if text}
    if pycurl.CAINFO_BLOB in options:
        return options | {pycurl.CAPATH: ""}  # else the system's count, too
    system = ssl.get_default_verify_paths()
    files = {pycurl.CAINFO: system.cafile, pycurl.CAPATH: system.capath}
    return options | {option: where for option, where in files.items() if where}


def _base(connection: Connection) -> tuple[str, str]:
    """What URLs begin with, and what the header Host says: another name where the certificate is of another one."""
    url = urlsplit(connection.base_url)
    if not connection.server_hostname:
        return connection.base_url, url.netloc
    return url._replace(netloc=f"{connection.server_hostname}:{url.port or 443}").geturl(), url.netloc
