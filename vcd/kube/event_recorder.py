"""Write Kubernetes Events in the background, as client-go's recorder does.

Repeats are counted, similar Events combined and rates limited, with client-go's limits and formats
(``tools/record/events_cache.go``), so that no loop floods the API server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import structlog

from vcd.kube.api_errors import ApiError, KubeError, is_final
from vcd.kube.background_writer import BackgroundWriter, Fence
from vcd.kube.client import JSON, STRATEGIC_PATCH, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Clock, Random
from vcd.kube.lru import LruCache
from vcd.kube.workqueue import WorkQueue, namespace_lane
from vcd.kube.write_limiter import Urgency
from vcd.model.kinds import KINDS, Kind
from vcd.model.wording import cut, rfc3339

log = structlog.get_logger(__name__)

# client-go, tools/record/events_cache.go
CACHE_SIZE = 4096
SIMILAR_LIMIT = 10
SIMILAR_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300.0
COMBINED = "(combined from similar events): "

MESSAGE_LIMIT = 1024
_MAX_NAME = 253

_CONFIGURATION = "ConfigMap"
"""Kind of the Events about the configuration file; it may not be among the watched kinds."""

_encode = msgspec.json.Encoder().encode


class Subject(NamedTuple):
    """The object an Event is about."""

    kind: str
    key: str
    uid: str


class _EventKey(NamedTuple):
    """Events with equal keys are one Event with a count."""

    subject: Subject
    type: str
    reason: str
    message: str


@dataclasses.dataclass
class _Series:
    """One Event and its count. ``name`` is its name on the server; times are in wall nanoseconds."""

    name: str
    first: int
    last: int = 0
    count: int = 0
    message: str = ""
    written: bool = False


@dataclasses.dataclass
class _SimilarEvents:
    messages: set[str] = dataclasses.field(default_factory=set)
    last: float = 0.0


@dataclasses.dataclass
class _Bucket:
    filled: float
    tokens: float = SPAM_BURST


class EventRecorder(BackgroundWriter[_EventKey, _Series]):
    """Write Events in the background.

    Args:
        component: The Events' source.
        fence: Returns whether this replica may write.
        capacity: Queued Events at most.
        on_dropped: Called with "Event" for each Event that is lost because the queue is full.
        kinds: The kinds of involved objects, by the names that `record` takes.
    """

    def __init__(
        self,
        client: KubeClient,
        component: str,
        fence: Fence,
        *,
        capacity: int = 5000,
        on_dropped: Callable[[str], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Random = SYSTEM_RANDOM,
        kinds: Mapping[str, Kind] = KINDS,
    ) -> None:
        work: WorkQueue[_EventKey, _Series] = WorkQueue(
            capacity,
            on_dropped=lambda _: on_dropped("Event"),
            lane_of=lambda identity: namespace_lane(identity.subject.key),
        )
        super().__init__(client, fence, work, 4, clock, rand)
        self._kinds = kinds
        self._component = component
        self._stamp = 0
        self._series: LruCache[_EventKey, _Series] = LruCache(CACHE_SIZE)
        self._similar: LruCache[tuple[Subject, str, str], _SimilarEvents] = LruCache(CACHE_SIZE)
        self._buckets: LruCache[Subject, _Bucket] = LruCache(CACHE_SIZE)

    def record(self, kind: str, key: str, uid: str, type: str, reason: str, message: str) -> None:
        """Record an Event about an object. ``type`` is Normal or Warning. Never blocks or raises.

        Events about cluster-scoped objects are created in namespace "default", as in client-go.
        """
        subject, now, elapsed = Subject(kind, key, uid), self._clock.wall(), self._clock.monotonic()
        if not self._take_token(subject, elapsed):
            return
        message = cut(message, MESSAGE_LIMIT)
        combined = self._should_combine(subject, type, reason, message, elapsed)
        identity = _EventKey(subject, type, reason, "" if combined else message)
        series = self._series.get_or_create(identity, lambda: _Series(self._name(subject, now), now))
        series.count += 1
        series.last = now
        series.message = f"{COMBINED}{message}" if combined else message
        self._work.put(identity, series)

    def _name(self, subject: Subject, now: int) -> str:
        self._stamp = max(now, self._stamp + 1)
        stamp = f"{self._stamp:x}"
        about = subject.key.rpartition("/")[2][: _MAX_NAME - 1 - len(stamp)]
        return f"{about.rstrip('.-')}.{stamp}"

    def _take_token(self, subject: Subject, now: float) -> bool:
        bucket = self._buckets.get_or_create(subject, lambda: _Bucket(now))
        bucket.tokens = min(SPAM_BURST, bucket.tokens + (now - bucket.filled) * SPAM_QPS)
        bucket.filled = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _should_combine(self, subject: Subject, type: str, reason: str, message: str, now: float) -> bool:
        """Return whether so many Events with other messages were recent that they are combined into one."""
        similar = self._similar.get_or_create((subject, type, reason), _SimilarEvents)
        if now - similar.last > SIMILAR_SECONDS:
            similar.messages.clear()
        similar.last = now
        if len(similar.messages) < SIMILAR_LIMIT:
            similar.messages.add(message)
        return len(similar.messages) >= SIMILAR_LIMIT

    def _should_retry(self, identity: _EventKey, error: KubeError) -> bool:
        if is_final(error):
            self._report_given_up(identity, error)
        return not is_final(error)

    def _report_given_up(self, identity: _EventKey, error: KubeError) -> None:
        subject = identity.subject
        self._client.log_failure(log, "event_lost", error, kind=subject.kind, key=subject.key)

    async def _write(self, identity: _EventKey, series: _Series, fence: Fence) -> None:
        key = identity.subject.key
        namespace = key.partition("/")[0] if "/" in key else "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        if series.written:
            body = {"count": series.count, "lastTimestamp": rfc3339(series.last), "message": series.message}
            try:
                await self._call("PATCH", f"{path}/{series.name}", _encode(body), fence, STRATEGIC_PATCH)
                return
            except ApiError as error:
                if error.status != 404:
                    raise
            series.name = self._name(identity.subject, self._clock.wall())  # the Event has expired: begin a new one
        try:
            await self._call("POST", path, self._body(identity, series, namespace), fence)
        except ApiError as error:
            if error.status != 409:  # 409: an earlier attempt succeeded without a response
                raise
        series.written = True

    async def _call(self, method: str, path: str, body: bytes, fence: Fence, content_type: str = JSON) -> None:
        await self._client.request(method, path, body, content_type=content_type, urgency=Urgency.EVENT, fence=fence)

    def _body(self, identity: _EventKey, series: _Series, namespace: str) -> bytes:
        subject = identity.subject
        known = None if subject.kind == _CONFIGURATION else self._kinds[subject.kind]
        involved = {
            "apiVersion": "v1" if known is None else known.api_version,
            "kind": subject.kind if known is None else known.manifest_kind,
            "name": subject.key.rpartition("/")[2],
            "uid": subject.uid,
        }
        if "/" in subject.key:
            involved["namespace"] = namespace
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": involved,
            "type": identity.type,
            "reason": identity.reason,
            "message": series.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": rfc3339(series.first),
            "lastTimestamp": rfc3339(series.last),
            "count": series.count,
        }
        return _encode(event)
