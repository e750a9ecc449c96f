"""Limits on the open connections of a port, so that idle clients cannot use up the process's file descriptors.

All ports of a daemon together hold far fewer than 1,024 files, so probes are answered under any load.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from aiohttp import web

from vcd.serving.tls import HANDSHAKE_SECONDS

CONNECTIONS = 64
"""Open connections of an address, and TLS handshakes under way. One more closes the oldest."""

IDLE_SECONDS = 75.0
"""A connection without a complete request for this long is closed."""


def raise_file_limit() -> None:
    """Raise the soft limit on open files to the hard limit: followers, watches and log writes need files, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@asynccontextmanager
async def listening(
    runner: web.BaseRunner,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    *,
    most: int = CONNECTIONS,
    spared: Collection[object] = (),
) -> AsyncIterator[int]:
    """Serve ``runner`` at an address (an empty host: all addresses), yield the port, and clean the runner up at the
    end. Raises OSError if the address is not available.

    At most ``most`` connections stay open. Those in ``spared`` (``request.protocol``) do not count and are not closed
    for others.
    """
    await runner.setup()
    assert runner.server is not None
    acceptor = Acceptor(runner.server, most, spared)
    try:
        listener = await asyncio.get_running_loop().create_server(
            acceptor,
            host or None,
            port,
            backlog=CONNECTIONS,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
        )
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            await stop_listening(listener)
            acceptor.give_up()
    finally:
        await runner.cleanup()


async def stop_listening(listener: asyncio.Server) -> None:
    """Close a listener after the connections that it accepted last have begun: asyncio never closes an accepted socket
    whose server is closed already."""
    for each in listener.sockets:
        asyncio.get_running_loop().remove_reader(each)
    await asyncio.sleep(0)
    listener.close()


class Acceptor:
    """Protocol factory of an aiohttp server that closes the oldest connections above a limit."""

    def __init__(self, serve: web.Server, most: int = CONNECTIONS, spared: Collection[object] = ()) -> None:
        self._serve = serve
        self._most = most
        self._spared = spared
        self._accepting: dict[asyncio.Task[object], None] = {}
        """Tasks that accept a connection, until its handshake ends: only then does the server list the connection."""

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection. asyncio calls this in the task that accepts it."""
        if (accepting := asyncio.current_task()) is not None:
            self._accepting[accepting] = None
            accepting.add_done_callback(lambda task: self._accepting.pop(task, None))
        for oldest in list(self._accepting)[: max(0, len(self._accepting) - self._most)]:
            oldest.cancel()
        open_ = [connection for connection in self._serve.connections if connection not in self._spared]
        for connection in open_[: max(0, len(open_) + 1 - self._most)]:
            connection.force_close()
        return self._serve()

    def give_up(self) -> None:
        """Cancel the handshakes under way. Call it after the listener is closed and before the aiohttp server shuts
        down: that closes only the connections that it lists, so a later one would stay open."""
        for accepting in self._accepting:
            accepting.cancel()
