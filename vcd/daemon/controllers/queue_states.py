"""Writes the state of Queues and counts of their PodGroups, in place of Volcano's queue controller.

It runs with ``--controllers=queue``. ``status.allocated`` is not written here but by `reporting`. Before changing it:
users change the same objects, so a state is written only if the Queue is still as it was when it was computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, NoReturn, cast

import msgspec
import structlog

from vcd.daemon.controllers.write_retry import Retry
from vcd.kube.api_errors import ApiError, BadResponse, KubeError, LeadershipLost, ObsoleteWrite, decode
from vcd.kube.client import MERGE_PATCH, KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.write_limiter import Urgency
from vcd.model import events as ev
from vcd.model.controllers import CLOSE, CLOSED_BY_PARENT, OPEN, action_of_parent, counts_by_phase, state_after
from vcd.model.kinds import KINDS
from vcd.model.objects import ROOT_QUEUE, Queue
from vcd.model.projection_codec import BadObject, decode_json
from vcd.state.cluster_state import ClusterState

log = structlog.get_logger(__name__)

_QUEUE = KINDS["Queue"]
_LOOK = 1.0
"""Seconds between writes; several changes in between are written once."""


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Answer(msgspec.Struct):
    metadata: _Meta


_decoder = msgspec.json.Decoder(_Answer)


@dataclass(eq=False)
class QueueStates:
    """Writes changes of ``status.state`` and of the counts of each queue while this replica leads (``fence``).

    A user opens or closes a queue through ``status.state``. A closed queue closes its children, marks them with an
    annotation, and opens marked children again. ``answered`` returns the last resourceVersion of a queue that an answer
    to another write had.
    """

    client: KubeClient
    state: ClusterState
    fence: Callable[[], bool]
    answered: Callable[[str], str]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Begin a term: forget what the API server has, as another replica may have written."""
        self._written_counts: dict[str, tuple[str, dict[str, int]]] = {}
        """The written counts of each queue, with the queue's UID, because a recreated queue has none."""
        self._retries: dict[str, Retry] = {}
        """Queues that could not be written."""
        self._places: dict[str, tuple[str, str]] = {}
        """Queue and phase of each group."""
        self._counts: dict[str, Counter[str]] = {}
        """Number of PodGroups by phase, of each queue with any."""
        self._groups_seen = self._queues_seen = -1
        self._written_versions: dict[str, str] = {}
        """The resourceVersion of each queue after this controller's last write."""
        self._overwritten: set[str] = set()
        """Queues that another client changed since."""

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state. After a list or another client's write, written counts may be gone."""
        if isinstance(event, ev.KindListed) and event.kind == "Queue":
            self._written_counts.clear()
            self._queues_seen = -1
        elif isinstance(event, ev.ObjectPut) and event.kind == "Queue" and event.key in self._written_counts:
            own_versions = self._written_versions.get(event.key), self.answered(event.key)
            if event.resource_version not in own_versions:
                del self._written_counts[event.key]
                self._overwritten.add(event.key)

    async def run(self) -> NoReturn:
        """Write changes until cancelled."""
        while True:
            if not self.fence():
                self._begin()
            else:
                try:
                    for name in sorted(self._due()):
                        await self._attend(name)
                except LeadershipLost:
                    self._begin()  # queues without a write yet are written from new counts
            await self.clock.sleep(_LOOK)

    # --- what is due ------------------------------------------------------------------------------------------------

    def _due(self) -> set[str]:
        """Return the queues that changed since the last call, or whose groups or parents did, and due retries."""
        queues = self.state.queues
        for known in (self._written_counts, self._written_versions, self._retries):
            for name in known.keys() - queues.keys():
                del known[name]
        changed = set(self._retries)
        touched = self._changed_queues()
        changed |= touched | self._changed_groups() | self._overwritten
        self._overwritten.clear()
        changed |= {name for name, record in queues.items() if touched and record.queue.parent in touched}
        resting = {name for name, retry in self._retries.items() if retry.rests}
        return {name for name in changed - resting if name in queues}

    def _changed_queues(self) -> set[str]:
        changes = self.state.changed_queues
        found = None if self._queues_seen < 0 else changes.since(self._queues_seen)
        self._queues_seen = changes.count
        return set(self.state.queues if found is None else found)

    def _changed_groups(self) -> set[str]:
        """Count changed groups again. Return their queues."""
        changes, groups = self.state.changed_groups, self.state.groups
        found = None if self._groups_seen < 0 else changes.since(self._groups_seen)
        self._groups_seen = changes.count
        queues = set[str]()
        for key in found if found is not None else {*groups, *self._places}:
            record, before = groups.get(key), self._places.pop(key, None)
            now = None
            if record is not None:
                now = self._places[key] = (self.state.settings.queue_of(record.group), record.group.status.phase)
            if now != before:
                for place, change in ((before, -1), (now, 1)):
                    if place is not None:
                        self._count(*place, change)
                        queues.add(place[0])
        return queues

    def _count(self, queue: str, phase: str, change: int) -> None:
        counts = self._counts.setdefault(queue, Counter())
        counts[phase] += change
        if not counts.total():  # groups may name queues that do not exist
            del self._counts[queue]

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _attend(self, name: str) -> None:
        """Write a queue's changes. Raises LeadershipLost."""
        try:
            await self._write(name)
        except LeadershipLost:
            raise
        except KubeError as error:
            if isinstance(error, ObsoleteWrite) or (isinstance(error, ApiError) and error.status == 404):
                return  # changed or deleted since; the watch will deliver that
            retry = self._retries.setdefault(name, Retry(self.clock, _LOOK))
            if retry.is_new_failure(error):
                log.warning("queue status not written", queue=name, error=str(error))
        else:
            self._retries.pop(name, None)

    async def _write(self, name: str) -> None:
        record = self.state.queues.get(name)
        if record is None:
            return
        queue, counts = record.queue, self._counts.get(name, Counter())
        state, marks = queue.status.state, queue.metadata.annotations
        parent = self._parent_state(queue)
        action = "" if name == ROOT_QUEUE else action_of_parent(state, parent, marks)
        wanted = state_after(state, action, counts.total())
        version = await self._version_of(queue) if wanted != state else ""
        if action == CLOSE:  # written before the state and removed after it: the mark alone has no effect
            version = await self._mark(name, "true", version)
        counted = queue.metadata.uid, counts_by_phase(counts)
        changed: dict[str, Any] = {} if counted == self._written_counts.get(name) else dict(counted[1])
        if wanted != state:
            changed["state"] = wanted
        if changed:
            path = f"{_QUEUE.object_path(name)}/status"
            self._written_versions[name] = await self._patch(path, {"status": changed}, version)
            self._written_counts[name] = counted
        if wanted != state:
            log.info("queue state", queue=name, state=wanted, before=state)
        if wanted == OPEN == parent and marks.get(CLOSED_BY_PARENT) == "true":
            await self._mark(name, "false")

    async def _version_of(self, queue: Queue) -> str:
        """Read a queue's current resourceVersion. Raises ObsoleteWrite if the state has another queue state.

        The version in the state may be older than this controller's own last write.
        """
        path = _QUEUE.object_path(queue.key)
        try:
            found, version = decode_json(_QUEUE, await self.client.request("GET", path, fence=self.fence))
        except BadObject as error:
            raise BadResponse(str(error)) from error
        if _grounds(cast(Queue, found)) != _grounds(queue):
            raise ObsoleteWrite(f"{path}: it is another now")
        return version

    async def _mark(self, name: str, value: str, version: str = "") -> str:
        """Annotate whether a queue was closed by its parent, and opens with it. Return the new resourceVersion."""
        annotations = {CLOSED_BY_PARENT: value}
        return await self._patch(_QUEUE.object_path(name), {"metadata": {"annotations": annotations}}, version)

    def _parent_state(self, queue: Queue) -> str:
        parent = self.state.queues.get(queue.parent)
        return OPEN if parent is None else parent.queue.status.state or OPEN

    async def _patch(self, path: str, body: dict[str, Any], version: str = "") -> str:
        """Patch an object and return its new resourceVersion. ``version`` is a precondition."""
        if version:
            body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
        raw = await self.client.request(
            "PATCH",
            path,
            msgspec.json.encode(body),
            content_type=MERGE_PATCH,
            urgency=Urgency.STATUS,
            fence=self.fence,
        )
        return decode(_decoder, raw, path).metadata.resource_version


def _grounds(queue: Queue) -> tuple[str, ...]:
    """Return the fields of a queue that determine its next state."""
    meta = queue.metadata
    return meta.uid, queue.status.state, queue.parent, meta.annotations.get(CLOSED_BY_PARENT, "")
