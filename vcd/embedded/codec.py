"""Objects as they come in and as they are kept: pruned and checked by their schema, in the API's field order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from vcd.embedded import schema as schemas
from vcd.embedded.errors import StatusCause, StatusError, bad_request, invalid
from vcd.embedded.resources import ResourceType
from vcd.embedded.schema import Fault, Findings, Schema, dotted
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
    """Plain data of a JSON text. Raises ValueError for what is none."""
    try:
        return _decode(raw)
    except RecursionError:
        raise ValueError("exceeded max depth") from None


def decode_object(raw: bytes) -> Any:
    """Plain data of an object's JSON text, but sets of managed fields that are nested without end: those stay texts.

    They are legal, stored and shown as they came, and nobody looks into them. Raises ValueError for what is no JSON.
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
    """A set of managed fields: plain data, or the text where it is nested without end. Raises ValueError."""
    return msgspec.Raw(text) if _is_deep(text) else decode(text)


def _is_deep(text: bytes) -> bool:
    return jsontext.shallow(text) != text


class Codec:
    """Schemas by resource type, and reading objects by them."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[str, str], Schema] = {}

    def schema(self, rtype: ResourceType) -> Schema:
        """The schema of a type's objects."""
        key = (rtype.resource, rtype.version)
        if key not in self._schemas:
            self._schemas[key] = (
                schemas.built_in(rtype.group, rtype.version, rtype.kind) if rtype.definition is None
                else schemas.custom((rtype.definition.get("schema") or {}).get("openAPIV3Schema") or {})
            )  # fmt: skip
        return self._schemas[key]

    def forget(self, resource: str) -> None:
        """A custom resource definition changed: read its schema anew."""
        for key in [key for key in self._schemas if key[0] == resource]:
            del self._schemas[key]

    def read(self, rtype: ResourceType, source: Object) -> tuple[Object, list[str]]:
        """An owned, cleaned copy of an object, and the paths of its unknown fields.

        Raises StatusError 400 when a built-in kind cannot be decoded, 422 when a custom resource breaks its schema.
        """
        found = Findings()
        cleaned = schemas.read(source, self.schema(rtype), found)
        if found.faults:
            raise _custom_refused(rtype, source, found) if rtype.custom else _undecodable(rtype, found.faults[0])
        unknown = [dotted(path) for path in found.unknown]
        return ordered(cleaned), unknown


def _undecodable(rtype: ResourceType, fault: Fault) -> StatusError:
    """A built-in kind's quantity that is none, or value of a wrong type."""
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
    """The member at a dotted path, ``default`` when one is missing."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def name_of(source: Mapping[str, Any]) -> str:
    """The object's name, empty when it has none."""
    metadata = source.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return name if isinstance(name, str) else ""


def ordered(source: Object) -> Object:
    """The object with kind, apiVersion and metadata first, and metadata in the API's order without empty members."""
    metadata = source.get("metadata") or {}
    return {
        "kind": source.get("kind"), "apiVersion": source.get("apiVersion"), "metadata": ordered_metadata(metadata),
        **{key: value for key, value in source.items() if key not in _FIRST},
    }  # fmt: skip


def ordered_metadata(metadata: Mapping[str, Any]) -> Object:
    """Metadata in the API's order; empty maps and lists are left out, as the API's own encoding does."""
    result = {
        key: metadata[key]
        for key in _METADATA_ORDER
        if key in metadata and (metadata[key] or key not in _DROPPED_WHEN_EMPTY)
    }
    return result | {key: value for key, value in metadata.items() if key not in _METADATA_ORDER}


def copy(value: Any) -> Any:
    """A deep copy of plain JSON data."""
    if type(value) is dict:
        return {key: copy(member) for key, member in value.items()}
    if type(value) is list:
        return [copy(member) for member in value]
    return value
