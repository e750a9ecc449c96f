"""The client for one API server: requests, paged lists, watches and WebSockets. Every failure is a `KubeError`.

The client does not retry, except once after a 401 with other credentials: whether a request may be repeated depends on
what it does (see `vcd.kube.committer`). Writes are queued by urgency in a `WriteLimiter`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from vcd.kube.api_errors import (
    ApiError,
    BadResponse,
    KubeError,
    LeadershipLost,
    NoResponse,
    ObsoleteWrite,
    ReadOnlyClient,
    decode,
    status_error,
)
from vcd.kube.clock import SYSTEM_CLOCK, Backoff, Clock
from vcd.kube.curl import HttpRequest, Response
from vcd.kube.kube_connection import Connection
from vcd.kube.request_info import CompletedRequest, namespace_of, verb_and_resource
from vcd.kube.transport import HttpTransport, Stream, Transport
from vcd.kube.write_limiter import Urgency, WriteLimiter
from vcd.model import jsontext

if TYPE_CHECKING:
    import aiohttp

REQUEST_TIMEOUT = 4.0
"""Seconds for one request. Renew deadline plus this is less than the lease duration (docs/laws.md, law 4)."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Body = bytes | Callable[[], bytes | None]
"""A request body, or a function that returns it after queueing; None means that no write is needed."""

_UNREACHABLE_AFTER = 3
"""Consecutive requests without a response after which the API server counts as unreachable."""
_LIST_TIMEOUT = 60.0
_LIST_STARTS = 5
"""How often a list is started, each time in pages four times as large, before its error is raised."""
_REVIEW_PATHS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""POST paths that store nothing, which a read-only client may use."""


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


_meta_decoder = msgspec.json.Decoder(_ListMeta)
_list_decoder = msgspec.json.Decoder(_List)


def pause_after(error: KubeError, backoff: Backoff) -> float:
    """Return the seconds to wait before a retry: the backoff's pause, or the server's Retry-After if that is longer."""
    wanted = error.retry_after if isinstance(error, ApiError) else None
    return max(backoff.next(), wanted or 0.0)


class Page(msgspec.Struct, frozen=True):
    """Items of a list, as raw JSON. ``first`` is True for the first page, also of a list that had to be restarted."""

    items: list[msgspec.Raw]
    resource_version: str
    first: bool


class KubeClient:
    """A client for one API server, used as an async context manager.

    Args:
        qps, burst, in_flight: Limits for writes. Reads are not limited.
        request_timeout: Seconds for one request. The server abandons a write after this time, too.
        read_only: Raise ReadOnlyClient for every request that would store something.
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
        self.on_completed: Callable[[CompletedRequest], None] = lambda _: None
        """Called for each HTTP request, including repeated ones; for a watch, when the server has responded."""
        self._consecutive_failures, self._first_failure_at = 0, 0
        """Requests without a response since the last response, and when the first one ended (ns since the epoch)."""
        self._connection = connection
        self._read_only = read_only
        self._limiter = WriteLimiter(qps, burst, in_flight, clock)
        self._clock = clock
        self._cancelled_until = -math.inf
        """Monotonic seconds until which the server may still process writes whose callers were cancelled."""
        self._transport: Transport = HttpTransport(connection, request_timeout)
        # compressed lists cost both sides more CPU than a cluster's network saves
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}

    async def __aenter__(self) -> KubeClient:
        await self._transport.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._limiter.close()
        await self._connection.credentials.close()
        await self._transport.close()

    def session(self) -> AbstractContextManager[None]:
        """Hold back statuses and Events while a session is decided in this context."""
        return self._limiter.session()

    @property
    def is_writing(self) -> bool:
        """Whether a write may still be processed, including cancelled ones. Writes of the Lease do not count."""
        return not self._limiter.is_idle or self._clock.monotonic() < self._cancelled_until

    @property
    def unreachable_since(self) -> int:
        """When the API server stopped responding (ns since the epoch); 0 while it responds."""
        return self._first_failure_at if self._consecutive_failures >= _UNREACHABLE_AFTER else 0

    def log_failure(self, log: Any, event: str, error: KubeError, **fields: object) -> None:
        """Log a failed request as a warning, or at debug level while the API server is known to be unreachable."""
        repeats = isinstance(error, NoResponse) and self.unreachable_since
        (log.debug if repeats else log.warning)(event, error=str(error), **fields)

    async def request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        content_type: str = JSON,
        timeout: float | None = None,
        urgency: Urgency = Urgency.COMMIT,
        fence: Callable[[], bool] | None = None,
    ) -> bytes:
        """Make one request and return the response body.

        Args:
            path: Begins with a slash and is percent-encoded.
            timeout: Seconds; ``request_timeout`` by default.
            fence: Called after queueing, and again immediately before the first byte of the body is sent.

        Raises ApiError, NoResponse, LeadershipLost, ReadOnlyClient, and ObsoleteWrite if ``body`` returns None.
        """
        if self._read_only and method != "GET" and not path.startswith(_REVIEW_PATHS):
            raise ReadOnlyClient(f"{method} {path}: this client only reads")
        timeout = self.request_timeout if timeout is None else timeout
        if method == "GET" or urgency is Urgency.LEASE:
            return await self._send(method, path, body, content_type, timeout, fence)
        await self._limiter.acquire(urgency)
        try:
            return await self._send(method, path, body, content_type, timeout, fence)
        except asyncio.CancelledError:
            self._cancelled_until = max(self._cancelled_until, self._clock.monotonic() + timeout)
            raise
        finally:
            self._limiter.release(urgency)

    async def list_pages(
        self, path: str, limit: int = 500, *, at: str = "", timeout: float = _LIST_TIMEOUT
    ) -> AsyncIterator[Page]:
        """Yield a list in pages of ``limit`` items. If a continue token expires, the list restarts in larger pages.

        ``at`` is a query that selects a resource version; it is sent with the first page only. Raises ApiError,
        NoResponse, BadResponse.
        """
        token, first, starts = "", True, 1
        while True:
            position = f"continue={quote(token, safe='')}" if token else at
            query = f"limit={limit}&{position}" if position else f"limit={limit}"
            try:
                raw = await self.request("GET", with_query(path, query), timeout=timeout)
            except ApiError as error:
                if error.status != 410 or not token or starts == _LIST_STARTS:
                    raise
                starts += 1
                # client-go falls back to one unpaged list, which can be a gigabyte
                token, first, limit = "", True, 4 * limit
                continue
            page = _decode_page(raw, f"list {path.partition('?')[0]}")
            yield Page(page.items or [], page.metadata.resource_version, first)
            token, first = page.metadata.continue_, False
            if not token:
                return

    async def watch(self, path: str, *, idle_timeout: float) -> AsyncGenerator[list[bytes], None]:
        """Yield a watch's lines in batches as they arrive; first an empty batch, when the server accepts the watch.

        Ends when the server ends the watch. Raises ApiError, NoResponse, and IdleWatch after ``idle_timeout`` silent
        seconds.
        """
        async with self._stream(path, await self._current_headers(), idle_timeout) as stream:
            if stream.status != 200:
                body = b"".join([chunk async for chunk in stream.chunks])
                raise status_error(body, stream.status, stream.retry_after)
            yield []
            tail: list[bytes] = []
            async for chunk in stream.chunks:
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

    async def open_websocket(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to a streaming subresource such as ``pods/portforward``. The caller closes it.

        Raises ApiError without a message (a refused upgrade has none), NoResponse, and BadResponse if the server
        chose another subprotocol.
        """
        return await self._transport.open_websocket(path, await self._current_headers(), protocol, self.request_timeout)

    async def _send(
        self,
        method: str,
        path: str,
        body: Body | None,
        content_type: str,
        timeout: float,
        fence: Callable[[], bool] | None,
    ) -> bytes:
        if callable(body) and (body := body()) is None:
            raise ObsoleteWrite(f"{method} {path}: it is so no more")
        if method != "GET":
            path = with_query(path, f"timeout={timeout:g}s")
        for again in (False, True):
            headers = await self._current_headers(min(timeout, self.request_timeout))
            shown = self._connection.credentials.identity()
            if fence is not None and not fence():
                raise LeadershipLost
            if body is not None:
                headers["Content-Type"] = content_type
            answer = await self._send_once(HttpRequest(method, path, headers, body, timeout, fence))
            if answer.status < 300:
                return answer.body
            if answer.status != 401 or again or not await self._get_other_credentials(shown):
                break
        raise status_error(answer.body, answer.status, answer.retry_after)

    async def _send_once(self, request: HttpRequest) -> Response:
        began = self._clock.monotonic()
        try:
            answer = await self._transport.request(request)
        except NoResponse:
            self._report(request.method, request.path, began, 0)
            raise
        error = None if answer.status < 300 else status_error(answer.body, answer.status)
        self._report(request.method, request.path, began, answer.status, error)
        return answer

    @asynccontextmanager
    async def _stream(self, path: str, headers: dict[str, str], idle_timeout: float) -> AsyncIterator[Stream]:
        began, code = self._clock.monotonic(), 0
        try:
            async with self._transport.stream(path, headers, self.request_timeout, idle_timeout) as stream:
                code = stream.status
                self._report("GET", path, began, code)
                yield stream
        except NoResponse:
            if not code:
                self._report("GET", path, began, 0)
            raise

    def _report(self, method: str, path: str, began: float, code: int, error: ApiError | None = None) -> None:
        if not (code or self._consecutive_failures):
            self._first_failure_at = self._clock.wall()
        self._consecutive_failures = 0 if code else self._consecutive_failures + 1
        seconds = self._clock.monotonic() - began
        self.on_completed(CompletedRequest(*verb_and_resource(method, path), code, seconds, error, namespace_of(path)))

    async def _get_other_credentials(self, used: tuple[object, ...]) -> bool:
        """Return whether other credentials than the refused ones exist; a concurrent request may have read them."""
        credentials = self._connection.credentials
        if credentials.identity() == used:
            await credentials.refresh(refused=True, timeout=self.request_timeout)
        return credentials.identity() != used

    async def _current_headers(self, timeout: float | None = None) -> dict[str, str]:
        if self._connection.credentials.is_due:
            await self._connection.credentials.refresh(timeout=self.request_timeout if timeout is None else timeout)
        return {**self._headers, **self._connection.credentials.headers}


def _decode_page(raw: bytes, what: str) -> _List:
    """Decode a page of a list, keeping broken items apart. Raises BadResponse if it is not a list."""
    try:
        page = decode(_list_decoder, raw, what)
    except BadResponse:
        found = jsontext.members(raw)
        # a truncated body must not pass for a short list: missing items count as deleted objects
        if not jsontext.is_object(raw) or not found.get("items", b"").startswith(b"["):
            raise
        meta = decode(_meta_decoder, found.get("metadata", b"{}"), what)
        page = _List(meta, [msgspec.Raw(item) for item in jsontext.elements(found["items"])])
    # such a list is not a consistent state, and no watch can start from it
    if page.metadata.resource_version in ("", "0"):
        raise BadResponse(f"{what}: it has no resourceVersion")
    return page


def with_query(path: str, query: str) -> str:
    """Return ``path`` with a further query parameter."""
    return f"{path}&{query}" if "?" in path else f"{path}?{query}"
