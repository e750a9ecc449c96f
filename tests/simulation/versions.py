"""Replicas of two versions of vcd: the first message names the version, and the other replica does not know it.

Both versions run the current code. Only the wire format of ``vcd.daemon.replicas.replica_protocol`` is altered in
transit. Scripts test how a replica of another version is refused, and what becomes of its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vcd.daemon.replicas import replica_protocol

if TYPE_CHECKING:
    from tests.simulation.socket import End

FIRST, SECOND = 1, 2
"""Versions of a program."""


def said_to(end: End, said: bytes) -> bytes:
    """Return what arrives at the other end for a sent message."""
    if end.machine.version == end.other.machine.version:
        return said
    message = replica_protocol.from_follower(said) if end.dialled else replica_protocol.from_leader(said)
    if not isinstance(message, replica_protocol.Hello | replica_protocol.Welcome):
        return said
    return replica_protocol.packed(msgspec.structs.replace(message, version=replica_protocol.VERSION + 1))
