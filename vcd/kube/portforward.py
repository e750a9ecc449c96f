"""A connection to a port of a pod through the API server: ``pods/portforward`` over a WebSocket.

Of the one port that is asked for there are two channels: its bytes, and what goes wrong. A message is the channel's
number, one byte, and the bytes; the server's first on each channel is the port, little endian.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp

from vcd.kube.client import KubeClient
from vcd.kube.errors import KubeError, Malformed, Unanswered
from vcd.kube.waits import first_of

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK = 32 << 10
"""Bytes that are sent in one message at most."""


class Frames:
    """What comes on the channels of one port, message by message."""

    def __init__(self, port: int) -> None:
        self._begins = {channel: port.to_bytes(2, "little") for channel in (_DATA, _ERROR)}
        """What each channel has yet to begin with."""

    def take(self, message: bytes) -> bytes:
        """The port's bytes in a message. Raises Malformed for what is no message, Unanswered for the pod's refusal."""
        channel, data = message[:1], message[1:]
        if channel not in (b"\0", b"\1"):
            raise Malformed(f"port-forward: a message on channel {channel.hex() or 'none'}")
        begins = self._begins.get(channel[0], b"")
        if begins and data:
            if not (begins.startswith(data) or data.startswith(begins)):
                raise Malformed(f"port-forward: channel {channel[0]} does not begin with the port")
            self._begins[channel[0]] = begins[len(data) :]
            data = data[len(begins) :]
        if channel[0] == _ERROR and data:
            raise Unanswered(data[:300].decode(errors="replace").strip(), sent=True)
        return data


@asynccontextmanager
async def forwarded(client: KubeClient, namespace: str, pod: str, port: int) -> AsyncIterator[socket.socket]:
    """A connected socket whose other end is a port of a pod, for as long as the context lasts; who uses it closes it.

    When either side ends, or the pod refuses, the socket ends. Raises ApiError, Unanswered and Malformed; also on
    leaving, in place of what was raised because the socket ended.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward?ports={port}"
    stream = await client.socket(path, PROTOCOL)
    near, far = socket.socketpair()
    far.setblocking(False)
    pump = asyncio.ensure_future(_pumped(stream, far, Frames(port)))
    try:
        yield near
    except Exception:
        # what went wrong there is why the socket ended here
        if pump.done() and not pump.cancelled() and isinstance(failure := pump.exception(), KubeError):
            raise failure from None
        raise
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        near.close()
        far.close()
        await stream.close()


async def _pumped(stream: aiohttp.ClientWebSocketResponse, far: socket.socket, frames: Frames) -> None:
    """Carry bytes in both directions until one of them ends; then the socket ends."""
    try:
        await first_of(_sent(stream, far), _received(stream, far, frames))
    finally:
        far.close()


async def _sent(stream: aiohttp.ClientWebSocketResponse, far: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(far, _CHUNK):
        await stream.send_bytes(bytes([_DATA]) + data)


async def _received(stream: aiohttp.ClientWebSocketResponse, far: socket.socket, frames: Frames) -> None:
    loop = asyncio.get_running_loop()
    async for message in stream:
        if message.type is aiohttp.WSMsgType.ERROR:
            raise Unanswered(f"port-forward: {message.data}", sent=True)
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise Malformed("port-forward: a message that is no bytes")
        if data := frames.take(message.data):
            await loop.sock_sendall(far, data)
