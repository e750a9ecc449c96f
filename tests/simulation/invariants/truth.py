"""The server's truth as the slow reference is told it: what no manifest says is put into manifests."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tests.e2e.cluster import GROUPS, QUEUES
from tests.reference.immunity import REFUSED, REPLACES
from tests.reference.model import pod_requests
from tests.simulation.outside import ANSWERS
from vcd.daemon.service import SchedulerService
from vcd.embedded.store import Store
from vcd.model.controllers import GROUP_NAME
from vcd.state.records import PREEMPTABLE, QUEUE_NAMES

Obj = dict[str, Any]
_WHOLE = (
    QUEUES, "namespaces", "resourcequotas", "priorityclasses.scheduling.k8s.io", "poddisruptionbudgets.policy",
    "persistentvolumes", "persistentvolumeclaims", "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io",
)  # fmt: skip
_OVER = ("Succeeded", "Failed")
_OF_GONE = "of-gone-"
"""Begins the names of groups that stand for those which are gone."""


class Truth:
    """Of a server, for what a leader decides on: the reference knows no flags, and one session only."""

    def __init__(self, store: Store, service: SchedulerService) -> None:
        self._store, self._service = store, service
        self._members: dict[str, list[Obj]] = defaultdict(list)
        makes_groups = "podgroup" in service.options.controllers
        for pod in filter(_is_minded, store.list("pods")):
            if group_of(pod) or makes_groups:
                self._members[group_of(pod)].append(pod)
            elif pod["spec"].get("nodeName"):
                self._members[""].append(_others(pod))
        self._groups = {key_of(each) for each in store.list(GROUPS)}

    def manifests(self) -> Iterator[Obj]:
        """All that the reference may ask for; with --node-selector, of the chosen nodes only."""
        labels = [tuple(each.split(":", 1)) for each in self._service.options.node_selector]
        for node in self._store.list("nodes"):
            if not labels or any((node["metadata"].get("labels") or {}).get(key) == value for key, value in labels):
                yield node
        for resource in _WHOLE:
            yield from self._store.list(resource)
        for group in self._store.list(GROUPS):
            yield group if group["spec"].get("queue") else _in_queue(group, self._service.options.default_queue)
        for key, members in self._members.items():
            pods = [_marked(pod, {REFUSED: "true"}) if self._was_refused(key, pod) else pod for pod in members]
            is_orphaned = bool(key) and key not in self._groups
            yield from self._orphans(key, pods) if is_orphaned else self._without_replacements(key, pods)
        yield ANSWERS

    def _was_refused(self, group: str, pod: Obj) -> bool:
        """Whether the API server refused an operation on a pod, or released its gang, last."""
        state = self._service.state_writer.state
        return group in state.released or key_of(pod) in state.backoffs

    def _without_replacements(self, group: str, pods: list[Obj]) -> Iterator[Obj]:
        """What took the place of evicted pods is marked: only sessions before tell whom it was for
        (docs/semantics/actions.md#not-evicted-twice)."""
        evicted = self._service.state_writer.state.immunity.evicted.get(group)
        if evicted is None:
            yield from pods
            return
        pods = sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], key_of(pod)))
        uids = [pod["metadata"]["uid"] for pod in pods]
        knew = [
            [owner for owner in evicted.losses if uid in evicted.known or uid in evicted.older.get(owner, ())]
            for uid in uids
        ]
        lost = {owner: len(gone) for owner, gone in evicted.losses.items()}
        for place, pod in enumerate(pods):
            if uids[place] not in evicted.known and holds_room(pod):
                told = {"place": place, "knew": knew, "lost": lost, "undisturbed": evicted.undisturbed}
                yield _marked(pod, {REPLACES: json.dumps(told)})
            else:
                yield pod

    def _orphans(self, group: str, pods: list[Obj]) -> Iterator[Obj]:
        """Pods whose group is gone; those that hold room in one that stands for it, for each queue that they count
        against."""
        held: dict[str, list[Obj]] = defaultdict(list)
        for pod in pods:
            queue = self._queue_of_orphan(group, pod) if holds_room(pod) else ""
            if queue:
                held[queue].append(pod)
            else:
                yield pod
        for queue, those in held.items():
            name = f"{_OF_GONE}{group.partition('/')[2]}-{queue}"
            yield _standing_for(name, queue, those)
            yield from (_marked(pod, {GROUP_NAME: name, PREEMPTABLE: "false"}) for pod in those)

    def _queue_of_orphan(self, group: str, pod: Obj) -> str:
        """The queue that its group was in, by what the leader saw of it, or else that it names itself."""
        seen = self._service.state_writer.state.former.get(group)
        if seen is not None:
            return seen or self._service.options.default_queue
        marks = [pod["metadata"].get(each) or {} for each in ("annotations", "labels")]
        return next((found[name] for found in marks for name in QUEUE_NAMES if found.get(name)), "")


def _standing_for(name: str, queue: str, pods: list[Obj]) -> Obj:
    """A group that has all its pods and asks for no more."""
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": pods[0]["metadata"]["namespace"]},
        "spec": {"queue": queue, "minMember": len(pods), "minResources": _asked_by(pods)},
        "status": {"phase": "Running"},
    }


def _asked_by(pods: list[Obj]) -> dict[str, str]:
    """What pods ask for together, to the last nano."""
    total = Counter({"pods": Fraction(len(pods))})
    for pod in pods:
        total.update(pod_requests(pod, use_status=True))
    return {name: f"{math.ceil(amount * 10**9)}n" for name, amount in total.items()}


def _in_queue(group: Obj, queue: str) -> Obj:
    return {**group, "spec": {**group["spec"], "queue": queue}}


def key_of(obj: Obj) -> str:
    """Namespace and name."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def group_of(pod: Obj) -> str:
    """The key of a pod's group; empty where it names none."""
    name = (pod["metadata"].get("annotations") or {}).get(GROUP_NAME)
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def holds_room(pod: Obj) -> bool:
    """Whether a pod is on a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in _OVER


def _is_minded(pod: Obj) -> bool:
    """Whether a pod is the scheduler's, or takes room. Not one that has ended before it had a group: nobody makes one
    for it any more, and the reference would imagine one that waits to be admitted."""
    if pod["status"].get("phase") in _OVER and not group_of(pod):
        return False
    return pod["spec"].get("schedulerName") == "volcano" or bool(pod["spec"].get("nodeName"))


def _others(pod: Obj) -> Obj:
    """A pod of no group as one that is not ours: of ours the reference would imagine the group, whom nobody makes for a
    pod that lost its annotation. It takes its room, and one that waits is let be."""
    return {**pod, "spec": {**pod["spec"], "schedulerName": "default-scheduler"}}


def _marked(pod: Obj, annotations: dict[str, str]) -> Obj:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}
