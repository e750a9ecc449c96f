"""HTTP to servers other than the API server: extenders, and monitoring systems. Who asks bounds the time."""

from __future__ import annotations

import base64
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from vcd.daemon.concurrency.threads import in_thread


def open_session(*, verify: bool = True, **options: Any) -> aiohttp.ClientSession:
    """A session without cookies and time-outs of its own; ``verify`` is whether certificates are."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=verify, resolver=_Resolver()),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        **options,
    )


def headers_for(user: str | None, password: str | None) -> dict[str, str]:
    """The headers by which vcd names itself, and, where there is one, the user."""
    headers = {"User-Agent": "vcd", "Accept": "application/json"}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()
    return headers


async def read_within(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """The body of an answer, None where it has more bytes than that."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


class _Resolver(AbstractResolver):
    """Looks each name up in a thread of its own: others need those of the event loop."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await in_thread(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        return [
            ResolveResult(hostname=host, host=str(address[0]), port=int(address[1]), family=of, proto=proto, flags=0)
            for of, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""
