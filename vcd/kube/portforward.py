"""Forward a local socket to a pod's port through the API server: ``pods/portforward`` over a WebSocket.

Each message begins with one byte, the channel: 0 for data, 1 for errors. The server's first message on each channel is
the port number, two bytes, little endian.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp

from vcd.kube.api_errors import BadResponse, KubeError, NoResponse
from vcd.kube.asyncio_tasks import run_until_first
from vcd.kube.client import KubeClient

PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK = 32 << 10
"""Bytes per message."""


class FrameDecoder:
    """Decode the messages that the server sends for one port."""

    def __init__(self, port: int) -> None:
        self._prefixes = {channel: port.to_bytes(2, "little") for channel in (_DATA, _ERROR)}
        """The rest of the port number expected on each channel."""

    def decode(self, message: bytes) -> bytes:
        """Return the data in a message.

        Raises BadResponse for an invalid message, and NoResponse for a message on the error channel.
        """
        channel, data = message[:1], message[1:]
        if channel not in (b"\0", b"\1"):
            raise BadResponse(f"port-forward: a message on channel {channel.hex() or 'none'}")
        prefix = self._prefixes.get(channel[0], b"")
        if prefix and data:
            if not (prefix.startswith(data) or data.startswith(prefix)):
                raise BadResponse(f"port-forward: channel {channel[0]} does not begin with the port")
            self._prefixes[channel[0]] = prefix[len(data) :]
            data = data[len(prefix) :]
        if channel[0] == _ERROR and data:
            raise NoResponse(data[:300].decode(errors="replace").strip(), sent=True)
        return data


@asynccontextmanager
async def forward_port(client: KubeClient, namespace: str, pod: str, port: int) -> AsyncIterator[socket.socket]:
    """Yield a socket connected to a port of a pod, valid inside the context. The caller closes the socket.

    The socket closes when the pod or the API server ends the connection. Raises ApiError, NoResponse and
    BadResponse, also on exit, in place of the caller's exception that the closed socket caused.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward?ports={port}"
    stream = await client.open_websocket(path, PROTOCOL)
    near, far = socket.socketpair()
    far.setblocking(False)
    pump = asyncio.ensure_future(_pump(stream, far, FrameDecoder(port)))
    try:
        yield near
    except Exception:
        # the caller failed because its socket was closed; the reason is in the pump
        if pump.done() and not pump.cancelled() and isinstance(failure := pump.exception(), KubeError):
            raise failure from None
        raise
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        near.close()
        far.close()
        await stream.close()


async def _pump(stream: aiohttp.ClientWebSocketResponse, far: socket.socket, decoder: FrameDecoder) -> None:
    try:
        await run_until_first(_send(stream, far), _receive(stream, far, decoder))
    finally:
        far.close()


async def _send(stream: aiohttp.ClientWebSocketResponse, far: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(far, _CHUNK):
        await stream.send_bytes(bytes([_DATA]) + data)


async def _receive(stream: aiohttp.ClientWebSocketResponse, far: socket.socket, decoder: FrameDecoder) -> None:
    loop = asyncio.get_running_loop()
    async for message in stream:
        if message.type is aiohttp.WSMsgType.ERROR:
            raise NoResponse(f"port-forward: {message.data}", sent=True)
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise BadResponse("port-forward: a message that is no bytes")
        if data := decoder.decode(message.data):
            await loop.sock_sendall(far, data)
