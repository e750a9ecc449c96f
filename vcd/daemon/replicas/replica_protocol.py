"""The protocol between replicas: messages over a WebSocket, each one a zstd frame of msgpack.

A follower sends ``Hello``. The leader answers with ``Welcome``, which states the last common event. The follower
requests what comes after it (``Follow``), receives pieces of the log as it grows, with ``LogEnd`` in between, and
reports what is durable (``Have``). A follower whose log diverged sends the same messages, compares links until one
differs, and closes the connection.

Before changing it: replicas of two versions talk to each other during a rolling update. A field may be added only at
the end of a message and with a default, because receivers ignore fields that they do not know. Any other change needs
a new ``VERSION``, which makes replicas of different versions refuse each other.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import zstandard

from vcd.eventlog.log_errors import LogError
from vcd.eventlog.replication import CheckpointPiece, EventsPiece, Position, StartPiece

PATH = "/vcd/log"
"""The path of the served log, and the nonResourceURL that a follower must be allowed to ``get``."""
VERSION = 1
"""Version of the protocol. A follower with another version is refused."""
LARGEST = 256 << 20
"""Largest message of a leader in bytes, unpacked: a checkpoint of some million pods."""
LARGEST_REQUEST = 1 << 20
"""Largest message of a follower in bytes, unpacked: the leader's event loop unpacks it."""
LONGEST_NAME, MOST_POSITIONS = 300, 128
"""Limits of `Hello`: characters of name and address, and positions. Positions double in distance, so 64 reach the
beginning of any log."""

T = TypeVar("T")


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A replica and the address of its log."""

    name: str
    address: str


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A follower introduces itself: name, positions in its log, its checkpoints after the last event (``sealed``), and
    the address of its own log (empty for a reader)."""

    version: int
    name: str
    positions: list[Position]
    sealed: list[int]
    address: str = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The leader's answer: the last of the follower's positions that it has too (None: none), its checkpoints there,
    and the end of its log, if any."""

    version: int
    name: str
    shared: int | None
    sealed: list[int]
    head: Position | None


class Follow(msgspec.Struct, frozen=True, array_like=True, tag="follow"):
    """Request what comes after an event (None: everything); the follower has these checkpoints there."""

    after: int | None
    sealed: list[int]


class LogEnd(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The end of the leader's log, after all events up to it were sent, and the replicas that follow now."""

    sequence: int
    peers: list[Peer] = []


class Have(msgspec.Struct, frozen=True, array_like=True, tag="have"):
    """The follower reports up to which event its log is durable."""

    sequence: int


ToLeader = Hello | Follow | Have
ToFollower = Welcome | StartPiece | EventsPiece | CheckpointPiece | LogEnd

_encode = msgspec.msgpack.Encoder().encode
_to_leader: msgspec.msgpack.Decoder[ToLeader] = msgspec.msgpack.Decoder(ToLeader)
_to_follower: msgspec.msgpack.Decoder[ToFollower] = msgspec.msgpack.Decoder(ToFollower)


class BadMessage(LogError):
    """An invalid message. It has no effect."""


def packed(message: ToLeader | ToFollower) -> bytes:
    """Encode a message."""
    return zstandard.compress(_encode(message), 1)


def from_follower(data: Any) -> ToLeader:
    """Decode a follower's message. Raises BadMessage."""
    said = _unpacked(_to_leader, data, LARGEST_REQUEST)
    if isinstance(said, Hello) and (
        max(len(said.name), len(said.address)) > LONGEST_NAME or len(said.positions) > MOST_POSITIONS
    ):
        raise BadMessage("a follower's name, its address or its positions are too long")
    return said


def from_leader(data: Any) -> ToFollower:
    """Decode a leader's message. Raises BadMessage."""
    return _unpacked(_to_follower, data, LARGEST)


def _unpacked(decoder: msgspec.msgpack.Decoder[T], data: Any, largest: int) -> T:
    if not isinstance(data, bytes):
        raise BadMessage(f"another replica sent {type(data).__name__} where bytes were expected")
    try:
        if zstandard.frame_content_size(data) not in range(largest):
            raise BadMessage("another replica sent a message without a size, or one that is too large")
        return decoder.decode(zstandard.decompress(data, max_output_size=largest))
    except (zstandard.ZstdError, msgspec.MsgspecError, RecursionError) as error:
        raise BadMessage(f"another replica sent an invalid message: {error}") from error
