"""The state of a log's cluster at a moment, and its workload from then on, without new arrivals."""

from __future__ import annotations

import msgspec

from vcd.eventlog import LogError, LogReader
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.projection_codec import encode_payload
from vcd.model.resource_requests import pod_requests
from vcd.model.status import Phase
from vcd.model.wording import SECOND
from vcd.state.cluster_state import ClusterState
from vcd.timetravel.history import History
from vcd.timetravel.whatif.expectedpods import ExpectedPods
from vcd.timetravel.whatif.logged_workload import (
    GroupLife,
    Unit,
    Workload,
    bare_pod,
    fixed_objects,
    name_in_log,
    started,
)

_STAYS = ("DaemonSet", "Node")
"""Owners of pods that run as long as their node does."""


class Present(msgspec.Struct):
    """The state after event ``sequence`` (callers fold further events into it), the time (ns), and the last session
    before it."""

    state: ClusterState
    sequence: int
    now: int
    session: int

    @property
    def conf(self) -> str | None:
        """The configuration in force; None: none was loaded yet."""
        return None if self.state.policy is None else self.state.policy.text

    @property
    def whole_second(self) -> int:
        """The time at which simulated time begins: it is in whole seconds."""
        return -(-self.now // SECOND) * SECOND


def present(reader: LogReader, session: int | None) -> Present:
    """Return the state after a session, or (None) after the last event. Raises LogError."""
    if session is None:
        sequence, now = reader.head(), reader.last_time()
        if not sequence:
            raise LogError(f"event log {reader.path}: it is empty")
    else:
        now = reader.session(session).now
        (info,) = reader.sessions(session, session)
        sequence = info.sequence
    state = History(reader).state(sequence, jump=True)
    return Present(state, sequence, now, state.session)


class PresentWorkload:
    """Creates the workload of a state: running pods end at some time, waiting pods are to be placed."""

    def __init__(self, reader: LogReader, here: Present, past: Workload) -> None:
        """Create from the state and ``past``, the log's workload up to then."""
        self._reader = reader
        self._state = here.state
        self._begin = here.whole_second
        self._bound = {name_in_log(unit.key): unit.bound for unit in past.units if unit.ended is None}
        self._past = past
        self.meant = ExpectedPods(past, here.state)
        """Derives the pods of groups that have none yet."""
        self.without_pods: list[str] = []
        """Groups without pods, which get expected ones."""

    def workload(self) -> Workload:
        """Return a workload in which everything arrives at the beginning."""
        state, begin = self._state, self._begin
        work = Workload(begin, begin, None, state.settings.as_done(), leaving=list(self._past.leaving))
        work.spared = state.immunity.copy()
        work.backoffs, work.released = dict(state.backoffs), dict(state.released)
        work.base = [ev.ObjectPut(kind, key, "", encode_payload(obj)) for kind, key, obj in fixed_objects(state)]
        work.base += [ev.Answered(question, answer) for question, answer in sorted(state.answers.items())]
        peopled = set()
        for key in sorted(state.tasks.row_of):
            pod = state.pod(key)
            if pod is None:
                continue
            unit = self._unit(key, pod, pod.group_key)
            if unit is not None:
                peopled.add(unit.group)
                work.units.append(unit)
            elif not self._is_terminating(key, pod):
                peopled.add(pod.group_key)
                work.base.append(ev.ObjectPut("Pod", key, "", encode_payload(pod)))
        for key, record in sorted(state.groups.items()):
            waits = record.phase is Phase.PENDING
            work.groups[key] = GroupLife(key, record.group, begin, waits, None if waits else begin)
            if key not in peopled and record.phase in (Phase.PENDING, Phase.INQUEUE):
                meant = self.meant.units(record.group, begin)
                self.without_pods += [key] * bool(meant)
                work.units.extend(meant)
        return work

    def _unit(self, key: str, pod: Pod, group: str) -> Unit | None:
        """Return a pod as a unit; None if it has ended, is being deleted, or is neither placed nor ended by this
        simulation."""
        owner = next((owner.kind for owner in pod.metadata.owner_references if owner.controller), "")
        intent = self._state.intents.get(key)
        node = intent.node if intent is not None and intent.verb == "bind" else pod.spec.node_name
        gone = self._is_terminating(key, pod)
        comes_again = gone and self._is_evicted(key, pod, group)
        stays = owner in _STAYS and group not in self._state.groups  # in no group, so that it is not evicted either
        if pod.status.phase in ("Succeeded", "Failed") or stays or (gone and not comes_again):
            return None
        if comes_again:
            node = ""
        names = self._state.settings.scheduler_names
        if not node and (not group or (names and pod.spec.scheduler_name not in names)):
            return None
        requests = pod_requests(pod.spec)
        uid = pod.metadata.uid + "~again" * comes_again  # replacements are recognized by their uid
        unit = Unit(key, uid, group, bare_pod(pod), requests, self._begin, node=node, place=node)
        if node:
            unit.bound = self._since(key, pod)
        return unit

    def _is_terminating(self, key: str, pod: Pod) -> bool:
        intent = self._state.intents.get(key)
        return pod.metadata.deletion_timestamp is not None or (intent is not None and intent.verb == "evict")

    def _is_evicted(self, key: str, pod: Pod, group: str) -> bool:
        """Return whether the scheduler evicted it, so that its controller creates another one."""
        evicted = self._state.immunity.evicted.get(group)
        return key in self._state.intents or (evicted is not None and pod.metadata.uid in evicted.gone)

    def _since(self, key: str, pod: Pod) -> int:
        """Return when it got its node: as observed in the log, else as decided, else by the pod's status."""
        bound = self._bound.get(key)
        if bound is None:
            binds = [one.time for one in self._reader.operations_of(key) if one.verb == "bind"]
            bound = max((time for time in binds if time <= self._begin), default=None)
        bound = started(pod) if bound is None else bound
        return self._begin if bound is None else min(bound, self._begin)
