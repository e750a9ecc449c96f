"""The embedded Kubernetes API server: serves a Store over HTTP with the responses of a kube-apiserver.

This module handles verbs, options and content types. Admission, validation and storage are in modules of their own
(`admission`, `validation`, `store`). A request changes the store in one step of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from aiohttp import web

from vcd.embedded import discovery, event_conversion, listing, patch, representations, reviews, scale
from vcd.embedded.openapi import OpenApi
from vcd.embedded.printer_columns import Columns, columns_of
from vcd.embedded.request import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_PATCH,
    ApiCall,
    Target,
    expect_matching,
    read_yaml,
    target_of,
    verb_of,
)
from vcd.embedded.resource_types import BINDING, DELETE_OPTIONS, EVICTION, SCALES, ResourceType
from vcd.embedded.schema_codec import encode, name_of
from vcd.embedded.selection import selected_name, selection
from vcd.embedded.status_errors import (
    StatusCause,
    StatusError,
    bad_request,
    details_of,
    invalid,
    success,
    unsupported_media,
)
from vcd.embedded.store import Store
from vcd.embedded.watch_cache import Entry
from vcd.embedded.watch_stream import WatchStream
from vcd.serving.connection_limits import listening

Object = dict[str, Any]

ADMIN: Final = "system:admin"
JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_BODY_LIMIT: Final = 3 * 1024 * 1024
_CONNECTIONS: Final = 4096
"""The most open connections; all clients belong to one user."""
_WATCH_SECONDS: Final = 2700.0
_BOOKMARK_SECONDS: Final = 60.0
HEALTH: Final = ("/healthz", "/readyz", "/livez")


class ApiServer:
    """Serves a Store over HTTP. Every request has the rights of an administrator; a subclass can authenticate."""

    stream_type = WatchStream

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = ""
        self._openapi = OpenApi(store.registry)
        self._columns: dict[str, tuple[ResourceType, Columns]] = {}
        self._streams: list[WatchStream] = []
        self._stack = AsyncExitStack()
        self.application = web.Application(client_max_size=_BODY_LIMIT)
        self.application.router.add_route("*", "/{path:.*}", self._handle)
        self.application.on_shutdown.append(self._end_watches)

    # --- start and stop ---------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen, and set ``url``; port 0 means any free port. Raises OSError if the port is in use."""
        runner = web.AppRunner(
            self.application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0, keepalive_timeout=300.0
        )
        bound = await self._stack.enter_async_context(listening(runner, host, port, most=_CONNECTIONS))
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"

    async def stop(self) -> None:
        """End all watches and stop listening."""
        await self._stack.aclose()

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
        """Return the user of a request. Raises StatusError 401 for an unknown one."""
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
        """Return the response for a path that is no resource; None if it is not served."""
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
        representations.wanted(request.headers.get("Accept", ""))
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
        verb = verb_of(target, request.method, request.query)
        self._permit(identity, verb, target, target.name or selected_name(request.query))
        if verb == "watch":
            return await self._watch(ApiCall(request, target, verb, identity))
        if target.part == "portforward":
            return await self._forward(request, self.store.entry(target.rtype, target.namespace, target.name).obj)
        raw = await request.read() if verb not in ("get", "list") else b""
        answers = {
            "get": self._get, "list": self._list, "create": self._create, "update": self._change,
            "patch": self._change, "delete": self._delete, "deletecollection": self._delete_collection,
        }  # fmt: skip
        return answers[verb](ApiCall(request, target, verb, identity, raw))

    def _permit(self, identity: str, verb: str, target: Target, name: str) -> None:
        """Raise StatusError 403 if the user may not do this."""

    async def _forward(self, request: web.Request, pod: Object) -> web.StreamResponse:
        """Forward ports of a pod. Raises StatusError, because pods have no processes; a subclass can do it."""
        raise StatusError(501, "NotImplemented", "pods of an embedded cluster have no ports")

    def _issue_token(self, account: Object, body: Object) -> Object:
        """Answer a TokenRequest. Raises StatusError, because no request needs a token; a subclass can issue tokens."""
        raise StatusError(501, "NotImplemented", "an embedded cluster issues no tokens")

    def _columns_of(self, rtype: ResourceType) -> Columns:
        known = self._columns.get(rtype.storage)
        if known is None or known[0] is not rtype:
            known = self._columns[rtype.storage] = (rtype, columns_of(rtype))
        return known[1]

    def _one(self, asked: ApiCall, entry: Entry, status: int = 200, warnings: tuple[str, ...] = ()) -> web.Response:
        headers = [("Warning", f"299 - {encode(text).decode()}") for text in warnings]
        form = self._form(asked)
        body = entry.json if form is None else encode(form(entry.obj))
        return web.Response(body=body + b"\n", status=status, content_type=JSON, headers=headers)

    def _form(self, asked: ApiCall) -> Callable[[Object], Object] | None:
        """Return a function that converts a stored object to the requested form; None if no conversion is needed."""
        if not asked.form:
            return event_conversion.to_group if asked.rtype.stored_as else None
        if asked.form != representations.TABLE:
            return representations.partial
        columns = self._columns_of(asked.rtype)
        first = [True]

        def row(obj: Object) -> Object:
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            headers, first[0] = first[0], False
            if "creationTimestamp" not in obj["metadata"]:  # a bookmark
                made = representations.table(columns, [], metadata, 0.0, headers=headers)
                made["rows"] = [{"cells": [], "object": representations.partial(obj)}]
                return made
            return representations.table(
                columns, [obj], metadata, self.store.clock(), include=asked.include, headers=headers
            )

        return row

    # --- reading ----------------------------------------------------------------------------------------------------

    def _get(self, asked: ApiCall) -> web.Response:
        entry = self.store.entry(asked.rtype, asked.target.namespace, asked.target.name)
        if asked.target.part == "scale":
            return _json(scale.of(asked.rtype, entry.obj))
        return self._one(asked, entry)

    def _list(self, asked: ApiCall) -> web.Response:
        rtype, found = asked.rtype, self._page(asked)
        if asked.form == representations.TABLE:
            objects = [entry.obj for entry in found.entries]
            columns = self._columns_of(rtype)
            return _json(
                representations.table(columns, objects, found.metadata, self.store.clock(), include=asked.include)
            )
        if asked.form:
            return _json(representations.partial_list(found.entries, found.metadata))
        if rtype.stored_as:
            return _list_of(rtype, found.metadata, [event_conversion.to_group(entry.obj) for entry in found.entries])
        return web.Response(body=listing.list_bytes(rtype, found), content_type=JSON)

    def _page(self, asked: ApiCall) -> listing.ListPage:
        return listing.page(self.store, asked.rtype, asked.target.namespace, asked.query)

    async def _watch(self, asked: ApiCall) -> web.StreamResponse:
        seconds = listing.number(asked.query, "timeoutSeconds")
        stream = self._opened(asked)
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        self._streams.append(stream)
        try:
            await response.prepare(asked.request)
            await stream.serve(response, seconds or _WATCH_SECONDS, self._bookmarks(asked))
            await response.write_eof()
        except ConnectionResetError:
            return response  # the client disconnected
        finally:
            stream.end()
            self._streams.remove(stream)
        return response

    def _opened(self, asked: ApiCall) -> WatchStream:
        chosen = selection(asked.rtype, asked.query, asked.target.name)
        stream = self.stream_type(self.store, asked.rtype, asked.target.namespace, chosen, self._form(asked))
        stream.open(asked.query)
        return stream

    def _bookmarks(self, asked: ApiCall) -> float | None:
        """Return the seconds between a watch's bookmarks; None if it gets none."""
        return _BOOKMARK_SECONDS if asked.query.get("allowWatchBookmarks") == "true" else None

    # --- writing ----------------------------------------------------------------------------------------------------

    def _create(self, asked: ApiCall) -> web.Response:
        rtype, part = asked.rtype, asked.target.part
        body = asked.body(asked.target.subresource.kind if asked.target.subresource else rtype.kind)
        if part == "eviction":
            return self._act(asked, body, EVICTION)
        if part == "binding" or rtype is BINDING:
            return self._act(asked, body, BINDING)
        if part == "token":
            account = self.store.entry(rtype, asked.target.namespace, asked.target.name).obj
            return _json(self._issue_token(account, body), 201)
        if reviews.is_review(rtype):
            review, _ = self.store.codec.read(rtype, body)
            return _json(self._review(rtype, review, asked.identity), 201)
        rtype, obj, warnings = self._read(asked, body)
        entry = self.store.insert(rtype, obj, asked.manager(rtype, "Update"), dry_run=asked.dry_run)
        return self._one(asked, entry, 201, warnings)

    def _read(self, asked: ApiCall, body: Object) -> tuple[ResourceType, Object, tuple[str, ...]]:
        """Return the resource type and the form in which a body's object is stored, and warnings about it."""
        expect_matching(asked.target, body)
        obj, unknown = self.store.codec.read(asked.rtype, body)
        warnings = _field_warnings(asked.rtype, unknown, asked.query)
        if not asked.rtype.stored_as:
            return asked.rtype, obj, warnings
        return self.store.type_of(asked.rtype.stored_as), event_conversion.to_core(obj), warnings

    def _review(self, rtype: ResourceType, asked: Object, identity: str) -> Object:
        return reviews.answer(rtype, asked, identity, self._user_of, self._is_permitted)

    def _user_of(self, token: str) -> reviews.TokenUser | None:
        """Return the user of a token; None, because none is issued."""
        return None

    def _is_permitted(self, asked: Object) -> bool:
        """Return whether the spec of a SubjectAccessReview is allowed: always."""
        return True

    def _act(self, asked: ApiCall, body: Object, kind: ResourceType) -> web.Response:
        obj, _ = self.store.codec.read(kind, body)
        namespace, name = asked.target.namespace or "default", asked.target.name or name_of(obj)
        if name_of(obj) not in ("", name):
            raise bad_request(f"name in URL does not match name in {kind.kind} object")
        if kind is EVICTION:
            self.store.evict(namespace, name, obj, dry_run=asked.dry_run)
        elif not asked.dry_run:
            self.store.bind(namespace, name, obj)
        return web.Response(body=_CREATED, status=201, content_type=JSON)

    def _change(self, asked: ApiCall) -> web.Response:
        target, rtype = asked.target, asked.rtype
        if target.part == "scale":
            return self._scale(asked)
        if asked.verb == "patch" and asked.media == APPLY_PATCH:
            return self._apply(asked)
        if asked.verb == "update":
            body = asked.body(rtype.kind)
        else:
            current = self.store.entry(rtype, target.namespace, target.name).obj
            body = self._patched(asked, rtype, event_conversion.to_group(current) if rtype.stored_as else current)
        stored, obj, warnings = self._read(asked, body)
        versioned = asked.verb == "patch" or not (rtype.custom or rtype.plural == "leases")
        if not versioned and not obj["metadata"].get("resourceVersion"):
            fault = "Invalid value: 0: must be specified for an update"
            cause = StatusCause("FieldValueInvalid", fault, "metadata.resourceVersion")
            raise invalid(rtype.kind, rtype.group, target.name, [cause])
        manager = asked.manager(stored, "Update", target.part)
        entry = self.store.replace(stored, obj, target.part or None, manager, dry_run=asked.dry_run)
        return self._one(asked, entry, 200, warnings)

    def _patched(self, asked: ApiCall, rtype: ResourceType, current: Object) -> Object:
        accepted = tuple(kind for kind in PATCHES if kind != STRATEGIC_PATCH) if rtype.custom else PATCHES
        if asked.media not in accepted:
            if rtype.custom:
                raise unsupported_media(accepted)
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        document = read_yaml(asked.raw)
        if asked.media == JSON_PATCH:
            made = patch.json_patch(current, document)
        elif asked.media == MERGE_PATCH:
            made = patch.merge_patch(current, document)
        else:
            made = patch.strategic_merge(current, document, self.store.codec.schema(rtype))
        if not isinstance(made, dict):
            raise bad_request(f"the patched object is no {rtype.kind}")
        metadata = made.get("metadata") or {}
        if asked.media == JSON_PATCH or not isinstance(metadata, dict):
            return made
        # A patch without a resourceVersion applies to the current object.
        if isinstance(document, dict) and "resourceVersion" not in (document.get("metadata") or {}):
            made["metadata"] = {key: value for key, value in metadata.items() if key != "resourceVersion"}
        return made

    def _apply(self, asked: ApiCall) -> web.Response:
        body = read_yaml(asked.raw)
        if not isinstance(body, dict):
            raise bad_request("error decoding YAML: the configuration is no object")
        if not asked.query.get("fieldManager"):
            fault = "Required value: is required for apply patch"
            raise invalid("PatchOptions", "meta.k8s.io", "", [StatusCause("FieldValueRequired", fault, "fieldManager")])
        rtype, obj, warnings = self._read(asked, body)
        part = asked.target.part
        entry, created = self.store.apply(
            rtype, obj, part or None, asked.manager(rtype, "Apply", part), force=asked.query.get("force") == "true",
            dry_run=asked.dry_run,
        )  # fmt: skip
        return self._one(asked, entry, 201 if created else 200, warnings)

    def _scale(self, asked: ApiCall) -> web.Response:
        rtype = asked.rtype
        current = self.store.entry(rtype, asked.target.namespace, asked.target.name).obj
        update = asked.verb == "update"
        body = asked.body("Scale") if update else self._patched(asked, SCALES, scale.of(rtype, current))
        wanted, _ = self.store.codec.read(SCALES, body)
        cleaned, _ = self.store.codec.read(rtype, scale.changed(rtype, current, wanted))
        manager = asked.manager(rtype, "Update", "scale")
        return _json(scale.of(rtype, self.store.replace(rtype, cleaned, None, manager, dry_run=asked.dry_run).obj))

    # --- deleting ---------------------------------------------------------------------------------------------------

    def _delete(self, asked: ApiCall) -> web.Response:
        rtype, target = asked.rtype, asked.target
        options = self._delete_options(asked)
        obj = self.store.delete(rtype.resource, target.namespace, target.name, **options)
        key = self.store.entry_key(rtype, target.namespace, target.name)
        remains = key in self.store.shelf(rtype.storage).entries
        if remains or rtype.returns_deleted or options["dry_run"]:
            return _json(event_conversion.to_group(obj) if rtype.stored_as else obj)
        details = details_of(rtype.resource, target.name, uid=obj["metadata"]["uid"])
        return _json(success(details=details))

    def _delete_options(self, asked: ApiCall) -> dict[str, Any]:
        """Return the options of a delete from its body and query; the query wins."""
        body, _ = self.store.codec.read(DELETE_OPTIONS, asked.body("DeleteOptions") if asked.raw else {})
        preconditions = body.get("preconditions") or {}
        grace = listing.number(asked.query, "gracePeriodSeconds")
        propagation = asked.query.get("propagationPolicy") or body.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        if propagation is None and orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        return {
            "uid": preconditions.get("uid"), "resource_version": preconditions.get("resourceVersion"),
            "grace_period": body.get("gracePeriodSeconds") if grace is None else grace, "propagation": propagation,
            "dry_run": asked.dry_run or "All" in (body.get("dryRun") or ()),
        }  # fmt: skip

    def _delete_collection(self, asked: ApiCall) -> web.Response:
        rtype = asked.rtype
        options = self._delete_options(asked)
        found = listing.page(self.store, rtype, asked.target.namespace, asked.query)
        items = [self.store.delete(rtype.resource, *entry.key, **options) for entry in found.entries]
        metadata = {**found.metadata, "resourceVersion": str(self.store.version)}
        return _list_of(
            rtype, metadata, [event_conversion.to_group(obj) for obj in items] if rtype.stored_as else items
        )


_CREATED: Final = encode(success(201)) + b"\n"


def _json(body: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=encode(body) + b"\n", status=status, content_type=JSON)


def _list_of(rtype: ResourceType, metadata: Object, items: list[Object]) -> web.Response:
    return _json({"kind": rtype.list_name, "apiVersion": rtype.api_version, "metadata": metadata, "items": items})


def _field_warnings(rtype: ResourceType, unknown: list[str], query: Mapping[str, str]) -> tuple[str, ...]:
    """Return the warnings for unknown fields by ``fieldValidation``. Raises StatusError 400 if that is Strict."""
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
