"""Keep the state in sync with the objects of one kind: list, compare, watch, and list again after a gap.

A watcher emits events and holds no objects: the state, through `KnownObjects`, is what lists and watches are compared
with. Events of a batch that is not yet in the state are covered by ``_overlay``.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NoReturn, Protocol
from urllib.parse import urlencode

import msgspec
import structlog

from vcd.kube.api_errors import ApiError, BadResponse, IdleWatch, KubeError, NoResponse, decode, status_error
from vcd.kube.asyncio_tasks import run_to_completion
from vcd.kube.client import KubeClient, pause_after, with_query
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.log_budget import LogBudget
from vcd.model import jsontext, projection_codec
from vcd.model.events import Event, KindListed, ObjectBad, ObjectGone, ObjectPut
from vcd.model.kinds import Kind

log = structlog.get_logger(__name__)

Sink = Callable[[Sequence[Event]], Awaitable[object]]
"""Accepts events in order and returns when they are in the log and in the state. Its exceptions end the watcher."""

WORK_SLICE = 0.02
"""Seconds of decoding after which the event loop gets a turn."""

IDLE_TIMEOUT = 90.0
"""Seconds of silence after which a watch is restarted from its last version.

A quiet kind and a dead connection look the same, and HTTP/1.1 has no ping. A new request distinguishes them cheaply.
"""

HEALTHY_WATCH = 1.0
"""Seconds that a watch must last for its end to be normal."""

RESUME_GRACE = 60.0
"""Seconds during which a watch that was cut off or refused with 429 is resumed from its last version, before a list."""

RELIST_PERIOD = 1800.0
"""Seconds (+-25%) between comparisons of the known objects with a list, and before a failed comparison is repeated."""
COMPARE_RETRY = 300.0
"""Seconds (+-25%) between comparisons of the known objects with a list, and before a failed comparison is repeated."""

COMPARE_TIMEOUT = 30.0
"""Seconds for such a list. Nothing is watched during it."""

MISSING_GRACE = 30.0
MISSING_RETRY = 5.0
"""Seconds that a 404 must last until known objects count as deleted; seconds between tries of a missing kind."""


class KnownObjects(Protocol):
    """What the state holds of a kind, including invalid objects."""

    def digest(self, kind: str, key: str) -> int | None:
        """Return ``projection_codec.payload_digest`` of the last payload; None for an unknown or invalid object."""

    def keys(self, kind: str) -> Iterable[str]:
        """Return the keys of all objects of the kind."""


@dataclasses.dataclass
class WatchStatus:
    """A watcher's counters and gauges, exported as metrics under their names. Times are monotonic seconds."""

    synced: bool = False
    """The first list is complete, or the kind is not served."""
    missing: bool = False
    resource_version: str = ""
    lists: int = 0
    relists: int = 0
    connections: int = 0
    drift: int = 0
    """Objects that differed from a list at the watch's own version, so the watch had not delivered a change."""
    errors: int = 0
    crashes: int = 0
    """Defects of the watcher, after which it listed again."""
    events: int = 0
    bad: int = 0
    watched: bool = False
    """The server has accepted the current watch."""
    progress_at: float = 0.0
    """When a watch last ended, or a list last got further than earlier failed attempts."""
    last_event: float = 0.0
    last_contact: float = 0.0
    lag: float = 0.0
    """Seconds from the arrival of the last lines until they were in the state."""
    last_error: str = ""

    def stale_seconds(self, now: float) -> float:
        """Return for how many seconds there was neither a watch nor progress of a list."""
        return 0.0 if self.watched else max(0.0, now - self.progress_at)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_line_decoder = msgspec.json.Decoder(_Line)


@dataclasses.dataclass(eq=False)
class Watcher:
    """Emit events for all changes of one kind's objects, or of those that its field selector selects."""

    client: KubeClient
    kind: Kind
    known: KnownObjects
    sink: Sink
    _: dataclasses.KW_ONLY
    idle_timeout: float = IDLE_TIMEOUT
    relist_period: float = RELIST_PERIOD
    clock: Clock = SYSTEM_CLOCK
    rand: Random = SYSTEM_RANDOM
    on_synced: Callable[[], None] = lambda: None
    """Called when the first list is complete, or the kind turns out not to be served."""

    def __post_init__(self) -> None:
        self.status = WatchStatus(progress_at=self.clock.monotonic())
        self._compare_at = 0.0
        self._backoff = Backoff(0.1, 30.0, self.rand)
        self._version: str | None = None
        self._missing_since: float | None = None
        self._most_listed = 0
        self._unhealthy_since: float | None = None
        self._sink_failure: Exception | None = None
        self._overlay: dict[str, int | None] = {}
        self._budget = LogBudget(self.clock)
        self._slice_end = 0.0
        fields = self.kind.field_selector
        self._path = with_query(self.kind.path, urlencode({"fieldSelector": fields})) if fields else self.kind.path
        self._log = log.bind(kind=self.kind.name)

    async def run(self) -> NoReturn:
        """List and watch until cancelled. Raises only what the sink raises."""
        while True:
            try:
                if self._version is not None:
                    await self._emit(self._release_held(at_once=True))
                if self._version is None:
                    await self._list()
                elif self.clock.monotonic() >= self._compare_at:
                    await self._compare(self._version)
                await self._watch()
            except Exception as error:
                if error is self._sink_failure:
                    raise
                await self._handle_failure(error)

    async def _list(self, at: str = "") -> int:
        """Read all objects, now or at the query ``at``; emit the differences and KindListed. Returns their number."""
        seen: set[str] = set()
        known = set(self.known.keys(self.kind.name))
        version, changed = "", 0
        async for page in self.client.list_pages(self._path, at=at):
            if page.first:
                seen.clear()
            version = page.resource_version
            changed += await self._emit_page(page.items, seen, known)
            # a list that fails at the same page each time makes no progress
            if not at and len(seen) > self._most_listed:
                self._most_listed, self.status.progress_at = len(seen), self.clock.monotonic()
        gone = sorted(key for key in self.known.keys(self.kind.name) if key not in seen)
        for key in gone:
            self._budget.forget(key)
        events: list[Event] = [ObjectGone(self.kind.name, key, version) for key in gone]
        await self._emit([*events, KindListed(self.kind.name, version)])
        self._budget.release(at_once=True)  # the list has replaced the held versions
        self._version = self.status.resource_version = version
        self._most_listed, self.status.progress_at = 0, self.clock.monotonic()
        self._schedule_comparison(self.relist_period)
        self.status.lists += 1
        self.status.missing, self._missing_since = False, None
        self._note_synced()
        return changed + len(gone)

    def _note_synced(self) -> None:
        was, self.status.synced = self.status.synced, True
        if not was:
            self.on_synced()

    def _schedule_comparison(self, seconds: float) -> None:
        self._compare_at = self.clock.monotonic() + seconds * (0.75 + 0.5 * self.rand())

    async def _compare(self, version: str) -> None:
        """List at the watch's version: every difference is a change that the watch did not deliver.

        If it fails, the watch continues: an overloaded server refuses lists and still serves watches.
        """
        query = urlencode({"resourceVersion": version, "resourceVersionMatch": "Exact"})
        try:
            async with asyncio.timeout(COMPARE_TIMEOUT):
                changed = await self._list(query)
        except TimeoutError:
            self._overlay.clear()  # entries of objects that were not emitted
            message = f"GET {self._path}: the list took longer than {COMPARE_TIMEOUT:g} s"
            self._postpone_comparison(NoResponse(message, sent=True))
            return
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 410:
                await self._relist_after_expiry()
            else:
                self._postpone_comparison(error)
            return
        if changed and self._version == version:
            self.status.drift += changed
            self._log.warning("watch_drifted", objects=changed, resource_version=version)

    async def _relist_after_expiry(self) -> None:
        """List the newest version because the watch's is compacted. Differences do not count as drift then."""
        emitted = self.status.events
        try:
            await self._list()
        except KubeError as error:
            if self.status.events != emitted:  # the state is ahead of the watch's version, so it cannot resume
                raise
            self._postpone_comparison(error)

    def _postpone_comparison(self, error: KubeError) -> None:
        self._schedule_comparison(min(self.relist_period, COMPARE_RETRY))
        self._note_error("comparison_failed", error, self._compare_at - self.clock.monotonic())

    async def _emit_page(self, items: list[msgspec.Raw], seen: set[str], known: set[str]) -> int:
        """Emit the differences in a page; return the number of objects concerned."""
        batch: list[Event] = []
        changed = 0
        self._slice_end = time.perf_counter() + WORK_SLICE
        for raw in items:
            event, _ = self._decode_object(raw)
            seen.add(event.key)
            # unchanged objects are not emitted: one row for each would double the log at every start
            if isinstance(event, ObjectBad):
                changed += event.key not in known
                batch.append(event)
            elif event.payload is not None:
                changed += 1
                batch.append(event)
            await self._yield_if_due()
        await self._emit(batch)
        return changed

    async def _watch(self) -> None:
        seconds = int(300 + 300 * self.rand())  # as client-go: between 5 and 10 minutes, so that not all end at once
        query = urlencode(
            {"watch": "1", "resourceVersion": self._version, "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        )
        path = with_query(self._path, query)
        self.status.connections += 1
        started = self.clock.monotonic()
        got_lines = healthy = False
        try:
            async with contextlib.aclosing(self.client.watch(path, idle_timeout=self.idle_timeout)) as stream:
                async for lines in stream:
                    self.status.watched = True
                    await self._apply_lines(lines)
                    if lines:
                        got_lines = True
                        self._note_healthy()
        except IdleWatch:
            healthy = True
        finally:
            if self.status.watched:
                self.status.watched, self.status.progress_at = False, self.clock.monotonic()
            healthy = healthy or self.clock.monotonic() - started > HEALTHY_WATCH
            if healthy:
                self._note_healthy()
        if not got_lines and not healthy:
            raise BadResponse("the watch ended at once and delivered nothing")
        if not healthy:  # do not reconnect in a tight loop to a server that ends each watch at once
            await self.clock.sleep(self._backoff.next())

    def _note_healthy(self) -> None:
        self._backoff.reset()
        self._unhealthy_since = None

    async def _apply_lines(self, lines: list[bytes]) -> None:
        arrived = self.status.last_contact = self.clock.monotonic()
        self._slice_end = time.perf_counter() + WORK_SLICE
        batch: list[Event] = [*self._release_held()]
        version = self._version
        failure: KubeError | None = None
        for line in lines:
            try:
                event, version = self._decode_line(line)
            except KubeError as error:
                failure = error
                break
            if event is not None:
                batch.append(event)
            await self._yield_if_due()
        if batch:
            self.status.last_event = arrived
        await self._emit(batch)
        self._version = version
        self.status.resource_version = version or ""
        self.status.lag = self.clock.monotonic() - arrived
        if failure is not None:
            raise failure

    def _decode_line(self, line: bytes) -> tuple[Event | None, str]:
        """Return the event of a watch line, None for a bookmark or a held change, and the version reached."""
        entry = _parse_line(line)
        if entry.type in ("ADDED", "MODIFIED"):
            put, is_held = self._decode_object(entry.object, may_wait=self.kind.namespaced)
            return None if is_held else put, put.resource_version or self._version or ""
        key, version = projection_codec.identify(entry.object)
        version = version or self._version or ""
        if entry.type == "BOOKMARK":
            return None, version
        if entry.type == "DELETED":
            self._overlay[key] = None
            self._budget.forget(key)
            return ObjectGone(self.kind.name, key, version), version
        if entry.type == "ERROR":
            raise status_error(entry.object)
        raise BadResponse(f"watch line of unknown type {entry.type!r}")

    def _decode_object(self, raw: msgspec.Raw, *, may_wait: bool = False) -> tuple[ObjectPut | ObjectBad, bool]:
        """Return the event of an object, and whether the log budget holds it, which ``may_wait`` permits."""
        name = self.kind.name
        try:
            obj, version = projection_codec.decode_json(self.kind, raw)
            key, payload = obj.key, projection_codec.encode_payload(obj)
        except projection_codec.BadObject as error:
            key, version = projection_codec.identify(raw)
            self._overlay[key] = None
            self._budget.drop_held(key)
            self.status.bad += 1
            return ObjectBad(name, key, version, str(error)), False
        digest = projection_codec.payload_digest(payload)
        known = self._overlay[key] if key in self._overlay else self.known.digest(name, key)
        event = ObjectPut(name, key, version, None if digest == known else payload)
        if event.payload is None:
            self._budget.drop_held(key)
        elif may_wait and self._budget.should_hold(event, obj):
            return event, True
        self._overlay[key] = digest
        return event, False

    def _release_held(self, *, at_once: bool = False) -> list[ObjectPut]:
        released = self._budget.release(at_once=at_once)
        self._overlay.update((event.key, projection_codec.payload_digest(event.payload or b"")) for event in released)
        return released

    async def _emit(self, batch: Sequence[Event]) -> None:
        if batch:
            try:
                # if cancelled in between, the next watcher would compare with a state that lacks this batch
                await run_to_completion(self.sink(batch))
            except Exception as error:
                self._sink_failure = error
                raise
        self._overlay.clear()  # the state now contains the batch
        self.status.events += len(batch)

    async def _yield_if_due(self) -> None:
        if time.perf_counter() > self._slice_end:
            await asyncio.sleep(0)
            self._slice_end = time.perf_counter() + WORK_SLICE

    async def _handle_failure(self, error: Exception) -> None:
        """Pause, then resume the watch if that is safe, else list again, as client-go's reflector does."""
        if isinstance(error, ApiError) and error.status == 404:
            await self._handle_not_served(error)
            return
        was_well = self._unhealthy_since is None
        if self._version is not None and not self._may_resume(error):
            self._version = None
            self.status.relists += 1
        if isinstance(error, ApiError) and error.status == 410:
            self._log.info("watch_expired", message=error.message)
            await self.clock.sleep(self._backoff.next())
        elif isinstance(error, KubeError):
            is_cut = was_well and self._version is not None and isinstance(error, NoResponse)
            # a single interruption is normal: log it only if the next attempt fails, too
            await self._retry(error, is_new=not is_cut)
        else:
            await self._handle_defect(error)

    def _may_resume(self, error: Exception) -> bool:
        if not isinstance(error, NoResponse) and not (isinstance(error, ApiError) and error.status == 429):
            return False
        now = self.clock.monotonic()
        if self._unhealthy_since is None:
            self._unhealthy_since = now
        return now - self._unhealthy_since < RESUME_GRACE

    async def _handle_defect(self, error: Exception) -> None:
        """Report a defect of vcd and list again. Ending the process would meet the same input after a restart."""
        self.status.crashes += 1
        self.status.last_error = repr(error)
        self._version = None
        self._overlay.clear()
        pause = self._backoff.next()
        self._log.error("watcher_crashed", exc_info=error, retry_in=round(pause, 3))
        await self.clock.sleep(pause)

    async def _retry(self, error: KubeError, *, is_new: bool = True) -> None:
        pause = pause_after(error, self._backoff)
        self._note_error("watch_failed", error, pause, is_new=is_new)
        await self.clock.sleep(pause)

    def _note_error(self, what: str, error: KubeError, pause: float, *, is_new: bool = True) -> None:
        self.status.errors += 1
        self.status.last_error = str(error)
        if is_new:
            self.client.log_failure(self._log, what, error, retry_in=round(pause, 3))
        else:
            self._log.debug(what, error=str(error), retry_in=round(pause, 3))

    async def _handle_not_served(self, error: ApiError) -> None:
        """Treat the kind as empty once the 404 lasts: a starting API server responds with 404, too."""
        now = self.clock.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        self._version = None
        keys = sorted(self.known.keys(self.kind.name))
        if keys and now - self._missing_since < MISSING_GRACE:
            await self._retry(error)
            return
        if not self.status.missing or keys:
            self._log.warning("kind_not_served", path=self.kind.path, objects_dropped=len(keys))
            gone: list[Event] = [ObjectGone(self.kind.name, key) for key in keys]
            await self._emit([*gone, KindListed(self.kind.name, "")])
        self.status.missing = True
        self._note_synced()
        self.status.progress_at = self.clock.monotonic()
        await self.clock.sleep(MISSING_RETRY * (0.75 + 0.5 * self.rand()))


def _parse_line(line: bytes) -> _Line:
    """Split a watch line into type and object, also if the object is invalid. Raises BadResponse."""
    what = f"watch line {line[:80]!r}"
    try:
        return decode(_line_decoder, line, what)
    except BadResponse:
        found = jsontext.members(line)
        if "type" not in found or "object" not in found:
            raise
        return _Line(jsontext.string(found["type"]), msgspec.Raw(found["object"]))
