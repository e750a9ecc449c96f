"""One kind's way from the API server into events: list, compare with what is known, watch; and again after a gap."""

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

from vcd.kube.client import KubeClient, pause_after, with_query
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.errors import ApiError, KubeError, Malformed, Silent, Unanswered, decoded, status_error
from vcd.kube.waits import ended
from vcd.kube.writebudget import WriteBudget
from vcd.model import codec, jsontext
from vcd.model.events import Event, KindListed, ObjectBad, ObjectGone, ObjectPut
from vcd.model.kinds import Kind

log = structlog.get_logger(__name__)

Sink = Callable[[Sequence[Event]], Awaitable[object]]
"""Takes events in order; returns when they are in the log and in the state. What it raises ends the watcher."""

WORK_SLICE = 0.02
"""Seconds of decoding after which the event loop gets a turn."""

IDLE_TIMEOUT = 90.0
"""Seconds of silence after which a watch is begun anew from where it was.

A quiet kind's watch may be silent for good, without bookmarks; but so is one whose other end is gone, and HTTP/1.1
knows no ping. A fresh request tells, costs next to nothing, and is no error.
"""

HEALTHY_WATCH = 1.0
"""Seconds a watch must have lasted for its end to be nothing unusual."""

RESUME_GRACE = 60.0
"""Seconds for which a watch that was cut off, or put off with 429, is tried again where it was. Then comes a list."""

RELIST_PERIOD = 1800.0
RELIST_AGAIN = 300.0
"""Seconds, give or take a quarter, after which what is known is compared with a list, whatever the watch said; and
after which a comparison that failed is tried again."""

COMPARED_WITHIN = 30.0
"""Seconds that such a list may take in all: nothing is watched meanwhile."""

MISSING_GRACE = 30.0
MISSING_RETRY = 5.0
"""Seconds: how long a 404 must last before known objects count as deleted; how often a missing kind is tried."""


class KnownObjects(Protocol):
    """What the state holds of a kind, objects that were set aside as bad included."""

    def digest(self, kind: str, key: str) -> int | None:
        """``codec.payload_digest`` of the last payload; None for an unknown or bad object."""

    def keys(self, kind: str) -> Iterable[str]:
        """The keys of all objects of the kind."""


@dataclasses.dataclass
class WatchStatus:
    """A watcher's counters and gauges; times are the clock's monotonic seconds."""

    synced: bool = False
    """The first list is complete (or the kind is not served)."""
    missing: bool = False
    """The server does not serve this kind."""
    resource_version: str = ""
    lists: int = 0
    relists: int = 0
    connections: int = 0
    drift: int = 0
    """Objects that were not as the watch had told, found by a list of the very version that it had reached."""
    errors: int = 0
    crashes: int = 0
    """Defects of the watcher itself, after which it began anew."""
    events: int = 0
    bad: int = 0
    watched: bool = False
    """The server has agreed to the watch that is under way."""
    got_on: float = 0.0
    """While nothing is watched: when a watch ended, or a list last got further than those before it that failed."""
    last_event: float = 0.0
    last_contact: float = 0.0
    lag: float = 0.0
    """Seconds between the arrival of the last lines and their being in the state."""
    last_error: str = ""

    def stale(self, now: float) -> float:
        """Seconds for which neither a watch nor a list has told anything; a watch that is silent has."""
        return 0.0 if self.watched else max(0.0, now - self.got_on)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_line_decoder = msgspec.json.Decoder(_Line)


@dataclasses.dataclass(eq=False)
class Watcher:
    """Keeps the state up to date with all objects of one kind, or those of them that are read."""

    client: KubeClient
    kind: Kind
    known: KnownObjects
    sink: Sink
    _: dataclasses.KW_ONLY
    idle_timeout: float = IDLE_TIMEOUT
    relist_period: float = RELIST_PERIOD
    clock: Clock = SYSTEM_CLOCK
    rand: Random = SYSTEM_RANDOM
    when_synced: Callable[[], None] = lambda: None
    """Called when the first list is complete (or the kind turns out not to be served)."""

    def __post_init__(self) -> None:
        self.status = WatchStatus(got_on=self.clock.monotonic())
        self._relist_at = 0.0
        self._backoff = Backoff(0.1, 30.0, self.rand)
        self._version: str | None = None
        self._missing_since: float | None = None
        self._farthest = 0
        self._lost_since: float | None = None
        self._sink_failure: Exception | None = None
        self._overlay: dict[str, int | None] = {}
        self._budget = WriteBudget(self.clock)
        self._slice_end = 0.0
        fields = self.kind.field_selector
        self._path = with_query(self.kind.path, urlencode({"fieldSelector": fields})) if fields else self.kind.path
        self._log = log.bind(kind=self.kind.name)

    async def run(self) -> NoReturn:
        """List and watch until cancelled. Raises only what the sink raises."""
        while True:
            try:
                if self._version is not None:
                    await self._emit(self._released(at_once=True))
                if self._version is None:
                    await self._list()
                elif self.clock.monotonic() >= self._relist_at:
                    await self._compare(self._version)
                await self._watch()
            except Exception as error:
                if error is self._sink_failure:
                    raise
                await self._failed(error)

    async def _list(self, at: str = "") -> int:
        """Read all objects, as of now or ``at`` a version; emit those that differ from what is known, those that are
        gone, and KindListed.

        Returns how many differed.
        """
        seen: set[str] = set()
        known = set(self.known.keys(self.kind.name))
        version, changed = "", 0
        async for page in self.client.pages(self._path, at=at):
            if page.first:
                seen.clear()
            version = page.resource_version
            changed += await self._emit_page(page.items, seen, known)
            if not at and len(seen) > self._farthest:  # one that fails at the same page each time gets nowhere
                self._farthest, self.status.got_on = len(seen), self.clock.monotonic()
        gone = sorted(key for key in self.known.keys(self.kind.name) if key not in seen)
        for key in gone:
            self._budget.gone(key)
        events: list[Event] = [ObjectGone(self.kind.name, key, version) for key in gone]
        await self._emit([*events, KindListed(self.kind.name, version)])
        self._budget.release(at_once=True)  # the list had newer versions
        self._version = self.status.resource_version = version
        self._farthest, self.status.got_on = 0, self.clock.monotonic()
        self._compare_after(self.relist_period)
        self.status.lists += 1
        self.status.missing, self._missing_since = False, None
        self._note_synced()
        return changed + len(gone)

    def _note_synced(self) -> None:
        was, self.status.synced = self.status.synced, True
        if not was:
            self.when_synced()

    def _compare_after(self, seconds: float) -> None:
        self._relist_at = self.clock.monotonic() + seconds * (0.75 + 0.5 * self.rand())

    async def _compare(self, version: str) -> None:
        """A list as of the version that the watch has reached: what differs, no watch has told and none would.

        Where it fails the watch goes on: a server that sheds lists serves watches, which cost it next to nothing.
        """
        query = urlencode({"resourceVersion": version, "resourceVersionMatch": "Exact"})
        try:
            async with asyncio.timeout(COMPARED_WITHIN):
                changed = await self._list(query)
        except TimeoutError:
            self._overlay.clear()  # of what was read and not told
            self._put_off(Unanswered(f"GET {self._path}: the list took longer than {COMPARED_WITHIN:g} s", sent=True))
            return
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 410:
                await self._list_in_place_of_comparing()
            else:
                self._put_off(error)
            return
        if changed and self._version == version:
            self.status.drift += changed
            self._log.warning("watch_drifted", objects=changed, resource_version=version)

    async def _list_in_place_of_comparing(self) -> None:
        """The version is compacted: what differs from a list of now may also have happened since."""
        told = self.status.events
        try:
            await self._list()
        except KubeError as error:
            if self.status.events != told:  # newer than what the watch would go on with
                raise
            self._put_off(error)

    def _put_off(self, error: KubeError) -> None:
        self._compare_after(min(self.relist_period, RELIST_AGAIN))
        self._tell("comparison_failed", error, self._relist_at - self.clock.monotonic())

    async def _emit_page(self, items: list[msgspec.Raw], seen: set[str], known: set[str]) -> int:
        """Emit what a page says that is new; returns how many objects that concerns."""
        batch: list[Event] = []
        changed = 0
        self._slice_end = time.perf_counter() + WORK_SLICE
        for raw in items:
            event, _ = self._put(raw)
            seen.add(event.key)
            # the list says nothing new of an unchanged object; a row for each would double the log at every start
            if isinstance(event, ObjectBad):
                changed += event.key not in known
                batch.append(event)
            elif event.payload is not None:
                changed += 1
                batch.append(event)
            await self._give_way()
        await self._emit(batch)
        return changed

    async def _watch(self) -> None:
        """Follow changes over one connection, from the version reached so far until the server ends it."""
        seconds = int(300 + 300 * self.rand())  # as client-go: between 5 and 10 minutes, so that not all end at once
        query = urlencode(
            {"watch": "1", "resourceVersion": self._version, "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        )
        path = with_query(self._path, query)
        self.status.connections += 1
        started = self.clock.monotonic()
        told = healthy = False
        try:
            async with contextlib.aclosing(self.client.watch(path, idle_timeout=self.idle_timeout)) as stream:
                async for lines in stream:
                    self.status.watched = True
                    await self._follow(lines)
                    if lines:
                        told = True
                        self._recovered()
        except Silent:
            healthy = True
        finally:
            if self.status.watched:
                self.status.watched, self.status.got_on = False, self.clock.monotonic()
            healthy = healthy or self.clock.monotonic() - started > HEALTHY_WATCH
            if healthy:
                self._recovered()
        if not told and not healthy:
            raise Malformed("the watch ended at once and told nothing")
        if not healthy:  # a server that ends each watch at once must not be asked without pause
            await self.clock.sleep(self._backoff.next())

    def _recovered(self) -> None:
        self._backoff.reset()
        self._lost_since = None

    async def _follow(self, lines: list[bytes]) -> None:
        """Emit what lines say; those before one that ends the watch hold."""
        arrived = self.status.last_contact = self.clock.monotonic()
        self._slice_end = time.perf_counter() + WORK_SLICE
        batch: list[Event] = [*self._released()]
        version = self._version
        failure: KubeError | None = None
        for line in lines:
            try:
                event, version = self._read(line)
            except KubeError as error:
                failure = error
                break
            if event is not None:
                batch.append(event)
            await self._give_way()
        if batch:
            self.status.last_event = arrived
        await self._emit(batch)
        self._version = version
        self.status.resource_version = version or ""
        self.status.lag = self.clock.monotonic() - arrived
        if failure is not None:
            raise failure

    def _read(self, line: bytes) -> tuple[Event | None, str]:
        """The event of a watch line, None for a bookmark or a change that waits, and the version it brings us to."""
        entry = _entry(line)
        if entry.type in ("ADDED", "MODIFIED"):
            put, is_held = self._put(entry.object, may_wait=self.kind.namespaced)
            return None if is_held else put, put.resource_version or self._version or ""
        key, version = codec.identify(entry.object)
        version = version or self._version or ""
        if entry.type == "BOOKMARK":
            return None, version
        if entry.type == "DELETED":
            self._overlay[key] = None
            self._budget.gone(key)
            return ObjectGone(self.kind.name, key, version), version
        if entry.type == "ERROR":
            raise status_error(entry.object)
        raise Malformed(f"watch line of unknown type {entry.type!r}")

    def _put(self, raw: msgspec.Raw, *, may_wait: bool = False) -> tuple[ObjectPut | ObjectBad, bool]:
        """Return the event of an object, and whether it is held back, as one that ``may_wait`` can be."""
        name = self.kind.name
        try:
            obj, version = codec.decode_json(self.kind, raw)
            key, payload = obj.key, codec.encode_payload(obj)
        except codec.BadObject as error:
            key, version = codec.identify(raw)
            self._overlay[key] = None
            self._budget.forget(key)
            self.status.bad += 1
            return ObjectBad(name, key, version, str(error)), False
        digest = codec.payload_digest(payload)
        known = self._overlay[key] if key in self._overlay else self.known.digest(name, key)
        event = ObjectPut(name, key, version, None if digest == known else payload)
        if event.payload is None:
            self._budget.forget(key)
        elif may_wait and self._budget.holds(event, obj):
            return event, True
        self._overlay[key] = digest
        return event, False

    def _released(self, *, at_once: bool = False) -> list[ObjectPut]:
        """Return what the budget held back and does no longer."""
        released = self._budget.release(at_once=at_once)
        self._overlay.update((event.key, codec.payload_digest(event.payload or b"")) for event in released)
        return released

    async def _emit(self, batch: Sequence[Event]) -> None:
        if batch:
            try:
                await ended(self.sink(batch))  # a watcher that takes the place of this one begins by the state
            except Exception as error:
                self._sink_failure = error
                raise
        self._overlay.clear()  # the state now answers for what was in the batch
        self.status.events += len(batch)

    async def _give_way(self) -> None:
        if time.perf_counter() > self._slice_end:
            await asyncio.sleep(0)
            self._slice_end = time.perf_counter() + WORK_SLICE

    async def _failed(self, error: Exception) -> None:
        """Whatever it was: pause, then watch on where that is safe, else list again, as client-go's reflector does."""
        if isinstance(error, ApiError) and error.status == 404:
            await self._missing(error)
            return
        was_well = self._lost_since is None
        if self._version is not None and not self._may_resume(error):
            self._version = None
            self.status.relists += 1
        if isinstance(error, ApiError) and error.status == 410:
            self._log.info("watch_expired", message=error.message)
            await self.clock.sleep(self._backoff.next())
        elif isinstance(error, KubeError):
            is_cut = was_well and self._version is not None and isinstance(error, Unanswered)
            await self._retry(error, is_news=not is_cut)  # the next attempt tells whether that means anything
        else:
            await self._crashed(error)

    def _may_resume(self, error: Exception) -> bool:
        """Whether an error only cut a watch off or put it off, and not for long."""
        if not isinstance(error, Unanswered) and not (isinstance(error, ApiError) and error.status == 429):
            return False
        now = self.clock.monotonic()
        if self._lost_since is None:
            self._lost_since = now
        return now - self._lost_since < RESUME_GRACE

    async def _crashed(self, error: Exception) -> None:
        """A defect of ours must not end the program, which would meet the same input again at its next start."""
        self.status.crashes += 1
        self.status.last_error = repr(error)
        self._version = None
        self._overlay.clear()
        pause = self._backoff.next()
        self._log.error("watcher_crashed", exc_info=error, retry_in=round(pause, 3))
        await self.clock.sleep(pause)

    async def _retry(self, error: KubeError, *, is_news: bool = True) -> None:
        pause = pause_after(error, self._backoff)
        self._tell("watch_failed", error, pause, is_news=is_news)
        await self.clock.sleep(pause)

    def _tell(self, what: str, error: KubeError, pause: float, *, is_news: bool = True) -> None:
        self.status.errors += 1
        self.status.last_error = str(error)
        if is_news:
            self.client.log_failure(self._log, what, error, retry_in=round(pause, 3))
        else:
            self._log.debug(what, error=str(error), retry_in=round(pause, 3))

    async def _missing(self, error: ApiError) -> None:
        """The kind is not served: empty. A server that starts says so, too, so known objects are kept for a while."""
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
        self.status.got_on = self.clock.monotonic()
        await self.clock.sleep(MISSING_RETRY * (0.75 + 0.5 * self.rand()))


def _entry(line: bytes) -> _Line:
    """A watch line taken apart, however odd the object in it. Raises Malformed."""
    what = f"watch line {line[:80]!r}"
    try:
        return decoded(_line_decoder, line, what)
    except Malformed:
        found = jsontext.members(line)
        if "type" not in found or "object" not in found:
            raise
        return _Line(jsontext.string(found["type"]), msgspec.Raw(found["object"]))
