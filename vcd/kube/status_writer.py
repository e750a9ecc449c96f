"""Write session results to objects in the background: PodGroup status, Queue allocation, pod conditions.

Updates are coalesced per object, skipped if the object already has them, and sent after all queued binds. What was
written last is cached to avoid reads; every way in which an object can change must invalidate its cache entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from vcd.kube.api_errors import ApiError, KubeError, NoResponse, decode, is_final
from vcd.kube.background_writer import BackgroundWriter, Fence
from vcd.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Body, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.lru import LruCache
from vcd.kube.request_info import is_installation_fault
from vcd.kube.workqueue import WorkQueue, namespace_lane
from vcd.kube.write_limiter import Urgency
from vcd.model.events import GroupStatus, QueueUsage
from vcd.model.kinds import KINDS
from vcd.model.objects import Condition, PodGroupStatus, QueueStatus
from vcd.model.status import condition_of
from vcd.model.wording import cut, rfc3339

log = structlog.get_logger(__name__)

_PODGROUP, _QUEUE, _POD = KINDS["PodGroup"], KINDS["Queue"], KINDS["Pod"]
_encode = msgspec.json.Encoder().encode
_CAPACITY = 200_000
"""Objects in the queue, and in each cache."""
_OTHER_UID = "Precondition failed: UID"
"""Part of the API server's refusal if an object has another UID (apiserver/pkg/storage/interfaces.go)."""
_MESSAGE_LIMIT = 4096
"""Characters of a condition's message, which can contain text of tenants."""
_RETRY_PAUSE, _MAX_RETRY_PAUSE = 10.0, 40.0
"""Seconds before unwritten conditions are retried: at first, and at most."""


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    uid: str = ""


class _Group(msgspec.Struct):
    metadata: _Meta
    status: PodGroupStatus = PodGroupStatus()


class _Queue(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: QueueStatus = QueueStatus()


_group_decoder = msgspec.json.Decoder(_Group, strict=False)
_queue_decoder = msgspec.json.Decoder(_Queue, strict=False)


def _is_later(version: str, than: str) -> bool:
    return (len(version), version) > (len(than), than)


@dataclasses.dataclass(frozen=True)
class _GroupUpdate:
    wanted: GroupStatus
    transition: str
    uid: str = ""

    def with_condition_of(self, before: _Update | None) -> _GroupUpdate:
        """Return this update with the condition of an earlier one for the same group, if it has none itself."""
        if not isinstance(before, _GroupUpdate) or self.wanted.condition is not None or before.uid != self.uid:
            return self
        wanted = msgspec.structs.replace(self.wanted, condition=before.wanted.condition)
        return _GroupUpdate(wanted, before.transition, self.uid)

    def is_about(self, group: _Group) -> bool:
        """Return whether this update is for this group, not for a deleted one of the same name."""
        return self.uid in ("", group.metadata.uid)


@dataclasses.dataclass(frozen=True)
class _PodUpdate:
    uid: str
    condition: Condition
    nominated: str = ""


_Update = _GroupUpdate | QueueUsage | _PodUpdate


class StatusWriter(BackgroundWriter[tuple[str, str], _Update]):
    """Write statuses and conditions in the background while ``fence`` allows it.

    Args:
        known_group: Returns a group's version, status and UID as last observed, which saves a read. The server refuses
            a write based on an old version.
        is_pending: Returns whether a pod, by key, can still be without a node. Other pods get no condition.
        is_current: Returns whether a type of condition is the last decided one of a group, by key. No other is written.
        observed_status: Returns the last observed status of a pod's condition, by key, UID and type.
        concurrency: Writes in flight.
        on_dropped: Called with the kind of an object whose update is lost because the queue is full.
        on_refused: Called with kind, key and message if a write is refused because of an installation fault.
    """

    def __init__(
        self,
        client: KubeClient,
        fence: Fence,
        *,
        known_group: Callable[[str], tuple[str, PodGroupStatus, str] | None] = lambda _: None,
        is_pending: Callable[[str], bool] = lambda _: True,
        is_current: Callable[[str, str], bool] = lambda key, type: True,
        observed_status: Callable[[str, str, str], str] = lambda key, uid, type: "",
        concurrency: int = 32,
        on_dropped: Callable[[str], None] = lambda _: None,
        on_refused: Callable[[str, str, str], None] = lambda kind, key, why: None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Random = SYSTEM_RANDOM,
    ) -> None:
        work: WorkQueue[tuple[str, str], _Update] = WorkQueue(
            _CAPACITY,
            ranks=2,
            on_dropped=lambda name: on_dropped(name[0]),
            lane_of=lambda name: namespace_lane(name[1]),
        )
        super().__init__(client, fence, work, concurrency, clock, rand)
        self._known_group = known_group
        self._is_pending = is_pending
        self._is_current = is_current
        self._observed_status = observed_status
        self._on_refused = on_refused
        self._groups: LruCache[str, _Group] = LruCache(_CAPACITY)
        self._queues: LruCache[str, _Queue] = LruCache(_CAPACITY)
        self._conditions: LruCache[str, _PodUpdate] = LruCache(_CAPACITY)
        self._caches: dict[str, LruCache[str, Any]] = {
            "PodGroup": self._groups,
            "Queue": self._queues,
            "Pod": self._conditions,
        }
        self._uncertain_groups: LruCache[str, bool] = LruCache(_CAPACITY)
        """Groups whose last write failed. They are read before the next write, because the watch may be late."""
        self._unwritten_conditions: dict[str, _PodUpdate] = {}
        self._retry_backoff = Backoff(_RETRY_PAUSE, _MAX_RETRY_PAUSE, rand)
        self._retry_at = 0.0
        """Monotonic seconds before which unwritten conditions are not retried."""

    def submit_groups(self, groups: Iterable[GroupStatus], transition: str = "", uid: str = "") -> None:
        """Queue PodGroup statuses.

        ``transition`` becomes the transitionID of changed conditions. If ``uid`` is set, a group of another UID is
        skipped.
        """
        for group in groups:
            target = ("PodGroup", group.key)
            self._work.put(target, _GroupUpdate(group, transition, uid).with_condition_of(self._work.pending(target)))

    def submit_queues(self, queues: Iterable[QueueUsage]) -> None:
        for queue in queues:
            self._work.put(("Queue", queue.name), queue)

    def submit_pod_condition(self, key: str, uid: str, condition: Condition, nominated: str = "") -> None:
        """Queue one condition of a pod, and its ``nominatedNodeName`` if ``nominated`` is not empty.

        A condition without a transition time gets the current time, unless its status is unchanged.
        """
        condition = msgspec.structs.replace(condition, message=cut(condition.message, _MESSAGE_LIMIT))
        self._work.put(("Pod", key), _PodUpdate(uid, condition, nominated), rank=1)

    def pod_condition(self, key: str, uid: str) -> Condition | None:
        """Return the condition of a pod that was submitted last; None if it is not known any more."""
        newest = self._work.newest(("Pod", key)) or self._conditions.get(key)
        return newest.condition if isinstance(newest, _PodUpdate) and newest.uid == uid else None

    def retry_unwritten(self) -> None:
        """Queue unwritten conditions again, for example those that a webhook denied, with a backoff between retries."""
        if not self._unwritten_conditions:
            self._retry_backoff.reset()
        elif self._clock.monotonic() >= self._retry_at:
            self._retry_at = self._clock.monotonic() + self._retry_backoff.next()
            for key, update in list(self._unwritten_conditions.items()):
                if self._work.pending(("Pod", key)) is None:
                    self._work.put(("Pod", key), update, rank=1)

    def forget(self, kind: str, key: str) -> None:
        """Drop the cached values of a deleted object."""
        if kind in self._caches:
            self._caches[kind].drop(key)
        if kind == "Pod":
            self._unwritten_conditions.pop(key, None)
        elif kind == "PodGroup":
            self._uncertain_groups.drop(key)

    def observe_queue(self, queue: str, version: str) -> None:
        """Invalidate the cache if the watch delivered a later version of a queue."""
        known = self._queues.get(queue)
        if known is not None and _is_later(version, known.metadata.resource_version):
            self._queues.drop(queue)

    def version_of(self, queue: str) -> str:
        """Return the resource version of a queue's last response; empty if none is cached."""
        known = self._queues.get(queue)
        return "" if known is None else known.metadata.resource_version

    def forget_all(self, kind: str) -> None:
        """Drop the cached values of a kind after a list, because a restore of etcd can undo writes."""
        if kind in self._caches:
            self._caches[kind].clear()

    def _on_leadership_lost(self) -> None:
        self._work.clear()
        self._unwritten_conditions.clear()
        self._uncertain_groups.clear()
        for cache in self._caches.values():
            cache.clear()

    def _should_retry(self, target: tuple[str, str], error: KubeError) -> bool:
        kind, key = target
        status = error.status if isinstance(error, ApiError) else 0
        self._caches[kind].drop(key)
        if kind == "PodGroup":
            if status == 404:
                self._uncertain_groups.drop(key)
            else:
                self._uncertain_groups.set(key, True)
        is_contended = status == 409 and _OTHER_UID not in str(error)  # other writers won each attempt
        if not is_final(error) or (is_contended and kind != "Queue"):
            return True
        is_fault = isinstance(error, ApiError) and is_installation_fault(error)
        if is_fault or status not in (404, 409, 422):  # these mean: deleted, or recreated under its name
            log.warning("status_refused", kind=kind, key=key, error=str(error))
            if is_fault:
                self._on_refused(kind, key, str(error))
        elif kind == "Pod":
            self._unwritten_conditions.pop(key, None)
        return status == 409 and kind == "PodGroup"

    def _report_given_up(self, target: tuple[str, str], error: KubeError) -> None:
        self._client.log_failure(log, "status_not_written", error, kind=target[0], key=target[1])
        if isinstance(error, ApiError) and is_installation_fault(error):
            self._on_refused(*target, str(error))

    def _newest(self, target: tuple[str, str], update: _Update) -> _Update:
        pending = super()._newest(target, update)
        return pending.with_condition_of(update) if isinstance(pending, _GroupUpdate) else pending

    async def _write(self, target: tuple[str, str], update: _Update, fence: Fence) -> None:
        key = target[1]
        if isinstance(update, _GroupUpdate):
            await self._write_group(key, update, fence)
        elif isinstance(update, QueueUsage):
            await self._write_queue(key, update, fence)
        else:
            self._unwritten_conditions.pop(key, None)
            try:
                await self._write_condition(key, update, fence)
            except (ApiError, NoResponse):
                if fence():
                    self._unwritten_conditions[key] = update
                raise

    async def _write_group(self, key: str, update: _GroupUpdate, fence: Fence) -> None:
        """Merge into the newest copy. PodGroup has no status subresource, so the resource version guards the write."""
        path = _PODGROUP.object_path(key)
        group, known = self._groups.get(key), None if self._uncertain_groups.get(key) else self._known_group(key)
        if known is not None and (group is None or _is_later(known[0], group.metadata.resource_version)):
            group = _Group(_Meta(known[0], known[2]), known[1])
        if group is None or not update.is_about(group):
            group = decode(_group_decoder, await self._client.request("GET", path, fence=fence), path)
            self._groups.set(key, group)
            self._uncertain_groups.drop(key)
        if not update.is_about(group) or not self._group_patch(group.status, update):
            return

        def build_patch() -> bytes | None:
            pending = self._work.pending(("PodGroup", key))
            latest = update
            if isinstance(pending, _GroupUpdate) and pending.is_about(group):
                latest = pending.with_condition_of(update)
            status = self._group_patch(group.status, latest)
            meta = {"resourceVersion": group.metadata.resource_version}
            return _encode({"metadata": meta, "status": status}) if status else None

        self._groups.set(key, decode(_group_decoder, await self._patch(path, build_patch, fence), path))

    def _group_patch(self, old: PodGroupStatus, update: _GroupUpdate) -> dict[str, Any]:
        wanted = update.wanted
        fields = ((name, getattr(wanted, name)) for name in ("phase", "running", "succeeded", "failed"))
        patch: dict[str, Any] = {name: value for name, value in fields if value != getattr(old, name)}
        if wanted.condition is None or not self._is_current(wanted.key, wanted.condition[0]):
            return patch
        type_, status, reason, message = wanted.condition
        message = cut(message, _MESSAGE_LIMIT)
        last = condition_of(type_, old.conditions)
        if last is not None and (last.status, last.reason, last.message) == (status, reason, message):
            return patch
        since = last.last_transition_time if last is not None and last.status == status else None
        new = Condition(type_, status, reason, message, since or rfc3339(self._clock.wall()), update.transition)
        # no condition of this type is valid: drop those that its opposite replaced, and append the new one
        if last is None:
            others = [condition for condition in old.conditions if condition.type != type_]
            return {**patch, "conditions": [*others, new]}
        return {**patch, "conditions": [new if condition is last else condition for condition in old.conditions]}

    async def _write_queue(self, key: str, usage: QueueUsage, fence: Fence) -> None:
        path = _QUEUE.object_path(key)
        old = self._queues.get(key)
        if old is None:
            old = decode(_queue_decoder, await self._client.request("GET", path, fence=fence), path)
            self._queues.set(key, old)
        observed = old.status.allocated
        patch: dict[str, str | None] = {k: v for k, v in usage.allocated.items() if observed.get(k) != v}
        patch.update(dict.fromkeys(observed.keys() - usage.allocated.keys()))  # null removes a key
        if not patch:
            return
        raw = await self._patch(f"{path}/status", _encode({"status": {"allocated": patch}}), fence)
        if self._queues.get(key) is old:  # otherwise it was invalidated during the request
            self._queues.set(key, decode(_queue_decoder, raw, path))

    async def _write_condition(self, key: str, update: _PodUpdate, fence: Fence) -> None:
        condition = update.condition
        # one cache entry per pod suffices: the scheduler writes no condition but PodScheduled
        last = self._conditions.get(key)
        if last is not None and (last.uid, last.condition.type) != (update.uid, condition.type):
            last = None
        if last is not None and (last.condition, last.nominated) == (condition, update.nominated):
            return
        body: dict[str, Any] = {"type": condition.type, "status": condition.status}
        body.update(reason=condition.reason, message=condition.message)
        before = self._observed_status(key, update.uid, condition.type) if last is None else last.condition.status
        if before != condition.status or condition.last_transition_time:
            body["lastTransitionTime"] = condition.last_transition_time or rfc3339(self._clock.wall())
        # the UID in a patch is a precondition: the server refuses another pod of that name
        status = {"conditions": [body], **({"nominatedNodeName": update.nominated} if update.nominated else {})}
        patch = _encode({"metadata": {"uid": update.uid}, "status": status})
        await self._patch(
            f"{_POD.object_path(key)}/status", lambda: patch if self._is_pending(key) else None, fence, STRATEGIC_PATCH
        )
        self._conditions.set(key, update)

    async def _patch(self, path: str, body: Body, fence: Fence, content_type: str = MERGE_PATCH) -> bytes:
        return await self._client.request(
            "PATCH", path, body, content_type=content_type, urgency=Urgency.STATUS, fence=fence
        )
