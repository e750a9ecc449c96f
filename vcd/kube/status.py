"""Writing what a session found out into the objects: PodGroup status, Queue allocation, pod conditions.

Only the newest per object is written, nothing that is there already, and always after the binds that wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from vcd.kube.admission import Urgency
from vcd.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Body, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Backoff, Clock, Random
from vcd.kube.errors import ApiError, KubeError, Unanswered, decoded, is_final
from vcd.kube.recent import Recent
from vcd.kube.requestinfo import is_installation_fault
from vcd.kube.workqueue import WorkQueue, namespace_lane
from vcd.kube.writer import Fence, Writer
from vcd.model.events import GroupStatus, QueueUsage
from vcd.model.kinds import KINDS
from vcd.model.objects import Condition, PodGroupStatus, QueueStatus
from vcd.model.status import condition_of
from vcd.model.words import cut, rfc3339

log = structlog.get_logger(__name__)

_PODGROUP, _QUEUE, _POD = KINDS["PodGroup"], KINDS["Queue"], KINDS["Pod"]
_encode = msgspec.json.Encoder().encode
_CAPACITY = 200_000
"""Objects that may wait to be written, or that are remembered."""
_ANOTHER = "Precondition failed: UID"
"""What an API server says of a write to an object of another UID (apiserver/pkg/storage/interfaces.go)."""
_MESSAGE_LIMIT = 4096
"""Characters of a condition's message, which may name what anybody wrote into a pod."""
_AGAIN, _LONGEST_AGAIN = 10.0, 40.0
"""Seconds before conditions that were refused are written again; ever longer, at most."""


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
    """Whether a resource version, which counts up, is later than another."""
    return (len(version), version) > (len(than), than)


@dataclasses.dataclass(frozen=True)
class _GroupWork:
    wanted: GroupStatus
    transition: str
    uid: str = ""

    def after(self, before: _Work | None) -> _GroupWork:
        """This, with the condition that was to be written ``before`` where it says nothing of conditions."""
        if not isinstance(before, _GroupWork) or self.wanted.condition is not None or before.uid != self.uid:
            return self
        wanted = msgspec.structs.replace(self.wanted, condition=before.wanted.condition)
        return _GroupWork(wanted, before.transition, self.uid)

    def is_about(self, group: _Group) -> bool:
        """Whether it was decided about this group, not about one before it of that name."""
        return self.uid in ("", group.metadata.uid)


@dataclasses.dataclass(frozen=True)
class _PodWork:
    uid: str
    condition: Condition
    nominated: str = ""


_Work = _GroupWork | QueueUsage | _PodWork


class StatusWriter(Writer[tuple[str, str], _Work]):
    """Writes statuses and conditions in the background, as long as ``fence`` says that this replica leads.

    ``known_group`` gives a group's version, status and UID as the watch last told them, which saves reading it first;
    where that is old, the server refuses it by its version. ``waits`` tells of a pod, by its key, whether it may have
    no node yet: of others nothing is written. ``holds`` tells of a group, by its key, whether a type of condition is
    what was decided last: another one is not written. ``shown`` gives the status of a pod's condition, by key, UID and
    type, as the watch last told it. ``concurrency`` bounds the writes under way. Of what is too much to wait, the
    object's kind is told to ``dropped``. ``refused`` is called with kind, key and answer when the refusal of a
    write is a fault of the installation.
    """

    def __init__(
        self,
        client: KubeClient,
        fence: Fence,
        *,
        known_group: Callable[[str], tuple[str, PodGroupStatus, str] | None] = lambda _: None,
        waits: Callable[[str], bool] = lambda _: True,
        holds: Callable[[str, str], bool] = lambda key, type: True,
        shown: Callable[[str, str, str], str] = lambda key, uid, type: "",
        concurrency: int = 32,
        dropped: Callable[[str], None] = lambda _: None,
        refused: Callable[[str, str, str], None] = lambda kind, key, why: None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Random = SYSTEM_RANDOM,
    ) -> None:
        work: WorkQueue[tuple[str, str], _Work] = WorkQueue(
            _CAPACITY, ranks=2, dropped=lambda name: dropped(name[0]), lane_of=lambda name: namespace_lane(name[1])
        )
        super().__init__(client, fence, work, concurrency, clock, rand)
        self._known_group = known_group
        self._waits = waits
        self._holds = holds
        self._shown = shown
        self._refused = refused
        self._groups: Recent[str, _Group] = Recent(_CAPACITY)
        self._queues: Recent[str, _Queue] = Recent(_CAPACITY)
        self._conditions: Recent[str, _PodWork] = Recent(_CAPACITY)
        self._remembered: dict[str, Recent[str, Any]] = {
            "PodGroup": self._groups,
            "Queue": self._queues,
            "Pod": self._conditions,
        }
        self._doubted: Recent[str, bool] = Recent(_CAPACITY)
        """Groups whose last write failed: the watch may be behind what refused it, and they are read."""
        self._unwritten: dict[str, _PodWork] = {}
        """Conditions that the server did not take, by pod."""
        self._patience = Backoff(_AGAIN, _LONGEST_AGAIN, rand)
        self._again_at = 0.0
        """When they may be written again, on the monotonic clock."""

    def submit_groups(self, groups: Iterable[GroupStatus], transition: str = "", uid: str = "") -> None:
        """Write these PodGroup statuses; ``transition`` becomes the transitionID of conditions that change. Nothing is
        written to a group of another ``uid`` than was decided about."""
        for group in groups:
            name = ("PodGroup", group.key)
            self._work.put(name, _GroupWork(group, transition, uid).after(self._work.pending(name)))

    def submit_queues(self, queues: Iterable[QueueUsage]) -> None:
        """Write these queues' ``status.allocated``."""
        for queue in queues:
            self._work.put(("Queue", queue.name), queue)

    def submit_pod_condition(self, key: str, uid: str, condition: Condition, nominated: str = "") -> None:
        """Write one condition of a pod. Without a transition time, it is now, unless only the words changed.

        ``nominated`` is the node on which others make room for it; empty leaves what the pod shows.
        """
        condition = msgspec.structs.replace(condition, message=cut(condition.message, _MESSAGE_LIMIT))
        self._work.put(("Pod", key), _PodWork(uid, condition, nominated), rank=1)

    def write_again(self) -> None:
        """Write conditions that the server did not take, as when a webhook denies them for a while, but not as often as
        this is called."""
        if not self._unwritten:
            self._patience.reset()
        elif self._clock.monotonic() >= self._again_at:
            self._again_at = self._clock.monotonic() + self._patience.next()
            for key, work in list(self._unwritten.items()):
                if self._work.pending(("Pod", key)) is None:
                    self._work.put(("Pod", key), work, rank=1)

    def forget(self, kind: str, key: str) -> None:
        """An object was deleted: what was written to it says nothing about the next one of that name."""
        if kind in self._remembered:
            self._remembered[kind].drop(key)
        if kind == "Pod":
            self._unwritten.pop(key, None)
        elif kind == "PodGroup":
            self._doubted.drop(key)

    def saw(self, queue: str, version: str) -> None:
        """The watch told of a queue: what is remembered of an older version holds no more."""
        known = self._queues.get(queue)
        if known is not None and _is_later(version, known.metadata.resource_version):
            self._queues.drop(queue)

    def version_of(self, queue: str) -> str:
        """The version of a queue as it was answered last; empty where nothing is remembered of it."""
        known = self._queues.get(queue)
        return "" if known is None else known.metadata.resource_version

    def forget_all(self, kind: str) -> None:
        """All objects of a kind were listed: after a restore they may be as they were before they were written to."""
        if kind in self._remembered:
            self._remembered[kind].clear()

    def _lost_lease(self) -> None:
        self._work.clear()  # the new leader writes what it finds, so nothing remembered holds any more
        self._unwritten.clear()
        self._doubted.clear()
        for recent in self._remembered.values():
            recent.clear()

    def _may_pass(self, name: tuple[str, str], error: KubeError) -> bool:
        """What is remembered of the object is dropped in any case."""
        kind, key = name
        status = error.status if isinstance(error, ApiError) else 0
        self._remembered[kind].drop(key)
        if kind == "PodGroup":
            if status == 404:  # nothing is in doubt about one that is gone
                self._doubted.drop(key)
            else:
                self._doubted.set(key, True)
        crowded = status == 409 and _ANOTHER not in str(error)  # many write to it, and the server gave up
        if not is_final(error) or (crowded and kind != "Queue"):
            return True
        is_fault = isinstance(error, ApiError) and is_installation_fault(error)
        if is_fault or status not in (404, 409, 422):  # gone, or another one of that name
            log.warning("status_refused", kind=kind, key=key, error=str(error))
            if is_fault:
                self._refused(kind, key, str(error))
        elif kind == "Pod":
            self._unwritten.pop(key, None)
        return status == 409 and kind == "PodGroup"

    def _tell_lost(self, name: tuple[str, str], error: KubeError) -> None:
        self._client.log_failure(log, "status_not_written", error, kind=name[0], key=name[1])
        if isinstance(error, ApiError) and is_installation_fault(error):
            self._refused(*name, str(error))

    def _newest(self, name: tuple[str, str], work: _Work) -> _Work:
        pending = super()._newest(name, work)
        return pending.after(work) if isinstance(pending, _GroupWork) else pending

    async def _write(self, name: tuple[str, str], work: _Work, fence: Fence, *, again: bool) -> None:
        key = name[1]
        if isinstance(work, _GroupWork):
            await self._put_group(key, work, fence)
        elif isinstance(work, QueueUsage):
            await self._put_queue(key, work, fence)
        else:
            self._unwritten.pop(key, None)
            try:
                await self._put_condition(key, work, fence)
            except (ApiError, Unanswered):
                if fence():
                    self._unwritten[key] = work
                raise

    async def _put_group(self, key: str, work: _GroupWork, fence: Fence) -> None:
        """Merge into the newest copy. PodGroup has no status subresource, so its version guards the write."""
        path = _PODGROUP.object_path(key)
        group, known = self._groups.get(key), None if self._doubted.get(key) else self._known_group(key)
        if known is not None and (group is None or _is_later(known[0], group.metadata.resource_version)):
            group = _Group(_Meta(known[0], known[2]), known[1])
        if group is None or not work.is_about(group):
            group = decoded(_group_decoder, await self._client.request("GET", path, fence=fence), path)
            self._groups.set(key, group)
            self._doubted.drop(key)
        if not work.is_about(group) or not self._group_patch(group.status, work):
            return

        def newest() -> bytes | None:
            pending = self._work.pending(("PodGroup", key))
            latest = work
            if isinstance(pending, _GroupWork) and pending.is_about(group):
                latest = pending.after(work)
            status = self._group_patch(group.status, latest)
            meta = {"resourceVersion": group.metadata.resource_version}
            return _encode({"metadata": meta, "status": status}) if status else None

        self._groups.set(key, decoded(_group_decoder, await self._patch(path, newest, fence), path))

    def _group_patch(self, old: PodGroupStatus, work: _GroupWork) -> dict[str, Any]:
        """The fields of a group's status that differ from what is wanted."""
        wanted = work.wanted
        fields = ((name, getattr(wanted, name)) for name in ("phase", "running", "succeeded", "failed"))
        patch: dict[str, Any] = {name: value for name, value in fields if value != getattr(old, name)}
        if wanted.condition is None or not self._holds(wanted.key, wanted.condition[0]):
            return patch
        type_, status, reason, message = wanted.condition
        message = cut(message, _MESSAGE_LIMIT)
        last = condition_of(type_, old.conditions)
        if last is not None and (last.status, last.reason, last.message) == (status, reason, message):
            return patch
        since = last.last_transition_time if last is not None and last.status == status else None
        new = Condition(type_, status, reason, message, since or rfc3339(self._clock.wall()), work.transition)
        if last is None:  # one that its opposite followed is no more
            kept = [condition for condition in old.conditions if condition.type != type_]
            return {**patch, "conditions": [*kept, new]}
        return {**patch, "conditions": [new if condition is last else condition for condition in old.conditions]}

    async def _put_queue(self, key: str, usage: QueueUsage, fence: Fence) -> None:
        path = _QUEUE.object_path(key)
        old = self._queues.get(key)
        if old is None:
            old = decoded(_queue_decoder, await self._client.request("GET", path, fence=fence), path)
            self._queues.set(key, old)
        shown = old.status.allocated
        patch: dict[str, str | None] = {k: v for k, v in usage.allocated.items() if shown.get(k) != v}
        patch.update(dict.fromkeys(shown.keys() - usage.allocated.keys()))  # null removes a key
        if not patch:
            return
        raw = await self._patch(f"{path}/status", _encode({"status": {"allocated": patch}}), fence)
        if self._queues.get(key) is old:  # else it is another one by now
            self._queues.set(key, decoded(_queue_decoder, raw, path))

    async def _put_condition(self, key: str, work: _PodWork, fence: Fence) -> None:
        condition = work.condition
        # one entry a pod is enough: the scheduler writes PodScheduled alone
        last = self._conditions.get(key)
        if last is not None and (last.uid, last.condition.type) != (work.uid, condition.type):
            last = None
        if last is not None and (last.condition, last.nominated) == (condition, work.nominated):
            return
        body: dict[str, Any] = {"type": condition.type, "status": condition.status}
        body.update(reason=condition.reason, message=condition.message)
        before = self._shown(key, work.uid, condition.type) if last is None else last.condition.status
        if before != condition.status or condition.last_transition_time:
            body["lastTransitionTime"] = condition.last_transition_time or rfc3339(self._clock.wall())
        # the UID in a patch is a precondition: the server refuses another pod of that name
        status = {"conditions": [body], **({"nominatedNodeName": work.nominated} if work.nominated else {})}
        patch = _encode({"metadata": {"uid": work.uid}, "status": status})
        await self._patch(
            f"{_POD.object_path(key)}/status", lambda: patch if self._waits(key) else None, fence, STRATEGIC_PATCH
        )
        self._conditions.set(key, work)

    async def _patch(self, path: str, body: Body, fence: Fence, content_type: str = MERGE_PATCH) -> bytes:
        return await self._client.request(
            "PATCH", path, body, content_type=content_type, urgency=Urgency.STATUS, fence=fence
        )
