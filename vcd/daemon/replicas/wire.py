"""What replicas say to each other: messages over a WebSocket, each a zstd frame of msgpack.

A follower says ``Hello``; the leader answers with ``Welcome``, which tells how far the two logs are the same. The
follower asks for what comes then (``Follow``), is sent pieces of the log as it grows, with ``LogEnd`` now and then, and
says how far it has them on its disk (``Have``). One whose log went another way asks in the same manner, compares links
until one differs, and ends the connection: there the logs part. Fields may be added at the end of a message: who does
not know them passes over them, who misses them takes what stands for nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import zstandard

from vcd.eventlog.copying import Begin, Events, Kept, Position
from vcd.eventlog.errors import LogError

PATH = "/vcd/log"
"""Where a log is followed; also the nonResourceURL that who follows must be allowed to ``get``."""
VERSION = 1
"""Of what is said; a follower that speaks another is refused."""
LARGEST = 256 << 20
"""Bytes of what a leader says at most, unpacked: a checkpoint of some million pods."""
LARGEST_ASKED = 1 << 20
"""Bytes of what a follower says at most, unpacked: it is unpacked where the leader decides."""
LONGEST_NAME, MOST_POSITIONS = 300, 128
"""Characters of a follower's name and address at most, and positions: twice as far back each time, 64 are all."""

T = TypeVar("T")


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A replica, and where its log is followed."""

    name: str
    address: str


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A follower: its name, where its log is and was, and the checkpoints that it kept after its last event; where its
    own log is followed, if it is a replica, and nothing of one that only reads."""

    version: int
    name: str
    positions: list[Position]
    sealed: list[int]
    address: str = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The leader: the last of the follower's positions that it has, too (None: none), the checkpoints that it kept
    there, and where its own log ends (None: it is empty)."""

    version: int
    name: str
    shared: int | None
    sealed: list[int]
    head: Position | None


class Follow(msgspec.Struct, frozen=True, array_like=True, tag="follow"):
    """Send what comes after an event (None: all, from the beginning), to one that has these checkpoints there."""

    after: int | None
    sealed: list[int]


class LogEnd(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """Where the leader's log ends, after all that was sent, and the replicas that follow it now."""

    sequence: int
    peers: list[Peer] = []


class Have(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """Up to which event the follower's log is durable."""

    sequence: int


ToLeader = Hello | Follow | Have
ToFollower = Welcome | Begin | Events | Kept | LogEnd

_encode = msgspec.msgpack.Encoder().encode
_to_leader: msgspec.msgpack.Decoder[ToLeader] = msgspec.msgpack.Decoder(ToLeader)
_to_follower: msgspec.msgpack.Decoder[ToFollower] = msgspec.msgpack.Decoder(ToFollower)


class BadMessage(LogError):
    """A message that is none; what it was about is not done."""


def packed(message: ToLeader | ToFollower) -> bytes:
    """A message as it is sent."""
    return zstandard.compress(_encode(message), 1)


def from_follower(data: Any) -> ToLeader:
    """What a follower says. Raises BadMessage."""
    said = _unpacked(_to_leader, data, LARGEST_ASKED)
    if isinstance(said, Hello) and (
        max(len(said.name), len(said.address)) > LONGEST_NAME or len(said.positions) > MOST_POSITIONS
    ):
        raise BadMessage("a follower's name, its address or its positions are too long")
    return said


def from_leader(data: Any) -> ToFollower:
    """What the leader says. Raises BadMessage."""
    return _unpacked(_to_follower, data, LARGEST)


def _unpacked(decoder: msgspec.msgpack.Decoder[T], data: Any, largest: int) -> T:
    if not isinstance(data, bytes):
        raise BadMessage(f"another replica sent {type(data).__name__} where bytes were expected")
    try:
        if zstandard.frame_content_size(data) not in range(largest):
            raise BadMessage("another replica sent a message without a size, or one that is too large")
        return decoder.decode(zstandard.decompress(data, max_output_size=largest))
    except (zstandard.ZstdError, msgspec.MsgspecError, RecursionError) as error:
        raise BadMessage(f"another replica sent what is no message: {error}") from error
