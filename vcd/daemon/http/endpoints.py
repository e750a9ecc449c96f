"""The HTTP endpoints of the daemon: ``/metrics`` on one address, ``/healthz`` and ``/readyz`` on another.

The web page (`vcd.view`) and the log for other replicas (`replicas.replica_network`) have ports of their own. Before
changing it: probes must be answered while the replica restarts, so they outlive a `SchedulerService`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import structlog
from aiohttp import web

from vcd.daemon.http.security import Security
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options, join_address, split_address
from vcd.serving.connection_limits import IDLE_SECONDS, listening
from vcd.serving.listen_addresses import AddressError

_log = structlog.get_logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format."""

SHUTDOWN_SECONDS = 2.0
"""Seconds for requests in flight at shutdown."""

Verdict = Callable[[], str | None]
"""Returns why a probe fails, or None."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _listening(
    flag: str, address: str, pages: Mapping[str, _Handler], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve pages on one address and return the port; errors name the address by its flag.

    Raises AddressError, and OptionError for an invalid address.
    """
    host, port = split_address(address, flag)
    application = web.Application()
    for path, handler in pages.items():
        application.router.add_get(path, handler)
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=IDLE_SECONDS
    )
    async with AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(listening(runner, host, port, tls))
        except OSError as error:
            raise AddressError.of(flag, address, error) from error
        _log.info("listening", address=join_address(host, bound), pages=list(pages))
        yield bound


class Probes:
    """The answers to Kubernetes' probes, over all services of one process.

    Between two services, and while a log is restored, the process is healthy and not ready.
    """

    def __init__(self) -> None:
        self.healthy: Verdict = lambda: None
        self.ready: Verdict = lambda: "the event log is read"

    @contextmanager
    def of(self, healthy: Verdict, ready: Verdict) -> Iterator[None]:
        """Answer probes by these functions while the context lasts. A returned reason is the text of a 503."""
        before = self.healthy, self.ready
        self.healthy, self.ready = healthy, ready
        try:
            yield
        finally:
            self.healthy, self.ready = before


@asynccontextmanager
async def serve_probes(options: Options, probes: Probes) -> AsyncIterator[int | None]:
    """Serve ``/healthz`` and ``/readyz``; yield the port, or None if they are disabled. Raises AddressError."""
    if not options.enable_healthz:
        yield None
        return
    well = "ok, as a shadow: no decision is carried out" if options.shadow else "ok"
    pages = {
        "/healthz": _verdict_page(lambda: probes.healthy(), well),
        "/readyz": _verdict_page(lambda: probes.ready(), well),
    }
    async with _listening("--healthz-address", options.healthz_address, pages) as port:
        yield port


@asynccontextmanager
async def serve_metrics(options: Options, metrics: Metrics, security: Security) -> AsyncIterator[int | None]:
    """Serve ``/metrics`` as ``security`` demands; yield the port, or None if disabled. Raises AddressError."""
    async with security.following():
        if not options.enable_metrics:
            yield None
            return
        pages = {"/metrics": _metrics_page(metrics, security)}
        async with _listening("--listen-address", options.listen_address, pages, security.metrics_tls) as port:
            yield port


def _metrics_page(metrics: Metrics, security: Security) -> _Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        await security.check_scraper(request)
        # writing many series takes longer than the event loop may pause
        body = await asyncio.to_thread(metrics.freeze())
        response = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
        response.enable_compression()
        return response

    return page


def _verdict_page(verdict: Verdict, well: str) -> _Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        reason = verdict()
        return web.Response(text=well if reason is None else reason, status=200 if reason is None else 503)

    return page
