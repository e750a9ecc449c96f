"""Schemas of the served kinds, from Kubernetes' OpenAPI document or from a custom resource definition.

``openapi.json`` has the part of the document that the built-in kinds need (``tests/embedded/trim_openapi.py``).

All users read the same tree of Schema nodes: pruning and type checks, defaults, merge keys of a strategic merge patch,
list keys of server-side apply, and the OpenAPI documents for ``kubectl explain``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Final

import msgspec

from vcd.model.quantity import QuantityError, canonical

Path = tuple[Any, ...]

OBJECT, ARRAY, STRING, INTEGER, NUMBER, BOOLEAN, ANY = (
    "object", "array", "string", "integer", "number", "boolean", "any",
)  # fmt: skip
QUANTITY: Final = "quantity"
INT32: Final = "int32"
INT_OR_STRING: Final = "int-or-string"
_LIMITS: Final = {INTEGER: 2**63, INT32: 2**31}


@dataclass(slots=True)
class Schema:
    """One node: its type, its members, how it merges, and (for custom resources) constraints on its value.

    ``properties`` are an object's known fields, ``values`` is the schema of a map's values, ``items`` of a list's
    items. ``keys`` identify a list item (server-side apply), ``unique`` makes a list a set, ``atomic`` makes an object
    or list a single value. ``merge_key`` is the key of a strategic merge patch; it is empty, with ``merge``, for a list
    of scalars. ``checks`` has a custom resource's value constraints by their JSON schema names.
    """

    type: str = ANY
    name: str = ""
    description: str = ""
    properties: dict[str, Schema] = field(default_factory=dict)
    values: Schema | None = None
    items: Schema | None = None
    required: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    unique: bool = False
    atomic: bool = False
    merge: bool = False
    merge_key: str = ""
    format: str = ""
    preserve_unknown: bool = False
    nullable: bool = False
    default: Any = None
    checks: Mapping[str, Any] = field(default_factory=dict)


ANYTHING: Final = Schema(preserve_unknown=True, atomic=True)

# --- built-in kinds -------------------------------------------------------------------------------------------------

OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
REFERENCE: Final = "#/definitions/"
KIND: Final = "x-kubernetes-group-version-kind"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RECURSIVE: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


@functools.cache
def definitions() -> Mapping[str, Any]:
    """Return the definitions of the built-in kinds in Kubernetes' OpenAPI document, by name."""
    text = (resources.files("vcd.embedded") / "openapi.json").read_bytes()
    found: Mapping[str, Any] = msgspec.json.decode(text)["definitions"]
    return found


def names_by_kind(found: Mapping[str, Any]) -> dict[tuple[str, str, str], str]:
    """Return the names of definitions by group, version and kind."""
    return {
        (each["group"], each["version"], each["kind"]): name
        for name, definition in found.items()
        for each in definition.get(KIND, ())
    }


def closure(found: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """Return the names of some definitions and of all that they refer to."""
    known: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            waiting.extend(_references(found[name]))
    return known


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.removeprefix(REFERENCE)
        value = value.values()
    elif not isinstance(value, list):
        return
    for part in value:
        yield from _references(part)


@functools.cache
def definition_name(group: str, version: str, kind: str) -> str:
    """Return the name of a built-in kind's definition. Raises KeyError."""
    return names_by_kind(definitions())[group, version, kind]


def built_in(group: str, version: str, kind: str) -> Schema:
    """Return the schema of a built-in kind. Raises KeyError."""
    return model(definition_name(group, version, kind))


@functools.cache
def model(name: str) -> Schema:
    """Return the schema of a definition, including its members."""
    if name == _QUANTITY:
        return Schema(QUANTITY)
    if name == _RECURSIVE:
        return Schema(OBJECT, name=name, preserve_unknown=True, atomic=True)
    node = _member(definitions()[name])
    return replace(node, name=name) if node.type == OBJECT else node


def _member(source: Mapping[str, Any]) -> Schema:
    """Return a node of a built-in kind."""
    if "$ref" in source:
        node = model(source["$ref"].removeprefix(REFERENCE))
        return replace(node, description=source.get("description") or node.description)
    if source.get("type", OBJECT) == OBJECT and not {"properties", "additionalProperties"} & source.keys():
        return ANYTHING
    if source.get("format") in (INT32, INT_OR_STRING):
        return Schema(source["format"], description=source.get("description", ""))
    return _node(source, _member)


# --- custom resources -----------------------------------------------------------------------------------------------


def custom(source: Mapping[str, Any]) -> Schema:
    """Return the schema of a custom resource from its ``openAPIV3Schema``, with the API's metadata."""
    node = structural(source)
    node.type = OBJECT
    node.properties = {
        "apiVersion": Schema(STRING, description="The versioned schema of this representation of an object."),
        "kind": Schema(STRING, description="The REST resource this object represents."),
        **node.properties,
        "metadata": model(OBJECT_META),
    }
    return node


def structural(source: Mapping[str, Any]) -> Schema:
    """Parse a node of a structural schema (``apiextensions.k8s.io/v1``). Raises ValueError."""
    _expect_forms(source)
    return _node(source, structural)


def _node(source: Mapping[str, Any], part_of: Callable[[Mapping[str, Any]], Schema]) -> Schema:
    kind, strategy = source.get("type") or "", source.get("x-kubernetes-patch-strategy") or ""
    node = Schema(
        INT_OR_STRING if source.get("x-kubernetes-int-or-string") else kind or ANY,
        description=source.get("description") or "",
        required=tuple(source.get("required") or ()),
        format=source.get("format") or "",
        nullable=bool(source.get("nullable")),
        default=source.get("default"),
        preserve_unknown=bool(source.get("x-kubernetes-preserve-unknown-fields"))
        or bool(source.get("x-kubernetes-embedded-resource")),
        checks={name: source[name] for name in _CHECK_TABLE if source.get(name) is not None},
        merge="merge" in strategy.split(","),
        merge_key=source.get("x-kubernetes-patch-merge-key") or "",
    )
    node.properties = {name: part_of(part) for name, part in (source.get("properties") or {}).items()}
    values = source.get("additionalProperties")
    if isinstance(values, Mapping):
        node.values = part_of(values)
    elif values:
        node.preserve_unknown = True
    if kind == ARRAY:
        node.items = part_of(source.get("items") or {})
        list_type = source.get("x-kubernetes-list-type", "atomic")
        node.keys = tuple(source.get("x-kubernetes-list-map-keys") or ()) if list_type == "map" else ()
        node.unique = list_type == "set"
        node.atomic = list_type == "atomic"
    elif source.get("x-kubernetes-map-type") == "atomic":
        node.atomic = True
    return node


_FORMS: Final[dict[str, type | tuple[type, ...]]] = {
    "type": str, "description": str, "format": str, "pattern": str, "properties": dict, "items": dict,
    "required": list, "enum": list, "x-kubernetes-list-type": str, "x-kubernetes-list-map-keys": list,
    "minimum": (int, float), "maximum": (int, float),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), int),
}  # fmt: skip


def _expect_forms(source: Any) -> None:
    """Raise ValueError for a node with a member of the wrong type, or an invalid pattern."""
    if not isinstance(source, Mapping):
        raise ValueError(f"{source!r} is no schema")
    for name, form in _FORMS.items():
        if source.get(name) is not None and not isinstance(source[name], form):
            raise ValueError(f"{name}: {source[name]!r} is of the wrong type")
    try:
        re.compile(source.get("pattern") or "")
    except re.error as error:
        raise ValueError(f"pattern: {source['pattern']!r}: {error}") from None


# --- reading an object ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fault:
    """A value that its schema refuses. ``reason`` is the API's cause type, or "type" or "quantity"."""

    path: Path
    reason: str
    message: str
    value: Any = None


@dataclass(slots=True)
class Findings:
    """The unknown fields and invalid values of an object."""

    unknown: list[Path] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def dotted(path: Path) -> str:
    """Format a path of ``read``, such as ``spec.containers[0].name``."""
    parts: list[str] = []
    while path:
        path, part = path
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return "".join(reversed(parts)).removeprefix(".")


def read(value: Any, schema: Schema, found: Findings, path: Path = ()) -> Any:
    """Return a copy of ``value`` with defaults, without unknown fields, and without nulls that are not allowed.

    Unknown fields and invalid values are added to ``found``; nothing is raised.
    """
    kind = schema.type
    if kind == OBJECT:
        if type(value) is dict:
            return _read_object(value, schema, found, path)
    elif kind == ARRAY:
        if type(value) is list:
            items = schema.items or ANYTHING
            if schema.checks:
                _check(value, schema, found, path)
            return [read(item, items, found, (path, index)) for index, item in enumerate(value)]
    elif kind == ANY or (kind == STRING and type(value) is str):
        pass
    elif kind == QUANTITY:
        try:
            return canonical(str(value))
        except QuantityError:
            found.faults.append(Fault(path, "quantity", "", value))
            return value
    elif not _scalar_fits(value, kind):
        found.faults.append(Fault(path, "type", kind, value))
        return value
    if kind not in (OBJECT, ARRAY):
        if schema.checks:
            _check(value, schema, found, path)
        return value
    if not (value is None and schema.nullable):
        found.faults.append(Fault(path, "type", kind, value))
    return value


def _read_object(value: dict[str, Any], schema: Schema, found: Findings, path: Path) -> dict[str, Any]:
    known = schema.properties
    result: dict[str, Any] = {}
    values = schema.values
    for key, member in value.items():
        part = known.get(key, values)
        if part is None:
            if schema.preserve_unknown:
                result[key] = member
            else:
                found.unknown.append((path, key))
        elif member is None:
            if part.nullable or (part.type == ANY and part is not ANYTHING):
                result[key] = None
        else:
            result[key] = read(member, part, found, (path, key))
    for key, part in known.items():
        if part.default is not None and key not in result:
            result[key] = read(part.default, part, found, (path, key))
    if schema.checks or (schema.required and not schema.name):  # `validation` checks built-in kinds
        _check(result, schema, found, path)
    return result


_SCALAR_TYPES: Final[dict[str, tuple[type, ...]]] = {STRING: (str,), INT_OR_STRING: (int, str)}


def _scalar_fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or kind == BOOLEAN:
        return isinstance(value, bool) and kind == BOOLEAN
    if kind in _LIMITS:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and -_LIMITS[kind] <= value < _LIMITS[kind]
    return isinstance(value, _SCALAR_TYPES.get(kind, (int, float)))


def type_name(value: Any) -> str:
    """Return the JSON schema name of a value's type."""
    names = {dict: OBJECT, list: ARRAY, str: STRING, bool: BOOLEAN, int: INTEGER, float: NUMBER, type(None): "null"}
    return names.get(type(value), ANY)


def _check(value: Any, schema: Schema, found: Findings, path: Path) -> None:
    """Check a custom resource's value constraints, with the API server's messages."""
    where = dotted(path)
    for name in schema.required if isinstance(value, dict) else ():
        if name not in value:
            found.faults.append(Fault((path, name), "FieldValueRequired", "Required value"))
    for name, limit in schema.checks.items():
        types, check = _CHECK_TABLE[name]
        if type(value) not in types:
            continue  # the constraint applies to other types
        fault = check(value, limit)
        if fault == "enum":
            shown = ", ".join(f'"{option}"' for option in limit)
            message = f"Unsupported value: {_quoted(value)}: supported values: {shown}"
            found.faults.append(Fault(path, "FieldValueNotSupported", message, value))
        elif fault:
            message = f"Invalid value: {_quoted(value)}: {where} in body should {fault}"
            found.faults.append(Fault(path, "FieldValueInvalid", message, value))


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


_NUMBERS: Final = (int, float)
_ALL_TYPES: Final = (str, *_NUMBERS, bool, list, dict, type(None))
# The types to which a check applies, and a function that returns the fault of a value (empty: none).
_CHECK_TABLE: Final[dict[str, tuple[tuple[type, ...], Callable[[Any, Any], str]]]] = {
    "enum": (_ALL_TYPES, lambda value, options: "" if value in options else "enum"),
    "minimum": (_NUMBERS, lambda value, limit: "" if value >= limit else f"be greater than or equal to {limit}"),
    "maximum": (_NUMBERS, lambda value, limit: "" if value <= limit else f"be less than or equal to {limit}"),
    "pattern": ((str,), lambda value, form: "" if re.search(form, value) else f"match '{form}'"),
    "minLength": ((str,), lambda value, limit: "" if len(value) >= limit else f"be at least {limit} chars long"),
    "maxLength": ((str,), lambda value, limit: "" if len(value) <= limit else f"be at most {limit} chars long"),
    "minItems": ((list,), lambda value, limit: "" if len(value) >= limit else f"have at least {limit} items"),
    "maxItems": ((list,), lambda value, limit: "" if len(value) <= limit else f"have at most {limit} items"),
    "minProperties": ((dict,), lambda value, limit: "" if len(value) >= limit else f"have at least {limit} properties"),
    "maxProperties": ((dict,), lambda value, limit: "" if len(value) <= limit else f"have at most {limit} properties"),
}
