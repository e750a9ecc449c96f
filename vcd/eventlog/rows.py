"""Events to rows and back: the one place that knows which column holds what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import NoneType
from typing import Any

import msgspec

from vcd.eventlog.chain import Content
from vcd.eventlog.packing import Packer, PackError
from vcd.eventlog.statements import statements
from vcd.model.codec import BadObject, named_group
from vcd.model.events import (
    Event,
    KindListed,
    ObjectBad,
    ObjectGone,
    ObjectPut,
    OperationDone,
    PolicyLoaded,
    SessionDecided,
    decode_event,
    decode_plan,
    encode_event,
)

Row = tuple[Any, ...]
_TYPES = ((int, int, str, str, str, str, bytes), (int, int, str, str, str, str, NoneType))
"""Of the columns of table ``event`` but the link."""
Link = Callable[[Content], bytes | None]
"""From what the row of the next event says to its link; None where it has none."""


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event in the log: its sequence number, the time of its append (ns since the epoch), the event."""

    sequence: int
    time: int
    event: Event


def columns(event: Event) -> tuple[str, str, str, str]:
    """The columns type, kind, key and resource_version of an event."""
    tag = str(event.__struct_config__.tag)
    if isinstance(event, ObjectPut | ObjectGone | ObjectBad):
        return tag, event.kind, event.key, event.resource_version
    if isinstance(event, KindListed):
        return tag, event.kind, "", event.resource_version
    return tag, "", "", ""


def content_of(logged: Logged) -> Content:
    """What the row of an event says; its payload is the object's, or the whole event where the columns do not do."""
    event = logged.event
    payload: bytes | None
    if isinstance(event, ObjectPut):
        payload = event.payload
    elif isinstance(event, ObjectGone | KindListed):
        payload = None
    else:
        payload = encode_event(event)
    return logged.sequence, logged.time, *columns(event), payload


def event_row(packer: Packer, content: Content, link: bytes | None) -> Row:
    """The row of table ``event``."""
    sequence, time, tag, kind, key, version, payload = content
    packed = None if payload is None else packer.pack(payload)
    return sequence, time, tag, kind, key, version, packed, link


def unpacked(packer: Packer, row: Row) -> Content:
    """What a row says, without its link. Raises PackError when the payload cannot be read, or a column is of another
    type than it was written with: SQLite looks at types as it writes, not as it reads."""
    if tuple(map(type, row)) not in _TYPES:
        raise PackError("its columns are of other types than they were written with")
    sequence, time, tag, kind, key, version, packed = row
    return sequence, time, tag, kind, key, version, None if packed is None else packer.unpack(packed)


def logged_of(content: Content) -> Logged:
    """The event of what a row says. Raises msgspec.MsgspecError when the payload cannot be read."""
    sequence, time, tag, kind, key, version, payload = content
    event: Event
    if tag == "put":
        event = ObjectPut(kind, key, version, payload)
    elif tag == "gone":
        event = ObjectGone(kind, key, version)
    elif tag == "listed":
        event = KindListed(kind, version)
    else:
        event = decode_event(payload or b"")
    return Logged(sequence, time, event)


def session_rows(sequence: int, event: SessionDecided) -> dict[str, list[Row]]:
    """The rows that index a session, by table; those of its plan in the plan's order. Raises msgspec.MsgspecError
    when the plan cannot be read."""
    plan, stale, number = decode_plan(event.plan), dict(event.stale), event.session
    found: dict[str, list[Row]] = {"statement": [], "operation": []}
    for i, statement in enumerate(plan.statements):
        verdict = "stale" if i in stale else "accepted"
        found["statement"].append((number, i, statement.group, statement.action, verdict))
        for j, operation in enumerate(statement.operations):
            found["operation"].append((number, i, j, operation.verb, operation.key, operation.node))
    return {"session": [(number, sequence, event.head, event.epoch, event.now, event.policy)], **found}


def group_rows(logged: Logged) -> list[Row]:
    """The rows of table ``group_event`` of an event: the group that a pod names as it is shown, and those that a
    session says something of. Raises msgspec.MsgspecError when a session's plan cannot be read."""
    event, groups = logged.event, list[str]()
    if isinstance(event, ObjectPut) and event.kind == "Pod" and event.payload is not None:
        with suppress(BadObject):  # a pod that nobody can read is in no group
            groups = [named_group(event.payload)]
    elif isinstance(event, SessionDecided):
        plan = decode_plan(event.plan)
        told = [statement.group for statement in plan.statements], [status.key for status in plan.groups]
        groups = [*told[0], *told[1], *(waiting.group for waiting in plan.waiting)]
    return [(group, logged.sequence) for group in sorted(set(groups)) if group]


def outcome_row(sequence: int, event: OperationDone) -> Row:
    """The row of table ``outcome``."""
    return sequence, event.session, event.statement, event.operation, event.result


def inserts(
    packer: Packer,
    link: Link,
    batch: list[Logged],
    *,
    contents: Iterable[Content] | None = None,
    indexed: bool = True,
) -> Iterator[tuple[str, Iterable[Row]]]:
    """The statements, each with its rows, that write a batch; to be executed in one transaction.

    Rows are made while they are consumed: packing, the chain and the walk through plans happen in the thread that
    writes. ``link`` is asked once for each event, in their order. ``contents`` are what their rows say, where that is
    known. ``indexed`` False leaves out the index rows of sessions and outcomes.
    """
    sql = statements("append")
    contents = map(content_of, batch) if contents is None else contents
    yield sql["event"], (event_row(packer, content, link(content)) for content in contents)
    concern = (one for one in batch if indexed or not isinstance(one.event, SessionDecided))
    yield sql["group_event"], (row for logged in concern for row in group_rows(logged))
    for logged in batch:
        event = logged.event
        if isinstance(event, PolicyLoaded):
            yield sql["policy"], [(event.digest, event.text, logged.sequence)]
        elif isinstance(event, SessionDecided) and indexed:
            yield from ((sql[table], rows) for table, rows in session_rows(logged.sequence, event).items())
    outcomes = [(one.sequence, one.event) for one in batch if isinstance(one.event, OperationDone)]
    if indexed and outcomes:
        yield sql["outcome"], [outcome_row(sequence, event) for sequence, event in outcomes]


def digest_of(state: bytes) -> bytes:
    """The digest that guards a checkpoint: BLAKE2b, 16 bytes."""
    return hashlib.blake2b(state, digest_size=16).digest()
