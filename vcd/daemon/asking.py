"""The world outside, asked over HTTP from the thread in which a session decides.

The thread waits, the event loop does not: there is none here. The time-out bounds the whole exchange, looking up the
name included, so that a server that hangs, or sends a byte now and then, costs a session that much and no more. Many
questions are asked at once, each on a connection of its own.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from vcd.scheduling.framework.arguments import format_duration
from vcd.scheduling.session.outside import OUT_OF_TIME, Question, Reply

_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
"""What using a kept connection raises that the server closed in the meantime."""
_STOPPING = Reply(error="stopping")
AT_ONCE = 16
"""Questions under way at one time; as many as vc-scheduler's workers that look at nodes."""
_LOOK = 0.25
"""Seconds between looks while waiting, at whether who waits has taken too long."""
_LONGEST = 86_400.0
"""Seconds that the longest time-out means."""
_SPARED = 65_536
"""Bytes of a refusal that are read, so that its connection can be kept."""


class Asking:
    """Answers questions by HTTP, keeping the connections to each server open from one to the next.

    ``look`` is called now and then while an answer is waited for, and may raise.
    """

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._look = look
        self._idle: dict[tuple[str, str], list[_Line]] = {}
        self._busy: dict[_Line, _Call] = {}
        self._closed = False

    def ask(self, question: Question) -> Reply:
        """The answer, or an error: a status other than 200, an answer too long, or none in time."""
        (reply,) = self.ask_all([question], round(_LONGEST * 1e9))
        return reply

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        """The answers or errors of questions that are asked side by side, AT_ONCE at a time; OUT_OF_TIME is the error
        of those without an answer when ``within`` (nanoseconds) is over."""
        batch = _Batch(questions, time.monotonic() + within / 1e9)
        try:
            while len(batch.replies) < len(questions):
                self._begin(batch)
                self._wait(batch)
        finally:
            for line in list(self._busy):  # none but where the wait was interrupted
                self._leave(line)
        return [batch.replies[place] for place in range(len(questions))]

    def _begin(self, batch: _Batch) -> None:
        """Ask as many as may be under way."""
        while batch.next < len(batch.questions) and len(self._busy) < AT_ONCE:
            place, question = batch.next, batch.questions[batch.next]
            batch.next += 1
            now = time.monotonic()
            if now >= batch.until:
                batch.replies[place] = Reply(error=OUT_OF_TIME)
                continue
            try:
                target = _target(question.url)
                line = self._line(target)
            except (ValueError, http.client.HTTPException) as error:
                batch.replies[place] = Reply(error=f"the address cannot be asked: {error}")
                continue
            self._busy[line] = call = _Call(place, question, target, batch, now + _seconds(question))
            line.ask(call)
            if self._closed:
                line.hang_up()

    def _wait(self, batch: _Batch) -> None:
        """Take what comes until a call's time is over, at most for a look."""
        self._look()
        if not self._busy:
            return
        until = min(batch.until, *(call.until for call in self._busy.values()))
        try:
            line, reply = batch.arrived.get(timeout=min(max(0.0, until - time.monotonic()), _LOOK))
        except queue.Empty:
            self._give_up(batch)
            return
        call = self._busy.pop(line, None)
        if call is not None:
            batch.replies[call.place] = reply
            if line.usable:
                self._idle.setdefault((call.target.scheme, call.target.netloc), []).append(line)

    def _give_up(self, batch: _Batch) -> None:
        """Wait no longer for answers that are late."""
        now = time.monotonic()
        for line, call in list(self._busy.items()):
            if now >= batch.until:
                batch.replies[call.place] = Reply(error=OUT_OF_TIME)
            elif now >= call.until:
                batch.replies[call.place] = _late(call.question)
            else:
                continue
            self._leave(line)

    def _leave(self, line: _Line) -> None:
        self._busy.pop(line, None)
        line.hang_up()

    def _line(self, target: _Target) -> _Line:
        idle = self._idle.get((target.scheme, target.netloc), [])
        while idle:
            line = idle.pop()
            if line.usable:
                return line
        return _Line(target)

    def close(self) -> None:
        """End all connections: what is being asked, and everything after it, is answered by an error."""
        self._closed = True
        for lines in (self._busy, *list(self._idle.values())):
            for line in list(lines):
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


@dataclass(eq=False)
class _Batch:
    """Questions that are asked side by side, ``next`` the first that is not yet, and the replies by their places.

    ``until`` is the monotonic time, in seconds, when they are given up. ``arrived`` is filled by the lines' threads.
    """

    questions: Sequence[Question]
    until: float
    next: int = 0
    replies: dict[int, Reply] = field(default_factory=dict)
    arrived: queue.SimpleQueue[tuple[_Line, Reply]] = field(default_factory=queue.SimpleQueue)


@dataclass(frozen=True, slots=True)
class _Call:
    """A question under way."""

    place: int
    question: Question
    target: _Target
    batch: _Batch
    until: float


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
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._current: _Call | None = None
        self.usable = True
        threading.Thread(target=self._serve, name="asking", daemon=True).start()

    def ask(self, call: _Call) -> None:
        """Ask; the reply goes to the call's batch."""
        self._current = call
        self._calls.put(call)

    def hang_up(self) -> None:
        """Use it no more; a thread that waits in it wakes up and ends."""
        self.usable = False
        self._calls.put(None)
        call = self._current
        if call is not None:
            call.batch.arrived.put((self, _STOPPING))
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            reply = self._answer(call.question, call.target)
            self._current = None
            call.batch.arrived.put((self, reply))
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
