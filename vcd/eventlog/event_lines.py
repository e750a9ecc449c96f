"""Format logged events as plain data, for people and for JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from vcd.eventlog.rows import Logged
from vcd.model.events import Answered, ObjectBad, ObjectPut, Plan, PolicyLoaded, SessionDecided, decode_plan
from vcd.model.projection_codec import BadObject, as_plain, decode_payload
from vcd.model.wording import rfc3339


def format_event_line(logged: Logged) -> dict[str, Any]:
    """Return an event as plain data; ``what`` summarizes what the other columns do not contain."""
    event = logged.event
    data = msgspec.to_builtins(event, builtin_types=(bytes,))
    line = {
        "sequence": logged.sequence,
        "time": rfc3339(logged.time, 6),
        "type": data["event"],
        "kind": data.get("kind", ""),
        "key": data.get("key", ""),
        "version": data.get("resource_version", ""),
        "what": _summary(logged),
    }
    if isinstance(event, ObjectPut):
        data["payload"] = _payload(event)
    elif isinstance(event, SessionDecided):
        plan = _plan(event)
        data["plan"] = event.plan if plan is None else msgspec.to_builtins(plan)
    return line | {"event": data}


def _payload(event: ObjectPut) -> Any:
    if event.payload is None:
        return None
    try:
        return as_plain(decode_payload(event.kind, event.payload))
    except BadObject:
        return event.payload


def _summary(logged: Logged) -> str:
    event = logged.event
    if isinstance(event, ObjectPut):
        return "unchanged" if event.payload is None else f"{len(event.payload)} bytes"
    if isinstance(event, ObjectBad):
        return event.message
    if isinstance(event, PolicyLoaded):
        return event.digest
    if isinstance(event, Answered):
        return event.question
    if isinstance(event, SessionDecided):
        return _session_summary(event)
    data = msgspec.to_builtins(event)
    rest = {name: value for name, value in data.items() if name not in ("event", "kind", "key", "resource_version")}
    return " ".join(f"{name}={value}" for name, value in rest.items())


def _plan(event: SessionDecided) -> Plan | None:
    try:
        return decode_plan(event.plan)
    except msgspec.MsgspecError:
        return None


def _session_summary(event: SessionDecided) -> str:
    plan = _plan(event)
    if plan is None:
        return f"session {event.session}: its plan cannot be read"
    operations = sum(len(statement.operations) for statement in plan.statements)
    stale = len(event.stale)
    summary = f"session {event.session}: {len(plan.statements)} statements, {operations} operations, {stale} stale"
    return f"{summary}; failed: {'; '.join(plan.faults)}" if plan.faults else summary
