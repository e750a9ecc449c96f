"""What ``listening`` leaves open at its end: nothing, whatever is being accepted then."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from tests.serving.pairs import trusting, write_pair
from tests.waiting import until
from vcd.serving.connection_limits import listening


def serving(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*write_pair(folder, "one"))
    return context


def is_closed(client: socket.socket) -> bool:
    """Whether the other side has ended the connection."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("turns", range(6))
async def test_who_connects_as_a_port_is_closed_is_let_go(tmp_path: Path, encrypted: bool, turns: int) -> None:
    tls = serving(tmp_path) if encrypted else None
    async with listening(web.AppRunner(web.Application()), "127.0.0.1", 0, tls) as port:
        client = socket.create_connection(("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
    with client:
        await until(lambda: is_closed(client), what="the server closes the connection")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_handshake_that_ends_late_is_given_up(tmp_path: Path) -> None:
    """One that has begun, and would end after the server was shut down."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting().wrap_bio(incoming, outgoing)
    loop = asyncio.get_running_loop()
    async with listening(web.AppRunner(web.Application()), "127.0.0.1", 0, serving(tmp_path)) as port:
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        await loop.sock_sendall(client, outgoing.read())
        incoming.write(await loop.sock_recv(client, 1 << 16))  # the server's part: only ours lacks
    with client:
        await until(lambda: is_closed(client), what="the server closes the connection")
    assert asyncio.all_tasks() == {asyncio.current_task()}
