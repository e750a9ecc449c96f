"""Fetches events that only another replica has, before this replica writes the log as the new leader.

A session's calls wait for one follower that has the session. If another follower wins the Lease, the session is not in
its log yet. All replicas know each other's addresses, and each serves its log, so the winner copies the missing events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import aiohttp
import structlog

from vcd.daemon.replicas import replica_protocol
from vcd.daemon.replicas.log_follower import LeaderBehind, LogDiverged, LogFollower
from vcd.daemon.replicas.replica_network import Socket
from vcd.eventlog.log_errors import LogError
from vcd.kube.asyncio_tasks import run_until_first

_log = structlog.get_logger(__name__)

REACHED = 1.0
"""Seconds for connecting to the other replicas. A replica that was lost with its node delays the takeover this long."""
TAKEN = 5.0
"""Seconds for copying from one replica."""

Connect = Callable[[str, str], AbstractAsyncContextManager[Socket]]
"""Connect to a replica by name and address. Raises LogError and what aiohttp raises."""


async def take_over(
    peers: Sequence[replica_protocol.Peer], connect: Connect, follower: Callable[[], LogFollower]
) -> None:
    """Follow each replica until this log has all that it has; ``follower`` creates a new follower.

    A replica that cannot be reached, or whose log diverged, is logged and skipped. Raises what ``LogFollower.follow``
    raises if this log cannot be written.
    """
    async with AsyncExitStack() as stack:
        sockets = await asyncio.gather(*(_connect_to(stack, connect, peer) for peer in peers))
        for peer, socket in zip(peers, sockets, strict=True):
            if socket is not None:
                await _copy_from(peer, socket, follower())


async def _connect_to(stack: AsyncExitStack, connect: Connect, peer: replica_protocol.Peer) -> Socket | None:
    try:
        async with asyncio.timeout(REACHED):
            return await stack.enter_async_context(connect(peer.name, peer.address))
    except (LogError, aiohttp.ClientError, OSError, TimeoutError) as error:
        _log.info("replica was not reached before leading", replica=peer.name, reason=str(error) or repr(error))
        return None


async def _copy_from(peer: replica_protocol.Peer, socket: Socket, follower: LogFollower) -> None:
    before = follower.has
    try:
        async with asyncio.timeout(TAKEN):
            await run_until_first(follower.follow(socket, peer.name), follower.caught_up.wait())
    except LeaderBehind:
        return
    except (LogDiverged, LogError, TimeoutError) as error:
        if follower.fails:
            raise
        _log.warning("events were not copied before leading", replica=peer.name, reason=str(error) or repr(error))
    if follower.has > before:
        _log.info("events were copied before leading", replica=peer.name, events=follower.has - before)
