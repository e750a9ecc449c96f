"""HTTP to the API server: requests, lists in pages, watch lines; every failure a typed error."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from vcd.kube.admission import Admission, Urgency
from vcd.kube.clock import SYSTEM_CLOCK, Backoff, Clock
from vcd.kube.connection import Connection
from vcd.kube.curl import HttpRequest, Response
from vcd.kube.errors import (
    ApiError,
    Fenced,
    KubeError,
    Malformed,
    Superseded,
    Unanswered,
    WritesNothing,
    decoded,
    status_error,
)
from vcd.kube.requestinfo import CompletedRequest, namespace_of, verb_and_resource
from vcd.kube.transport import HttpTransport, Stream, Transport
from vcd.model import jsontext

if TYPE_CHECKING:
    import aiohttp

REQUEST_TIMEOUT = 4.0
"""Seconds a request may take in all. Renew deadline plus this is less than the lease duration (docs/laws.md, law 4)."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Body = bytes | Callable[[], bytes | None]
"""What is written; or a function that is called after any queueing, and gives None where nothing is to be written any
more."""

_UNREACHABLE = 3
"""Requests in a row without an answer after which the API server counts as unreachable."""
_LIST_TIMEOUT = 60.0
_LIST_STARTS = 5
"""How often a list begins, each time in pages four times as large, before it is left to who asked to pause."""
_REVIEWS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""Where questions are posted: nothing of them is stored."""


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


_meta_decoder = msgspec.json.Decoder(_ListMeta)
_list_decoder = msgspec.json.Decoder(_List)


def pause_after(error: KubeError, backoff: Backoff) -> float:
    """Seconds to wait before trying again: what the server asked for, or longer."""
    wanted = error.retry_after if isinstance(error, ApiError) else None
    return max(backoff.next(), wanted or 0.0)


class Page(msgspec.Struct, frozen=True):
    """Some items of a list, as raw JSON. ``first`` is also set when the list had to be started again."""

    items: list[msgspec.Raw]
    resource_version: str
    first: bool


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
        self.completed: Callable[[CompletedRequest], None] = lambda _: None
        """Called after each request, repeated ones included; of a watch, when the server has answered."""
        self._unanswered, self._lost_at = 0, 0
        """How many requests in a row got no answer, and when the first of them ended (ns since the epoch)."""
        self._connection = connection
        self._read_only = read_only
        self._admission = Admission(qps, burst, in_flight, clock)
        self._clock = clock
        self._cut_off_until = -math.inf
        """When the server has given up on the writes that were cancelled while they were under way."""
        self._transport: Transport = HttpTransport(connection, request_timeout)
        # the server compresses lists when asked, which costs both sides more than a cluster's network does
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}

    async def __aenter__(self) -> KubeClient:
        """Open the pool of connections."""
        await self._transport.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close all connections."""
        self._admission.close()
        await self._connection.credentials.close()
        await self._transport.close()

    def session(self) -> AbstractContextManager[None]:
        """Let statuses and Events make way while a session is decided."""
        return self._admission.session()

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way, or was cancelled, which does not take it back; not those of the Lease."""
        return not self._admission.is_empty or self._clock.monotonic() < self._cut_off_until

    @property
    def unreachable_since(self) -> int:
        """Since when no request has been answered (ns since the epoch); 0 while the API server answers."""
        return self._lost_at if self._unanswered >= _UNREACHABLE else 0

    def log_failure(self, log: Any, event: str, error: KubeError, **fields: object) -> None:
        """Log a failed request as a warning, or as a detail where it only repeats that the API server is
        unreachable: that is one fault of the installation, and there are many requests."""
        repeats = isinstance(error, Unanswered) and self.unreachable_since
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
        """Make one request and return the body of its answer.

        ``path`` starts with a slash and is already percent-encoded. ``timeout`` is in seconds. ``fence`` is asked
        immediately before the request is made, after any queueing, and once more when its body's first byte is written.

        Raises ApiError, Unanswered, Fenced, WritesNothing, and Superseded where ``body`` gives None.
        """
        if self._read_only and method != "GET" and not path.startswith(_REVIEWS):
            raise WritesNothing(f"{method} {path}: this client only reads")
        timeout = self.request_timeout if timeout is None else timeout
        if method == "GET" or urgency is Urgency.LEASE:
            return await self._make(method, path, body, content_type, timeout, fence)
        await self._admission.enter(urgency)
        try:
            return await self._make(method, path, body, content_type, timeout, fence)
        except asyncio.CancelledError:
            self._cut_off_until = max(self._cut_off_until, self._clock.monotonic() + timeout)
            raise
        finally:
            self._admission.leave(urgency)

    async def pages(
        self, path: str, limit: int = 500, *, at: str = "", timeout: float = _LIST_TIMEOUT
    ) -> AsyncIterator[Page]:
        """List in pages of ``limit`` items. When a continue token has expired the list starts again in larger pages, a
        few times. ``at`` is the part of the query that says of which version: the first page alone may name it.

        Raises ApiError, Unanswered, Malformed.
        """
        token, first, starts = "", True, 1
        while True:
            more = f"continue={quote(token, safe='')}" if token else at
            query = f"limit={limit}&{more}" if more else f"limit={limit}"
            try:
                raw = await self.request("GET", with_query(path, query), timeout=timeout)
            except ApiError as error:
                if error.status != 410 or not token or starts == _LIST_STARTS:
                    raise
                starts += 1
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
        async with self._stream(path, await self._headers_now(), idle_timeout) as stream:
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

    async def socket(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to a subresource that streams, such as ``pods/portforward``; close it.

        Raises ApiError without a message (a refused upgrade has none), Unanswered, and Malformed for a server that
        answers in another protocol.
        """
        return await self._transport.socket(path, await self._headers_now(), protocol, self.request_timeout)

    async def _make(
        self,
        method: str,
        path: str,
        body: Body | None,
        content_type: str,
        timeout: float,
        fence: Callable[[], bool] | None,
    ) -> bytes:
        if callable(body) and (body := body()) is None:
            raise Superseded(f"{method} {path}: it is so no more")
        if method != "GET":
            path = with_query(path, f"timeout={timeout:g}s")
        for again in (False, True):
            headers = await self._headers_now(min(timeout, self.request_timeout))
            shown = self._connection.credentials.shown()
            if fence is not None and not fence():
                raise Fenced
            if body is not None:
                headers["Content-Type"] = content_type
            answer = await self._answered(HttpRequest(method, path, headers, body, timeout, fence))
            if answer.status < 300:
                return answer.body
            if answer.status != 401 or again or not await self._shows_another(shown):
                break
        raise status_error(answer.body, answer.status, answer.retry_after)

    async def _answered(self, request: HttpRequest) -> Response:
        """Make a request once, and report how it ended. Raises Unanswered, Fenced."""
        began = self._clock.monotonic()
        try:
            answer = await self._transport.request(request)
        except Unanswered:
            self._report(request.method, request.path, began, 0)
            raise
        error = None if answer.status < 300 else status_error(answer.body, answer.status)
        self._report(request.method, request.path, began, answer.status, error)
        return answer

    @asynccontextmanager
    async def _stream(self, path: str, headers: dict[str, str], idle_timeout: float) -> AsyncIterator[Stream]:
        """Open a stream, and report whether the server answered. Raises Unanswered, Silent."""
        began, code = self._clock.monotonic(), 0
        try:
            async with self._transport.stream(path, headers, self.request_timeout, idle_timeout) as stream:
                code = stream.status
                self._report("GET", path, began, code)
                yield stream
        except Unanswered:
            if not code:
                self._report("GET", path, began, 0)
            raise

    def _report(self, method: str, path: str, began: float, code: int, error: ApiError | None = None) -> None:
        if not (code or self._unanswered):
            self._lost_at = self._clock.wall()
        self._unanswered = 0 if code else self._unanswered + 1
        seconds = self._clock.monotonic() - began
        self.completed(CompletedRequest(*verb_and_resource(method, path), code, seconds, error, namespace_of(path)))

    async def _shows_another(self, used: tuple[object, ...]) -> bool:
        """Whether there are other credentials than were refused: another request may have got them meanwhile."""
        credentials = self._connection.credentials
        if credentials.shown() == used:
            await credentials.refresh(refused=True, within=self.request_timeout)
        return credentials.shown() != used

    async def _headers_now(self, within: float | None = None) -> dict[str, str]:
        """Those of every request, with credentials that hold, or the old ones where no others are there in time."""
        if self._connection.credentials.due:
            await self._connection.credentials.refresh(within=self.request_timeout if within is None else within)
        return {**self._headers, **self._connection.credentials.headers}


def _listed(raw: bytes, what: str) -> _List:
    """A page of a list, item by item, also where one of them is broken. Raises Malformed for what is no list."""
    try:
        page = decoded(_list_decoder, raw, what)
    except Malformed:
        found = jsontext.members(raw)
        # an empty list takes all objects away: what is broken off after its items, or has another thing there, is none
        if not jsontext.is_object(raw) or not found.get("items", b"").startswith(b"["):
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
