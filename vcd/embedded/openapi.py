"""OpenAPI documents of the served kinds, v3 by group version and v2 in one document.

They contain what kubectl reads: Kubernetes' own definitions and those of custom resources (explain, apply, validation),
and for each resource the paths with their kind and the parameters ``fieldValidation``, ``dryRun`` and ``fieldManager``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from vcd.embedded import schema
from vcd.embedded.discovery import VERSION
from vcd.embedded.resource_types import Registry, ResourceType

Object = dict[str, Any]

_V3_REFERENCE: Final = "#/components/schemas/"
_V3_ONLY: Final = ("nullable", "anyOf", "oneOf", "not")
"""Keywords of a custom resource's schema that OpenAPI v2 does not have."""


class OpenApi:
    """The documents, created at the first request and again after a change of the served types."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._documents: dict[str, Object] = {}
        self._version = -1

    def _document(self, name: str, types: Iterable[ResourceType], *, v3: bool) -> Object:
        if self._version != self._registry.version:
            self._documents.clear()
            self._version = self._registry.version
        if name not in self._documents:
            served = {_definition_name(rtype): rtype for rtype in types}
            custom = {each: _custom(rtype) for each, rtype in served.items() if rtype.custom}
            found = {**schema.definitions(), **custom}
            found = {each: found[each] for each in sorted(schema.closure(found, served))}
            self._documents[name] = {
                **({"openapi": "3.0.0"} if v3 else {"swagger": "2.0"}),
                "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
                "paths": {path: item for each, rtype in served.items() for path, item in _paths(rtype, each, v3=v3)},
                **({"components": {"schemas": _as_v3(found)}} if v3 else {"definitions": found}),
            }
        return self._documents[name]

    def index(self) -> Object:
        """``/openapi/v3``: the path of each group version's document, with a hash that changes with the content."""
        paths = {}
        for group, versions in self._registry.groups().items():
            for version, types in versions.items():
                where = f"apis/{group}/{version}" if group else f"api/{version}"
                content = ",".join(f"{each.plural}:{id(each.definition) if each.custom else 0}" for each in types)
                digest = hashlib.sha256(f"{self._registry.version}:{content}".encode()).hexdigest().upper()
                paths[where] = {"serverRelativeURL": f"/openapi/v3/{where}?hash={digest}"}
        return {"paths": paths}

    def v3(self, group: str, version: str) -> Object | None:
        """The document of one group version; None for what is not served."""
        types = self._registry.groups().get(group, {}).get(version)
        if types is None:
            return None
        return self._document(f"{group}/{version}", types, v3=True)

    def v2(self) -> Object:
        """``/openapi/v2`` as JSON."""
        return self._document("v2", self._registry, v3=False)


def _definition_name(rtype: ResourceType) -> str:
    if rtype.custom:
        return f"{'.'.join(reversed(rtype.group.split('.')))}.{rtype.version}.{rtype.kind}"
    return schema.definition_name(rtype.group, rtype.version, rtype.kind)


def _custom(rtype: ResourceType) -> Object:
    source = ((rtype.definition or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    made = _without_v3_only(source)
    head = {key: {"type": "string"} for key in ("apiVersion", "kind")}
    metadata = {"$ref": schema.REFERENCE + schema.OBJECT_META}
    made["properties"] = {**head, **made.get("properties", {}), "metadata": metadata}
    return {**made, schema.KIND: [_kind(rtype)]}


def _kind(rtype: ResourceType) -> Object:
    return {"group": rtype.group, "version": rtype.version, "kind": rtype.kind}


def _without_v3_only(source: Mapping[str, Any]) -> Object:
    made = {key: value for key, value in source.items() if key not in _V3_ONLY}
    if "properties" in made:
        made["properties"] = {name: _without_v3_only(part) for name, part in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), Mapping):
            made[key] = _without_v3_only(made[key])
    return made


def _as_v3(value: Any) -> Any:
    """Return definitions with the references of OpenAPI v3."""
    if isinstance(value, list):
        return [_as_v3(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    if not isinstance(reference := value.get("$ref"), str):
        return {key: _as_v3(part) for key, part in value.items()}
    rest = {key: part for key, part in value.items() if key != "$ref"}
    return {**rest, "allOf": [{"$ref": reference.replace(schema.REFERENCE, _V3_REFERENCE)}], "default": {}}


_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation")
_OPERATIONS: Final = {
    "get": ("get", "get", False), "list": ("get", "list", True), "create": ("post", "post", True),
    "update": ("put", "put", False), "patch": ("patch", "patch", False), "delete": ("delete", "delete", False),
    "deletecollection": ("delete", "deletecollection", True),
}  # fmt: skip


def _paths(rtype: ResourceType, name: str, *, v3: bool) -> Iterable[tuple[str, Object]]:
    base = f"/apis/{rtype.group}/{rtype.version}" if rtype.group else f"/api/{rtype.version}"
    reference = (_V3_REFERENCE if v3 else schema.REFERENCE) + name
    scope = "/namespaces/{namespace}" if rtype.namespaced else ""
    collection: Object = {}
    one: Object = {}
    for verb in rtype.verbs:
        if verb not in _OPERATIONS:
            continue
        method, action, whole = _OPERATIONS[verb]
        (collection if whole else one)[method] = _operation(rtype, method, action, reference, v3=v3)
    yield f"{base}{scope}/{rtype.plural}", collection
    if one:
        yield f"{base}{scope}/{rtype.plural}/{{name}}", one
    if rtype.namespaced and "list" in rtype.verbs:
        yield f"{base}/{rtype.plural}", {"get": _operation(rtype, "get", "list", reference, v3=v3)}


def _operation(rtype: ResourceType, method: str, action: str, reference: str, *, v3: bool) -> Object:
    body = {"schema": {"$ref": reference}}
    content = {"content": {"application/json": body}} if v3 else body
    made: Object = {
        "x-kubernetes-action": action, schema.KIND: _kind(rtype),
        "responses": {"200": {"description": "OK", **content}},
    }  # fmt: skip
    if method in ("post", "put", "patch"):
        text: Object = {"type": "string"}
        shown = {"schema": text} if v3 else text
        made["parameters"] = [{"name": name, "in": "query", **shown} for name in _QUERY]
    return made
