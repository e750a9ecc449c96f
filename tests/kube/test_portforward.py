"""A port of a pod through the API server: the channels' framing, and bytes through the embedded server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.embedded.disturbed import DisturbedServer
from tests.embedded.serving import make_store
from tests.embedded.serving import pod as manifest
from vcd.kube.api_errors import ApiError, BadResponse, NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.kube.portforward import FrameDecoder, forward_port

PORT = 8444
BEGINS = PORT.to_bytes(2, "little")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


# --- framing ----------------------------------------------------------------------------------------------------------


def test_each_channel_begins_with_the_port_and_then_is_the_ports_bytes() -> None:
    frames = FrameDecoder(PORT)
    taken = [frames.decode(message) for message in (b"\0" + BEGINS, b"\1" + BEGINS, b"\0", b"\0hello", b"\0" + BEGINS)]
    assert taken == [b"", b"", b"", b"hello", BEGINS]


@given(st.lists(st.binary(max_size=5), max_size=10), st.integers(0, 2))
def test_however_it_is_cut_the_bytes_are_the_same(parts: list[bytes], cut: int) -> None:
    frames, whole = FrameDecoder(PORT), BEGINS + b"".join(parts)
    pieces = [whole[:cut], *(whole[at : at + 3] for at in range(cut, len(whole), 3))]
    assert b"".join(frames.decode(b"\0" + piece) for piece in pieces) == b"".join(parts)


def test_what_the_pod_says_went_wrong_is_raised() -> None:
    frames = FrameDecoder(PORT)
    frames.decode(b"\1" + BEGINS)
    with pytest.raises(NoResponse, match="connection refused") as raised:
        frames.decode(b"\1error forwarding port 8444 to pod x: connection refused\n")
    assert raised.value.sent


@pytest.mark.parametrize("message", [b"", b"\2x", b"\xff", b"\0\1\2", b"\1xy"], ids=repr)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(BadResponse, match="port-forward"):
        FrameDecoder(PORT).decode(message)


# --- through a server -------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def pod(handler: Handler, address: str = "127.0.0.1", phase: str = "Running") -> AsyncIterator[tuple[str, int]]:
    """The URL of a server with the pod ``p``, and a port of it that ``handler`` serves."""
    store = make_store()
    store.create("pods", {**(made := manifest("p")), "metadata": {**made["metadata"], "namespace": "default"}})
    store.patch("pods", "default", "p", {"status": {"phase": phase, "podIP": address}}, "status")
    server = DisturbedServer(store)
    listener = await asyncio.start_server(handler, "127.0.0.1", 0)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server.url, int(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        await server.stop()


@contextlib.asynccontextmanager
async def client(url: str, timeout: float = 5.0) -> AsyncIterator[KubeClient]:
    async with KubeClient(await connect(master=url, environ={}), request_timeout=timeout) as made:
        yield made


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(4096):
        writer.write(data.upper())
        await writer.drain()
    writer.close()


async def test_bytes_go_in_both_directions_until_one_side_ends() -> None:
    async with pod(echo) as (url, port), client(url) as kube, forward_port(kube, "default", "p", port) as near:
        reader, writer = await asyncio.open_connection(sock=near)
        sent = bytes(range(97, 123)) * 20_000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent.upper()
        writer.close()
        await writer.wait_closed()


async def test_when_the_pod_ends_the_socket_ends() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        await writer.drain()
        writer.close()

    async with pod(once) as (url, port), client(url) as kube, forward_port(kube, "default", "p", port) as near:
        reader, writer = await asyncio.open_connection(sock=near)
        assert await reader.read() == b"bye"
        writer.close()


@pytest.mark.parametrize(("address", "words"), [("127.0.0.1", "Connect call failed"), ("10.0.0.9", "no process")])
async def test_a_port_that_nobody_serves_is_told_in_place_of_the_end(address: str, words: str) -> None:
    async with pod(echo, address) as (url, _), client(url) as kube:
        with pytest.raises(NoResponse, match=words):
            async with forward_port(kube, "default", "p", 1) as near:
                near.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(near, 1) == b""
                raise EOFError


async def test_what_fails_for_another_reason_stays_as_it_is() -> None:
    async with pod(echo) as (url, port), client(url) as kube:
        with pytest.raises(ValueError, match="mine"):
            async with forward_port(kube, "default", "p", port):
                raise ValueError("mine")


@pytest.mark.parametrize(("name", "status"), [("p", 500), ("none", 404)])
async def test_a_pod_that_does_not_run_is_an_answer(name: str, status: int) -> None:
    async with pod(echo, phase="Pending") as (url, port), client(url) as kube:
        with pytest.raises(ApiError) as raised:
            async with forward_port(kube, "default", name, port):
                pass
        assert raised.value.status == status


async def test_a_server_that_is_not_there_or_says_nothing_is_told(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with client(url, 0.1) as kube:
        with pytest.raises(NoResponse) as raised:
            async with forward_port(kube, "default", "p", PORT):
                pass
        assert raised.value.sent
    listener.close()
    async with client(url) as kube:
        with pytest.raises(NoResponse) as raised:
            async with forward_port(kube, "default", "p", PORT):
                pass
        assert not raised.value.sent
