"""``pods/portforward`` over a WebSocket, as kubelets serve it: bytes to and from a port of a pod, in channels.

The i-th requested port has two channels: 2*i for data, 2*i+1 for errors. A binary message has the channel's number in
one byte, and then the data. The server's first message on each channel is the port, little endian.

Pods have no processes in the embedded cluster. A port can be reached only if the pod's status has a loopback address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from typing import Any, Final

from aiohttp import WSMsgType, web

from vcd.embedded.status_errors import StatusError, bad_request

Object = dict[str, Any]

PROTOCOL: Final = "v4.channel.k8s.io"
_PORT: Final = re.compile(r"[0-9]{1,5}")
_CHUNK: Final = 32 << 10


async def serve(request: web.Request, pod: Object) -> web.StreamResponse:
    """Forward the requested ports until one side ends. Raises StatusError 400 for an invalid request."""
    socket = web.WebSocketResponse(protocols=[PROTOCOL])
    if not socket.can_prepare(request).ok:
        raise bad_request("Upgrade request required")  # older clients use SPDY, which is not supported
    ports = _ports(request)
    phase = (pod.get("status") or {}).get("phase", "")
    if phase != "Running":
        why = f"unable to forward port because pod is not running. Current status={phase}"
        raise StatusError(500, "InternalError", why)
    await socket.prepare(request)
    for channel in range(2 * len(ports)):
        await socket.send_bytes(bytes([channel]) + ports[channel // 2].to_bytes(2, "little"))
    forwards = [_Forward(socket, 2 * number, pod, port) for number, port in enumerate(ports)]
    both = [asyncio.ensure_future(_all(forwards)), asyncio.ensure_future(_listen(socket, forwards))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await socket.close()
    return socket


def _ports(request: web.Request) -> list[int]:
    named = [text for each in request.query.getall("ports", []) for text in each.split(",")]
    if not named:
        raise bad_request('query parameter "port" is required')
    for text in named:
        if not _PORT.fullmatch(text) or not 0 < int(text) < 1 << 16:
            raise bad_request(f'unable to parse "{text}" as a port: it must be between 1 and 65535')
    return [int(text) for text in named]


async def _all(forwards: list[_Forward]) -> None:
    await asyncio.gather(*(forward.run() for forward in forwards))


async def _listen(socket: web.WebSocketResponse, forwards: list[_Forward]) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        number, odd = divmod(message.data[0], 2)
        if not odd and number < len(forwards):
            await forwards[number].sent.put(message.data[1:])


class _Forward:
    """A forwarded port. ``sent`` queues data from the client."""

    def __init__(self, socket: web.WebSocketResponse, channel: int, pod: Object, port: int) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue(16)
        self._socket = socket
        self._channel = channel
        self._pod = pod
        self._port = port

    async def run(self) -> None:
        """Forward until the pod's side ends. If it cannot be reached, send that on the error channel."""
        try:
            reader, writer = await asyncio.open_connection(self._address(), self._port)
        except (OSError, ValueError) as error:
            metadata = self._pod["metadata"]
            payload = f"error forwarding port {self._port} to pod {metadata['name']}, uid {metadata['uid']}: {error}"
            await self._socket.send_bytes(bytes([self._channel + 1]) + payload.encode())
            return
        sending = asyncio.ensure_future(self._send(writer))
        try:
            while data := await reader.read(_CHUNK):
                await self._socket.send_bytes(bytes([self._channel]) + data)
        except OSError:
            pass  # the connection is lost; the client only needs to see the end
        finally:
            sending.cancel()
            writer.close()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(await self.sent.get())
            await writer.drain()

    def _address(self) -> str:
        """Return the pod's address. Raises ValueError unless it is a loopback address."""
        address = str((self._pod.get("status") or {}).get("podIP", ""))
        if not address or not ipaddress.ip_address(address).is_loopback:
            raise ValueError(f"no process is behind the address {address or 'of this pod, which has none'}")
        return address
