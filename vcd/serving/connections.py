"""How many connections a port keeps open: who connects and says nothing shall not use up the files that the process may
open. All ports of a daemon together hold far fewer than 1,024 files, so probes are answered whatever comes."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Collection

from aiohttp import web

from vcd.serving.tls import HANDSHAKE_SECONDS

CONNECTIONS = 64
"""Connections that an address keeps open, and TLS handshakes that are under way; with each further one the oldest
goes."""

IDLE_SECONDS = 75.0
"""After so long without a whole request a connection is closed."""


def raise_file_limit() -> None:
    """Let this process open as many files as its hard limit permits: followers, watches and writes take files, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def listen(
    runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None, spared: Collection[object] = ()
) -> asyncio.Server:
    """Serve what a runner is set up for; an empty host is all addresses. Raises OSError.

    Connections in ``spared`` (``request.protocol``) do not count against the bound and are not closed for others.
    """
    assert runner.server is not None
    return await asyncio.get_running_loop().create_server(
        _Acceptor(runner.server, spared),
        host or None,
        port,
        backlog=CONNECTIONS,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
    )


class _Acceptor:
    """Makes what serves each new connection to a server of aiohttp, and closes the oldest where there are too many."""

    def __init__(self, serve: web.Server, spared: Collection[object]) -> None:
        self._serve = serve
        self._spared = spared
        self._greeted: dict[asyncio.Task[object], None] = {}
        """What accepts a connection, until its handshake has ended: the server knows of it only then."""

    def __call__(self) -> asyncio.Protocol:
        """A new connection is there: called in the task that accepts it."""
        if (accepting := asyncio.current_task()) is not None:
            self._greeted[accepting] = None
            accepting.add_done_callback(lambda task: self._greeted.pop(task, None))
        for oldest in list(self._greeted)[: max(0, len(self._greeted) - CONNECTIONS)]:
            oldest.cancel()
        open_ = [connection for connection in self._serve.connections if connection not in self._spared]
        for connection in open_[: max(0, len(open_) + 1 - CONNECTIONS)]:
            connection.force_close()
        return self._serve()
