"""The address on which other replicas reach this one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
import ssl
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from tests.waiting import WAIT_LIMIT
from vcd.daemon.replicas import replica_network
from vcd.daemon.replicas.replica_identity import Address
from vcd.eventlog.log_errors import LogError
from vcd.serving.connection_limits import CONNECTIONS, raise_file_limit
from vcd.serving.listen_addresses import AddressError


async def nobody(_: web.Request) -> web.StreamResponse:
    raise AssertionError("nobody comes")


@pytest.mark.parametrize(("host", "written"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_an_address_in_use_is_named_with_its_flag(host: str, written: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        port = holder.getsockname()[1]
        words = re.escape(f"--replicas-address={written}:{port}: address already in use; end that program")
        with pytest.raises(AddressError, match=f"^{words}"):
            async with replica_network.listening("a", host, port, "127.0.0.1", nobody, ()):
                pass


async def test_who_shows_another_certificate_is_not_followed() -> None:
    async with replica_network.listening("a", "127.0.0.1", 0, "127.0.0.1", nobody, ()) as address:
        other = Address(address.url, bytes(32))
        with pytest.raises(LogError, match=f"^{address.url} has another certificate than the Lease names"):
            async with replica_network.reached(other, {}):
                pass


def port_of(address: Address) -> int:
    port = urlsplit(address.url).port
    assert port is not None
    return port


def any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def answers(client: replica_network.Socket) -> bool:
    """Whether an echo comes back."""
    await client.send_bytes(b"here")
    return bool((await client.receive(WAIT_LIMIT)).data == b"here")


@pytest.mark.parametrize("tls", [None, any_certificate()], ids=["no handshake", "no request"])
async def test_who_connects_and_says_nothing_keeps_no_replica_out_and_closes_none_that_follows(
    tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("vcd.serving.connection_limits.HANDSHAKE_SECONDS", "vcd.daemon.replicas.replica_network.SILENCE"):
        monkeypatch.setattr(module, 2 * WAIT_LIMIT)  # the bound alone closes them
    admitted = set[object]()

    async def echo(request: web.Request) -> web.StreamResponse:
        admitted.add(request.protocol)
        answer = await replica_network.accepted(request)
        async for message in answer:
            await answer.send_bytes(message.data)
        return answer

    async with AsyncExitStack() as stack:
        served = replica_network.listening("a", "127.0.0.1", 0, "127.0.0.1", echo, admitted)
        address = await stack.enter_async_context(served)
        follower = await stack.enter_async_context(replica_network.reached(address, {}))
        assert await answers(follower)
        silent = []
        for _ in range(3 * CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(address), ssl=tls)
            stack.callback(writer.close)
            silent.append(reader)
        async with asyncio.timeout(WAIT_LIMIT):
            for reader in silent[:CONNECTIONS]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        assert await answers(follower)
        assert await answers(await stack.enter_async_context(replica_network.reached(address, {})))


async def test_a_connection_that_asks_for_nothing_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_network, "SILENCE", 0.05)
    async with replica_network.listening("a", "127.0.0.1", 0, "127.0.0.1", nobody, ()) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(address), ssl=any_certificate())
        async with asyncio.timeout(WAIT_LIMIT):
            assert await reader.read() == b""
        writer.close()


def test_the_process_may_open_as_many_files_as_its_hard_limit_permits() -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
