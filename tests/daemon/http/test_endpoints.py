"""What the daemon answers over HTTP, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple, cast

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.waiting import WAIT_LIMIT
from vcd.daemon.http.endpoints import Probes, serve_metrics, serve_probes
from vcd.daemon.http.security import Security
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import Options, parse_options
from vcd.kube.client import KubeClient
from vcd.serving.connection_limits import CONNECTIONS
from vcd.serving.listen_addresses import AddressError


def options(**changes: str) -> Options:
    given = {"listen-address": ["127.0.0.1:0"], "healthz-address": ["127.0.0.1:0"]}
    given.update({name.replace("_", "-"): [text] for name, text in changes.items()})
    return parse_options(given)


def well() -> None:
    return None


def plain() -> Security:
    """What the flags say that are not given: nobody is asked anything."""
    return Security(options(), cast(KubeClient, None), lambda: None)


class Ports(NamedTuple):
    """Where it is listened; None for what is turned off."""

    metrics: int | None
    health: int | None


@asynccontextmanager
async def endpoints(
    chosen: Options,
    healthy: Callable[[], str | None] = well,
    ready: Callable[[], str | None] = well,
    metrics: Metrics | None = None,
) -> AsyncIterator[Ports]:
    """As the daemon serves them while it runs."""
    probes = Probes()
    async with (
        serve_probes(chosen, probes) as health,
        serve_metrics(chosen, metrics or Metrics(), plain()) as port,
    ):
        with probes.of(healthy, ready):
            yield Ports(port, health)


def serving(
    healthy: Callable[[], str | None] = well, ready: Callable[[], str | None] = well, metrics: Metrics | None = None
) -> AbstractAsyncContextManager[Ports]:
    return endpoints(options(), healthy, ready, metrics)


def port_of(port: int | None) -> int:
    assert port is not None
    return port


async def get(port: int, path: str) -> tuple[int, str, aiohttp.ClientResponse]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text(), response


async def test_metrics_are_prometheus_text() -> None:
    async with serving() as ports:
        status, text, response = await get(port_of(ports.metrics), "/metrics")
    assert status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE vcd_leader gauge\nvcd_leader 0.0\n" in text


async def test_metrics_are_compressed_for_who_takes_it() -> None:
    async with serving() as ports:
        _, text, response = await get(port_of(ports.metrics), "/metrics")
    assert response.headers["Content-Encoding"] in ("gzip", "deflate")
    assert "vcd_leader" in text


async def test_the_page_is_written_in_another_thread() -> None:
    class Noted(Metrics):
        def freeze(self) -> Callable[[], bytes]:
            threads.append(threading.get_ident())
            return lambda: threads.append(threading.get_ident()) or b""

    threads: list[int] = []
    async with serving(metrics=Noted()) as ports:
        await get(port_of(ports.metrics), "/metrics")
    assert threads[0] == threading.get_ident() != threads[1]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_all_is_well(path: str) -> None:
    async with serving() as ports:
        status, text, _ = await get(port_of(ports.health), path)
    assert (status, text) == (200, "ok")


async def test_who_is_not_healthy_says_why() -> None:
    async with serving(healthy=lambda: "the event log is full") as ports:
        status, text, _ = await get(port_of(ports.health), "/healthz")
        assert (status, text) == (503, "the event log is full")
        assert (await get(port_of(ports.health), "/readyz"))[0] == 200


async def test_who_is_not_ready_says_why() -> None:
    async with serving(ready=lambda: "not all lists are in") as ports:
        status, text, _ = await get(port_of(ports.health), "/readyz")
        assert (status, text) == (503, "not all lists are in")
        assert (await get(port_of(ports.health), "/healthz"))[0] == 200


async def test_between_two_lives_of_a_replica_the_process_is_well_and_not_ready() -> None:
    probes = Probes()
    async with serve_probes(options(), probes) as port:
        for _ in range(2):
            assert (await get(port_of(port), "/healthz"))[:2] == (200, "ok")
            assert (await get(port_of(port), "/readyz"))[:2] == (503, "the event log is read")
            with probes.of(lambda: "stuck", well):
                assert (await get(port_of(port), "/healthz"))[:2] == (503, "stuck")
                assert (await get(port_of(port), "/readyz"))[0] == 200


async def test_each_address_has_its_own_pages() -> None:
    async with serving() as ports:
        assert (await get(port_of(ports.health), "/metrics"))[0] == 404
        assert (await get(port_of(ports.metrics), "/healthz"))[0] == 404


@pytest.mark.parametrize(
    ("flag", "metrics", "health"), [("enable_metrics", False, True), ("enable_healthz", True, False)]
)
async def test_what_is_turned_off_is_not_served(flag: str, metrics: bool, health: bool) -> None:
    async with endpoints(options(**{flag: "false"})) as ports:
        assert (ports.metrics is not None, ports.health is not None) == (metrics, health)


async def test_nothing_listens_afterwards() -> None:
    async with serving() as ports:
        port = port_of(ports.metrics)
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(port, "/metrics")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.mark.parametrize("flag", ["listen-address", "healthz-address"])
async def test_an_address_in_use_is_named_with_its_flag(taken: int, flag: str) -> None:
    with pytest.raises(AddressError, match=f"^--{flag}=127.0.0.1:{taken}: address already in use") as raised:
        async with endpoints(options(**{flag: f"127.0.0.1:{taken}"})):
            pass
    assert raised.value.errno == errno.EADDRINUSE


async def test_one_bad_address_leaves_the_other_free(taken: int) -> None:
    chosen = options(listen_address="127.0.0.1:0", healthz_address=f"127.0.0.1:{taken}")
    with capture_logs() as lines, pytest.raises(AddressError):
        async with endpoints(chosen):
            pass
    for host, _, port in (line["address"].rpartition(":") for line in lines if line["event"] == "listening"):
        with socket.socket() as again:
            again.bind((host, int(port)))


async def test_a_host_that_is_not_ours_is_a_clear_error() -> None:
    with pytest.raises(AddressError, match=r"--listen-address=203\.0\.113\.1:0: "):
        async with endpoints(options(listen_address="203.0.113.1:0")):
            pass


async def test_who_connects_and_says_nothing_keeps_nobody_out_and_the_oldest_go() -> None:
    loop = asyncio.get_running_loop()
    async with serving() as ports, AsyncExitStack() as stack:
        port = port_of(ports.metrics)
        silent = []
        for number in range(3 * CONNECTIONS):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            if number % 2:
                await loop.sock_sendall(connection, b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
            silent.append(connection)
        async with asyncio.timeout(WAIT_LIMIT):
            for connection in silent[:CONNECTIONS]:
                assert await loop.sock_recv(connection, 100) == b""
        status, _, _ = await get(port, "/metrics")
        assert status == 200


async def test_a_connection_without_a_request_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.daemon.http.endpoints.IDLE_SECONDS", 0.05)
    loop = asyncio.get_running_loop()
    async with serving() as ports, asyncio.timeout(WAIT_LIMIT):
        with socket.socket() as connection:
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port_of(ports.health)))
            await loop.sock_sendall(connection, b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            assert await loop.sock_recv(connection, 100) == b""
