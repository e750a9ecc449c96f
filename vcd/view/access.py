"""Who may see the page: this machine under its own names, others with a token that the API server knows."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from aiohttp import web

Review = Callable[[str], Awaitable[bool]]
"""Whether the cluster knows a bearer token (a Kubernetes TokenReview). Raises what went wrong with asking."""

KEPT_SECONDS = 60.0
"""How long what a review said of a token is kept."""

_KEPT = 1000
"""Of how many tokens it is kept at most."""


def is_local(host: str) -> bool:
    """Whether only this machine reaches what listens on ``host``; an empty one means every address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(request: web.Request) -> None:
    """Refuse a request that names another host than this machine: a page elsewhere whose name was made to point here.

    Raises HTTPForbidden.
    """
    name = request.headers.get("Host", "")
    host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if not is_local(host.lower()):
        raise web.HTTPForbidden(text=f"Host {name[:80]!r} is not this machine; open the page as http://localhost")


class Tokens:
    """Bearer tokens, each reviewed once in KEPT_SECONDS. ``now`` is a clock in seconds."""

    def __init__(self, review: Review, now: Callable[[], float] = time.monotonic) -> None:
        self._review = review
        self._now = now
        self._known: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()

    async def check(self, request: web.Request) -> None:
        """Let a request with a good token pass. Raises HTTPUnauthorized, and what the review raises."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("a bearer token is needed; kubectl create token NAME makes one")
        if not await self._is_good(token.strip()):
            raise _unauthorized("the API server does not know this token; it may have expired")

    async def _is_good(self, token: str) -> bool:
        digest = hashlib.sha256(token.encode()).digest()
        until, good = self._known.get(digest, (0.0, False))
        if digest not in self._known or self._now() >= until:
            good = await self._review(token)
            self._known[digest] = (self._now() + KEPT_SECONDS, good)
            self._known.move_to_end(digest)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return good


def _unauthorized(sentence: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=sentence, headers={"WWW-Authenticate": "Bearer"})
