"""The embedded API server without sockets: requests and answers are the bytes that a socket would transfer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from tests.embedded.disturbed import DisturbedServer, Stallable
from vcd.embedded import listing
from vcd.embedded.request import ApiCall
from vcd.embedded.status_errors import StatusError
from vcd.embedded.store import Store


@dataclass
class Request:
    """The parts of an aiohttp request that the server's handlers use."""

    identity: str
    method: str
    url: URL
    headers: CIMultiDict[str]
    payload: bytes
    host: str = "simulated"

    @property
    def path(self) -> str:
        """The decoded path without the query."""
        return unquote(self.url.raw_path)

    @property
    def query(self) -> Any:
        """The query's parameters."""
        return self.url.query

    @property
    def content_type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip()

    async def read(self) -> bytes:
        """The body."""
        return self.payload


@dataclass(frozen=True)
class Answer:
    """Status, headers and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Opened(web.StreamResponse):
    """A watch that the server accepted. It is served once its connection is known."""

    def __init__(self, watch: Stallable, seconds: float, bookmarks: float | None, closed: Callable[[], None]) -> None:
        super().__init__()
        self.watch = watch
        self._seconds = seconds
        self._every = bookmarks
        self._closed = closed

    async def serve(self, line: Any) -> None:
        """Write to ``line`` until the watch ends."""
        try:
            await self.watch.serve(line, self._seconds, self._every)
        finally:
            self.watch.end()
            self._closed()


class SimulatedServer(DisturbedServer):
    """Executes each request in one step, at one moment of simulated time.

    ``asked`` is the request that is being executed, or None. ``executed`` is called with each request and its status
    afterwards.
    """

    def __init__(self, store: Store, *, bookmarks: float) -> None:
        super().__init__(store, bookmarks=bookmarks)
        self.affected: Counter[str] = Counter()
        """Number of times that a fault of the server, or around it, had an effect, by the name of the act."""

    asked: Request | None = None
    executed: Callable[[Request, int], None] = staticmethod(lambda request, status: None)
    noted: Callable[[Request, int], None] = staticmethod(lambda request, status: None)
    """A second callback like ``executed``."""
    credentials: Callable[[str, str], bool] = staticmethod(lambda identity, token: True)
    """Return whether a token belongs to an identity and is valid."""

    async def answer(self, identity: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        """Return the Answer to a request, or Opened for a watch."""
        request = Request(identity, method, URL(path, encoded=True), CIMultiDict(headers), body)
        self.asked = request
        try:
            response = await self._handle(request)  # type: ignore[arg-type]
        finally:
            self.asked = None
        self.noted(request, response.status)
        self.executed(request, response.status)
        if isinstance(response, Opened):
            return response
        assert isinstance(response, web.Response)
        return Answer(response.status, response.headers, bytes(response.body or b""))  # type: ignore[arg-type]

    def _identity(self, request: Any) -> str:
        identity, token = str(request.identity), request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.credentials(identity, token):
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return identity

    async def _watch(self, asked: ApiCall) -> web.StreamResponse:
        seconds = listing.number(asked.query, "timeoutSeconds")
        stream = self._opened(asked)
        assert isinstance(stream, Stallable)
        self._streams.append(stream)
        return Opened(stream, seconds or 2700.0, self._bookmarks(asked), lambda: self._streams.remove(stream))
