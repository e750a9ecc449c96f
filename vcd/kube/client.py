"""HTTP to the API server: requests, lists in pages, watch lines; admission of writes; every failure a typed error."""

from __future__ import annotations

import asyncio
import enum
import heapq
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from vcd.kube.clock import SYSTEM_CLOCK, Backoff, Clock
from vcd.kube.connection import Connection
from vcd.kube.curl import Curl, NoAnswer, NotSent
from vcd.model import jsontext

REQUEST_TIMEOUT = 4.0
"""Seconds a request may take in all. Renew deadline plus this is less than the lease duration (docs/laws.md, law 4)."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

RETRY_AFTER_LIMIT = 30.0
"""Seconds: a server that asks for a longer pause does not get it, or one answer could stop all scheduling."""

T = TypeVar("T")

_LIST_TIMEOUT = 60.0
_REVIEWS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""Where questions are posted: nothing of them is stored."""
_READ_BUFFER = 1 << 19
_SOCKET_TIMEOUT = aiohttp.ClientWSTimeout(ws_close=1.0)
"""Seconds that the server has to say that a WebSocket ends."""
_SOCKET_MESSAGE = 32 << 20
"""Bytes of a message of a WebSocket at most."""


class KubeError(Exception):
    """Anything that went wrong between us and the API server."""


class ApiError(KubeError):
    """The server answered with an error: HTTP ``status``, and the Status object's ``reason`` and ``message``.

    ``retry_after`` is in seconds, None where the server did not say.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unanswered(KubeError):
    """No answer came. ``sent`` is False when the request surely never reached the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Silent(KubeError):
    """Nothing came from a watch that the server had agreed to: nothing happened, or its other end is gone."""


class Malformed(KubeError):
    """An answer is not what the Kubernetes API specifies."""


class Fenced(KubeError):
    """The caller's fence said no: the request was not made."""

    def __init__(self) -> None:
        super().__init__("lost leadership")


class WritesNothing(KubeError):
    """A client that only reads was to write: the request was not made."""


class Urgency(enum.IntEnum):
    """Which write goes first while writes have to queue, within bounds. The Lease never queues."""

    LEASE = 0
    COMMIT = 1
    STATUS = 2
    EVENT = 3


_PATIENCE = {Urgency.LEASE: 0.0, Urgency.COMMIT: 0.0, Urgency.STATUS: 5.0, Urgency.EVENT: 30.0}
"""Seconds for which a write lets later ones that are more urgent go first: none waits for ever."""


class _StatusDetails(msgspec.Struct):
    retry_after: float | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


_status_decoder = msgspec.json.Decoder(_Status, strict=False)
_meta_decoder = msgspec.json.Decoder(_ListMeta)
_list_decoder = msgspec.json.Decoder(_List)


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, what: str) -> T:
    """What the API server answered, whatever bytes it is made of. Raises Malformed naming ``what`` it should be."""
    try:
        try:
            return decoder.decode(raw)
        except RecursionError:
            return decoder.decode(jsontext.shallow(raw))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{what}: {error}") from error


def status_error(raw: bytes | msgspec.Raw, status: int = 0, retry_after: str | None = None) -> ApiError:
    """The error in a Status object's JSON text; ``status`` and ``retry_after`` are the response's own."""
    try:
        answer = decoded(_status_decoder, raw, "status")
    except Malformed:
        answer = _Status(message=bytes(raw)[:200].decode(errors="replace").strip())
    wait = answer.details.retry_after if answer.details else None
    if retry_after and retry_after.isdigit():
        wait = float(retry_after)
    if wait is not None:
        wait = min(wait, RETRY_AFTER_LIMIT)
    return ApiError(status or answer.code, answer.reason or "", answer.message or "", wait)


def is_final(error: KubeError) -> bool:
    """Whether the server means it: asking again would bring the same answer."""
    return isinstance(error, ApiError) and error.status < 500 and error.status != 429


def pause_after(error: KubeError, backoff: Backoff) -> float:
    """Seconds to wait before trying again: what the server asked for, or longer."""
    wanted = error.retry_after if isinstance(error, ApiError) else None
    return max(backoff.next(), wanted or 0.0)


class Page(msgspec.Struct, frozen=True):
    """Some items of a list, as raw JSON. ``first`` is also set when the list had to be started again."""

    items: list[msgspec.Raw]
    resource_version: str
    first: bool


class Admission:
    """Lets writes in: at most ``in_flight`` at once, ``qps`` a second with bursts of ``burst``, the most urgent first.

    One that is less urgent lets others go first for a bounded time alone. A ``qps`` of 0 or less sets no rate, as in
    client-go.
    """

    def __init__(self, qps: float, burst: int, in_flight: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._free = in_flight
        self._clock = clock
        self._tokens = float(self._burst)
        self._filled = clock.monotonic()
        self._queue: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.Task[None] | None = None

    async def enter(self, urgency: Urgency) -> None:
        """Wait for a place; each must be given back by ``leave``."""
        if not self._queue and self._take():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        latest = self._clock.monotonic() + _PATIENCE[urgency]
        heapq.heappush(self._queue, (latest, next(self._order), turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._queue:
            self._grant()

    def close(self) -> None:
        """Stop waiting for tokens."""
        if self._timer is not None:
            self._timer.cancel()

    def _take(self) -> bool:
        if self._free <= 0:
            return False
        if self._qps > 0:
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
            self._filled = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
        self._free -= 1
        return True

    def _grant(self) -> None:
        while self._queue:
            if self._queue[0][2].done():  # its caller was cancelled
                heapq.heappop(self._queue)
            elif self._take():
                heapq.heappop(self._queue)[2].set_result(None)
            else:
                break
        if self._queue and self._free > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        await self._clock.sleep(max(0.0, (1 - self._tokens) / self._qps))
        self._timer = None
        self._grant()


class KubeClient:
    """One API server's client. Use it as an async context manager; its pool of connections is opened on entry.

    ``qps``, ``burst`` and ``in_flight`` bound writes; reads are few and long. ``request_timeout`` (seconds) is the
    whole time of one request, and the server is told to give up on a write after it, too. One that is ``read_only``
    refuses whatever would be stored, whoever asks for it.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "vcd",
        qps: float = 2000.0,
        burst: int = 2000,
        in_flight: int = 64,
        request_timeout: float = REQUEST_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
        read_only: bool = False,
    ) -> None:
        self.request_timeout = request_timeout
        self._connection = connection
        self._read_only = read_only
        self._admission = Admission(qps, burst, in_flight, clock)
        self._session: aiohttp.ClientSession | None = None
        self._curl = Curl(connection)
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        # the server compresses lists when asked, which costs both sides more than a cluster's network does
        self._options: dict[str, Any] = {}
        if connection.proxy:
            self._options["proxy"] = connection.proxy
        if connection.server_hostname:
            self._options["server_hostname"] = connection.server_hostname

    async def __aenter__(self) -> KubeClient:
        """Open the pool of connections."""
        context = self._connection.ssl_context
        # no limit here: watches hold connections for good, and writes are bounded by admission
        connector = aiohttp.TCPConnector(limit=0, ssl=True if context is None else context, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            headers=self._headers,
        )
        self._curl.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close all connections."""
        self._admission.close()
        if self._session is not None:
            self._curl.close()
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float | None = None,
        urgency: Urgency = Urgency.COMMIT,
        fence: Callable[[], bool] | None = None,
    ) -> bytes:
        """Make one request and return the body of its answer.

        ``path`` starts with a slash and is already percent-encoded. ``timeout`` is in seconds. ``fence`` is asked
        immediately before the request is made, after any queueing, and once more when its body's first byte is written.

        Raises ApiError, Unanswered, Fenced, WritesNothing.
        """
        if self._read_only and method != "GET" and not path.startswith(_REVIEWS):
            raise WritesNothing(f"{method} {path}: this client only reads")
        timeout = self.request_timeout if timeout is None else timeout
        if method == "GET" or urgency is Urgency.LEASE:
            return await self._make(method, path, body, content_type, timeout, fence)
        await self._admission.enter(urgency)
        try:
            return await self._make(method, path, body, content_type, timeout, fence)
        finally:
            self._admission.leave()

    async def pages(self, path: str, limit: int = 500, *, timeout: float = _LIST_TIMEOUT) -> AsyncIterator[Page]:
        """List in pages of ``limit`` items. When a continue token has expired the list starts again in larger pages.

        Raises ApiError, Unanswered, Malformed.
        """
        token, first = "", True
        while True:
            query = f"limit={limit}&continue={quote(token, safe='')}" if token else f"limit={limit}"
            try:
                raw = await self.request("GET", with_query(path, query), timeout=timeout)
            except ApiError as error:
                if error.status != 410 or not token:
                    raise
                token, first, limit = "", True, 4 * limit  # not all at once, as client-go: that may be a gigabyte
                continue
            page = _listed(raw, f"list {path.partition('?')[0]}")
            yield Page(page.items or [], page.metadata.resource_version, first)
            token, first = page.metadata.continue_, False
            if not token:
                return

    async def watch(self, path: str, *, idle_timeout: float) -> AsyncGenerator[list[bytes], None]:
        """The lines of a watch, as many at a time as have arrived, none as soon as the server has agreed to it.

        Ends when the server ends it. Raises ApiError, Unanswered, and Silent after ``idle_timeout`` seconds of silence.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.request_timeout, sock_read=idle_timeout)
        await self._refresh_credentials()
        opened = False
        try:
            headers, url = self._connection.credentials.headers, URL(self._connection.base_url + path, encoded=True)
            options = {**self._options, "allow_redirects": False}
            async with self._opened().get(url, headers=headers, timeout=timeout, **options) as response:
                if response.status != 200:
                    raise status_error(await response.read(), response.status, response.headers.get("Retry-After"))
                opened = True
                yield []
                tail: list[bytes] = []
                async for chunk in response.content.iter_any():
                    end = chunk.rfind(b"\n")
                    if end < 0:
                        tail.append(chunk)
                        continue
                    tail.append(chunk[:end])
                    lines = b"".join(tail).split(b"\n")
                    tail = [chunk[end + 1 :]] if end + 1 < len(chunk) else []
                    yield [line for line in lines if line]
                if tail:
                    yield [b"".join(tail)]
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if opened and isinstance(error, aiohttp.SocketTimeoutError):
                raise Silent(f"watch {path}: silent for {idle_timeout:g} s") from error
            raise _unanswered("watch", path, error) from error

    async def socket(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to a subresource that streams, such as ``pods/portforward``; close it.

        Raises ApiError without a message (a refused upgrade has none), Unanswered, and Malformed for a server that
        answers in another protocol.
        """
        session = self._opened()
        await self._refresh_credentials()
        url = URL(self._connection.base_url + path, encoded=True)
        headers = self._connection.credentials.headers
        try:
            async with asyncio.timeout(self.request_timeout):
                socket: aiohttp.ClientWebSocketResponse = await session.ws_connect(
                    url,
                    protocols=[protocol],
                    headers=headers,
                    max_msg_size=_SOCKET_MESSAGE,
                    timeout=_SOCKET_TIMEOUT,
                    **self._options,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "", error.message) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unanswered("GET", path, error) from error
        if socket.protocol != protocol:
            await socket.close()
            raise Malformed(f"{path.partition('?')[0]}: the server speaks {socket.protocol or 'no protocol'}")
        return socket

    async def _make(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        timeout: float,
        fence: Callable[[], bool] | None,
    ) -> bytes:
        self._opened()
        if method != "GET":
            path = with_query(path, f"timeout={timeout:g}s")
        for again in (False, True):
            await self._refresh_credentials()
            if fence is not None and not fence():
                raise Fenced
            headers = {**self._headers, **self._connection.credentials.headers}
            if body is not None:
                headers["Content-Type"] = content_type
            try:
                answer = await self._curl.request(method, path, headers, body, timeout, fence)
            except NotSent:
                raise Fenced from None
            except NoAnswer as error:
                raise Unanswered(f"{method} {path.partition('?')[0]}: {error}", sent=error.sent) from error
            if answer.status < 300:
                return answer.body
            refused = answer.status == 401 and not again
            if not refused or not await self._connection.credentials.refresh(refused=True):
                break
        raise status_error(answer.body, answer.status, str(answer.retry_after or ""))

    async def _refresh_credentials(self) -> None:
        if self._connection.credentials.due:
            await self._connection.credentials.refresh()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("KubeClient is not open: use it in 'async with'")
        return self._session


def _listed(raw: bytes, what: str) -> _List:
    """A page of a list, item by item, also where one of them is broken. Raises Malformed for what is no list."""
    try:
        page = decoded(_list_decoder, raw, what)
    except Malformed:
        found = jsontext.members(raw)
        if "items" not in found:
            raise
        meta = decoded(_meta_decoder, found.get("metadata", b"{}"), what)
        page = _List(meta, [msgspec.Raw(item) for item in jsontext.elements(found["items"])])
    # without a version it is no state of the cluster at any time, and nothing could be watched from there
    if page.metadata.resource_version in ("", "0"):
        raise Malformed(f"{what}: it has no resourceVersion")
    return page


def with_query(path: str, query: str) -> str:
    """The path with a further part of a query."""
    return f"{path}&{query}" if "?" in path else f"{path}?{query}"


def _unanswered(method: str, path: str, error: Exception) -> Unanswered:
    sent = not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    return Unanswered(f"{method} {path.partition('?')[0]}: {str(error) or type(error).__name__}", sent=sent)
