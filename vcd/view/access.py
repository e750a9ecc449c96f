"""Who may see the page: this machine under its own names, others whom the API server knows and lets read it."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from aiohttp import web

Review = Callable[[str], Awaitable[tuple[str, bool]]]
"""Whom a bearer token stands for in the cluster (empty: nobody), and whether they may read the page.

Kubernetes tells by a TokenReview and a SubjectAccessReview. Raises what went wrong with asking.
"""

KEPT_SECONDS = 60.0
"""How long it is kept that a token is good."""
REFUSED_SECONDS = 10.0
"""How long it is kept that it is not."""
MOST_AT_ONCE = 4
"""Reviews under way."""
MOST_A_SECOND = 10
"""Reviews of tokens that were not good before."""

_KEPT = 1000
"""Of how many tokens either is kept at most."""


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
    """Bearer tokens, each reviewed once in KEPT_SECONDS (one that may not pass: REFUSED_SECONDS).

    At most ``MOST_AT_ONCE`` reviews are under way, and tokens that were not good before get ``MOST_A_SECOND``, so that
    who guesses tokens troubles neither the API server nor those who have one. ``now`` is a clock in seconds.
    """

    def __init__(self, review: Review, now: Callable[[], float] = time.monotonic) -> None:
        self._review = review
        self._now = now
        self._good: OrderedDict[bytes, tuple[float, str, bool]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, str, bool]] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[tuple[str, bool]]] = {}
        self._left = float(MOST_A_SECOND)
        self._filled = now()

    async def check(self, request: web.Request) -> None:
        """Let a request with the token of somebody who may read the page pass.

        Raises HTTPUnauthorized, HTTPForbidden, HTTPTooManyRequests, and what the review raises.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("a bearer token is needed; kubectl create token NAME makes one")
        name, may_read = await self._verdict(token.strip()) if token.isascii() else ("", False)
        if not name:
            raise _unauthorized("the API server does not know this token; it may have expired")
        if not may_read:
            raise web.HTTPForbidden(
                text=f"{name} may not read the page; a role that allows get on the nonResourceURL /vcd/page lets in"
            )

    async def _verdict(self, token: str) -> tuple[str, bool]:
        digest = hashlib.sha256(token.encode()).digest()
        for kept in (self._good, self._refused):
            until, name, may_read = kept.get(digest, (0.0, "", False))
            if self._now() < until:
                return name, may_read
        task = self._under_way.get(digest)
        if task is None:
            self._admit(known=digest in self._good)
            task = self._under_way[digest] = asyncio.ensure_future(self._review(token))
            task.add_done_callback(lambda done: self._keep(digest, done))
        return await asyncio.shield(task)

    def _admit(self, *, known: bool) -> None:
        """Raises HTTPTooManyRequests where one more review would be too many."""
        now = self._now()
        self._left = min(float(MOST_A_SECOND), self._left + (now - self._filled) * MOST_A_SECOND)
        self._filled = now
        if len(self._under_way) >= MOST_AT_ONCE or (not known and self._left < 1):
            raise web.HTTPTooManyRequests(
                text="too many tokens are being reviewed; try again in a moment", headers={"Retry-After": "1"}
            )
        self._left -= not known

    def _keep(self, digest: bytes, done: asyncio.Task[tuple[str, bool]]) -> None:
        del self._under_way[digest]
        if done.cancelled() or done.exception() is not None:
            return
        name, may_read = done.result()
        passes = bool(name) and may_read
        into, other = (self._good, self._refused) if passes else (self._refused, self._good)
        other.pop(digest, None)
        into[digest] = (self._now() + (KEPT_SECONDS if passes else REFUSED_SECONDS), name, may_read)
        into.move_to_end(digest)
        while len(into) > _KEPT:
            into.popitem(last=False)


def _unauthorized(sentence: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=sentence, headers={"WWW-Authenticate": "Bearer"})
