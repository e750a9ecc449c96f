"""Reads a workload from a log: what groups and pods did, without the scheduler's decisions.

A unit is one place in a workload, held by one pod after the other. It begins with a pod, is bound, and ends. If a
controller replaces the pod (after an eviction or a failure), `_place_of_another` continues the unit with the new pod;
otherwise a replacement would count as additional work. Simulating the workload is the job of `simulated_cluster.py`.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from vcd.eventlog import Logged, LogReader
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod, PodGroup, PodGroupStatus, Queue, QueueStatus, altered
from vcd.model.projection_codec import encode_payload
from vcd.model.quantity import QuantityError
from vcd.model.resource_requests import pod_requests
from vcd.model.status import Phase, phase_of
from vcd.model.wording import SECOND
from vcd.state.cluster_state import ClusterState
from vcd.state.records import QUEUE_ADMISSION_GATE, Settings, task_role
from vcd.timetravel.history import History, object_in
from vcd.timetravel.whatif.logged_workload import (
    EVICTED,
    GroupLife,
    Unit,
    Workload,
    bare_pod,
    fixed_objects,
    name_in_log,
    named_again,
    started,
)

PROMPT = 60 * SECOND
"""A pod created within this time after another one's deletion replaces it; a later one is new work."""
_LATE = 10
"""Multiple of that time within which a pod may state its group."""
_ENDED = ("Succeeded", "Failed")


def workload_of(reader: LogReader, until: int | None = None, after: int | None = None) -> Workload:
    """Return the workload of a log, from its oldest state, or the state after an event, to its end or an event. Raises
    LogError."""
    history, first = History(reader), reader.oldest() if after is None else after
    begin = next((logged.time for logged in reader.read(first, first + 1)), reader.last_time())
    listener = _WorkloadFold(begin, history.oldest() if after is None else history.state(after, jump=True))
    history.feed(listener, first, until)
    work = listener.done()
    if after is not None:
        for unit in work.units:
            if unit.node and not unit.seen_whole and (bound := _bind_before(reader, unit.key, begin)) is not None:
                unit.bound, unit.seen_whole = bound, unit.ended != unit.arrived
    return work


def _bind_before(reader: LogReader, pod: str, time: int) -> int | None:
    """Return when a pod was last bound before a time at which it is on its node; None if that is not logged."""
    binds = [one.time for one in reader.operations_of(pod) if one.verb == "bind" and one.time <= time]
    return max(binds, default=None)


class _WorkloadFold:
    """Folds events into a workload."""

    def __init__(self, begin: int, state: ClusterState) -> None:
        policy = state.policy
        self._work = Workload(begin, begin, None if policy is None else policy.text, state.settings.as_done())
        self._shadow = state.settings.shadow
        self._time = begin
        self._units: dict[str, Unit] = {}
        self._names = Names()
        self._alive: dict[str, Unit] = {}
        """Existing units, by their key in the log."""
        self._uids: dict[str, str] = {}
        self._terminating: set[str] = set()
        """The keys of existing units whose pod has a deletion timestamp."""
        self._evicted: dict[str, int] = {}
        self._vacant: dict[str, deque[tuple[int, Unit]]] = {}
        """Units whose pod is gone and may be replaced, and since when, by group."""
        self._began = False
        self._payloads: dict[tuple[str, str], bytes | None] = {}
        for kind, key, obj in fixed_objects(state):
            self._change(ev.ObjectPut(kind, key, "", encode_payload(obj)))
        self._began = bool(state.sequence)
        self.catch_up(state, begin)

    def catch_up(self, state: ClusterState, time: int) -> None:
        """Take over the groups and pods of a state."""
        self._time = max(self._time, time)
        for key, record in sorted(state.groups.items()):
            self._see_group(key, record.group)
        for key in sorted(state.tasks.row_of):
            pod = state.pod(key)
            if pod is not None:
                self._see_pod(key, pod)

    def see(self, logged: Logged) -> None:
        """Handle one event."""
        event = logged.event
        self._time = max(self._time, logged.time)
        match event:
            case ev.ObjectPut(kind="Pod" | "PodGroup"):
                obj = object_in(event)
                if isinstance(obj, PodGroup):
                    self._see_group(event.key, obj)
                elif isinstance(obj, Pod):
                    self._see_pod(event.key, obj)
            case ev.ObjectPut(payload=bytes()):
                self._change(event)
            case ev.ObjectGone(kind="Pod"):
                self._delete_pod(event.key)
            case ev.ObjectGone(kind="PodGroup"):
                self._delete_group(event.key)
            case ev.ObjectGone() | ev.Answered():
                self._change(event)
            case ev.PolicyLoaded():
                self._policy(event)
            case ev.SessionDecided() if not self._shadow:  # a shadow's decisions are not carried out
                self._session(event)
        self._began = self._began or isinstance(event, ev.SessionDecided)

    def done(self) -> Workload:
        """Return the workload, with its units in order of arrival."""
        work = self._work
        work.end = self._time
        work.units = sorted(self._units.values(), key=lambda unit: (unit.arrived, unit.key))
        return work

    def _change(self, event: ev.Event) -> None:
        """Note a change that does not depend on scheduling; changes before the first session form the base."""
        if isinstance(event, ev.ObjectPut):
            event = _without_status(event)
            known = event.kind, event.key
            if self._payloads.get(known) == event.payload:
                return
            self._payloads[known] = event.payload
        elif isinstance(event, ev.ObjectGone):
            self._payloads.pop((event.kind, event.key), None)
        if self._began:
            self._work.changes.append((self._time, event))
        else:
            self._work.base.append(event)

    def _policy(self, event: ev.PolicyLoaded) -> None:
        settings = Settings.from_text(event.settings)
        self._work.settings, self._shadow = settings.as_done(), settings.shadow
        if self._work.policy is None:
            self._work.policy = event.text
        else:
            done = msgspec.structs.replace(event, settings=self._work.settings.as_text()) if self._shadow else event
            self._work.policies.append((self._time, done))

    def _session(self, record: ev.SessionDecided) -> None:
        plan = record.accepted()
        self._work.sessions.append(self._time)
        for status in plan.groups:
            self._admit(self._names.of(status.key), status.phase)
        for statement in plan.statements:
            for operation in statement.operations:
                if operation.verb == "evict":
                    self._evicted[operation.uid] = self._time
                    self._work.evictions[statement.action] += 1

    # --- groups -------------------------------------------------------------------------------------------------------

    def _see_group(self, key: str, group: PodGroup) -> None:
        name = self._current_name(key)
        life = self._work.groups.get(name)
        if life is not None and life.group.metadata.uid != group.metadata.uid and not self._has_live_pods(name):
            name, life = self._names.again(key), None
        self._names.gone.discard(name)
        waits = phase_of(group.status.phase) is Phase.PENDING
        # groups that were admitted before the log began do not wait for admission again
        bare = _group_named(altered(group, status=PodGroupStatus(phase="" if waits else "Inqueue")), name)
        if life is None:
            self._work.groups[name] = GroupLife(name, bare, self._time, waits)
        else:
            self._changed(life, bare)
        self._admit(name, group.status.phase)

    def _changed(self, life: GroupLife, group: PodGroup) -> None:
        """Note that a group's spec changed, or that it was created again for its existing pods."""
        last = life.versions[-1][1] if life.versions else life.group
        group = altered(group, status=last.status)
        if group == last:
            return
        life.versions = [*(life.versions or [(0, last)]), (self._time - life.arrived, group)]
        if life.key not in self._names.started:
            life.group = group

    def _delete_group(self, key: str) -> None:
        name = self._names.of(key)
        life = self._work.groups.get(name)
        if life is None or name in self._names.gone:
            return
        self._names.gone.add(name)
        if name not in self._names.peopled:
            life.withdrawn = self._time

    def _current_name(self, key: str) -> str:
        """Return the name of the group under a key, which may be observed later; a new one after the former group and
        all its pods are gone."""
        name = self._names.of(key)
        if name in self._names.gone and not self._has_live_pods(name):
            name = self._names.again(key)
        return name

    def _has_live_pods(self, name: str) -> bool:
        """Return whether a group has pods that have neither ended nor are being deleted."""
        mine = ((key, unit) for key, unit in self._alive.items() if unit.group == name)
        return any(unit.ended is None and key not in self._terminating for key, unit in mine)

    def _admit(self, name: str, phase: str) -> None:
        life = self._work.groups.get(name)
        if life is not None and life.admitted is None and phase_of(phase) is not Phase.PENDING:
            life.admitted = self._time

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _see_pod(self, key: str, pod: Pod) -> None:
        uid = pod.metadata.uid
        if key in self._alive and self._uids[key] != uid:
            self._delete_pod(key)
        unit = self._alive.get(key)
        if unit is None and not pod.spec.node_name and not self._is_scheduled_here(pod):
            return  # another scheduler places it: it uses resources once it has a node
        try:
            unit = self._new(key, pod) if unit is None else self._update_unit(unit, pod)
        except QuantityError:
            return  # the state sets it aside, too: it was never placed
        self._alive[key], self._uids[key] = unit, uid
        if pod.metadata.deletion_timestamp is not None:
            self._terminating.add(key)
        if pod.spec.node_name and unit.bound is None:
            unit.bound, unit.place = self._time, pod.spec.node_name
        if unit.bound is not None:
            self._names.started.add(unit.group)
        if pod.status.phase in _ENDED and unit.ended is None:
            unit.ended, unit.ending = self._time, pod.status.phase.lower()

    def _is_scheduled_here(self, pod: Pod) -> bool:
        names = self._work.settings.scheduler_names
        return not names or pod.spec.scheduler_name in names

    def _new(self, key: str, pod: Pod) -> Unit:
        """Return the unit of a new pod: one whose pod it replaces, or a new one."""
        group = self._current_name(pod.group_key) if pod.group_key else ""
        requests = pod_requests(pod.spec)
        unit = self._place_of_another(key, pod, group, self._time)
        if unit is not None:
            return unit
        name = self._names.of_pod(key)
        bare = _pod_named(bare_pod(pod), name, group)
        unit = self._units[name] = Unit(name, pod.metadata.uid, group, bare, requests, self._time)
        if pod.spec.node_name:
            unit.node = unit.place = pod.spec.node_name
            began = started(pod)
            unit.bound = self._time if began is None else min(self._time, began)
            # a pod with a node that has not started there was bound just now
            unit.seen_whole = pod.status.phase not in _ENDED and (began is not None or pod.status.phase != "Running")
        self._note_group(unit)
        return unit

    def _note_group(self, unit: Unit) -> None:
        """Note a unit's group, and whether a controller created the pod because the group was admitted."""
        life = self._work.groups.get(unit.group)
        admitted = None if life is None else life.admitted
        if unit.group and (admitted is None or unit.arrived < admitted):
            self._names.early.add(unit.group)
        if life is None or admitted is None or not life.waited or unit.node or unit.group in self._names.early:
            unit.delay = None
        else:
            unit.delay = unit.arrived - admitted
        self._names.peopled.add(unit.group)

    def _update_unit(self, unit: Unit, pod: Pod) -> Unit:
        """Update the unit of a pod that changed while it waited, or find the unit that it replaces if it states its
        group only now. Changes after the bind are ignored: nothing was decided on them."""
        if unit.bound is not None or unit.ended is not None or unit.earlier:
            return unit
        requests = pod_requests(pod.spec)
        group = self._current_name(pod.group_key) if pod.group_key else ""
        if group and group != unit.group:
            other = self._place_of_another(name_in_log(unit.key), pod, group, unit.arrived)
            if other is not None:
                del self._units[unit.key]
                return other
            unit.group = group
            self._note_group(unit)
        # removing a gate that only the scheduler removes is its decision
        gates = tuple(one for one in unit.pod.spec.scheduling_gates if one.name == QUEUE_ADMISSION_GATE)
        gates += tuple(one for one in pod.spec.scheduling_gates if one not in gates)
        bare = _pod_named(altered(bare_pod(pod), spec={"scheduling_gates": gates}), unit.key, group)
        if bare != unit.pod:
            unit.versions = [*(unit.versions or [(0, unit.pod)]), (self._time - unit.arrived, bare)]
            unit.pod, unit.requests = bare, requests
        return unit

    def _place_of_another(self, key: str, pod: Pod, group: str, came: int) -> Unit | None:
        """Return the unit that a pod continues, or None. ``came`` is the time (ns) at which the pod arrived."""
        vacant = self._vacant.get(group) if group else None
        while vacant and vacant[0][1].ending != EVICTED and self._time - vacant[0][0] > _LATE * PROMPT:
            vacant.popleft()
        free = [unit for since, unit in vacant or () if unit.ending == EVICTED or came - since <= PROMPT]
        unit = next((one for one in free if name_in_log(one.key) == key), None) or next(
            (one for one in free if task_role(one.pod) == task_role(pod)), None
        )
        if unit is None or vacant is None:
            return None
        vacant.remove(next(one for one in vacant if one[1] is unit))
        if unit.bound is not None and unit.ended is not None:
            unit.earlier.append((unit.bound, unit.ended, unit.place))
        unit.bound, unit.ended, unit.ending, unit.seen_whole = None, None, "", True
        return unit

    def _delete_pod(self, key: str) -> None:
        unit = self._alive.pop(key, None)
        if unit is None:
            return
        self._terminating.discard(key)
        evicted_at = self._evicted.pop(self._uids.pop(key), None)
        if evicted_at is not None:
            self._work.leaving.append(self._time - evicted_at)
        if unit.ended is None:
            unit.ended, unit.ending = self._time, "deleted" if evicted_at is None else EVICTED
        if unit.group and unit.ending != "succeeded":
            self._vacant.setdefault(unit.group, deque()).append((self._time, unit))


class Names:
    """Names of groups and pods in a workload: one that is created again under the key of a deleted one gets another
    name.

    Of groups, by name: which are ``gone``, had pods (``peopled``), had some before they were admitted (``early``), had
    some on nodes (``started``).
    """

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.peopled: set[str] = set()
        self.early: set[str] = set()
        self.started: set[str] = set()
        self._groups: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()

    def keys(self) -> set[str]:
        """Return the keys of named groups."""
        return set(self._groups)

    def of(self, group: str) -> str:
        """Return the name of the present, or last, group under a key."""
        self._groups.setdefault(group, 1)
        return named_again(group, self._groups[group])

    def again(self, group: str) -> str:
        """Return the name of another group under a key."""
        self._groups[group] += 1
        return self.of(group)

    def of_pod(self, key: str) -> str:
        """Return the name of a new pod under a key."""
        self._pods[key] += 1
        return named_again(key, self._pods[key])


def _group_named(group: PodGroup, key: str) -> PodGroup:
    meta = {"name": key.partition("/")[2], "resource_version": ""}
    return altered(group, metadata=meta)


def _pod_named(pod: Pod, key: str, group: str) -> Pod:
    marks = pod.metadata.annotations
    if group and group != pod.group_key:
        marks = {**marks, GROUP_NAME: group.partition("/")[2]}
    return altered(pod, metadata={"name": key.partition("/")[2], "annotations": marks})


def _without_status(event: ev.ObjectPut) -> ev.ObjectPut:
    """Return an object without the fields that the scheduler and controllers write; a queue keeps its state."""
    queue = object_in(event) if event.kind == "Queue" else None
    if not isinstance(queue, Queue):
        return event
    bare = altered(queue, status=QueueStatus(state=queue.status.state))
    return ev.ObjectPut("Queue", event.key, "", encode_payload(bare))
