"""Kubernetes Events as client-go's recorder writes them: repeats counted, similar ones combined, rates limited."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import structlog

from vcd.kube.admission import Urgency
from vcd.kube.client import JSON, STRATEGIC_PATCH, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Clock, Random
from vcd.kube.errors import ApiError, KubeError, is_final
from vcd.kube.recent import Recent
from vcd.kube.workqueue import WorkQueue, namespace_lane
from vcd.kube.writer import Fence, Writer
from vcd.model.kinds import KINDS, Kind
from vcd.model.words import cut, rfc3339

log = structlog.get_logger(__name__)

# client-go, tools/record/events_cache.go
CACHE_SIZE = 4096
SIMILAR_LIMIT = 10
SIMILAR_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300.0
COMBINED = "(combined from similar events): "

MESSAGE_LIMIT = 1024
_LONGEST_NAME = 253

_CONFIGURATION = "ConfigMap"
"""What Events about the configuration file are about, whether or not a plugin reads such objects."""

_encode = msgspec.json.Encoder().encode


class Subject(NamedTuple):
    """The object an Event is about."""

    kind: str
    key: str
    uid: str


class _Identity(NamedTuple):
    """Events with the same identity are one, seen several times."""

    subject: Subject
    type: str
    reason: str
    message: str


@dataclasses.dataclass
class _Series:
    """One Event: its name on the server, once written, and how often it was seen. Times in wall nanoseconds."""

    name: str
    first: int
    last: int = 0
    count: int = 0
    message: str = ""
    written: bool = False


@dataclasses.dataclass
class _Similar:
    """The different messages of Events that are otherwise alike."""

    messages: set[str] = dataclasses.field(default_factory=set)
    last: float = 0.0


@dataclasses.dataclass
class _Bucket:
    """Tokens for the Events of one object."""

    filled: float
    tokens: float = SPAM_BURST


class Recorder(Writer[_Identity, _Series]):
    """Writes Events in the background; ``component`` is their source.

    ``capacity`` bounds the Events that wait; of each beyond it the kind, Event, is told to ``dropped``. ``fence`` says
    whether this replica may write, ``kinds`` are those that Events are about, by the names that `record` is given.
    """

    def __init__(
        self,
        client: KubeClient,
        component: str,
        fence: Fence,
        *,
        capacity: int = 5000,
        dropped: Callable[[str], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Random = SYSTEM_RANDOM,
        kinds: Mapping[str, Kind] = KINDS,
    ) -> None:
        work: WorkQueue[_Identity, _Series] = WorkQueue(
            capacity, dropped=lambda _: dropped("Event"), lane_of=lambda identity: namespace_lane(identity.subject.key)
        )
        super().__init__(client, fence, work, 4, clock, rand)
        self._kinds = kinds
        self._component = component
        self._stamp = 0
        self._series: Recent[_Identity, _Series] = Recent(CACHE_SIZE)
        self._similar: Recent[tuple[Subject, str, str], _Similar] = Recent(CACHE_SIZE)
        self._buckets: Recent[Subject, _Bucket] = Recent(CACHE_SIZE)

    def record(self, kind: str, key: str, uid: str, type: str, reason: str, message: str) -> None:
        """Record that something happened to an object. ``type`` is Normal or Warning. Never blocks or raises.

        An object of no namespace gets its Events in "default", as in client-go.
        """
        subject, now, elapsed = Subject(kind, key, uid), self._clock.wall(), self._clock.monotonic()
        if not self._admit(subject, elapsed):
            return
        message = cut(message, MESSAGE_LIMIT)
        combined = self._combine(subject, type, reason, message, elapsed)
        identity = _Identity(subject, type, reason, "" if combined else message)
        series = self._series.find(identity, lambda: _Series(self._name(subject, now), now))
        series.count += 1
        series.last = now
        series.message = f"{COMBINED}{message}" if combined else message
        self._work.put(identity, series)

    def _name(self, subject: Subject, now: int) -> str:
        """A name for a new Event, unique in this process, in client-go's form."""
        self._stamp = max(now, self._stamp + 1)
        stamp = f"{self._stamp:x}"
        about = subject.key.rpartition("/")[2][: _LONGEST_NAME - 1 - len(stamp)]
        return f"{about.rstrip('.-')}.{stamp}"

    def _admit(self, subject: Subject, now: float) -> bool:
        bucket = self._buckets.find(subject, lambda: _Bucket(now))
        bucket.tokens = min(SPAM_BURST, bucket.tokens + (now - bucket.filled) * SPAM_QPS)
        bucket.filled = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _combine(self, subject: Subject, type: str, reason: str, message: str, now: float) -> bool:
        """Whether so many like it but for the message came lately that one Event stands for all."""
        similar = self._similar.find((subject, type, reason), _Similar)
        if now - similar.last > SIMILAR_SECONDS:
            similar.messages.clear()
        similar.last = now
        if len(similar.messages) < SIMILAR_LIMIT:
            similar.messages.add(message)
        return len(similar.messages) >= SIMILAR_LIMIT

    def _may_pass(self, identity: _Identity, error: KubeError) -> bool:
        if is_final(error):
            self._tell_lost(identity, error)
        return not is_final(error)

    def _tell_lost(self, identity: _Identity, error: KubeError) -> None:
        subject = identity.subject
        self._client.log_failure(log, "event_lost", error, kind=subject.kind, key=subject.key)

    async def _write(self, identity: _Identity, series: _Series, fence: Fence, *, again: bool) -> None:
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
            series.name = self._name(identity.subject, self._clock.wall())  # the old one has expired
        try:
            await self._call("POST", path, self._body(identity, series, namespace), fence)
        except ApiError as error:
            if error.status != 409:  # an earlier attempt got through, its answer did not
                raise
        series.written = True

    async def _call(self, method: str, path: str, body: bytes, fence: Fence, content_type: str = JSON) -> None:
        await self._client.request(method, path, body, content_type=content_type, urgency=Urgency.EVENT, fence=fence)

    def _body(self, identity: _Identity, series: _Series, namespace: str) -> bytes:
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
