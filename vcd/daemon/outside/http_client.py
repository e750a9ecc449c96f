"""HTTP client settings for servers other than the API server: extenders and monitoring systems.

Sessions have no timeout of their own; callers bound the time of each exchange.
"""

from __future__ import annotations

import base64
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from vcd.daemon.concurrency.threads import in_thread


def open_session(*, verify: bool = True, **options: Any) -> aiohttp.ClientSession:
    """Return a session without cookies and timeouts; ``verify`` is whether certificates are checked."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=verify, resolver=_Resolver()),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        **options,
    )


def headers_for(user: str | None, password: str | None) -> dict[str, str]:
    """Return the headers that identify vcd and, if given, the user."""
    headers = {"User-Agent": "vcd", "Accept": "application/json"}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode()
    return headers


async def read_within(response: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """Return the body of an answer; None if it is longer than ``limit`` bytes."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


class _Resolver(AbstractResolver):
    """Looks up each name in a thread of its own, because a slow lookup must not occupy the event loop's thread pool."""

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
