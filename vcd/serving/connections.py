"""How many connections a port keeps open: who connects and says nothing shall not use up the files that the process may
open."""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from vcd.serving.tls import HANDSHAKE_SECONDS

CONNECTIONS = 64
"""Connections that an address keeps open, and TLS handshakes that are under way; with each further one the oldest
goes."""

IDLE_SECONDS = 75.0
"""After so long without a whole request a connection is closed."""


async def listen(runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Server:
    """Serve what a runner is set up for; an empty host is all addresses. Raises OSError."""
    assert runner.server is not None
    return await asyncio.get_running_loop().create_server(
        _Acceptor(runner.server),
        host or None,
        port,
        backlog=CONNECTIONS,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
    )


class _Acceptor:
    """Makes what serves each new connection to a server of aiohttp, and closes the oldest where there are too many."""

    def __init__(self, serve: web.Server) -> None:
        self._serve = serve
        self._greeted: dict[asyncio.Task[object], None] = {}
        """What accepts a connection, until its handshake has ended: the server knows of it only then."""

    def __call__(self) -> asyncio.Protocol:
        """A new connection is there: called in the task that accepts it."""
        if (accepting := asyncio.current_task()) is not None:
            self._greeted[accepting] = None
            accepting.add_done_callback(lambda task: self._greeted.pop(task, None))
        for oldest in list(self._greeted)[: max(0, len(self._greeted) - CONNECTIONS)]:
            oldest.cancel()
        open_ = self._serve.connections
        for connection in open_[: max(0, len(open_) + 1 - CONNECTIONS)]:
            connection.force_close()
        return self._serve()
