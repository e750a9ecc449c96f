"""Planted bugs of vcd/daemon/replicas: one log that all replicas have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.simulation.mutants import replaces
from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.replicas import log_follower, log_server, replica_protocol
from vcd.daemon.replicas.follower_registry import Followers
from vcd.daemon.replicas.log_follower import LogFollower
from vcd.daemon.replicas.replica import TermEnded
from vcd.daemon.replicas.replica_network import Socket
from vcd.daemon.replicas.takeover import Connect, take_over
from vcd.eventlog.log_verification import Fold
from vcd.eventlog.replication import EventsPiece, LogSource, Piece, Position, write_piece
from vcd.eventlog.rows import to_logged
from vcd.eventlog.transfer import Written, export

# --- who has a session ----------------------------------------------------------------------------------------------

_write = LogFollower._write


@replaces(Followers.have, found_by="elsewhere before it is done")
async def nobody_waited_for(self: Followers, sequence: int) -> bool:
    """Pods are bound before another replica has the session: if the leader is killed then, the session is lost."""
    return False


@replaces(Followers.have, found_by="nobody is waited for too long")
async def waits_for_ever(self: Followers, sequence: int) -> bool:
    """If a follower stops responding, no pod is bound any more."""
    while self._expected or any(one.keeps_up for one in self.connected):
        if any(one.keeps_up and one.has >= sequence for one in self.connected):
            self._expected = False
            return True
        await self._moved.wait()
    return False


@replaces(LogFollower._write, found_by="said when it is durable")
async def acknowledged_before_durable(self: LogFollower, socket: Socket, piece: Piece) -> None:
    """A follower confirms events that are not on its disk yet: a power loss can lose sessions that were carried out."""
    if isinstance(piece, EventsPiece):
        await socket.send_bytes(replica_protocol.packed(replica_protocol.Have(piece.rows[-1][0][0])))
    await _write(self, socket, piece)


@replaces(LogFollower._write, found_by="log first")
async def folded_before_durable(self: LogFollower, socket: Socket, piece: Piece) -> None:
    """A follower's state has events that its disk lacks: it differs after a crash, and explains lost events."""
    if not isinstance(piece, EventsPiece):
        return await _write(self, socket, piece)
    folding = asyncio.ensure_future(self._fold([to_logged(content) for content, _ in piece.rows]))  # noqa: RUF006
    await asyncio.sleep(0)
    await write_piece(self._log, piece)
    await socket.send_bytes(replica_protocol.packed(replica_protocol.Have(self._log.head)))
    await folding


# --- who leads next -------------------------------------------------------------------------------------------------

_follow = Terms._follow


@replaces(take_over, found_by="what others have is taken over")
async def nothing_taken_over(
    peers: Sequence[replica_protocol.Peer], connect: Connect, follower: Callable[[], LogFollower]
) -> None:
    """A new leader decides without events of another replica: sessions that were carried out are in no log."""


@replaces(Terms._follow, found_by="all have one log")
async def lost_lease_goes_on(self: Terms) -> None:
    """A leader that lost the Lease goes on as if all replicas had its log, and follows none."""
    while True:
        with suppress(TermEnded):
            await _follow(self)


# --- where logs part ------------------------------------------------------------------------------------------------

_heard = log_server._heard


@replaces(LogSource.last_shared, found_by="all have one log")
def positions_not_compared(self: LogSource, known: Iterable[Position]) -> int | None:
    """A replica whose log diverged follows without being rewound: its log mixes two histories."""
    oldest, head = self._reader.oldest(), self._reader.head()
    return max((one.sequence for one in known if oldest <= one.sequence <= head), default=None)


@replaces(log_follower._last_in_common, found_by="known to who leads next")
async def back_by_doubling(socket: Socket, own: LogSource, shared: int) -> int:
    """A diverged log is rewound twice as far as necessary: sessions that both replicas had can be lost."""
    return shared


@replaces(export, found_by="nothing decided is lost")
def parted_not_kept(
    path: str | Path, out: str | Path, fold: Fold, first: int | None = None, last: int | None = None
) -> Written:
    """A replica that is rewound to the leader's log loses what it decided alone."""
    return Written(0, 0, 0)


@replaces(log_server._heard, found_by="of one version")
async def another_version_followed(socket: Socket) -> replica_protocol.ToLeader:
    """A replica of a version with another protocol may follow, and its log holds what it misunderstands."""
    said = await _heard(socket)
    return (
        msgspec.structs.replace(said, version=replica_protocol.VERSION)
        if isinstance(said, replica_protocol.Hello)
        else said
    )


@replaces(LogSource.__exit__, found_by="files are closed")
def readers_of_the_log_kept(self: LogSource, *_: object) -> None:
    """The files of each replica that ever followed stay open, until the leader can open no more."""
