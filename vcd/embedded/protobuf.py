"""Decodes request bodies in Kubernetes' protobuf encoding, which kubectl sends for built-in kinds since 1.33.

Encoding is not needed, because such clients accept JSON. Field numbers are in ``protobuf.txt``; its head explains the
format.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from vcd.embedded.schema_codec import decode_fields
from vcd.embedded.status_errors import bad_request

Object = dict[str, Any]

MEDIA: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
_SHORT_GROUPS: Final = {
    "": "core", "rbac.authorization.k8s.io": "rbac", "scheduling.k8s.io": "scheduling",
    "authentication.k8s.io": "authn", "authorization.k8s.io": "authz", "coordination.k8s.io": "coordination",
    "storage.k8s.io": "storage", "events.k8s.io": "events", "meta.k8s.io": "meta",
}  # fmt: skip
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Field(NamedTuple):
    name: str
    type: str
    many: str
    keeps_zero: bool


@cache
def _messages() -> dict[str, dict[int, _Field]]:
    text = (resources.files("vcd.embedded") / "protobuf.txt").read_text()
    table: dict[str, dict[int, _Field]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, *fields = line.split("\t")
        table[name] = dict(_field(field) for field in fields)
    return table


def _field(text: str) -> tuple[int, _Field]:
    number, name, kind = text.split(" ")
    many = kind[0] if kind[0] in "*%" else ""
    return int(number), _Field(name, kind.strip("*%?"), many, kind.endswith("?"))


def read(raw: bytes) -> Object:
    """Decode the object in a protobuf body. Raises StatusError 400."""
    if not raw.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = {number: value for number, _, value in _wire(raw[len(_MAGIC) :])}
        head = {number: value.decode() for number, _, value in _wire(envelope.get(1, b""))}
        version, kind = head.get(1, ""), head.get(2, "")
        group = version.rpartition("/")[0]
        name = f"{_SHORT_GROUPS.get(group, group)}.{kind}"
        if kind == "DeleteOptions":
            name = "meta.DeleteOptions"
        if name not in _messages():
            raise bad_request(f'no kind "{kind}" is registered for the internal version of group "{group}"')
        return {"kind": kind, "apiVersion": version, **_message(envelope.get(2, b""), name)}
    except (IndexError, ValueError, AttributeError, TypeError, OverflowError, OSError, RecursionError) as error:
        raise bad_request(f"the protobuf message cannot be read: {error}") from None


def _wire(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (field number, wire type, value) for each field of a message."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(raw, at)
            yield number, kind, value
        elif kind == _BYTES:
            size, at = _varint(raw, at)
            if at + size > len(raw):
                raise ValueError("unexpected end")
            yield number, kind, raw[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            yield number, kind, raw[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _message(raw: bytes, name: str) -> Object:
    fields = _messages()[name]
    made: Object = {}
    for number, _, value in _wire(raw):
        field = fields.get(number)
        if field is None:
            continue
        if field.many == "*":
            made.setdefault(field.name, []).append(_value(value, field.type))
        elif field.many == "%":
            key, item = _pair(value, field.type)
            made.setdefault(field.name, {})[key] = item
        else:
            read = _value(value, field.type)
            if field.name == "-":
                made.update(read)
            elif field.keeps_zero or read not in (None, "", 0, False, {}):
                made[field.name] = read
    return made


def _pair(raw: bytes, kind: str) -> tuple[str, Any]:
    parts = {number: value for number, _, value in _wire(raw)}
    return parts.get(1, b"").decode(), _value(parts.get(2, b""), kind)


def _value(value: Any, kind: str) -> Any:
    if "." in kind:
        return _message(value, kind)
    if kind == "s":
        return value.decode()
    if kind == "b":
        return bool(value)
    if kind == "i":
        return value - (1 << 64) if value >= 1 << 63 else value
    if kind == "y":
        return base64.b64encode(value).decode()
    parts = {number: part for number, _, part in _wire(value)}
    if kind == "q":
        return parts.get(1, b"0").decode() or "0"
    if kind == "o":
        return parts.get(3, b"").decode() if parts.get(1) else _value(parts.get(2, 0), "i")
    if kind == "r":
        return decode_fields(parts[1]) if parts.get(1) else {}
    if kind in "tT":
        return _time(parts, micro=kind == "T")
    raise ValueError(f"unknown type {kind}")


def _time(parts: dict[int, int], *, micro: bool) -> str | None:
    seconds = _value(parts.get(1, 0), "i")
    if not parts or (seconds <= 0 and not parts.get(2)):
        return None  # Go's zero time
    moment = datetime.fromtimestamp(seconds, UTC)
    fraction = f".{parts.get(2, 0) // 1000:06d}" if micro else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"
