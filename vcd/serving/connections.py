"""How many connections a port keeps open: who connects and says nothing shall not use up the files that the process may
open. All ports of a daemon together hold far fewer than 1,024 files, so probes are answered whatever comes."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

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
    """Serve what ``runner`` is for at an address, and clean the runner up at the end; the port, also where 0 was asked
    for. An empty host is all addresses. Raises OSError when the address cannot be had.

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
    """Close it so that what was accepted last has begun: asyncio never closes the connection of an accepted socket that
    meets a closed server."""
    for each in listener.sockets:
        asyncio.get_running_loop().remove_reader(each)
    await asyncio.sleep(0)
    listener.close()


class Acceptor:
    """Makes what serves each new connection to a server of aiohttp, and closes the oldest where there are too many."""

    def __init__(self, serve: web.Server, most: int = CONNECTIONS, spared: Collection[object] = ()) -> None:
        self._serve = serve
        self._most = most
        self._spared = spared
        self._greeted: dict[asyncio.Task[object], None] = {}
        """What accepts a connection, until its handshake has ended: the server knows of it only then."""

    def __call__(self) -> asyncio.Protocol:
        """A new connection is there: called in the task that accepts it."""
        if (accepting := asyncio.current_task()) is not None:
            self._greeted[accepting] = None
            accepting.add_done_callback(lambda task: self._greeted.pop(task, None))
        for oldest in list(self._greeted)[: max(0, len(self._greeted) - self._most)]:
            oldest.cancel()
        open_ = [connection for connection in self._serve.connections if connection not in self._spared]
        for connection in open_[: max(0, len(open_) + 1 - self._most)]:
            connection.force_close()
        return self._serve()

    def give_up(self) -> None:
        """End what is being accepted. Called once nobody listens any more, and before the server of aiohttp is shut
        down, which closes the connections it knows of: one that it came to know later would stay open."""
        for accepting in self._greeted:
            accepting.cancel()
