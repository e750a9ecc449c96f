"""Convert manifests, list items, watch lines and log payloads to projected objects, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from vcd.model import jsontext
from vcd.model.controllers import GROUP_NAME
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object, ObjectMeta, Pod, PodGroupStatus, Projected
from vcd.model.plainjson import NotJson, as_json
from vcd.model.resource_requests import without_echo

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

T = TypeVar("T", bound=Object)
D = TypeVar("D")

_payload_encoder = msgspec.msgpack.Encoder(order="deterministic")


@cache
def _json_decoder(of: type[Object]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of, strict=False)


@cache
def _payload_decoder(of: type[Object]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(of)


class Foreign(Object, frozen=True):
    """An object of a kind that a plugin declares, as it is in the log.

    The log can be folded without the plugin: only the metadata is decoded. ``payload`` is stored unchanged for code
    that knows its type.
    """

    payload: bytes = b""

    def read_as(self, of: type[T]) -> T:
        """Decode the object as the type of its kind. Raises BadObject if the payload is of another type."""
        obj: T = _decode(_payload_decoder(of), self.payload, of.__name__, self.key)
        return obj


class BadObject(ValueError):
    """An object that cannot be read. ``kind`` and ``key`` identify it, ``message`` is the reason, the text is both."""

    def __init__(self, kind: str, key: str, message: str) -> None:
        super().__init__(f"{kind} {key or '(no name)'}: {message}")
        self.kind = kind
        self.key = key
        self.message = message


class _ObjectName(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Identified(msgspec.Struct):
    metadata: _ObjectName = msgspec.field(default_factory=_ObjectName)


def _project(obj: Object) -> tuple[Object, str]:
    """Remove what differs at every write; return the object and its resource version."""
    version = obj.metadata.resource_version
    msgspec.structs.force_setattr(obj.metadata, "resource_version", "")
    obj.metadata.annotations.pop(LAST_APPLIED, None)
    if isinstance(obj, Pod):
        msgspec.structs.force_setattr(obj, "status", without_echo(obj))
        if obj.spec.volumes:
            volumes = tuple([volume for volume in obj.spec.volumes if volume.binds])
            msgspec.structs.force_setattr(obj.spec, "volumes", volumes)
    if not obj.whole:
        meta = obj.metadata
        slim = ObjectMeta(meta.name, meta.namespace, meta.uid, deletion_timestamp=meta.deletion_timestamp)
        msgspec.structs.force_setattr(obj, "metadata", slim)
    return obj, version


def decode_json(kind: Kind, raw: bytes | memoryview | msgspec.Raw) -> tuple[Object, str]:
    """Decode a JSON text to its projected object and resource version.

    Raises BadObject for any invalid text, naming the object if its name can be read.
    """
    decoder = _json_decoder(kind.type)
    try:
        obj = decoder.decode(raw)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - mostly legal: nulls, and managed fields nested to any depth
        obj = _decode_again(kind, raw)
    if not obj.metadata.name:
        raise BadObject(kind.name, identify(raw)[0], "metadata.name: missing or empty")
    return _project(obj)


def _decode_again(kind: Kind, raw: bytes | memoryview | msgspec.Raw) -> Object:
    """Decode an object without its nulls (fields get defaults) and without parts nested deeper than any known field."""
    try:
        plain = _without_nulls(msgspec.json.decode(jsontext.shallow(raw)))
        obj: Object = _json_decoder(kind.type).decode(msgspec.json.encode(plain))
        return obj
    except MemoryError:
        raise
    except Exception as error:
        raise BadObject(kind.name, identify(raw)[0], str(error) or type(error).__name__) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def identify(raw: bytes | memoryview | msgspec.Raw) -> tuple[str, str]:
    """Return key and resource version of any object's JSON text, empty if they cannot be read."""
    try:
        meta = msgspec.json.decode(raw, type=_Identified, strict=False).metadata
    except (ValueError, RecursionError):
        found = jsontext.members(jsontext.members(raw).get("metadata", b""))
        texts = [jsontext.string(found.get(name, b"")) for name in ("name", "namespace", "resourceVersion")]
        meta = _ObjectName(*texts)
    if not meta.name:
        return "", meta.resource_version
    return (f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name), meta.resource_version


def from_manifest(manifest: Mapping[str, Any], kinds: Iterable[Kind] = KINDS.values()) -> tuple[str, Object, str]:
    """Return kind name, projected object and resource version of a manifest given as plain data.

    Raises BadObject for a manifest of none of ``kinds``, a field of a wrong type, or what JSON cannot hold.
    """
    meta = _metadata(manifest)
    name = "/".join(filter(None, (_text(meta.get("namespace")), _text(meta.get("name")))))
    for kind in kinds_of(manifest, kinds):
        try:
            raw = as_json(without_managed_fields(manifest))
        except NotJson as error:
            raise BadObject(kind.name, name, str(error)) from error
        return kind.name, *decode_json(kind, raw)
    raise BadObject(_text(manifest.get("kind")) or "(no kind)", name, "not a kind that vcd reads")


def without_managed_fields(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a manifest without managed fields: nothing here reads them, and their nesting is unlimited."""
    meta = _metadata(manifest)
    if "managedFields" not in meta:
        return manifest
    return {**manifest, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def kinds_of(manifest: Mapping[str, Any], kinds: Iterable[Kind]) -> list[Kind]:
    """Return which ``kinds`` read an object: several if several plugins read parts of a kind."""
    meta = _metadata(manifest)
    what, namespace, name = (_text(value) for value in (manifest.get("kind"), meta.get("namespace"), meta.get("name")))
    return [kind for kind in kinds if kind.manifest_kind == what and kind.selects(namespace, name)]


def _metadata(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = manifest.get("metadata")
    return meta if isinstance(meta, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def encode_payload(obj: Object) -> bytes:
    """Encode a projection; equal objects have equal bytes. Raises BadObject for a number beyond 64 bits."""
    if isinstance(obj, Foreign):
        return obj.payload
    try:
        return _payload_encoder.encode(obj)
    except (OverflowError, ValueError) as error:
        raise BadObject(type(obj).__name__, obj.key, str(error)) from error


def as_plain(obj: Object) -> Any:
    """Return the object as mappings, lists and texts."""
    return msgspec.msgpack.decode(obj.payload) if isinstance(obj, Foreign) else msgspec.to_builtins(obj)


class _GroupStatusOnly(Projected, frozen=True):
    status: PodGroupStatus = PodGroupStatus()


_group_status_decoder = msgspec.msgpack.Decoder(_GroupStatusOnly)


def group_status(payload: bytes) -> PodGroupStatus:
    """Return the status in a PodGroup's payload without decoding the rest. Raises BadObject for other bytes."""
    return _decode(_group_status_decoder, payload, "PodGroup").status


class _GroupMetaHead(Projected, frozen=True):
    creation_timestamp: str | None = None


class GroupHead(Projected, frozen=True):
    """A PodGroup's creation time and encoded spec."""

    metadata: _GroupMetaHead = _GroupMetaHead()
    spec: msgspec.Raw = msgspec.Raw(msgspec.msgpack.encode({}))


_group_head_decoder = msgspec.msgpack.Decoder(GroupHead)


def group_head(payload: bytes) -> GroupHead:
    """Return the head of a PodGroup's payload without decoding the rest. Raises BadObject for other bytes."""
    return _decode(_group_head_decoder, payload, "PodGroup")


class _GroupNaming(Projected, frozen=True):
    namespace: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _GroupNamingOnly(Projected, frozen=True):
    metadata: _GroupNaming = _GroupNaming()


_group_naming_decoder = msgspec.msgpack.Decoder(_GroupNamingOnly)


def named_group(payload: bytes) -> str:
    """Return the key of the group that a pod's payload names, or "", without decoding the rest.

    Raises BadObject for bytes that are no payload.
    """
    meta = _decode(_group_naming_decoder, payload, "Pod").metadata
    name = meta.annotations.get(GROUP_NAME)
    return f"{meta.namespace}/{name}" if name else ""


def payload_digest(payload: bytes) -> int:
    """Return 64 bits that differ for different projections."""
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "big")


def decode_payload(kind: str, payload: bytes) -> Object:
    """Decode what encode_payload returned; the result is a `Foreign` if the kind is a plugin's.

    Raises BadObject for other bytes.
    """
    of = KINDS[kind].type if kind in KINDS else Object
    obj: Object = _decode(_payload_decoder(of), payload, kind)
    return obj if kind in KINDS else Foreign(obj.metadata, payload)


def _decode(decoder: msgspec.msgpack.Decoder[D], payload: bytes, kind: str, key: str = "") -> D:
    try:
        return decoder.decode(payload)
    except (ValueError, RecursionError) as error:
        raise BadObject(kind, key, f"payload cannot be read: {error}") from error
