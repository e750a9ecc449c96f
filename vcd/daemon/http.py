"""What the daemon answers over HTTP: ``/metrics`` on one address, ``/healthz`` and ``/readyz`` on another."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType

import structlog
from aiohttp import web

from vcd.daemon.metrics import Metrics
from vcd.daemon.options import Options, split_address

_log = structlog.get_logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of Prometheus' text format."""

SHUTDOWN_SECONDS = 2.0
"""What requests under way get to end in."""

CONNECTIONS = 64
"""Connections that an address keeps open; with each further one the oldest goes.

Who connects and says nothing shall not use up the files that the process may open.
"""

IDLE_SECONDS = 75.0
"""After so long without a whole request a connection is closed."""

Verdict = Callable[[], str | None]
"""Why not; None when all is well."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AddressError(OSError):
    """An address that cannot be listened on; the message names its flag and says what to change."""

    def __str__(self) -> str:
        """The message alone, without the number that OSError puts before it."""
        return str(self.strerror)


class Endpoint:
    """One address and the pages that it serves. ``flag`` is what an error names."""

    def __init__(self, flag: str, address: str, pages: Mapping[str, _Handler]) -> None:
        self._flag = flag
        self._address = address
        self._pages = pages
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Endpoint:
        """Listen. Raises AddressError, and OptionError for what is no address."""
        host, port = split_address(self._address, self._flag)
        application = web.Application()
        for path, handler in self._pages.items():
            application.router.add_get(path, handler)
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=IDLE_SECONDS
        )
        await self._runner.setup()
        try:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(self._connected, host or None, port, backlog=CONNECTIONS)
        except OSError as error:
            await self._runner.cleanup()
            raise AddressError(error.errno, f"{self._flag}={self._address}: {_explained(error)}") from error
        _log.info("listening", address=self._address, pages=list(self._pages))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; requests under way may end."""
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that it listens on, also where 0 was asked for."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    def _connected(self) -> asyncio.Protocol:
        """What serves a new connection; the oldest are closed where there are too many."""
        assert self._runner is not None and self._runner.server is not None
        open_ = self._runner.server.connections
        for oldest in open_[: max(0, len(open_) + 1 - CONNECTIONS)]:
            oldest.force_close()
        return self._runner.server()


def _explained(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "address already in use; end who has it, or give another address"
    if error.errno == errno.EACCES:
        return "permission denied; ports below 1024 are for root"
    return error.strerror or str(error)


class Endpoints:
    """All that the options ask to serve, as an async context manager.

    ``healthy`` and ``ready`` are asked at each probe; an answer of theirs makes it fail with 503, and is its text.
    """

    def __init__(self, options: Options, metrics: Metrics, healthy: Verdict, ready: Verdict) -> None:
        self.metrics: Endpoint | None = None
        self.health: Endpoint | None = None
        if options.enable_metrics:
            pages = {"/metrics": _metrics_page(metrics)}
            self.metrics = Endpoint("--listen-address", options.listen_address, pages)
        if options.enable_healthz:
            pages = {"/healthz": _verdict_page(healthy), "/readyz": _verdict_page(ready)}
            self.health = Endpoint("--healthz-address", options.healthz_address, pages)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Endpoints:
        """Listen on all addresses. Raises AddressError, and then listens on none."""
        async with AsyncExitStack() as stack:
            for endpoint in (self.metrics, self.health):
                if endpoint is not None:
                    await stack.enter_async_context(endpoint)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        await self._open.aclose()


def _metrics_page(metrics: Metrics) -> _Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        # writing many series takes longer than the event loop may pause
        body = await asyncio.to_thread(metrics.freeze())
        response = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
        response.enable_compression()
        return response

    return page


def _verdict_page(verdict: Verdict) -> _Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        reason = verdict()
        return web.Response(text="ok" if reason is None else reason, status=200 if reason is None else 503)

    return page
