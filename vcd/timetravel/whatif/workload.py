"""What a log's users asked for and how long it ran, freed from what the scheduler of then made of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import msgspec

from vcd.eventlog import Logged, LogReader
from vcd.model import events as ev
from vcd.model.codec import encode_payload
from vcd.model.objects import Object, Pod, PodGroup, PodGroupStatus, PodStatus, Queue, QueueStatus, altered
from vcd.model.quantity import QuantityError
from vcd.model.requests import pod_requests
from vcd.model.status import Phase, phase_of
from vcd.state.cluster import ClusterState
from vcd.state.records import Evicted, Settings, seconds_of, task_role
from vcd.timetravel.history import History, shown

SECOND = 1_000_000_000
EVICTED = "evicted"
_ENDED = ("Succeeded", "Failed")


class Unit(msgspec.Struct):
    """A piece of work: a pod, with all that took its place after it was evicted or deleted.

    Times are ns since the epoch. ``pod`` is the pod as it was asked for, without a node. ``delay`` is how long after
    its group's admission it was made, None where it came by itself, at ``arrived``. ``node`` is where it was when the
    log first saw it, ``place`` where it was last. ``bound`` is its last bind; ``ending`` how it ended: succeeded,
    failed, deleted, or evicted and never back ("": it has not). ``requests`` are its amounts by resource, ``earlier``
    what came to nothing: from when to when it was on which node.
    """

    key: str
    uid: str
    group: str
    pod: Pod
    requests: dict[str, int]
    arrived: int
    delay: int | None = None
    node: str = ""
    place: str = ""
    bound: int | None = None
    ended: int | None = None
    ending: str = ""
    earlier: list[tuple[int, int, str]] = msgspec.field(default_factory=list)

    @property
    def run(self) -> int | None:
        """How long it held its node, from bind to end; None where that is not known, or it was cut short."""
        if self.bound is None or self.ended is None or self.ending == EVICTED:
            return None
        return self.ended - self.bound

    def seen_running(self, end: int) -> int:
        """How long it held its node at least, in a log that ends at ``end``."""
        return 0 if self.bound is None else (end if self.ended is None else self.ended) - self.bound


class GroupLife(msgspec.Struct):
    """A PodGroup as it was asked for, without status; when it came, and was admitted (None: never). ``waited``: it was
    not admitted yet when it came."""

    key: str
    group: PodGroup
    arrived: int
    waited: bool
    admitted: int | None = None


class Workload(msgspec.Struct):
    """What happened to a cluster from outside: ``base`` is there at ``begin``, ``changes`` come at their times, and so
    do ``groups`` and ``units``. ``end`` is the time of the last event."""

    begin: int
    end: int
    policy: str | None
    settings: Settings
    base: list[ev.Event] = msgspec.field(default_factory=list)
    changes: list[tuple[int, ev.Event]] = msgspec.field(default_factory=list)
    groups: dict[str, GroupLife] = msgspec.field(default_factory=dict)
    units: list[Unit] = msgspec.field(default_factory=list)
    leaving: list[int] = msgspec.field(default_factory=list)
    """How long evicted pods took to go (ns)."""
    evictions: Counter[str] = msgspec.field(default_factory=Counter)
    """How many were decided, by action."""
    spared: dict[str, Evicted] = msgspec.field(default_factory=dict)
    """What groups had lost to others when it begins: what took its place is not evicted again."""

    def queue_of(self, group: str) -> str:
        """The queue of a group; empty for a pod without one."""
        life = self.groups.get(group)
        return "" if life is None else self.settings.queue_of(life.group)

    def starts(self) -> dict[str, int]:
        """When groups first had their minimum of pods on nodes (ns), of those that had it."""
        bound: dict[str, list[int]] = {}
        for unit in self.units:
            first = unit.earlier[0][0] if unit.earlier else unit.bound
            if first is not None:
                bound.setdefault(unit.group, []).append(first)
        minima = {key: max(1, life.group.spec.min_member) for key, life in self.groups.items()}
        known = ((key, sorted(times), minima.get(key, 1)) for key, times in bound.items())
        return {key: times[minimum - 1] for key, times, minimum in known if len(times) >= minimum}


def workload_of(reader: LogReader, until: int | None = None, after: int | None = None) -> Workload:
    """What a log holds, from its oldest state, or the state after an event, to its end or an event. Raises LogError."""
    history, first = History(reader), reader.oldest() if after is None else after
    begin = next((logged.time for logged in reader.read(first, first + 1)), reader.last_time())
    listener = _Listener(begin, history.oldest() if after is None else history.state(after, jump=True))
    history.tell(listener, first, until)
    work = listener.done()
    if after is not None:
        for unit in work.units:
            if unit.node and unit.bound == begin:
                unit.bound = _bind_before(reader, unit.key, begin)
    return work


def _bind_before(reader: LogReader, pod: str, time: int) -> int:
    """When a pod was last bound before a time at which it is on its node; that time where the log does not say."""
    binds = [one.time for one in reader.operations_of(pod) if one.verb == "bind" and one.time <= time]
    return max(binds, default=time)


class _Listener:
    """Folds events into lives."""

    def __init__(self, begin: int, state: ClusterState) -> None:
        policy = state.policy
        self._work = Workload(begin, begin, None if policy is None else policy.text, state.settings.as_done())
        self._shadow = state.settings.shadow
        self._time = begin
        self._alive: dict[str, Unit] = {}
        self._uids: dict[str, str] = {}
        self._evicted: dict[str, int] = {}
        self._vacant: dict[str, deque[Unit]] = {}
        self._began = False
        self._shown: dict[tuple[str, str], bytes | None] = {}
        for kind, key, obj in fixed_objects(state):
            self._change(ev.ObjectPut(kind, key, "", encode_payload(obj)))
        self._began = bool(state.sequence)
        self.catch_up(state, begin)

    def catch_up(self, state: ClusterState, time: int) -> None:
        """Learn the groups and pods that a state holds."""
        self._time = max(self._time, time)
        for key, record in sorted(state.groups.items()):
            self._see_group(key, record.group)
        for key in sorted(state.tasks.row_of):
            pod = state.pod(key)
            if pod is not None:
                self._see_pod(key, pod)
        for key in sorted(self._alive.keys() - state.tasks.row_of.keys()):
            self._pod_gone(key)

    def see(self, logged: Logged) -> None:
        """One event."""
        event = logged.event
        self._time = max(self._time, logged.time)
        match event:
            case ev.ObjectPut(kind="Pod" | "PodGroup"):
                obj = shown(event)
                if isinstance(obj, PodGroup):
                    self._see_group(event.key, obj)
                elif isinstance(obj, Pod):
                    self._see_pod(event.key, obj)
            case ev.ObjectPut(payload=bytes()):
                self._change(event)
            case ev.ObjectGone(kind="Pod"):
                self._pod_gone(event.key)
            case ev.ObjectGone(kind="PodGroup"):
                pass  # a group goes when its work is done
            case ev.ObjectGone() | ev.Answered():
                self._change(event)
            case ev.PolicyLoaded():
                if self._work.policy is None:
                    self._work.policy = event.text
                settings = Settings.from_text(event.settings)
                self._work.settings, self._shadow = settings.as_done(), settings.shadow
            case ev.SessionDecided() if not self._shadow:  # nothing of what a shadow decides is done
                self._session(event)
        self._began = self._began or isinstance(event, ev.SessionDecided)

    def done(self) -> Workload:
        """All lives, in the order in which they came."""
        work = self._work
        work.end = self._time
        work.units.sort(key=lambda unit: (unit.arrived, unit.key))
        return work

    def _change(self, event: ev.Event) -> None:
        """Something that is the same whatever is scheduled; what was there before the first session is the base."""
        if isinstance(event, ev.ObjectPut):
            event = _as_given(event)
            known = event.kind, event.key
            if self._shown.get(known) == event.payload:
                return
            self._shown[known] = event.payload
        elif isinstance(event, ev.ObjectGone):
            self._shown.pop((event.kind, event.key), None)
        if self._began:
            self._work.changes.append((self._time, event))
        else:
            self._work.base.append(event)

    def _session(self, record: ev.SessionDecided) -> None:
        plan = record.accepted()
        for status in plan.groups:
            self._admit(status.key, status.phase)
        for statement in plan.statements:
            for operation in statement.operations:
                if operation.verb == "evict":
                    self._evicted[operation.uid] = self._time
                    self._work.evictions[statement.action] += 1

    # --- groups -------------------------------------------------------------------------------------------------------

    def _see_group(self, key: str, group: PodGroup) -> None:
        life = self._work.groups.get(key)
        if life is None or life.group.metadata.uid != group.metadata.uid:
            waits = phase_of(group.status.phase) is Phase.PENDING
            # what was admitted before the log began is not asked to be admitted again
            bare = altered(group, status=PodGroupStatus(phase="" if waits else "Inqueue"))
            self._work.groups[key] = GroupLife(key, bare, self._time, waits)
        self._admit(key, group.status.phase)

    def _admit(self, key: str, phase: str) -> None:
        life = self._work.groups.get(key)
        if life is not None and life.admitted is None and phase_of(phase) is not Phase.PENDING:
            life.admitted = self._time

    # --- pods -----------------------------------------------------------------------------------------------------

    def _see_pod(self, key: str, pod: Pod) -> None:
        uid = pod.metadata.uid
        if key in self._alive and self._uids[key] != uid:
            self._pod_gone(key)
        unit = self._alive.get(key)
        if unit is None:
            try:
                requests = pod_requests(pod.spec)
            except QuantityError:
                return  # set aside by the state, too: it was never placed
            unit = self._alive[key] = self._new(key, pod, requests)
            self._uids[key] = uid
        if pod.spec.node_name and unit.bound is None:
            unit.bound, unit.place = self._time, pod.spec.node_name
        if pod.status.phase in _ENDED and unit.ended is None:
            unit.ended, unit.ending = self._time, pod.status.phase.lower()

    def _new(self, key: str, pod: Pod, requests: dict[str, int]) -> Unit:
        """The unit of a pod that is new: of one that it takes the place of, or its own."""
        group = pod.group_key
        vacant = self._vacant.get(group) if group else None
        if vacant:
            unit = next((one for one in vacant if one.key == key), None) or next(
                (one for one in vacant if task_role(one.pod) == task_role(pod)), None
            )
            if unit is not None:
                vacant.remove(unit)
                if unit.bound is not None and unit.ended is not None:
                    unit.earlier.append((unit.bound, unit.ended, unit.place))
                unit.bound, unit.ended, unit.ending = None, None, ""
                return unit
        unit = Unit(key, pod.metadata.uid, group, bare_pod(pod), requests, self._time)
        if pod.spec.node_name:
            unit.node = unit.place = pod.spec.node_name
            unit.bound = min(self._time, started(pod) or self._time)
        life = self._work.groups.get(group)
        if life is not None and life.waited and life.admitted is not None and not unit.node:
            unit.delay = self._time - life.admitted
        self._work.units.append(unit)
        return unit

    def _pod_gone(self, key: str) -> None:
        unit = self._alive.pop(key, None)
        if unit is None:
            return
        uid = self._uids.pop(key)
        asked = self._evicted.pop(uid, None)
        if asked is not None:
            self._work.leaving.append(self._time - asked)
        if unit.ended is None:
            unit.ended, unit.ending = self._time, "deleted" if asked is None else EVICTED
        if unit.group and unit.ending != "succeeded":
            self._vacant.setdefault(unit.group, deque()).append(unit)


def _as_given(event: ev.ObjectPut) -> ev.ObjectPut:
    """An object without what the scheduler and the controllers write into it: of a queue's status, the state stays."""
    queue = shown(event) if event.kind == "Queue" else None
    if not isinstance(queue, Queue):
        return event
    bare = altered(queue, status=QueueStatus(state=queue.status.state))
    return ev.ObjectPut("Queue", event.key, "", encode_payload(bare))


def bare_pod(pod: Pod) -> Pod:
    """A pod as it was asked for: with no node and no status."""
    return altered(pod, metadata={"deletion_timestamp": None}, spec={"node_name": ""}, status=PodStatus())


def started(pod: Pod) -> int | None:
    """When a pod says that it began, in ns; None where it says nothing that can be read."""
    try:
        return seconds_of(pod.status.start_time) * SECOND if pod.status.start_time else None
    except ValueError:
        return None


def fixed_objects(state: ClusterState) -> Iterable[tuple[str, str, Object]]:
    """What a state holds beside groups and pods."""
    yield from (("Node", key, record.node) for key, record in sorted(state.nodes.items()))
    yield from (("Queue", key, record.queue) for key, record in sorted(state.queues.items()))
    for kind, objects in sorted(state.others.items()):
        yield from ((kind, key, obj) for key, obj in sorted(objects.items()))
