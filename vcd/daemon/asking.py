"""The world outside, asked over HTTP from the thread in which a session decides.

The thread waits, the event loop does not: there is none here. The time-out bounds the whole exchange, looking up the
name included, so that a server that hangs, or sends a byte now and then, costs a session that much and no more.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import queue
import socket
import ssl
import threading
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from vcd.scheduling.arguments import format_duration
from vcd.scheduling.outside import Question, Reply

_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
"""What using a kept connection raises that the server closed in the meantime."""
_STOPPING = Reply(error="stopping")
_LONGEST = 86_400.0
"""Seconds that the longest time-out means."""
_SPARED = 65_536
"""Bytes of a refusal that are read, so that its connection can be kept."""


class Asking:
    """Answers questions by HTTP, keeping the connection to each server open from one to the next."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}
        self._closed = False

    def ask(self, question: Question) -> Reply:
        """The answer, or an error: a status other than 200, an answer too long, or none in time."""
        try:
            target = _target(question.url)
            line = self._line(target)
        except (ValueError, http.client.HTTPException) as error:
            return Reply(error=f"the address cannot be asked: {error}")
        if self._closed:
            line.hang_up()
        return line.exchange(question, target)

    def _line(self, target: _Target) -> _Line:
        origin = (target.scheme, target.netloc)
        line = self._lines.get(origin)
        if line is None or not line.usable:
            line = self._lines[origin] = _Line(target)
        return line

    def close(self) -> None:
        """End all connections: what is being asked, and everything after it, is answered by an error."""
        self._closed = True
        for line in list(self._lines.values()):
            line.hang_up()


@dataclass(frozen=True, slots=True)
class _Target:
    """A URL taken apart: ``netloc`` has no user info, ``authorization`` is the header made of it."""

    scheme: str
    netloc: str
    host: str
    port: int | None
    path: str
    authorization: str


def _target(url: str) -> _Target:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is no URL with http:// or https:// and a host")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target(parts.scheme, parts.netloc.rpartition("@")[2], parts.hostname, parts.port, path, authorization)


def _seconds(question: Question) -> float:
    return min(question.timeout / 1e9, _LONGEST)


def _late(question: Question) -> Reply:
    return Reply(error=f"no answer within {format_duration(question.timeout)}")


class _Line:
    """A connection with a thread of its own, which can be left behind when an answer does not come."""

    def __init__(self, target: _Target) -> None:
        if target.scheme == "https":
            context = ssl.create_default_context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                target.host, target.port, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(target.host, target.port)
        self._calls: queue.SimpleQueue[tuple[Question, _Target] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.usable = True
        threading.Thread(target=self._serve, name="asking", daemon=True).start()

    def exchange(self, question: Question, target: _Target) -> Reply:
        """Ask, and wait as long as the question allows."""
        self._calls.put((question, target))
        try:
            return self._replies.get(timeout=_seconds(question))
        except queue.Empty:
            self.hang_up()
            return _late(question)

    def hang_up(self) -> None:
        """Use it no more; a thread that waits in it wakes up and ends."""
        self.usable = False
        self._calls.put(None)
        self._replies.put(_STOPPING)
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._replies.put(self._answer(*call))
            if not self.usable:
                break
        self._connection.close()

    def _answer(self, question: Question, target: _Target) -> Reply:
        kept = self._connection.sock is not None
        try:
            try:
                response = self._send(question, target)
            except _STALE:
                if not kept:
                    raise
                self._connection.close()
                response = self._send(question, target)
            return self._read(response, question.limit)
        except TimeoutError:  # the socket's own limit, where this thread sees it before who waits
            self._connection.close()
            return _late(question)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            return Reply(error=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    def _send(self, question: Question, target: _Target) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "vcd"}
        if target.authorization:
            headers["Authorization"] = target.authorization
        self._connection.timeout = _seconds(question)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(_seconds(question))
        self._connection.request("POST", target.path, question.body, headers)
        return self._connection.getresponse()

    def _read(self, response: http.client.HTTPResponse, limit: int) -> Reply:
        if response.status != http.client.OK:
            response.read(_SPARED)
            self._keep(response)
            return Reply(error=f"HTTP {response.status}")
        length = response.length
        body = response.read(limit + 1)
        self._keep(response)
        if len(body) > limit:
            return Reply(error=f"the answer has more than {limit} bytes")
        if length is not None and len(body) < length:
            return Reply(error="the answer was cut off")
        return Reply(body)

    def _keep(self, response: http.client.HTTPResponse) -> None:
        """Close the connection unless the answer was read to its end."""
        if not response.isclosed():
            self._connection.close()
