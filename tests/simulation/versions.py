"""Replicas of two versions of vcd at the same time: the first message names the version.

Both are the code as it is. What differs is what ``vcd.daemon.replicas.wire`` says of itself on its way from one to the
other, so that what is tried is how a replica of another version is refused, and what becomes of its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vcd.daemon.replicas import wire

if TYPE_CHECKING:
    from tests.simulation.socket import End

FIRST, SECOND = 1, 2
"""Versions of a program."""


def said_to(end: End, said: bytes) -> bytes:
    """What arrives at the other end of what is said at this one."""
    if end.machine.version == end.other.machine.version:
        return said
    message = wire.from_follower(said) if end.dialled else wire.from_leader(said)
    if not isinstance(message, wire.Hello | wire.Welcome):
        return said
    return wire.packed(msgspec.structs.replace(message, version=wire.VERSION + 1))
