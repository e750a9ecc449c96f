"""EventsPiece to put into a log."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from zlib import crc32

import msgspec

from vcd.eventlog import EventLog, Logged, LogReader
from vcd.model.events import (
    GroupStatus,
    LeadershipChanged,
    ObjectGone,
    ObjectPut,
    Operation,
    OperationDone,
    Plan,
    SessionDecided,
    Statement,
    encode_event,
    encode_plan,
)
from vcd.model.projection_codec import encode_payload, from_manifest

SECOND = 1_000_000_000


class Clock:
    """A clock that a test drives; it stands still by itself."""

    def __init__(self, now: int = 1_767_600_000 * SECOND) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def put(number: int, size: int = 0) -> ObjectPut:
    """A pod's put; ``size`` bytes of a label make it long."""
    labels = {"app": f"train-{number}", "filler": "".join(f"{(number * 7919 + i) % 9973:x}" for i in range(size // 3))}
    manifest = {"kind": "Pod", "metadata": {"name": f"pod-{number}", "namespace": "ns", "labels": labels}}
    kind, pod, _ = from_manifest(manifest)
    return ObjectPut(kind, pod.key, str(number), encode_payload(pod))


def noise(number: int, size: int) -> ObjectPut:
    """A put, of a kind that a plugin brought and that cannot be compressed."""
    data = {"metadata": {"name": f"noise-{number}"}, "data": Random(number).randbytes(size)}
    return ObjectPut("Noise", f"noise-{number}", "1", msgspec.msgpack.encode(data))


def gone(number: int) -> ObjectGone:
    """A pod's deletion: the smallest event."""
    return ObjectGone("Pod", f"ns/pod-{number}", str(number))


def bind(pod: int, node: str = "node-1") -> Operation:
    """A bind of pod ``pod``."""
    return Operation("bind", f"ns/pod-{pod}", f"uid-{pod}", node)


def session(
    number: int, head: int, pods: tuple[int, ...] = (1, 2), *, epoch: int = 1, stale: bool = False
) -> SessionDecided:
    """A session that binds the pods of one gang, and gives another group a status."""
    gang = Statement("ns/gang", "allocate", tuple(bind(pod) for pod in pods))
    plan = Plan(statements=(gang,), groups=(GroupStatus("ns/other", "Inqueue"),))
    return SessionDecided(
        number, head, "digest", 5, 7, epoch, {"code": "1"}, encode_plan(plan), ((0, "node is gone"),) if stale else ()
    )


def outcome(number: int, operation: int = 0) -> OperationDone:
    """A session's first statement: its operation was done."""
    return OperationDone(number, 0, operation, "done")


def leads(epoch: int, *, leading: bool = True) -> LeadershipChanged:
    """Winning or losing the lease."""
    return LeadershipChanged(epoch, "replica", leading)


async def write_history(
    path: Path, sessions: int, *, checkpoints: tuple[int, ...] = (), clock: Clock | None = None
) -> None:
    """A log in which each session follows three puts and is followed by its outcomes; six events a session.

    After each session named in ``checkpoints``, a checkpoint of ``fold`` is kept; a minute passes per session.
    """
    clock = clock or Clock()
    numbers = count(1)
    async with EventLog.open(path, clock=clock) as log:
        for number in range(log.last_session + 1, log.last_session + 1 + sessions):
            head = await log.append([put(next(numbers)) for _ in range(3)])
            head = await log.append([session(number, head)])
            head = await log.append([outcome(number, 0), outcome(number, 1)])
            if number in checkpoints:
                with LogReader(path) as reader:
                    base = reader.base(head)
                    state = fold(base.state, reader.read(base.sequence, head))
                await log.checkpoint(head, state)
            clock.now += 60 * SECOND


def as_is(state: bytes, sequence: int, session_of: Callable[[int], int]) -> bytes:
    """The state of a checkpoint in an import: those of ``fold`` know no numbers."""
    return state


def fold(state: bytes, events: Iterator[Logged]) -> bytes:
    """A state that depends on every event and on their order, but not on their numbers."""
    value = int.from_bytes(state[:8], "big")
    for logged in events:
        event = logged.event
        if isinstance(event, SessionDecided):
            event = msgspec.structs.replace(event, session=0, head=0)
        elif isinstance(event, OperationDone):
            event = msgspec.structs.replace(event, session=0)
        value = (value * 1_000_003 + crc32(encode_event(event))) % (1 << 64)
    return value.to_bytes(8, "big") * 10


def execute(path: Path, script: str) -> None:
    """Change a file behind the program's back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def spoil_plan(path: Path) -> None:
    """Let the plan of a log's first session be one that nobody can read."""
    with LogReader(path) as reader:
        events = ((each, each.event) for each in reader.read(reader.oldest()))
        logged, record = next((each, event) for each, event in events if isinstance(event, SessionDecided))
    payload = b"\0" + encode_event(msgspec.structs.replace(record, plan=b"\xc1"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE event SET payload = ? WHERE sequence = ?", (payload, logged.sequence))
    connection.close()
