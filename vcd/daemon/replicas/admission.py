"""Who may follow the log: those whose token the API server knows as meant for vcd, and lets read it."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web

from vcd.daemon.replicas.identity import AUDIENCE
from vcd.daemon.replicas.wire import PATH
from vcd.kube.client import KubeClient, KubeError
from vcd.kube.tokens import reader_of

_log = structlog.get_logger(__name__)

MOST_WAITING = 8
"""So many may wait for their token to be reviewed; who comes then is sent away."""


class FollowerAdmission:
    """Judges requests to follow, one after the other."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def admit(self, request: web.Request) -> None:
        """Let a request of somebody who may ``get`` the nonResourceURL of the log pass.

        Raises HTTPUnauthorized, HTTPForbidden, HTTPTooManyRequests, and HTTPServiceUnavailable where the API server
        does not answer.
        """
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise web.HTTPUnauthorized(text="a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})
        if self._waiting >= MOST_WAITING:
            raise web.HTTPTooManyRequests(text="too many tokens are being reviewed", headers={"Retry-After": "1"})
        self._waiting += 1
        try:
            async with self._turn:
                reader = await reader_of(self._client, token.strip(), path=PATH, audience=AUDIENCE)
        except KubeError as error:
            _log.warning("a follower's token cannot be reviewed", reason=str(error))
            raise web.HTTPServiceUnavailable(text=f"the token cannot be reviewed: {error}") from error
        finally:
            self._waiting -= 1
        if not reader.name:
            raise web.HTTPUnauthorized(
                text=f"the API server does not know this token as one with audience {AUDIENCE}",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if not reader.may_read:
            raise web.HTTPForbidden(text=f"{reader.name} may not get the nonResourceURL {PATH}")
