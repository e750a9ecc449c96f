"""Decodes received objects, prunes and validates them by their schema, and orders their fields as the API does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from vcd.embedded import schema as schemas
from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema import Fault, Findings, Schema, dotted
from vcd.embedded.status_errors import StatusCause, StatusError, bad_request, invalid
from vcd.model import jsontext

Object = dict[str, Any]

encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode
_decode: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode

_METADATA_ORDER: Final = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip
_FIRST: Final = ("kind", "apiVersion", "metadata")
_DROPPED_WHEN_EMPTY: Final = ("labels", "annotations", "ownerReferences", "finalizers", "managedFields")
_QUANTITY_FAULT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def decode(raw: bytes) -> Any:
    """Decode JSON. Raises ValueError."""
    try:
        return _decode(raw)
    except RecursionError:
        raise ValueError("exceeded max depth") from None


def decode_object(raw: bytes) -> Any:
    """Decode an object's JSON, except sets of managed fields that are nested too deeply: these remain encoded.

    They are valid, and are stored and returned unchanged. Raises ValueError.
    """
    deep: dict[int, bytes] = {}
    if b'"managedFields"' in raw:
        metadata = jsontext.members(jsontext.members(raw).get("metadata", b""))
        entries = jsontext.elements(metadata.get("managedFields", b""))
        sets = {number: jsontext.members(entry).get("fieldsV1", b"") for number, entry in enumerate(entries)}
        deep = {number: text for number, text in sets.items() if _is_deep(text)}
    for text in deep.values():
        raw = raw.replace(text, b"{}", 1)
    obj = decode(raw)
    for number, text in deep.items():
        obj["metadata"]["managedFields"][number]["fieldsV1"] = msgspec.Raw(text)
    return obj


def decode_fields(text: bytes) -> Any:
    """Decode a set of managed fields, or return it encoded if it is nested too deeply. Raises ValueError."""
    return msgspec.Raw(text) if _is_deep(text) else decode(text)


def _is_deep(text: bytes) -> bool:
    return jsontext.shallow(text) != text


class Codec:
    """Caches schemas by resource type, and reads objects by them."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[str, str], Schema] = {}

    def schema(self, rtype: ResourceType) -> Schema:
        """Return the schema of a resource type."""
        key = (rtype.resource, rtype.version)
        if key not in self._schemas:
            self._schemas[key] = (
                schemas.built_in(rtype.group, rtype.version, rtype.kind) if rtype.definition is None
                else schemas.custom((rtype.definition.get("schema") or {}).get("openAPIV3Schema") or {})
            )  # fmt: skip
        return self._schemas[key]

    def forget(self, resource: str) -> None:
        """Drop the schemas of a resource, because its custom resource definition changed."""
        for key in [key for key in self._schemas if key[0] == resource]:
            del self._schemas[key]

    def read(self, rtype: ResourceType, source: Object) -> tuple[Object, list[str]]:
        """Return a pruned copy of an object, and the paths of its unknown fields.

        Raises StatusError 400 if a built-in kind cannot be decoded, 422 if a custom resource violates its schema.
        """
        found = Findings()
        cleaned = schemas.read(source, self.schema(rtype), found)
        if found.faults:
            raise _custom_refused(rtype, source, found) if rtype.custom else _undecodable(rtype, found.faults[0])
        unknown = [dotted(path) for path in found.unknown]
        return ordered(cleaned), unknown


def _undecodable(rtype: ResourceType, fault: Fault) -> StatusError:
    """Return the error for an invalid quantity, or a value of a wrong type, in a built-in kind."""
    why = _QUANTITY_FAULT
    if fault.reason == "type":
        found = schemas.type_name(fault.value)
        got = {"integer": "number", "boolean": "bool"}.get(found, found)
        field = f"{rtype.kind}.{dotted(fault.path)}"
        why = f"json: cannot unmarshal {got} into Go struct field {field} of type {fault.message}"
    return bad_request(f'{rtype.kind} in version "{rtype.version}" cannot be handled as a {rtype.kind}: {why}')


def _custom_refused(rtype: ResourceType, source: Object, found: Findings) -> StatusError:
    causes = []
    for fault in found.faults:
        where = dotted(fault.path)
        if fault.reason == "type":
            shown = f'"{schemas.type_name(fault.value)}"'
            text = f"Invalid value: {shown}: {where} in body must be of type {fault.message}: {shown}"
            causes.append(StatusCause("FieldValueTypeInvalid", text, where))
        elif fault.reason == "quantity":
            causes.append(StatusCause("FieldValueInvalid", f"Invalid value: {_QUANTITY_FAULT}", where))
        else:
            causes.append(StatusCause(fault.reason, fault.message, where))
    return invalid(rtype.kind, rtype.group, name_of(source), causes)


def at(obj: Any, path: str, default: Any = None) -> Any:
    """Return the member at a dotted path, or ``default`` if it is missing."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def name_of(source: Mapping[str, Any]) -> str:
    """Return the object's name, empty if it has none."""
    metadata = source.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return name if isinstance(name, str) else ""


def ordered(source: Object) -> Object:
    """Return the object with kind, apiVersion and metadata first; metadata as in ``ordered_metadata``."""
    metadata = source.get("metadata") or {}
    return {
        "kind": source.get("kind"), "apiVersion": source.get("apiVersion"), "metadata": ordered_metadata(metadata),
        **{key: value for key, value in source.items() if key not in _FIRST},
    }  # fmt: skip


def ordered_metadata(metadata: Mapping[str, Any]) -> Object:
    """Return metadata in the API's order, without empty maps and lists, as the API server encodes it."""
    result = {
        key: metadata[key]
        for key in _METADATA_ORDER
        if key in metadata and (metadata[key] or key not in _DROPPED_WHEN_EMPTY)
    }
    return result | {key: value for key, value in metadata.items() if key not in _METADATA_ORDER}


def copy(value: Any) -> Any:
    """Return a deep copy of decoded JSON."""
    if type(value) is dict:
        return {key: copy(member) for key, member in value.items()}
    if type(value) is list:
        return [copy(member) for member in value]
    return value
