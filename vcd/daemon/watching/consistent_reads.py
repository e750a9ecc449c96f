"""Reads PodGroups and Queues at the API server where a decision is about pods that their watches may be behind.

Each kind has a watch of its own, and no order holds between two of them: the pods of a scaled-up gang can be in the
state before the raised ``minMember`` of their PodGroup. A watch has delivered all changes of its kind up to the
revision of its last line. A pod that is newer than that is bound only after its PodGroup, its Queue and the Queues
above have been read again. It preempts only after those of its victims have been read again, too.

Before changing this module: a read must begin after the pods are in the state, and it must be consistent (no
``resourceVersion`` in the query), or it proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import cast

import structlog

from vcd.daemon.watching.watches import Watches
from vcd.kube.api_errors import ApiError, KubeError, NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model import events as ev
from vcd.model import projection_codec
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import PodGroup, Queue
from vcd.scheduling.statement_verification import Reference, differing, evicted_under, placed_under
from vcd.state.snapshot import Snapshot

_log = structlog.get_logger(__name__)

POD = KINDS["Pod"]
PLACED_UNDER = (KINDS["PodGroup"], KINDS["Queue"])
"""The kinds of ``placed_under``."""

GET_AT_MOST = 64
"""Objects of a kind that one session reads one by one. Beyond that it lists the kind, which is one request."""

PATIENCE = 10.0
"""Seconds for which statements wait for a kind that cannot be read. Then sessions trust the kind's watch again."""

_NEWEST = math.inf
_PLACES = ("bind", "pipeline", "ungate")
"""Verbs of operations for waiting pods. Their statement follows from these pods, its evictions included."""

Found = dict[Reference, PodGroup | Queue | None]


@dataclasses.dataclass
class ReadObjects:
    """What was read for one session: objects (None: deleted), and why others could not be read."""

    objects: Found = dataclasses.field(default_factory=dict)
    unread: dict[Reference, str] = dataclasses.field(default_factory=dict)

    def doubts(self, head: Snapshot) -> dict[Reference, str]:
        """Return the objects that the head may not hold as the API server does, with the reason."""
        return {**self.unread, **differing(head, self.objects)} if self.objects or self.unread else {}


@dataclasses.dataclass(eq=False)
class ConsistentReads:
    """Decides which objects a plan depends on have to be read, and reads them.

    A revision is a ``resourceVersion`` as a number. Revisions of different kinds are compared only while the API server
    numbers these kinds by one counter, which is checked once (``--etcd-servers-overrides`` can give a kind another
    etcd). Where it does not, each session reads whatever its plan depends on.
    """

    client: KubeClient
    watches: Watches
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._pods: dict[str, float] = {}
        """The revisions of pods by key, in the order of observation."""
        self._is_one_counter: bool | None = None
        self._failing: dict[str, tuple[float, float]] = {}
        """When reads of a kind began to fail, and when the last one failed, until one succeeds or none is needed."""

    @property
    def trusts_watches(self) -> bool:
        """Whether a kind could not be read for so long that its watch is trusted instead."""
        return any(last - first >= PATIENCE for first, last in self._failing.values())

    def observe(self, event: ev.Event) -> None:
        """Note the revision of a pod. Call it with each event after it is in the state."""
        if isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) and event.kind == POD.name:
            self._pods.pop(event.key, None)
            if isinstance(event, ev.ObjectPut):
                self._pods[event.key] = _revision(event.resource_version, _NEWEST)

    async def read(self, plan: ev.Plan, snapshot: Snapshot) -> ReadObjects:
        """Read the objects that a plan depends on and whose watches may be behind its pods.

        A kind costs no request while its watch has caught up, and at most ``GET_AT_MOST`` requests otherwise. Returns
        within the client's ``request_timeout``, and at once while the watches of all kinds are trusted.
        """
        readings = ReadObjects()
        if not any(operation.verb in _PLACES for each in plan.statements for operation in each.operations):
            return readings
        kinds = [kind for kind in PLACED_UNDER if self._is_due(kind)]
        if not kinds:
            return readings
        try:
            async with asyncio.timeout(self.client.request_timeout):
                is_one_counter = await self._has_one_counter()
                needed = self._keys_to_read(plan, snapshot, is_one_counter=is_one_counter)
                await asyncio.gather(*(self._read_kind(kind, needed[kind.name], readings) for kind in kinds))
        except TimeoutError:
            needed = self._keys_to_read(plan, snapshot, is_one_counter=bool(self._is_one_counter))
            error = NoResponse(f"no answer within {self.client.request_timeout:g} s", sent=True)
            for kind in kinds:
                if missing := [key for key in needed[kind.name] if (kind.name, key) not in readings.objects]:
                    self._failed(kind, missing, error, readings)
        return readings

    def _keys_to_read(self, plan: ev.Plan, snapshot: Snapshot, *, is_one_counter: bool) -> dict[str, dict[str, None]]:
        """The keys to read by kind, in the plan's order; none for statements that only evict: no new pod caused it."""
        shown = self._delivered() if is_one_counter else dict.fromkeys([kind.name for kind in PLACED_UNDER], -1.0)
        needed: dict[str, dict[str, None]] = {kind: {} for kind in shown}
        protecting = evicted_under(snapshot, plan)
        for statement in plan.statements:
            pods = [operation.key for operation in statement.operations if operation.verb in _PLACES]
            if not pods:
                continue
            newest = max(self._pods.get(key, 0.0) for key in pods)
            if all(newest <= revision for revision in shown.values()):
                continue
            victims = [each for operation in statement.operations for each in protecting.get(operation.key, ())]
            for kind, key in (*placed_under(snapshot, statement.group), *victims):
                if newest > shown[kind]:
                    needed[kind][key] = None
        return needed

    def _delivered(self) -> dict[str, float]:
        """Return the revision up to which each kind's watch delivered all changes. Drop pods that are not newer."""
        statuses = self.watches.statuses()
        shown = {kind.name: _revision(statuses[kind.name].resource_version, -1.0) for kind in PLACED_UNDER}
        oldest = min(shown.values())
        while self._pods and next(iter(self._pods.values())) <= oldest:
            del self._pods[next(iter(self._pods))]
        return shown

    async def _has_one_counter(self) -> bool:
        """Whether the API server numbers pods and the kinds of ``placed_under`` by one counter: later reads then
        have higher revisions."""
        if self._is_one_counter is None:
            try:
                revisions = [await self._revision_now(kind) for kind in (POD, *PLACED_UNDER, POD)]
            except KubeError:
                return False
            self._is_one_counter = revisions == sorted(revisions) and revisions[0] >= 0
            if not self._is_one_counter:
                _log.warning("resource_versions_not_comparable", revisions=revisions)
        return self._is_one_counter

    async def _revision_now(self, kind: Kind) -> float:
        """The revision of a list that selects one name, which costs the server as much as reading one object."""
        one = dataclasses.replace(kind, namespace="default" if kind.namespaced else "", object="default")
        raw = await self.client.request("GET", f"{one.path}?fieldSelector={one.field_selector}")
        return _revision(projection_codec.identify(raw)[1], -1.0)

    async def _read_kind(self, kind: Kind, keys: Mapping[str, None], readings: ReadObjects) -> None:
        status = self.watches.statuses().get(kind.name)
        if not keys or status is None or status.missing:
            self._failing.pop(kind.name, None)
            return
        try:
            if len(keys) > GET_AT_MOST:
                found = await self._list(kind, keys)
            else:
                each = await asyncio.gather(*(self._get(kind, key) for key in keys))
                found = {(kind.name, key): obj for key, obj in zip(keys, each, strict=True)}
        except KubeError as error:
            self._failed(kind, keys, error, readings)
            return
        self._failing.pop(kind.name, None)
        readings.objects.update(found)

    async def _get(self, kind: Kind, key: str) -> PodGroup | Queue | None:
        try:
            raw = await self.client.request("GET", kind.object_path(key))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return _projected(kind, raw)

    async def _list(self, kind: Kind, keys: Mapping[str, None]) -> Found:
        found: Found = {(kind.name, key): None for key in keys}
        async with contextlib.aclosing(self.client.list_pages(kind.path)) as pages:  # type: ignore[type-var]
            async for page in pages:
                for raw in page.items:
                    if (key := projection_codec.identify(raw)[0]) in keys:
                        found[kind.name, key] = _projected(kind, raw)
        return found

    def _failed(self, kind: Kind, keys: Iterable[str], error: KubeError, readings: ReadObjects) -> None:
        """Hold statements back while a kind cannot be read, for ``PATIENCE`` seconds."""
        now = self.clock.monotonic()
        if kind.name not in self._failing:
            _log.warning("objects_not_read_again", kind=kind.name, error=str(error), trusts_the_watch_in=PATIENCE)
        first, _ = self._failing.get(kind.name, (now, now))
        self._failing[kind.name] = first, now
        if now - first < PATIENCE:
            readings.unread.update({(kind.name, key): f"{kind.name} {key} could not be read again" for key in keys})

    def _is_due(self, kind: Kind) -> bool:
        """Whether to read a kind if it is needed. A kind whose watch is trusted is tried once per ``PATIENCE``:
        otherwise each session waits for a server that does not answer."""
        first, last = self._failing.get(kind.name, (0.0, -math.inf))
        return last - first < PATIENCE or self.clock.monotonic() - last >= PATIENCE


def _revision(version: str, otherwise: float) -> float:
    return int(version) if version.isdecimal() else otherwise


def _projected(kind: Kind, raw: bytes) -> PodGroup | Queue | None:
    """The object as the state holds it; None for one that cannot be held, which counts as gone."""
    try:
        obj, _ = projection_codec.decode_json(kind, raw)
        return cast(PodGroup | Queue, projection_codec.decode_payload(kind.name, projection_codec.encode_payload(obj)))
    except projection_codec.BadObject:
        return None
