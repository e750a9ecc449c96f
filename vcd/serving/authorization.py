"""Authentication of bearer tokens and authorization of their users by reviews of the API server, with caches and
limits.

A client that guesses tokens, or queries many rights, must overload neither the API server nor delay other users.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, TypeVar

import structlog
from aiohttp import web

from vcd.serving.access_rights import Access

_log = structlog.get_logger(__name__)

KEPT_SECONDS = 60.0
"""How long a positive review is cached, of a token or of a right."""
REFUSED_SECONDS = 10.0
"""How long a negative review is cached."""
MOST_AT_ONCE = 4
"""Concurrent reviews: of tokens from one address, and of one user's rights."""
MOST_OF_ALL = 16
"""Concurrent reviews of tokens from all addresses."""
MOST_A_SECOND = 10
"""Reviews per second: of tokens from one address that were not valid before, and of rights that one user names."""

_MOST_CACHED = 1000
"""Maximum number of cached valid tokens, of cached invalid ones, and of addresses with a rate limit."""
_MOST_CACHED_RIGHTS = 20_000
"""Maximum number of cached rights of one user."""

T = TypeVar("T")


class TokenHolder(Protocol):
    """The user that a token authenticates."""

    @property
    def name(self) -> str:
        """The user's name in the cluster."""


class Reviews(Protocol):
    """Kubernetes' reviews. Both methods raise what failed in the request."""

    async def who(self, token: str) -> TokenHolder | None:
        """Return the user of a bearer token (a TokenReview), or None if it is not valid."""

    async def may(self, who: Any, access: Access) -> bool:
        """Return whether a user that `who` returned has a right (a SubjectAccessReview)."""


class Budget:
    """Rate limiter for MOST_A_SECOND events a second; ``now`` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left = float(MOST_A_SECOND)
        self._filled = now()

    def take(self) -> bool:
        """Count an event. Return False if it exceeds the rate."""
        now = self._now()
        self._left = min(float(MOST_A_SECOND), self._left + (now - self._filled) * MOST_A_SECOND)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Person:
    """An authenticated user. Each right is reviewed once in KEPT_SECONDS (a missing one: in REFUSED_SECONDS), with at
    most MOST_AT_ONCE reviews at a time, and MOST_A_SECOND for objects that the user names."""

    def __init__(self, account: TokenHolder, reviews: Reviews, now: Callable[[], float]) -> None:
        self.name = account.name
        self._account = account
        self._reviews = reviews
        self._now = now
        self._budget = Budget(now)
        self._rights: OrderedDict[Access, tuple[float, bool]] = OrderedDict()
        self._reviewing = asyncio.Lock()

    async def may(self, access: Access) -> bool:
        """Return whether the user has a right. Raises HTTPTooManyRequests and HTTPServiceUnavailable."""
        return (await self.rights([access], named=True))[access]

    def known(self) -> dict[Access, bool]:
        """Return the rights whose reviews have not expired."""
        now = self._now()
        return {access: allowed for access, (until, allowed) in self._rights.items() if now < until}

    async def rights(self, accesses: Collection[Access], *, named: bool) -> dict[Access, bool]:
        """Return whether the user has each of some rights; ``named``: the user chose them, so their rate is limited.

        Raises HTTPTooManyRequests and HTTPServiceUnavailable.
        """
        async with self._reviewing:
            known = self.known()
            missing = [access for access in dict.fromkeys(accesses) if access not in known]
            if named and not all(self._budget.take() for _ in missing):
                raise _too_many("too many reviews of your rights are under way")
            at_once = asyncio.Semaphore(MOST_AT_ONCE)

            async def review(access: Access) -> bool:
                async with at_once:
                    allowed = await _review(self._reviews.may(self._account, access), "what you may do")
                self._rights[access] = (self._now() + (KEPT_SECONDS if allowed else REFUSED_SECONDS), allowed)
                self._rights.move_to_end(access)
                return allowed

            found = await asyncio.gather(*map(review, missing))
            while len(self._rights) > _MOST_CACHED_RIGHTS:
                self._rights.popitem(last=False)
        known |= dict(zip(missing, found, strict=True))
        return {access: known[access] for access in accesses}


class Tokens:
    """Bearer tokens, each reviewed once in KEPT_SECONDS (an invalid one: in REFUSED_SECONDS).

    Reviews of tokens that were not valid before are limited to ``MOST_AT_ONCE`` at a time and ``MOST_A_SECOND`` for
    one address, and to ``MOST_OF_ALL`` at a time for all. A client that guesses tokens then affects neither the API
    server nor users at other addresses. ``now`` is a clock in seconds.
    """

    def __init__(self, reviews: Reviews, now: Callable[[], float] = time.monotonic) -> None:
        self._reviews = reviews
        self._now = now
        self._good: OrderedDict[bytes, tuple[float, Person]] = OrderedDict()
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[TokenHolder | None]] = {}
        self._reviewing: Counter[str] = Counter()
        """Reviews of tokens under way by the client's address."""
        self._budgets: OrderedDict[str, Budget] = OrderedDict()

    async def person(self, request: web.Request) -> Person:
        """Return the user of a request's token.

        Raises HTTPUnauthorized, HTTPTooManyRequests, and HTTPServiceUnavailable if the API server cannot be reached.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthorized("a bearer token is needed; kubectl create token NAME makes one")
        person = await self._authenticate(token.strip(), request.remote or "") if token.isascii() else None
        if person is None:
            raise _unauthorized("the API server does not know this token here; it may have expired")
        return person

    async def _authenticate(self, token: str, address: str) -> Person | None:
        digest = hashlib.sha256(token.encode()).digest()
        until, person = self._good.get(digest, (0.0, None))
        if self._now() < until:
            return person
        if self._now() < self._refused.get(digest, 0.0):
            return None
        task = self._under_way.get(digest)
        if task is None:
            if person is None:
                self._admit(address)
            self._reviewing[address] += 1
            task = self._under_way[digest] = asyncio.ensure_future(self._reviews.who(token))
            task.add_done_callback(lambda done: self._store(digest, address, done))
        if await _review(asyncio.shield(task), "the token") is None:
            return None
        return self._good[digest][1]

    def _admit(self, address: str) -> None:
        """Raise HTTPTooManyRequests if another review exceeds a limit."""
        budget = self._budgets.setdefault(address, Budget(self._now))
        self._budgets.move_to_end(address)
        while len(self._budgets) > _MOST_CACHED:
            self._budgets.popitem(last=False)
        are_many = self._reviewing[address] >= MOST_AT_ONCE or len(self._under_way) >= MOST_OF_ALL
        if are_many or not budget.take():
            raise _too_many("too many tokens are being reviewed")

    def _store(self, digest: bytes, address: str, done: asyncio.Task[TokenHolder | None]) -> None:
        del self._under_way[digest]
        self._reviewing[address] -= 1
        self._reviewing += Counter()  # drops addresses without reviews
        if done.cancelled() or done.exception() is not None:
            return
        account = done.result()
        cache: OrderedDict[bytes, Any] = self._refused if account is None else self._good
        (self._good if account is None else self._refused).pop(digest, None)
        if account is None:
            self._refused[digest] = self._now() + REFUSED_SECONDS
        else:
            self._good[digest] = (self._now() + KEPT_SECONDS, Person(account, self._reviews, self._now))
        cache.move_to_end(digest)
        while len(cache) > _MOST_CACHED:
            cache.popitem(last=False)


async def _review(answer: Awaitable[T], about: str) -> T:
    """Return the API server's answer. Raises HTTPServiceUnavailable if there is none."""
    try:
        return await answer
    except Exception as error:
        _log.warning("review failed", about=about, error=str(error) or type(error).__name__)
        raise web.HTTPServiceUnavailable(text=f"the API server did not answer about {about}") from error


def _too_many(sentence: str) -> web.HTTPTooManyRequests:
    return web.HTTPTooManyRequests(text=f"{sentence}; try again in a moment", headers={"Retry-After": "1"})


def _unauthorized(sentence: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=sentence, headers={"WWW-Authenticate": "Bearer"})
