"""Parses a request: the resource in its path, the API verb, the body and the options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from vcd.embedded import protobuf, representations
from vcd.embedded.field_management import FieldManager
from vcd.embedded.resource_types import Registry, ResourceType, Subresource
from vcd.embedded.schema_codec import decode_object, encode
from vcd.embedded.status_errors import bad_request, method_not_allowed, not_found, unsupported_media
from vcd.model.yamltext import read_documents

Object = dict[str, Any]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

_VERBS: Final = {
    ("GET", True): "get", ("GET", False): "list", ("POST", False): "create", ("PUT", True): "update",
    ("PATCH", True): "patch", ("DELETE", True): "delete", ("DELETE", False): "deletecollection",
    ("HEAD", True): "get", ("HEAD", False): "list",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a resource type, and a namespace (None: all), an object and a subresource, if any."""

    rtype: ResourceType
    namespace: str | None
    name: str
    subresource: Subresource | None

    @property
    def part(self) -> str:
        """Return the name of the subresource, empty if there is none."""
        return self.subresource.name if self.subresource else ""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request for a resource. ``identity`` is the name of the authenticated user."""

    request: web.Request
    target: Target
    verb: str
    identity: str
    raw: bytes = b""

    @property
    def rtype(self) -> ResourceType:
        """Return the resource type."""
        return self.target.rtype

    @property
    def query(self) -> Mapping[str, str]:
        """Return the query's parameters."""
        return self.request.query

    @property
    def form(self) -> str:
        """Return the form of the response that the Accept header requests. Raises StatusError 406."""
        return representations.wanted(self.request.headers.get("Accept", ""))

    @property
    def include(self) -> str:
        """Return which part of the objects a Table's rows contain: None, Metadata or Object."""
        return self.query.get("includeObject", "Metadata")

    @property
    def dry_run(self) -> bool:
        """Return whether to write nothing. Raises StatusError 400."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            raise bad_request(f'invalid: dryRun: Unsupported value: "{asked}": supported values: "All"')
        return asked == "All"

    @property
    def media(self) -> str:
        """Return the Content-Type without parameters."""
        return self.request.content_type

    def body(self, kind: str) -> Object:
        """Decode the object in the body (JSON, YAML or protobuf). Raises StatusError 400 or 415."""
        if self.media == protobuf.MEDIA:
            return protobuf.read(self.raw)
        if self.media in ("application/yaml", "application/x-yaml", "text/yaml"):
            return _mapping(read_yaml(self.raw), kind)
        if self.media not in ("application/json", "", "application/octet-stream"):
            raise unsupported_media(("application/json", "application/yaml", protobuf.MEDIA))
        try:
            return _mapping(decode_object(self.raw), kind)
        except ValueError as error:
            why = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
            shown = self.raw.decode(errors="replace")[:256]
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
                f"json parse error: {why} ({shown})"
            ) from None

    def manager(self, rtype: ResourceType, operation: str, part: str = "") -> FieldManager:
        """Return the field manager: the query's fieldManager, else the program in the User-Agent."""
        agent = self.request.headers.get("User-Agent", "unknown")
        name = self.query.get("fieldManager") or agent.partition("/")[0]
        return FieldManager(name[:128], operation, rtype.api_version, part)


def target_of(registry: Registry, path: str) -> Target | None:
    """Return the target of ``/api/v1/...`` or ``/apis/<group>/<version>/...``; None if the path is not served."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    rtype = registry.at(group, version, rest[0])
    if rtype is None or len(rest) > 3 or (namespace is not None and not rtype.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and rtype.namespaced and namespace is None:
        return None
    part = rtype.subresource(rest[2]) if len(rest) > 2 else None
    if part is None and len(rest) > 2:
        if rtype.custom:
            raise not_found(rtype.resource, name)
        return None
    return Target(rtype, namespace, name, part)


def verb_of(target: Target, method: str, query: Mapping[str, str]) -> str:
    """Return the API verb of a request. Raises StatusError 405 if the resource does not support it."""
    verb = "create" if method == "POST" and target.subresource else _VERBS.get((method, bool(target.name)), "")
    allowed = target.subresource.verbs if target.subresource else target.rtype.verbs
    if verb not in allowed:
        raise method_not_allowed()
    if verb in ("list", "get") and not target.subresource and query.get("watch") in ("1", "true"):
        return "watch"
    return verb


# --- bodies ---------------------------------------------------------------------------------------------------------


def _mapping(value: Any, kind: str) -> Object:
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): it is no object")
    return value


def read_yaml(raw: bytes) -> Any:
    """Decode a YAML or JSON body. Raises StatusError 400."""
    try:
        return decode_object(raw)
    except ValueError:
        pass  # not JSON, so it needs the slower YAML parser
    try:
        value = next(iter(read_documents(raw.decode())), (1, None))[1]
        encode(value)  # YAML has values that JSON has not
        return value
    except (ValueError, TypeError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def expect_matching(target: Target, obj: Object) -> None:
    """Check kind, version, namespace and name of a body against the path, and set namespace and name in it.

    Raises StatusError 400 if they differ.
    """
    rtype = target.rtype
    kind, version = obj.get("kind") or rtype.kind, obj.get("apiVersion") or rtype.api_version
    if version != rtype.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({rtype.api_version})"
        )
    if kind != rtype.kind:
        raise bad_request(f"{kind} in version \"{rtype.version}\" cannot be handled as a {rtype.kind}: no kind "
                          f"\"{kind}\" is registered for version \"{rtype.api_version}\"")  # fmt: skip
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise bad_request(f'{rtype.kind} in version "{rtype.version}" cannot be handled as a {rtype.kind}: '
                          "json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta")  # fmt: skip
    if target.namespace is not None:
        if (metadata.get("namespace") or target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = target.namespace
    if target.name:
        if (metadata.get("name") or target.name) != target.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
            )
        metadata["name"] = target.name
