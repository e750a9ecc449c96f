"""Watches: convert the store's changes to lines and write them to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from vcd.embedded.listing import number
from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema_codec import encode
from vcd.embedded.selection import Selection
from vcd.embedded.status_errors import StatusError, bad_request
from vcd.embedded.store import Store
from vcd.embedded.watch_cache import ADDED, DELETED, MODIFIED, Write, watch_line

Object = dict[str, Any]
# Converts an object to the form that the client requested; None for no conversion.
Form = Callable[[Object], Object]

INITIAL_END: Final = "k8s.io/initial-events-end"
_PRETIMEOUT: Final = 2.0
_BACKLOG: Final = 200_000


class WatchStream:
    """One open watch."""

    def __init__(
        self, store: Store, rtype: ResourceType, namespace: str | None, chosen: Selection, form: Form | None
    ) -> None:
        self.rtype = rtype
        self._store = store
        self._namespace = namespace
        self._chosen = chosen
        self._form = form
        self._lines: list[bytes] = []
        self._ready = asyncio.Event()
        self._ended = False
        self._unsubscribe: Callable[[], None] = lambda: None

    # --- lines ------------------------------------------------------------------------------------------------------

    def open(self, query: Mapping[str, str]) -> None:
        """Queue the initial events that the query requests, and subscribe to changes.

        Raises StatusError 400 for contradictory parameters. An expired version results in an ERROR line.
        """
        shelf = self._store.shelf(self.rtype.storage)
        asked = number(query, "resourceVersion")
        initial = query.get("sendInitialEvents") == "true"
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if initial or not asked:
            if query.get("sendInitialEvents") != "false":
                for entry in shelf.all(self._namespace):
                    if self._chosen.matches(entry.obj):
                        self._send(ADDED, entry.obj, entry.json)
            if initial and query.get("allowWatchBookmarks") == "true":
                self.bookmark(initial_end=True)
        else:
            try:
                for change in shelf.since(asked):
                    self._on_change(change)
            except StatusError as error:
                self.fail(error)
                return
        self._unsubscribe = self._store.watch(self.rtype.storage, self._on_change)

    def bookmark(self, *, initial_end: bool = False) -> None:
        """Send a bookmark with the current resourceVersion."""
        metadata: Object = {"resourceVersion": str(self._store.version)}
        if initial_end:
            metadata["annotations"] = {INITIAL_END: "true"}
        obj = {"kind": self.rtype.kind, "apiVersion": self.rtype.api_version, "metadata": metadata}
        self._send("BOOKMARK", obj, None)

    def _on_change(self, change: Write) -> None:
        entry = change.entry
        if self._namespace is not None and entry.key[0] != self._namespace:
            return
        if self._chosen.everything:
            kind = change.kind
        else:
            was = change.previous is not None and self._chosen.matches(change.previous.obj)
            meant = change.kind != DELETED and self._chosen.matches(entry.obj)
            if not was and not meant:
                return
            kind = MODIFIED if was and meant else ADDED if meant else DELETED
        if kind == change.kind:
            if self._form is None:
                self._push(change.line)
            else:
                self._send(kind, entry.obj, None)
        elif kind == DELETED and change.previous is not None:
            before = change.previous.obj
            left = {**before, "metadata": {**before["metadata"], "resourceVersion": str(change.version)}}
            self._send(DELETED, left, None)
        else:
            self._send(kind, entry.obj, entry.json)

    def _send(self, kind: str, obj: Object, json: bytes | None) -> None:
        if self._form is not None:
            json = encode(self._form(obj))
        self._push(watch_line(kind, json if json is not None else encode(obj)))

    def _push(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) > _BACKLOG:
            self.end()  # a client that is this slow has to list again, as with a real server
        self._ready.set()

    def fail(self, error: StatusError) -> None:
        """End the watch with an error."""
        self._push(watch_line("ERROR", encode(error.status())))
        self.end()

    def end(self) -> None:
        """End the watch after the queued lines."""
        self._ended = True
        self._unsubscribe()
        self._ready.set()

    # --- the connection ---------------------------------------------------------------------------------------------

    async def serve(self, response: web.StreamResponse, timeout: float, bookmarks: float | None) -> None:
        """Write lines until the watch ends, at most ``timeout`` seconds. ``bookmarks`` are the seconds between them."""
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(timeout, self.end)]
        if bookmarks is not None:
            self._bookmark_each(loop, bookmarks, timers)
            if timeout > _PRETIMEOUT:
                timers.append(loop.call_later(timeout - _PRETIMEOUT, self.bookmark))
        try:
            await self._write(response)
        finally:
            for timer in timers:
                timer.cancel()
            self._unsubscribe()

    def _bookmark_each(
        self, loop: asyncio.AbstractEventLoop, seconds: float, timers: list[asyncio.TimerHandle]
    ) -> None:
        def again() -> None:
            self.bookmark()
            timers[1] = loop.call_later(seconds, again)

        timers.append(loop.call_later(seconds, again))

    async def _write(self, response: web.StreamResponse) -> None:
        while True:
            if self._lines:
                lines, self._lines = self._lines, []
                await response.write(b"".join(lines))
                continue
            if self._ended:
                return
            self._ready.clear()
            await self._ready.wait()
