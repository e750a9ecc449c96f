"""Schemas of the served kinds, from the client library's models or from a custom resource definition.

All users read the same tree of Schema nodes: pruning and type checks, defaults, merge keys of a strategic merge patch,
list keys of server-side apply, and the OpenAPI documents for ``kubectl explain``.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

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

# How lists merge, from the API reference ("patch strategy" and "list type"): list keys -> model.fields. The first key
# is the merge key of a strategic merge patch. All other lists are atomic.
_LISTS: Final[dict[tuple[str, ...], str]] = {
    ("uid",): "V1ObjectMeta.ownerReferences",
    ("name",): (
        "V1PodSpec.containers V1PodSpec.initContainers V1PodSpec.ephemeralContainers V1PodSpec.volumes "
        "V1PodSpec.imagePullSecrets V1PodSpec.resourceClaims V1PodSpec.schedulingGates V1Container.env "
        "V1EphemeralContainer.env V1ResourceRequirements.claims V1PodStatus.resourceClaimStatuses "
        "V1ServiceAccount.secrets V1CSINodeSpec.drivers"
    ),
    ("ip",): "V1PodSpec.hostAliases V1PodStatus.podIPs",
    ("topologyKey", "whenUnsatisfiable"): "V1PodSpec.topologySpreadConstraints",
    ("containerPort", "protocol"): "V1Container.ports V1EphemeralContainer.ports",
    ("mountPath",): "V1Container.volumeMounts V1EphemeralContainer.volumeMounts",
    ("devicePath",): "V1Container.volumeDevices V1EphemeralContainer.volumeDevices",
    ("type",): (
        "V1PodStatus.conditions V1NodeStatus.addresses V1NodeStatus.conditions V1ServiceStatus.conditions "
        "V1NamespaceStatus.conditions V1PersistentVolumeClaimStatus.conditions V1DeploymentStatus.conditions "
        "V1ReplicaSetStatus.conditions V1PodDisruptionBudgetStatus.conditions "
        "V1CustomResourceDefinitionStatus.conditions"
    ),
    ("port", "protocol"): "V1ServiceSpec.ports",
}
_LIST_KEYS: Final = {name: keys for keys, names in _LISTS.items() for name in names.split()}
_SETS: Final = frozenset({"V1ObjectMeta.finalizers", "V1NodeSpec.podCIDRs", "V1CSIDriverSpec.volumeLifecycleModes"})
_ATOMIC: Final = frozenset({
    "V1LabelSelector", "V1ObjectReference", "CoreV1ObjectReference", "V1LocalObjectReference", "V1NodeSelector",
    "V1NodeSelectorTerm", "V1TypedLocalObjectReference", "V1ConfigMapKeySelector", "V1SecretKeySelector",
    "V1ObjectFieldSelector", "V1ResourceFieldSelector", "V1SecretReference", "V1ScopeSelector",
    "V1ScopedResourceSelectorRequirement", "V1TopologySelectorTerm", "V1OwnerReference", "V1RoleRef",
    "V1PodSpec.nodeSelector", "V1ServiceSpec.selector",
})  # fmt: skip
_QUANTITY_FIELDS: Final = frozenset({
    "V1ResourceRequirements.requests", "V1ResourceRequirements.limits", "V1VolumeResourceRequirements.requests",
    "V1VolumeResourceRequirements.limits", "V1PodSpec.overhead", "V1NodeStatus.capacity", "V1NodeStatus.allocatable",
    "V1PersistentVolumeSpec.capacity", "V1PersistentVolumeClaimStatus.capacity", "V1ResourceQuotaSpec.hard",
    "V1PersistentVolumeClaimStatus.allocatedResources", "V1ResourceQuotaStatus.hard", "V1ResourceQuotaStatus.used",
    "V1ContainerStatus.allocatedResources", "V1PodStatus.allocatedResources", "V1EmptyDirVolumeSource.sizeLimit",
    "V1ResourceFieldSelector.divisor", "V1CSIStorageCapacity.capacity", "V1CSIStorageCapacity.maximumVolumeSize",
    "V1LimitRangeItem.default", "V1LimitRangeItem.defaultRequest", "V1LimitRangeItem.max", "V1LimitRangeItem.min",
    "V1LimitRangeItem.maxLimitRequestRatio",
})  # fmt: skip
# Models that are recursive or contain arbitrary JSON.
_FREE_FORM: Final = frozenset({"V1JSONSchemaProps"})
_MODEL_NAMES: Final = {("", "Event"): "CoreV1Event", ("events.k8s.io", "Event"): "EventsV1Event"}
_SCALARS: Final = {"str": STRING, "int": INTEGER, "float": NUMBER, "bool": BOOLEAN}
# Integers with 64 bits; all others have 32. The client library's models do not contain the size.
_LONG: Final = frozenset({
    "activeDeadlineSeconds", "capacity", "deletionGracePeriodSeconds", "expirationSeconds", "fsGroup", "generation",
    "gid", "gracePeriodSeconds", "nodeAllocatableUpdatePeriodSeconds", "observedGeneration", "runAsGroup", "runAsUser",
    "seconds", "sizeBytes", "supplementalGroups", "terminationGracePeriodSeconds", "tolerationSeconds", "uid",
})  # fmt: skip


def _models() -> Any:
    """Import the client library's models at the first use, because that takes half a second."""
    return importlib.import_module("kubernetes_asyncio.client.models")


def built_in(group: str, version: str, kind: str) -> Schema:
    """Return the schema of a built-in kind. Raises KeyError if the client library has no model of it."""
    name = _MODEL_NAMES.get((group, kind), f"{version[0].upper()}{version[1:]}{kind}")
    if not hasattr(_models(), name):
        raise KeyError(name)
    return model(name)


@functools.cache
def model(name: str) -> Schema:
    """Return the schema of a model class of the client library, including its members."""
    if name in _FREE_FORM:
        return Schema(OBJECT, name=name, preserve_unknown=True, atomic=True)
    cls = getattr(_models(), name)
    node = Schema(OBJECT, name=name, atomic=name in _ATOMIC)
    for attribute, declared in cls.openapi_types.items():
        json_name = cls.attribute_map[attribute]
        node.properties[json_name] = _member(f"{name}.{json_name}", declared, _text(getattr(cls, attribute).__doc__))
    node.required = tuple([cls.attribute_map[attribute] for attribute in _required(cls)])
    return node


def _required(cls: Any) -> Iterator[str]:
    """Yield the required members of a model: the ones that its client-side validation does not allow to be None."""
    settings = importlib.import_module("kubernetes_asyncio.client").Configuration()
    settings.client_side_validation = False
    empty = cls(local_vars_configuration=settings)
    settings.client_side_validation = True
    for attribute in cls.openapi_types:
        try:
            setattr(empty, attribute, None)
        except ValueError:
            yield attribute


def _member(where: str, declared: str, description: str) -> Schema:
    quantity = where in _QUANTITY_FIELDS
    if declared.startswith("list["):
        keys = _LIST_KEYS.get(where, ())
        unique = where in _SETS
        return Schema(
            ARRAY, description=description, items=_plain(declared[5:-1], False), keys=keys, unique=unique,
            atomic=not keys and not unique, merge=bool(keys) or unique, merge_key=keys[0] if keys else "",
        )  # fmt: skip
    if declared.startswith("dict("):
        values = _plain(declared[5:-1].split(",", 1)[1].strip(), quantity)
        return Schema(OBJECT, description=description, values=values, atomic=where in _ATOMIC)
    node = _plain(declared, quantity)
    if node.type == INTEGER and where.rpartition(".")[2] not in _LONG:
        node = Schema(INT32)
    return replace(node, description=description) if description or node.type != OBJECT else node


def _plain(declared: str, quantity: bool) -> Schema:
    if quantity:
        return Schema(QUANTITY)
    if declared in _SCALARS:
        return Schema(_SCALARS[declared])
    if declared == "datetime":
        return Schema(STRING, format="date-time")
    if declared == "object":
        return ANYTHING
    if declared.startswith("list["):
        return Schema(ARRAY, items=_plain(declared[5:-1], False), atomic=True)
    return model(declared)


def _text(docstring: str | None) -> str:
    """Return the description in a generated accessor's docstring, which has spaces in place of line breaks."""
    lines = [line.split("# noqa")[0].strip() for line in (docstring or "").splitlines()]
    body = [line for line in lines[1:] if line]
    return body[0].replace("  ", "\n\n") if body and not body[0].startswith(":") else ""


# --- custom resources -----------------------------------------------------------------------------------------------


def custom(source: Mapping[str, Any]) -> Schema:
    """Return the schema of a custom resource from its ``openAPIV3Schema``, with the API's metadata."""
    node = structural(source)
    node.type = OBJECT
    node.properties = {
        "apiVersion": Schema(STRING, description="The versioned schema of this representation of an object."),
        "kind": Schema(STRING, description="The REST resource this object represents."),
        **node.properties,
        "metadata": model("V1ObjectMeta"),
    }
    return node


def structural(source: Mapping[str, Any]) -> Schema:
    """Parse a node of a structural schema (``apiextensions.k8s.io/v1``). Raises ValueError."""
    _expect_forms(source)
    kind = source.get("type") or ""
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
    )
    node.properties = {name: structural(part) for name, part in (source.get("properties") or {}).items()}
    values = source.get("additionalProperties")
    if isinstance(values, Mapping):
        node.values = structural(values)
    elif values:
        node.preserve_unknown = True
    if kind == ARRAY:
        node.items = structural(source.get("items") or {})
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
