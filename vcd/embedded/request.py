"""One request, taken apart: the resource that its path means, its verb, its body and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from vcd.embedded import protobuf, views
from vcd.embedded.codec import decode_object, encode
from vcd.embedded.errors import bad_request, method_not_allowed, not_found, unsupported_media
from vcd.embedded.fields import FieldManager
from vcd.embedded.resources import Registry, ResourceType, Subresource
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
    """What a path names: a resource type, perhaps a namespace, an object and a subresource of it."""

    rtype: ResourceType
    namespace: str | None
    name: str
    subresource: Subresource | None

    @property
    def part(self) -> str:
        """Name of the subresource, empty when there is none."""
        return self.subresource.name if self.subresource else ""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call of a resource: the request, what its path names, its verb, who asks, and its body."""

    request: web.Request
    target: Target
    verb: str
    identity: str
    raw: bytes = b""

    @property
    def rtype(self) -> ResourceType:
        """The resource type."""
        return self.target.rtype

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters."""
        return self.request.query

    @property
    def form(self) -> str:
        """The form of the answer that the Accept header asks for. Raises StatusError 406."""
        return views.wanted(self.request.headers.get("Accept", ""))

    @property
    def include(self) -> str:
        """What a Table's rows have of their objects."""
        return self.query.get("includeObject", "Metadata")

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be written. Raises StatusError 400."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            raise bad_request(f'invalid: dryRun: Unsupported value: "{asked}": supported values: "All"')
        return asked == "All"

    @property
    def media(self) -> str:
        """The Content-Type without its parameters."""
        return self.request.content_type

    def body(self, kind: str) -> Object:
        """The object in the body, JSON, YAML or protobuf. Raises StatusError: 400 malformed, 415 another type."""
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
        """Who writes: the query's fieldManager, else the program that the User-Agent names."""
        agent = self.request.headers.get("User-Agent", "unknown")
        name = self.query.get("fieldManager") or agent.partition("/")[0]
        return FieldManager(name[:128], operation, rtype.api_version, part)


def target_of(registry: Registry, path: str) -> Target | None:
    """The target of ``/api/v1/...`` or ``/apis/<group>/<version>/...``; None when nothing is served there."""
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
    """The API verb of a request. Raises StatusError 405 for one that the resource has not."""
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
    """The document in a YAML (or JSON) body. Raises StatusError 400."""
    try:
        return decode_object(raw)
    except ValueError:
        pass  # not JSON, so YAML: the more general form, read by the slower parser
    try:
        value = next(iter(read_documents(raw.decode())), (1, None))[1]
        encode(value)  # YAML can hold what JSON cannot
        return value
    except (ValueError, TypeError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def expect_matching(target: Target, obj: Object) -> None:
    """Check kind, version, namespace and name of a body against the path, and put the namespace in.

    Raises StatusError 400 where they differ.
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
