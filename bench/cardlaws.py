"""Checks the laws of ``bench.cardtrace`` about queues with card quotas, from an event log alone.

A pod's cards are counted by the label of its node until the pod is gone: a terminating pod still uses its cards.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.trace import check_capacity
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.objects import Queue
from vcd.model.status import TERMINATED_STATUSES
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
QUOTA = "volcano.sh/card.quota"
TASK = "volcano.sh/task-spec"
INDEX = "volcano.sh/task-index"
JOB = "volcano.sh/job-name"
BASIC = ("cpu", "memory")
MILLI = 1000

Identity = tuple[str, str, str, str]
"""Namespace, job, task and index: equal for a pod and its replacements."""


class Broken(RuntimeError):
    """A law was broken; the message states how, and in which session."""


@dataclass
class Found:
    """The results of a log: by queue and resource, the largest used share of the limit (``used``); ``evictions`` by
    action; which pods were ever evicted, bound and finished; the longest time from a pod's creation to its bind
    (``waited``, seconds)."""

    used: dict[str, dict[str, float]] = field(default_factory=dict)
    evictions: Counter[str] = field(default_factory=Counter)
    evicted: dict[Identity, str] = field(default_factory=dict)
    bound: set[Identity] = field(default_factory=set)
    finished: set[Identity] = field(default_factory=set)
    waited: float = 0.0


def check(log: Path) -> Found:
    """Read a log. Raises Broken if, after a session, a queue is above its quota or capability or a node above its
    allocatable, or if a pod is evicted twice."""
    reading = Reading()
    with LogReader(log) as reader:
        for logged in reader.read():
            reading.take(logged.sequence, logged.event)
    return reading.found


class Reading:
    """Reads a log event by event; ``found`` has the results so far."""

    def __init__(self) -> None:
        self.found = Found()
        self._state = ClusterState()
        self._maker = SnapshotMaker(self._state)
        self._asked: dict[tuple[int, int, int], Identity] = {}
        """Evictions by session, statement and operation, to be removed if the call failed."""

    def take(self, sequence: int, event: ev.Event) -> None:
        """Process the next event. Raises Broken."""
        if isinstance(event, ev.SessionDecided):
            self._decided(sequence, event)
            return
        self._state.apply(sequence, event)
        if isinstance(event, ev.OperationDone) and event.result != "done":
            who = self._asked.pop((event.session, event.statement, event.operation), None)
            if who is not None:
                self.found.evicted.pop(who)
        elif isinstance(event, ev.ObjectPut) and event.kind == "Pod":
            pod = self._state.pod(event.key)
            if pod and pod.status.phase in ("Succeeded", "Failed") and not pod.metadata.deletion_timestamp:
                self.found.finished.add(self._identity(event.key))

    def _decided(self, sequence: int, decided: ev.SessionDecided) -> None:
        changes = False
        for number, position, statement, operation in _operations(decided):
            changes |= operation.verb != "pipeline"
            where = f"session {decided.session}, statement {number} ({statement.action} for {statement.group})"
            if operation.verb == "bind":
                self._bound(decided, operation)
            elif operation.verb == "evict":
                who = self._identity(operation.key)
                if who in self.found.evicted:
                    raise Broken(f"{where}: {operation.key} was evicted already: {self.found.evicted[who]}")
                self.found.evicted[who] = f"{where}: {operation.reason}"
                self.found.evictions[statement.action] += 1
                self._asked[decided.session, number, position] = who
        self._state.apply(sequence, decided)
        if changes:
            self._check(self._maker.snapshot(), f"after session {decided.session}")

    def _bound(self, decided: ev.SessionDecided, operation: ev.Operation) -> None:
        self.found.bound.add(self._identity(operation.key))
        row = self._state.tasks.row_of[operation.key]
        created = int(self._state.tasks.column("created")[row])
        self.found.waited = max(self.found.waited, decided.now / 1e9 - created)

    def _identity(self, key: str) -> Identity:
        pod = self._state.pod(key)
        assert pod is not None
        marks = pod.metadata.annotations
        return pod.metadata.namespace, marks.get(JOB, ""), marks.get(TASK, pod.metadata.name), marks.get(INDEX, "")

    def _check(self, snapshot: Snapshot, when: str) -> None:
        try:
            check_capacity(snapshot)
        except RuntimeError as error:
            raise Broken(f"{when}: {error}") from None
        held = held_by_queue(snapshot)
        for name, record in snapshot.queues.items():
            used = self.found.used.setdefault(name, {})
            for resource, may in _limits(record.queue, record.capability).items():
                have = held.get(name, Counter())[resource]
                if have > may:
                    raise Broken(f"{when}: queue {name} holds {have} of {resource}, and may hold {may}")
                used[resource] = max(used.get(resource, 0.0), have / may if may else 0.0)
            for resource in held.get(name, ()):
                if resource not in used and resource not in BASIC and QUOTA in record.queue.metadata.annotations:
                    raise Broken(f"{when}: queue {name} holds {resource}, of which it has no quota")


def _operations(decided: ev.SessionDecided) -> Iterator[tuple[int, int, ev.Statement, ev.Operation]]:
    stale = dict(decided.stale)
    for number, statement in enumerate(ev.decode_plan(decided.plan).statements):
        if number not in stale:
            for position, operation in enumerate(statement.operations):
                yield number, position, statement, operation


def _limits(queue: Queue, capability: Mapping[str, int]) -> dict[str, int]:
    """Return a queue's limits: cpu and memory of its capability, and cards of its quota in thousandths."""
    quota = json.loads(queue.metadata.annotations.get(QUOTA, "{}"))
    basic = {name: amount for name, amount in capability.items() if name in BASIC}
    return {**basic, **{card: count * MILLI for card, count in quota.items()}}


def held_by_queue(snapshot: Snapshot) -> dict[str, Counter[str]]:
    """Return the cpu, memory and cards used by each queue, including terminating pods and pods of deleted groups."""
    tasks = snapshot.tasks
    rows = np.flatnonzero((tasks.node >= 0) & (tasks.job >= 0) & ~np.isin(tasks.status, TERMINATED_STATUSES))
    held: dict[str, Counter[str]] = {}
    columns = np.stack([rows, tasks.job[rows], tasks.node[rows], tasks.shape[rows]])
    for row, job, node, number in zip(*columns.tolist(), strict=True):
        group = snapshot.groups.get(snapshot.job_keys[job] or "")
        queue = snapshot.orphans.get(row) if group is None else group.group.spec.queue
        shape = snapshot.shapes[number]
        if queue is None or shape is None:
            continue
        sums = held.setdefault(queue, Counter())
        asked = shape.requests
        sums.update({name: asked.get(name, 0) for name in BASIC})
        if asked.get(GPU):
            sums[snapshot.facts.nodes[node].metadata.labels[PRODUCT]] += asked[GPU]
    return held
