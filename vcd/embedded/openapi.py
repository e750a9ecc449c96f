"""OpenAPI documents of the served kinds, v3 by group version and v2 in one document, from the schemas in `schema`.

They contain what kubectl reads: schemas with descriptions, merge keys and kinds (explain, apply, validation), and for
each resource the paths with their kind and the parameters ``fieldValidation``, ``dryRun`` and ``fieldManager``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

from vcd.embedded import schema as schemas
from vcd.embedded.codec import Codec
from vcd.embedded.discovery import VERSION
from vcd.embedded.resources import Registry, ResourceType
from vcd.embedded.schema import ANY, ARRAY, INT32, INT_OR_STRING, INTEGER, OBJECT, QUANTITY, Schema

Object = dict[str, Any]

V3_REF: Final = "#/components/schemas/"
V2_REF: Final = "#/definitions/"
_KIND: Final = "x-kubernetes-group-version-kind"
_MODEL: Final = re.compile(r"(?P<group>Core|Events|Rbac|Storage)?V(?P<version>\d+(?:(?:alpha|beta)\d+)?)(?P<kind>.+)")


class OpenApi:
    """The documents, created at the first request and again after a change of the served types."""

    def __init__(self, registry: Registry, codec: Codec) -> None:
        self._registry = registry
        self._codec = codec
        self._documents: dict[str, Object] = {}
        self._version = -1

    def _document(self, name: str, types: Iterable[ResourceType], *, v3: bool) -> Object:
        if self._version != self._registry.version:
            self._documents.clear()
            self._version = self._registry.version
        if name not in self._documents:
            writer = _Writer(V3_REF if v3 else V2_REF)
            roots = [(rtype, writer.root(rtype, self._codec)) for rtype in types]
            self._documents[name] = {
                **({"openapi": "3.0.0"} if v3 else {"swagger": "2.0"}),
                "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
                "paths": {path: item for rtype, ref in roots for path, item in _paths(rtype, ref, v3=v3)},
                **({"components": {"schemas": writer.schemas}} if v3 else {"definitions": writer.schemas}),
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


class _Writer:
    """Collects named schemas of one document."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.schemas: dict[str, Object] = {}

    def root(self, rtype: ResourceType, codec: Codec) -> str:
        """Write a kind's schema; return the reference to it."""
        if rtype.custom:
            groups = ".".join(reversed(rtype.group.split(".")))
            name = f"{groups}.{rtype.version}.{rtype.kind}"
            body = self._body(codec.schema(rtype))
        else:
            node = codec.schema(rtype)
            name = _name(node.name)
            self._named(node)
            body = self.schemas[name]
        body[_KIND] = [{"group": rtype.group, "version": rtype.version, "kind": rtype.kind}]
        self.schemas[name] = body
        return self._prefix + name

    def _named(self, node: Schema) -> str:
        name = _name(node.name)
        if name not in self.schemas:
            self.schemas[name] = {}
            self.schemas[name].update(self._body(schemas.model(node.name)))
        return name

    def _body(self, node: Schema) -> Object:
        made: Object = {"description": node.description} if node.description else {}
        made["type"] = OBJECT
        if node.required:
            made["required"] = list(node.required)
        if node.properties:
            made["properties"] = {key: self._member(part) for key, part in node.properties.items()}
        if node.values is not None:
            made["additionalProperties"] = self._member(node.values)
        if node.preserve_unknown:
            made["x-kubernetes-preserve-unknown-fields"] = True
        if node.atomic:
            made["x-kubernetes-map-type"] = "atomic"
        return made

    def _member(self, node: Schema) -> Object:
        if node.type == OBJECT and node.name:
            reference = self._prefix + self._named(node)
            described = {"description": node.description} if node.description else {}
            if self._prefix == V3_REF:
                return {**described, "allOf": [{"$ref": reference}], "default": {}}
            return {**described, "$ref": reference}
        if node.type == OBJECT:
            return self._body(node)
        made: Object = {"description": node.description} if node.description else {}
        if node.type == ARRAY:
            made |= {"type": ARRAY, "items": self._member(node.items or schemas.ANYTHING)}
            if node.keys:
                made |= {"x-kubernetes-list-map-keys": list(node.keys), "x-kubernetes-list-type": "map"}
            else:
                made["x-kubernetes-list-type"] = "set" if node.unique else "atomic"
            if node.merge:
                made["x-kubernetes-patch-strategy"] = "merge"
                if node.merge_key and not node.unique:
                    made["x-kubernetes-patch-merge-key"] = node.merge_key
        elif node.type == QUANTITY:
            made["type"] = "string"
        elif node.type == INT_OR_STRING:
            made |= {"type": "string", "format": INT_OR_STRING}
        elif node.type == INT32:
            made |= {"type": INTEGER, "format": INT32}
        elif node.type != ANY:
            made["type"] = node.type
            if node.format:
                made["format"] = node.format
        if "enum" in node.checks:
            made["enum"] = list(node.checks["enum"])
        if node.default is not None:
            made["default"] = node.default
        return made


def _name(model: str) -> str:
    """Convert ``V1PodSpec`` to ``io.k8s.api.core.v1.PodSpec``; models without a group in their name get core."""
    match = _MODEL.fullmatch(model)
    if match is None:
        return f"io.k8s.api.{model}"
    group = (match["group"] or "core").lower()
    return f"io.k8s.api.{group}.v{match['version']}.{match['kind']}"


_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation")
_OPERATIONS: Final = {
    "get": ("get", "get", False), "list": ("get", "list", True), "create": ("post", "post", True),
    "update": ("put", "put", False), "patch": ("patch", "patch", False), "delete": ("delete", "delete", False),
    "deletecollection": ("delete", "deletecollection", True),
}  # fmt: skip


def _paths(rtype: ResourceType, reference: str, *, v3: bool) -> Iterable[tuple[str, Object]]:
    base = f"/apis/{rtype.group}/{rtype.version}" if rtype.group else f"/api/{rtype.version}"
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
    kind = {"group": rtype.group, "version": rtype.version, "kind": rtype.kind}
    schema = {"schema": {"$ref": reference}}
    content = {"content": {"application/json": schema}} if v3 else schema
    made: Object = {"x-kubernetes-action": action, _KIND: kind, "responses": {"200": {"description": "OK", **content}}}
    if method in ("post", "put", "patch"):
        text: Object = {"type": "string"}
        shown = {"schema": text} if v3 else text
        made["parameters"] = [{"name": name, "in": "query", **shown} for name in _QUERY]
    return made
