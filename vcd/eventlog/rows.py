"""Converts events to rows and back. Only this module and ``sql/`` know which column has which content.

A log of an earlier version must remain readable: a change of a column needs a migration in ``sql/``. Links are computed
from the contents of rows, so the same event must always give the same content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import NoneType
from typing import Any

import msgspec

from vcd.eventlog.chain import Content
from vcd.eventlog.packing import Packer, PackError
from vcd.eventlog.sql_statements import statements
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
from vcd.model.projection_codec import BadObject, named_group

Row = tuple[Any, ...]
_TYPES = ((int, int, str, str, str, str, bytes), (int, int, str, str, str, str, NoneType))
"""Types of the columns of table ``event``, without the link."""
LinkFunction = Callable[[Content], bytes | None]
"""Returns the link of the next event's content; None if it has none."""


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event in the log: its sequence number, the time of its append (ns since the epoch), and the event."""

    sequence: int
    time: int
    event: Event


def index_columns(event: Event) -> tuple[str, str, str, str]:
    """Return an event's columns type, kind, key and resource_version."""
    tag = str(event.__struct_config__.tag)
    if isinstance(event, ObjectPut | ObjectGone | ObjectBad):
        return tag, event.kind, event.key, event.resource_version
    if isinstance(event, KindListed):
        return tag, event.kind, "", event.resource_version
    return tag, "", "", ""


def to_content(logged: Logged) -> Content:
    """Return an event's row before packing. The payload is the object's, or the event if columns do not suffice."""
    event = logged.event
    payload: bytes | None
    if isinstance(event, ObjectPut):
        payload = event.payload
    elif isinstance(event, ObjectGone | KindListed):
        payload = None
    else:
        payload = encode_event(event)
    return logged.sequence, logged.time, *index_columns(event), payload


def event_row(packer: Packer, content: Content, link: bytes | None) -> Row:
    sequence, time, tag, kind, key, version, payload = content
    packed = None if payload is None else packer.pack(payload)
    return sequence, time, tag, kind, key, version, packed, link


def unpack_row(packer: Packer, row: Row) -> Content:
    """Return a row's content without its link. Raises PackError if its payload or a column's type was changed."""
    if tuple(map(type, row)) not in _TYPES:
        raise PackError("its columns are of other types than they were written with")
    sequence, time, tag, kind, key, version, packed = row
    return sequence, time, tag, kind, key, version, None if packed is None else packer.unpack(packed)


def to_logged(content: Content) -> Logged:
    """Return the event of a row's content. Raises msgspec.MsgspecError if the payload cannot be decoded."""
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
    """Return a session's index rows by table. Raises msgspec.MsgspecError for an unreadable plan."""
    plan, stale, number = decode_plan(event.plan), dict(event.stale), event.session
    found: dict[str, list[Row]] = {"statement": [], "operation": []}
    for i, statement in enumerate(plan.statements):
        verdict = "stale" if i in stale else "accepted"
        found["statement"].append((number, i, statement.group, statement.action, verdict))
        for j, operation in enumerate(statement.operations):
            found["operation"].append((number, i, j, operation.verb, operation.key, operation.node))
    return {"session": [(number, sequence, event.head, event.epoch, event.now, event.policy)], **found}


def group_rows(logged: Logged) -> list[Row]:
    """Return an event's rows of table ``group_event``: the group that a pod names, or all groups in a session's plan.

    Raises msgspec.MsgspecError for an unreadable plan.
    """
    event, groups = logged.event, list[str]()
    if isinstance(event, ObjectPut) and event.kind == "Pod" and event.payload is not None:
        with suppress(BadObject):  # an unreadable pod has no group in its row
            groups = [named_group(event.payload)]
    elif isinstance(event, SessionDecided):
        plan = decode_plan(event.plan)
        groups = [each.group for each in plan.statements] + [each.group for each in plan.waiting]
        groups += [each.key for each in plan.groups]
    return [(group, logged.sequence) for group in sorted(set(groups)) if group]


def outcome_row(sequence: int, event: OperationDone) -> Row:
    return sequence, event.session, event.statement, event.operation, event.result


def build_inserts(
    packer: Packer,
    link: LinkFunction,
    batch: list[Logged],
    *,
    contents: Iterable[Content] | None = None,
) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield the statements, each with its rows, that write a batch; execute them in one transaction.

    Rows are built when they are consumed, so that packing and hashing run in the writing thread.

    Args:
        link: Called once per event, in order.
        contents: The events' contents, if the caller has them.
    """
    sql = statements("append")
    contents = map(to_content, batch) if contents is None else contents
    yield sql["event"], (event_row(packer, content, link(content)) for content in contents)
    yield sql["group_event"], (row for logged in batch for row in group_rows(logged))
    for logged in batch:
        event = logged.event
        if isinstance(event, PolicyLoaded):
            yield sql["policy"], [(event.digest, event.text, logged.sequence)]
        elif isinstance(event, SessionDecided):
            yield from ((sql[table], rows) for table, rows in session_rows(logged.sequence, event).items())
    outcomes = [(one.sequence, one.event) for one in batch if isinstance(one.event, OperationDone)]
    if outcomes:
        yield sql["outcome"], [outcome_row(sequence, event) for sequence, event in outcomes]


def state_digest(state: bytes) -> bytes:
    """Return the digest of a checkpoint's state: BLAKE2b, 16 bytes."""
    return hashlib.blake2b(state, digest_size=16).digest()
