"""State of Queues and counts of their groups, in the place of Volcano's queue controller (``--controllers=queue``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NoReturn

import msgspec
import structlog

from vcd.kube.client import MERGE_PATCH, KubeClient, Urgency, pause_after
from vcd.kube.clock import SYSTEM_CLOCK, Backoff, Clock
from vcd.kube.errors import ApiError, Fenced, KubeError, decoded
from vcd.model import events as ev
from vcd.model.controllers import CLOSE, CLOSED_BY_PARENT, OPEN, action_of_parent, counts_by_phase, state_after
from vcd.model.kinds import KINDS
from vcd.model.objects import Queue
from vcd.state.cluster import ClusterState

log = structlog.get_logger(__name__)

ROOT = "root"
_QUEUE = KINDS["Queue"]
_LOOK = 1.0
"""Seconds between looks: what changes more often is written once."""
_LONGEST_PAUSE = 60.0
"""Seconds between two attempts at most: a right that is missing may be granted while the program runs."""


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Answer(msgspec.Struct):
    metadata: _Meta


_decoder = msgspec.json.Decoder(_Answer)


@dataclass
class _Rest:
    """A queue that could not be written: when it is due again, and what was told last."""

    pauses: Backoff = field(default_factory=lambda: Backoff(_LOOK, _LONGEST_PAUSE))
    due: float = 0.0
    told: str = ""


@dataclass(eq=False)
class QueueStates:
    """Writes ``status.state`` and the counts of each queue where they change, while this replica leads (``fence``).

    All follows from the state. Who opens or closes a queue writes its ``status.state``; a closed queue closes its
    children, which is noted in their annotation, and opens them again. ``status.allocated`` is written elsewhere;
    ``answered`` gives the version of a queue as that was answered last.
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
        """Know nothing of what the server shows: a term begins."""
        self._shown: dict[str, tuple[str, dict[str, int]]] = {}
        """The counts that queues show, with their UIDs: one that comes again under its name shows none."""
        self._resting: dict[str, _Rest] = {}
        self._places: dict[str, tuple[str, str]] = {}
        """Queue and phase of each group."""
        self._counts: dict[str, Counter[str]] = {}
        self._groups_seen = self._queues_seen = -1
        self._written: dict[str, str] = {}
        """The versions of queues as they were answered to our last writes."""
        self._overwritten: set[str] = set()
        """Queues that somebody else wrote to since."""

    def observe(self, event: ev.Event) -> None:
        """An event was folded: what was written may show no more, as after a restore."""
        if isinstance(event, ev.KindListed) and event.kind == "Queue":
            self._shown.clear()
            self._queues_seen = -1
        elif isinstance(event, ev.ObjectPut) and event.kind == "Queue" and event.key in self._shown:
            ours = self._written.get(event.key), self.answered(event.key)
            if event.resource_version not in ours:
                del self._shown[event.key]
                self._overwritten.add(event.key)

    async def run(self) -> NoReturn:
        """Look and write until cancelled."""
        while True:
            if not self.fence():
                self._begin()
            else:
                for name in sorted(self._due()):
                    await self._attend(name)
            await self.clock.sleep(_LOOK)

    # --- what is due ------------------------------------------------------------------------------------------------

    def _due(self) -> set[str]:
        """The queues that changed since the last look, or whose groups or parents did, and those that rested."""
        now, queues = self.clock.monotonic(), self.state.queues
        changed = {name for name, rest in self._resting.items() if rest.due <= now}
        touched = self._changed_queues()
        changed |= touched | self._changed_groups() | self._overwritten
        self._overwritten.clear()
        changed |= {name for name, record in queues.items() if touched and _parent(record.queue) in touched}
        for known in (self._shown, self._written):
            for name in known.keys() - queues.keys():
                del known[name]
        return {name for name in changed if name in queues and self._rests_until(name) <= now}

    def _rests_until(self, name: str) -> float:
        rest = self._resting.get(name)
        return 0.0 if rest is None else rest.due

    def _changed_queues(self) -> set[str]:
        changes = self.state.changed_queues
        found = None if self._queues_seen < 0 else changes.since(self._queues_seen)
        self._queues_seen = changes.count
        return set(self.state.queues if found is None else found)

    def _changed_groups(self) -> set[str]:
        """Count groups anew that changed; the queues that this concerns."""
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
                        self._counts.setdefault(place[0], Counter())[place[1]] += change
                        queues.add(place[0])
        return queues

    # --- writing it -------------------------------------------------------------------------------------------------

    async def _attend(self, name: str) -> None:
        try:
            await self._write(name)
        except Fenced:
            self._begin()
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return  # it was deleted meanwhile, as the watch will show
            rest = self._resting.setdefault(name, _Rest())
            rest.due = self.clock.monotonic() + pause_after(error, rest.pauses)
            if str(error) != rest.told:
                rest.told = str(error)
                log.warning("queue status not written", queue=name, error=rest.told)
        else:
            self._resting.pop(name, None)

    async def _write(self, name: str) -> None:
        record = self.state.queues.get(name)
        if record is None:
            return
        queue, counts = record.queue, self._counts.get(name, Counter())
        state, marks = queue.status.state, queue.metadata.annotations
        parent = self._parent_state(queue)
        action = "" if name == ROOT else action_of_parent(state, parent, marks)
        if action == CLOSE:  # the mark comes before the state, and goes after it: with it alone nothing is lost
            await self._mark(name, "true")
        wanted = state_after(state, action, counts.total())
        told = queue.metadata.uid, counts_by_phase(counts)
        changed: dict[str, Any] = {} if told == self._shown.get(name) else dict(told[1])
        if wanted != state:
            changed["state"] = wanted
        if changed:
            path = f"{_QUEUE.object_path(name)}/status"
            raw = await self._patch(path, {"status": changed})
            self._shown[name], self._written[name] = told, decoded(_decoder, raw, path).metadata.resource_version
        if wanted != state:
            log.info("queue state", queue=name, state=wanted, before=state)
        if wanted == OPEN == parent and marks.get(CLOSED_BY_PARENT) == "true":
            await self._mark(name, "false")

    async def _mark(self, name: str, value: str) -> None:
        """Say whether a queue's parent closed it, so that it opens with it."""
        await self._patch(_QUEUE.object_path(name), {"metadata": {"annotations": {CLOSED_BY_PARENT: value}}})

    def _parent_state(self, queue: Queue) -> str:
        parent = self.state.queues.get(_parent(queue))
        return OPEN if parent is None else parent.queue.status.state or OPEN

    async def _patch(self, path: str, body: dict[str, Any]) -> bytes:
        raw = msgspec.json.encode(body)
        return await self.client.request(
            "PATCH", path, raw, content_type=MERGE_PATCH, urgency=Urgency.STATUS, fence=self.fence
        )


def _parent(queue: Queue) -> str:
    return queue.spec.parent or ROOT
