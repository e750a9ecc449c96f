"""Counts of a cluster's objects, updated by each change: pods by phase, ready pods of PodGroups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from vcd.embedded.controllers.controller_base import ADDED, DELETED, PODGROUPS, PODS, Obj, annotations_of, key_of
from vcd.embedded.controllers.pod_properties import TERMINAL, node_of, phase_of
from vcd.embedded.store import Store
from vcd.model.controllers import GROUP_NAME

_COMPLETED: Final = "Completed"


@dataclass
class GroupUse:
    """A PodGroup. ``minimum`` is minMember, ``ready`` the number of bound pods that did not fail."""

    queue: str = ""
    phase: str = ""
    minimum: int = 0
    ready: int = 0


@dataclass(frozen=True)
class _Counted:
    """The values by which a pod was counted."""

    phase: str
    node: str
    group: str


class ClusterTally:
    """Counts of one store, from its creation until ``close``."""

    def __init__(self, store: Store) -> None:
        self.phases: Counter[str] = Counter()
        """Existing pods by phase."""
        self.ended: Counter[str] = Counter()
        """Ended pods by their last phase, including deleted pods."""
        self.unbound = 0
        """Pods without a node that did not end."""
        self.binds = 0
        """All binds, including those of deleted pods."""
        self.groups: dict[str, GroupUse] = {}
        """Existing PodGroups that are not Completed, by ``namespace/name``."""
        self.completed = 0
        """PodGroups that were Completed, including deleted ones."""
        self._pods: dict[str, _Counted] = {}
        self._ready: Counter[str] = Counter()
        self._done: set[str] = set()
        self._counters = {PODGROUPS: self._count_group, PODS: self._count_pod}
        self.close = store.subscribe(list(self._counters), self._changed)
        for resource in self._counters:
            for obj in store.list(resource):
                self._changed(ADDED, resource, obj)

    def _changed(self, event: str, resource: str, obj: Obj) -> None:
        self._counters[resource](event, obj)

    def _count_group(self, event: str, group: Obj) -> None:
        key = "/".join(key_of(group))
        phase = (group.get("status") or {}).get("phase", "")
        completed = phase == _COMPLETED
        if completed and key not in self._done:
            self.completed += 1
            self._done.add(key)
        if event == DELETED:
            self._done.discard(key)
        if event == DELETED or completed:
            self.groups.pop(key, None)
            return
        spec = group.get("spec") or {}
        self.groups[key] = GroupUse(spec.get("queue", ""), phase, int(spec.get("minMember") or 0), self._ready[key])

    def _count_pod(self, event: str, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        before = self._pods.pop(uid, None)
        if before is not None:
            self._add(before, -1)
        if event == DELETED:
            return
        node = node_of(pod)
        if node and (before is None or not before.node):
            self.binds += 1
        name = annotations_of(pod).get(GROUP_NAME)
        group = f"{pod['metadata']['namespace']}/{name}" if name else ""
        self._pods[uid] = now = _Counted(phase_of(pod) or "Pending", node, group)
        if now.phase in TERMINAL and (before is None or before.phase not in TERMINAL):
            self.ended[now.phase] += 1
        self._add(now, 1)

    def _add(self, pod: _Counted, sign: int) -> None:
        self.phases[pod.phase] += sign
        ended = pod.phase in TERMINAL
        if not pod.node and not ended:
            self.unbound += sign
        if pod.group and pod.node and pod.phase != "Failed":
            self._ready[pod.group] += sign
            if pod.group in self.groups:
                self.groups[pod.group].ready = self._ready[pod.group]
