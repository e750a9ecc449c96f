"""Manifests, list items, watch lines and log payloads to projected objects, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from vcd.model.kinds import KINDS
from vcd.model.objects import Object

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_json_decoders = {name: msgspec.json.Decoder(kind.type, strict=False) for name, kind in KINDS.items()}
_payload_decoders = {name: msgspec.msgpack.Decoder(kind.type) for name, kind in KINDS.items()}
_payload_encoder = msgspec.msgpack.Encoder(order="deterministic")


class BadObject(ValueError):
    """An object that cannot be read; ``kind``, ``key`` and the message say which and why."""

    def __init__(self, kind: str, key: str, message: str) -> None:
        super().__init__(f"{kind} {key or '(no name)'}: {message}")
        self.kind = kind
        self.key = key


class _Named(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Identified(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


def _project(obj: Object) -> tuple[Object, str]:
    """Strip what differs at every write, and return it: the resource version."""
    version = obj.metadata.resource_version
    msgspec.structs.force_setattr(obj.metadata, "resource_version", "")
    obj.metadata.annotations.pop(LAST_APPLIED, None)
    return obj, version


def decode_json(kind: str, raw: bytes | memoryview | msgspec.Raw) -> tuple[Object, str]:
    """The projected object of a JSON text and its resource version.

    Raises BadObject, naming the object where its name can be read.
    """
    decoder = _json_decoders[kind]
    try:
        return _project(decoder.decode(raw))
    except msgspec.MsgspecError:
        pass  # a null where a default is meant is legal; anything else fails again below
    try:
        return _project(decoder.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(raw)))))
    except msgspec.MsgspecError as error:
        raise BadObject(kind, identify(raw)[0], str(error)) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def identify(raw: bytes | memoryview | msgspec.Raw) -> tuple[str, str]:
    """Key and resource version of any object's JSON text, empty where they cannot be read."""
    try:
        meta = msgspec.json.decode(raw, type=_Identified, strict=False).metadata
    except msgspec.MsgspecError:
        return "", ""
    return (f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name), meta.resource_version


def from_manifest(manifest: Mapping[str, Any]) -> tuple[str, Object, str]:
    """Kind, projected object and resource version of a manifest given as plain data.

    Raises BadObject for a kind vcd does not read or a field of a wrong type.
    """
    kind = str(manifest.get("kind", ""))
    meta = manifest.get("metadata") or {}
    name = f"{meta.get('namespace', '')}/{meta.get('name', '')}".strip("/") if isinstance(meta, Mapping) else ""
    if kind not in KINDS:
        raise BadObject(kind or "(no kind)", name, "not a kind that vcd reads")
    return kind, *decode_json(kind, msgspec.json.encode(manifest))


def encode_payload(obj: Object) -> bytes:
    """The projection as bytes: equal objects have equal bytes."""
    return _payload_encoder.encode(obj)


def payload_digest(payload: bytes) -> int:
    """64 bits that tell two projections apart."""
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "big")


def decode_payload(kind: str, payload: bytes) -> Object:
    """The object of bytes that encode_payload made. Raises BadObject when they are not."""
    try:
        return _payload_decoders[kind].decode(payload)
    except (msgspec.MsgspecError, KeyError) as error:
        raise BadObject(kind, "", f"payload cannot be read: {error}") from error
