"""What only another replica has, taken over by the one that leads next before it writes.

A session's calls wait for one follower that has it. Where another one wins the Lease, the session is not in its log
yet; but all replicas know each other, and each serves its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import aiohttp
import structlog

from vcd.daemon.replicas import wire
from vcd.daemon.replicas.log_follower import Behind, LogFollower, Parted
from vcd.daemon.replicas.network import Socket
from vcd.eventlog.errors import LogError
from vcd.kube.waits import first_of

_log = structlog.get_logger(__name__)

REACHED = 1.0
"""Seconds in which another replica has to be reached: who is gone with its node holds nobody up for longer."""
TAKEN = 5.0
"""Seconds for what one of them has."""

Connect = Callable[[str, str], AbstractAsyncContextManager[Socket]]
"""A connection to a replica, by its name and address, while a context lasts. Raises LogError and what aiohttp does."""


async def take_over(peers: Sequence[wire.Peer], connect: Connect, follower: Callable[[], LogFollower]) -> None:
    """Follow each of some replicas until all is here that it has and is of this log; ``follower`` makes what does so.

    Who cannot be reached, or has another log, is told of and passed over. Raises what ``LogFollower.follow`` does where
    this log cannot be written.
    """
    async with AsyncExitStack() as stack:
        sockets = await asyncio.gather(*(_reached(stack, connect, peer) for peer in peers))
        for peer, socket in zip(peers, sockets, strict=True):
            if socket is not None:
                await _taken(peer, socket, follower())


async def _reached(stack: AsyncExitStack, connect: Connect, peer: wire.Peer) -> Socket | None:
    try:
        async with asyncio.timeout(REACHED):
            return await stack.enter_async_context(connect(peer.name, peer.address))
    except (LogError, aiohttp.ClientError, OSError, TimeoutError) as error:
        _log.info("not reached before leading", replica=peer.name, reason=str(error) or repr(error))
        return None


async def _taken(peer: wire.Peer, socket: Socket, follower: LogFollower) -> None:
    before = follower.has
    try:
        async with asyncio.timeout(TAKEN):
            await first_of(follower.follow(socket, peer.name), follower.caught_up.wait())
    except Behind:
        return
    except (Parted, LogError, TimeoutError) as error:
        if follower.fails:
            raise
        _log.warning("not taken over before leading", replica=peer.name, reason=str(error) or repr(error))
    if follower.has > before:
        _log.info("taken over before leading", replica=peer.name, events=follower.has - before)
