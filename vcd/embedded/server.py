"""The embedded Kubernetes API server: HTTP in front of a Store, answering as a kube-apiserver does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from vcd.embedded import discovery, events, listing, patch, reviews, scale, views
from vcd.embedded.codec import encode, name_of
from vcd.embedded.errors import StatusError, bad_request, details_of, success
from vcd.embedded.fields import FieldManager
from vcd.embedded.openapi import OpenApi
from vcd.embedded.request import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_PATCH,
    Target,
    expect_matching,
    media_type,
    read_body,
    read_yaml,
    target_of,
    verb_of,
)
from vcd.embedded.resources import BINDING, DELETE_OPTIONS, EVICTION, SCALES, ResourceType
from vcd.embedded.selection import selected_name, selection
from vcd.embedded.shelf import Entry
from vcd.embedded.store import Store
from vcd.embedded.tables import Columns, columns_of
from vcd.embedded.watch import WatchStream

Object = dict[str, Any]

ADMIN: Final = "system:admin"
JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_BODY_LIMIT: Final = 3 * 1024 * 1024
_WATCH_SECONDS: Final = 2700.0
_BOOKMARK_SECONDS: Final = 60.0
HEALTH: Final = ("/healthz", "/readyz", "/livez")


class ApiServer:
    """Serves a Store over HTTP; every request is the administrator's."""

    stream_type = WatchStream

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = ""
        self._openapi = OpenApi(store.registry, store.codec)
        self._columns: dict[str, tuple[ResourceType, Columns]] = {}
        self._streams: list[WatchStream] = []
        self._runner: web.AppRunner | None = None
        self.application = web.Application(client_max_size=_BODY_LIMIT)
        self.application.router.add_route("*", "/{path:.*}", self._handle)
        self.application.on_shutdown.append(self._end_watches)

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; ``url`` tells where, also with port 0 (any free one). Raises OSError when the port is taken."""
        self._runner = web.AppRunner(
            self.application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0, keepalive_timeout=300.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        address = self._runner.addresses[0]
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.url = f"http://{shown}:{address[1]}"

    async def stop(self) -> None:
        """End all watches and stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _end_watches(self, _: web.Application) -> None:
        for stream in tuple(self._streams):
            stream.end()

    # --- one request ------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._route(request, self._identity(request))
        except StatusError as error:
            return web.Response(
                body=encode(error.status()), status=error.code, content_type=JSON, headers=error.headers
            )

    def _identity(self, request: web.Request) -> str:
        """Who asks. Raises StatusError 401 for nobody."""
        return ADMIN

    async def _route(self, request: web.Request, identity: str) -> web.StreamResponse:
        path = request.path
        if path.startswith(("/api/", "/apis/")):
            target = target_of(self.store.registry, path)
            if target is not None:
                return await self._resource(request, identity, target)
        answer = self._document(request, path.rstrip("/") or "/")
        if answer is not None:
            return answer
        return web.Response(text="404 page not found\n", status=404, content_type=_TEXT, charset="utf-8")

    def _document(self, request: web.Request, path: str) -> web.Response | None:
        """Everything that is not a resource."""
        registry = self.store.registry
        if any(path == probe or path.startswith(f"{probe}/") for probe in HEALTH):
            return web.Response(text="ok", content_type=_TEXT, charset="utf-8")
        if path in ("/api", "/apis"):
            if discovery.wants_aggregated(request.headers.get("Accept", "")):
                body = encode(discovery.aggregated(registry, core=path == "/api"))
                return web.Response(body=body, headers={"Content-Type": discovery.AGGREGATED})
            return _json(discovery.versions(request.host) if path == "/api" else discovery.groups(registry))
        if path == "/version":
            return _json(discovery.VERSION)
        if path == "/":
            return _json({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz"]})
        found: Object | None = None
        match path.strip("/").split("/"):
            case ["api", version]:
                found = discovery.resources(registry, "", version)
            case ["apis", group]:
                found = discovery.group(registry, group)
            case ["apis", group, version]:
                found = discovery.resources(registry, group, version)
            case ["openapi", *rest]:
                found = self._schema(request, rest)
        return None if found is None else _json(found)

    def _schema(self, request: web.Request, rest: list[str]) -> Object | None:
        views.wanted(request.headers.get("Accept", ""))
        match rest:
            case ["v2"]:
                return self._openapi.v2()
            case ["v3"]:
                return self._openapi.index()
            case ["v3", "api", version]:
                return self._openapi.v3("", version)
            case ["v3", "apis", group, version]:
                return self._openapi.v3(group, version)
        return None

    # --- resources --------------------------------------------------------------------------------------------------

    async def _resource(self, request: web.Request, identity: str, target: Target) -> web.StreamResponse:
        query = request.query
        verb = verb_of(target, request.method, query)
        self._permit(identity, verb, target, target.name or selected_name(query))
        if verb == "watch":
            return await self._watch(request, target, query)
        if verb == "list":
            return self._list(request, target, query)
        if verb == "get":
            return self._get(request, target, query)
        raw = await request.read()
        if verb == "create":
            return self._create(request, target, query, raw, identity)
        if verb in ("update", "patch"):
            return self._change(request, target, query, raw, verb)
        if verb == "delete":
            return self._delete(request, target, query, raw)
        return self._delete_collection(request, target, query, raw)

    def _permit(self, identity: str, verb: str, target: Target, name: str) -> None:
        """Raises StatusError 403 where somebody may not do this."""

    def _columns_of(self, rtype: ResourceType) -> Columns:
        known = self._columns.get(rtype.storage)
        if known is None or known[0] is not rtype:
            known = self._columns[rtype.storage] = (rtype, columns_of(rtype))
        return known[1]

    def _shown(self, rtype: ResourceType, obj: Object) -> Object:
        """An object as this resource type shows it."""
        return events.to_group(obj) if rtype.stored_as else obj

    def _stored(self, rtype: ResourceType, obj: Object) -> tuple[ResourceType, Object]:
        """The type and form that an object is stored in."""
        if not rtype.stored_as:
            return rtype, obj
        return self.store.type_of(rtype.stored_as), events.to_core(obj)

    def _one(
        self, request: web.Request, target: Target, entry: Entry, status: int = 200, warnings: tuple[str, ...] = ()
    ) -> web.Response:
        form = views.wanted(request.headers.get("Accept", ""))
        headers = [("Warning", f"299 - {encode(text).decode()}") for text in warnings]
        if not form and not target.rtype.stored_as:
            return web.Response(body=entry.json + b"\n", status=status, content_type=JSON, headers=headers)
        columns = self._columns_of(target.rtype)
        obj = self._shown(target.rtype, entry.obj) if form != views.TABLE else entry.obj
        include = request.query.get("includeObject", "Metadata")
        made = views.single(form, target.rtype, columns, obj, self.store.clock(), include)
        return web.Response(body=encode(made), status=status, content_type=JSON, headers=headers)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _get(self, request: web.Request, target: Target, query: Mapping[str, str]) -> web.Response:
        entry = self.store.entry(target.rtype, target.namespace, target.name)
        if target.part == "scale":
            return _json(scale.of(target.rtype, entry.obj))
        return self._one(request, target, entry)

    def _list(self, request: web.Request, target: Target, query: Mapping[str, str]) -> web.Response:
        rtype = target.rtype
        found = self._page(target, query)
        form = views.wanted(request.headers.get("Accept", ""))
        if form == views.TABLE:
            objects = [entry.obj for entry in found.entries]
            include = query.get("includeObject", "Metadata")
            columns = self._columns_of(rtype)
            return _json(views.table(columns, objects, found.metadata, self.store.clock(), include=include))
        if form:
            return _json(views.partial_list(found.entries, found.metadata))
        if rtype.stored_as:
            items = [events.to_group(entry.obj) for entry in found.entries]
            head = {"kind": rtype.list_name, "apiVersion": rtype.api_version, "metadata": found.metadata}
            return _json({**head, "items": items})
        return web.Response(body=listing.list_bytes(rtype, found), content_type=JSON)

    def _page(self, target: Target, query: Mapping[str, str]) -> listing.ListPage:
        return listing.page(self.store, target.rtype, target.namespace, query)

    async def _watch(self, request: web.Request, target: Target, query: Mapping[str, str]) -> web.StreamResponse:
        seconds = listing.number(query, "timeoutSeconds")
        stream = self._opened(request, target, query)
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        self._streams.append(stream)
        try:
            await response.prepare(request)
            await stream.serve(response, seconds or _WATCH_SECONDS, self._bookmarks(query))
            await response.write_eof()
        except ConnectionResetError:
            return response  # the client left; nothing is owed to it
        finally:
            stream.end()
            self._streams.remove(stream)
        return response

    def _opened(self, request: web.Request, target: Target, query: Mapping[str, str]) -> WatchStream:
        chosen, form = selection(target.rtype, query, target.name), self._watch_form(request, target.rtype, query)
        stream = self.stream_type(self.store, target.rtype, target.namespace, chosen, form)
        stream.open(query)
        return stream

    def _bookmarks(self, query: Mapping[str, str]) -> float | None:
        """The seconds between a watch's bookmarks, None where it gets none."""
        return _BOOKMARK_SECONDS if query.get("allowWatchBookmarks") == "true" else None

    def _watch_form(
        self, request: web.Request, rtype: ResourceType, query: Mapping[str, str]
    ) -> Callable[[Object], Object] | None:
        form = views.wanted(request.headers.get("Accept", ""))
        if not form:
            return events.to_group if rtype.stored_as else None
        if form != views.TABLE:
            return views.partial
        columns, include = self._columns_of(rtype), query.get("includeObject", "Metadata")
        first = [True]

        def row(obj: Object) -> Object:
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            headers, first[0] = first[0], False
            if "creationTimestamp" not in obj["metadata"]:  # a bookmark
                made = views.table(columns, [], metadata, 0.0, headers=headers)
                made["rows"] = [{"cells": [], "object": views.partial(obj)}]
                return made
            return views.table(columns, [obj], metadata, self.store.clock(), include=include, headers=headers)

        return row

    # --- writing ----------------------------------------------------------------------------------------------------

    def _create(
        self, request: web.Request, target: Target, query: Mapping[str, str], raw: bytes, identity: str
    ) -> web.Response:
        rtype, part = target.rtype, target.part
        kind = target.subresource.kind if target.subresource else rtype.kind
        body = read_body(request.content_type, raw, kind)
        if part == "eviction":
            return self._act(target, body, EVICTION, dry_run=_dry_run(query))
        if part == "binding" or rtype is BINDING:
            return self._act(target, body, BINDING, dry_run=_dry_run(query))
        if reviews.is_review(rtype):
            asked, _ = self.store.codec.read(rtype, body)
            return _json(self._review(rtype, asked, identity), 201)
        expect_matching(target, body)
        obj, unknown = self.store.codec.read(rtype, body)
        warnings = _field_warnings(rtype, unknown, query)
        rtype, obj = self._stored(rtype, obj)
        manager = _manager(request, rtype, "Update")
        entry = self.store.insert(rtype, obj, manager, dry_run=_dry_run(query))
        return self._one(request, target, entry, 201, warnings)

    def _review(self, rtype: ResourceType, asked: Object, identity: str) -> Object:
        return reviews.answer(rtype, asked, identity)

    def _act(self, target: Target, body: Object, kind: ResourceType, *, dry_run: bool) -> web.Response:
        """Bind or evict a pod."""
        asked, _ = self.store.codec.read(kind, body)
        namespace, name = target.namespace or "default", target.name or name_of(asked)
        if name_of(asked) not in ("", name):
            raise bad_request(f"name in URL does not match name in {kind.kind} object")
        if kind is EVICTION:
            self.store.evict(namespace, name, asked, dry_run=dry_run)
        elif not dry_run:
            self.store.bind(namespace, name, asked)
        return web.Response(body=_CREATED, status=201, content_type=JSON)

    def _change(
        self, request: web.Request, target: Target, query: Mapping[str, str], raw: bytes, verb: str
    ) -> web.Response:
        """PUT and PATCH."""
        rtype = target.rtype
        if target.part == "scale":
            return self._scale(request, target, query, raw, verb)
        if verb == "patch" and media_type(request.content_type) == APPLY_PATCH:
            return self._apply(request, target, query, raw)
        if verb == "update":
            body = read_body(request.content_type, raw, rtype.kind)
            expect_matching(target, body)
            if not body["metadata"].get("resourceVersion") and (rtype.custom or rtype.plural == "leases"):
                raise _must_have_version(rtype, target.name)
        else:
            current = self._shown(rtype, self.store.entry(rtype, target.namespace, target.name).obj)
            body = self._patched(request, rtype, current, raw)
            expect_matching(target, body)
        obj, unknown = self.store.codec.read(rtype, body)
        warnings = _field_warnings(rtype, unknown, query)
        rtype, obj = self._stored(rtype, obj)
        manager = _manager(request, rtype, "Update", target.part)
        entry = self.store.replace(rtype, obj, target.part or None, manager, dry_run=_dry_run(query))
        return self._one(request, target, entry, 200, warnings)

    def _patched(self, request: web.Request, rtype: ResourceType, current: Object, raw: bytes) -> Object:
        """The current object with the request's patch applied."""
        media = media_type(request.content_type)
        accepted = tuple(kind for kind in PATCHES if kind != STRATEGIC_PATCH) if rtype.custom else PATCHES
        if media not in accepted:
            raise _unsupported_patch(media, rtype)
        document = read_yaml(raw)
        if media == JSON_PATCH:
            made = patch.json_patch(current, document)
        elif media == MERGE_PATCH:
            made = patch.merge_patch(current, document)
        else:
            made = patch.strategic_merge(current, document, self.store.codec.schema(rtype))
        if not isinstance(made, dict):
            raise bad_request(f"the patched object is no {rtype.kind}")
        asked = made.get("metadata") or {}
        if media == JSON_PATCH or not isinstance(asked, dict):
            return made
        # A patch without a resourceVersion is against whatever is current.
        if isinstance(document, dict) and "resourceVersion" not in (document.get("metadata") or {}):
            made["metadata"] = {key: value for key, value in asked.items() if key != "resourceVersion"}
        return made

    def _apply(self, request: web.Request, target: Target, query: Mapping[str, str], raw: bytes) -> web.Response:
        rtype = target.rtype
        body = read_yaml(raw)
        if not isinstance(body, dict):
            raise bad_request("error decoding YAML: the configuration is no object")
        if not query.get("fieldManager"):
            raise StatusError(
                422, "Invalid", 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for '
                "apply patch", {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [{
                    "reason": "FieldValueRequired", "message": "Required value: is required for apply patch",
                    "field": "fieldManager"}]},
            )  # fmt: skip
        expect_matching(target, body)
        obj, unknown = self.store.codec.read(rtype, body)
        warnings = _field_warnings(rtype, unknown, query)
        rtype, obj = self._stored(rtype, obj)
        force = query.get("force") == "true"
        manager = _manager(request, rtype, "Apply", target.part)
        dry_run = _dry_run(query)
        entry, created = self.store.apply(rtype, obj, target.part or None, manager, force=force, dry_run=dry_run)
        return self._one(request, target, entry, 201 if created else 200, warnings)

    def _scale(
        self, request: web.Request, target: Target, query: Mapping[str, str], raw: bytes, verb: str
    ) -> web.Response:
        current = self.store.entry(target.rtype, target.namespace, target.name)
        shown = scale.of(target.rtype, current.obj)
        if verb == "update":
            body = read_body(request.content_type, raw, "Scale")
        else:
            body = self._patched(request, SCALES, shown, raw)
        wanted, _ = self.store.codec.read(SCALES, body)
        obj = scale.changed(target.rtype, current.obj, wanted)
        cleaned, _ = self.store.codec.read(target.rtype, obj)
        manager = _manager(request, target.rtype, "Update", "scale")
        entry = self.store.replace(target.rtype, cleaned, None, manager, dry_run=_dry_run(query))
        return _json(scale.of(target.rtype, entry.obj))

    # --- deleting ---------------------------------------------------------------------------------------------------

    def _delete(self, request: web.Request, target: Target, query: Mapping[str, str], raw: bytes) -> web.Response:
        rtype = target.rtype
        options = self._delete_options(request, query, raw)
        obj = self.store.delete(rtype.resource, target.namespace, target.name, **options)
        key = self.store.entry_key(rtype, target.namespace, target.name)
        remains = key in self.store.shelf(rtype.storage).entries
        if remains or rtype.returns_deleted or options["dry_run"]:
            return _json(self._shown(rtype, obj))
        details = details_of(rtype.resource, target.name, uid=obj["metadata"]["uid"])
        return _json(success(details=details))

    def _delete_options(self, request: web.Request, query: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        """Options of a delete, from its body and query; the query wins."""
        sent = read_body(request.content_type, raw, "DeleteOptions") if raw else {}
        body, _ = self.store.codec.read(DELETE_OPTIONS, sent)
        preconditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds")
        if query.get("gracePeriodSeconds"):
            grace = listing.number(query, "gracePeriodSeconds")
        propagation = query.get("propagationPolicy") or body.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        if propagation is None and orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        return {
            "uid": preconditions.get("uid"), "resource_version": preconditions.get("resourceVersion"),
            "grace_period": grace, "propagation": propagation,
            "dry_run": _dry_run(query) or "All" in (body.get("dryRun") or ()),
        }  # fmt: skip

    def _delete_collection(
        self, request: web.Request, target: Target, query: Mapping[str, str], raw: bytes
    ) -> web.Response:
        rtype = target.rtype
        options = self._delete_options(request, query, raw)
        found = listing.page(self.store, rtype, target.namespace, query)
        items = [
            self._shown(rtype, self.store.delete(rtype.resource, entry.key[0] or None, entry.key[1], **options))
            for entry in found.entries
        ]
        metadata = {**found.metadata, "resourceVersion": str(self.store.version)}
        return _json({"kind": rtype.list_name, "apiVersion": rtype.api_version, "metadata": metadata, "items": items})


_CREATED: Final = encode(success(201)) + b"\n"


def _json(body: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=encode(body) + b"\n", status=status, content_type=JSON)


def _dry_run(query: Mapping[str, str]) -> bool:
    asked = query.get("dryRun", "")
    if asked not in ("", "All"):
        raise bad_request(f'invalid: dryRun: Unsupported value: "{asked}": supported values: "All"')
    return asked == "All"


def _manager(request: web.Request, rtype: ResourceType, operation: str, part: str = "") -> FieldManager:
    """Who writes: the query's fieldManager, else the program that the User-Agent names."""
    agent = request.headers.get("User-Agent", "unknown")
    name = request.query.get("fieldManager") or agent.partition("/")[0]
    return FieldManager(name[:128], operation, rtype.api_version, part)


def _field_warnings(rtype: ResourceType, unknown: list[str], query: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings for unknown fields, as ``fieldValidation`` asks. Raises StatusError 400 when it is Strict."""
    asked = query.get("fieldValidation", "Warn")
    if not unknown or asked == "Ignore":
        return ()
    texts = tuple(f'unknown field "{field}"' for field in unknown)
    if asked == "Strict":
        raise bad_request(
            f'{rtype.kind} in version "{rtype.version}" cannot be handled as a {rtype.kind}: '
            f"strict decoding error: {', '.join(texts)}"
        )
    return texts


def _unsupported_patch(media: str, rtype: ResourceType) -> StatusError:
    if not rtype.custom:
        return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    listed = ", ".join(kind for kind in PATCHES if kind != STRATEGIC_PATCH)
    return StatusError(
        415, "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {listed}",
    )  # fmt: skip


def _must_have_version(rtype: ResourceType, name: str) -> StatusError:
    fault = "Invalid value: 0: must be specified for an update"
    causes = [{"reason": "FieldValueInvalid", "message": fault, "field": "metadata.resourceVersion"}]
    details = details_of(rtype.resource, name, causes=causes)
    details["kind"] = rtype.kind
    qualified = f"{rtype.kind}.{rtype.group}" if rtype.group else rtype.kind
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: metadata.resourceVersion: {fault}', details)
