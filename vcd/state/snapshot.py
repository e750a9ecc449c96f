"""What one session decides from: copies of the mutable columns beside shared immutable records."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vcd.model.events import VolumeChoice, Waiting
from vcd.model.objects import Object, Pod
from vcd.model.requests import names_in_order
from vcd.model.status import TERMINATED_STATUSES
from vcd.state.cluster import ClusterState
from vcd.state.facts import NodeFacts
from vcd.state.records import Evicted, GroupRecord, NodeRecord, QueueRecord, Settings, Shape, stated_queue
from vcd.state.sums import sums_by

Ints = npt.NDArray[np.int64]
Index = npt.NDArray[np.int32]

_NOWHERE = -1
GONE = -2
"""The row of a node that pods name and that is not there."""


class Objects(dict[str, Object]):
    """The objects of one kind by key, never changed; shared by all snapshots until one of them is another."""

    def __init__(self, found: Mapping[str, Object]) -> None:
        super().__init__(found)
        self._kept: dict[Hashable, Any] = {}

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` computes from these objects alone, computed once as long as they are the same."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


NO_OBJECTS = Objects({})


@dataclass(frozen=True)
class TaskColumns:
    """One row a pod; ``node`` is a row of the facts (-1: none, -2: a node that is not there), ``job`` a number of
    ``job_keys`` (-1: none). Freed rows have no node and no job."""

    status: npt.NDArray[np.int8]
    node: Index
    job: Index
    shape: Index
    labels: Index
    namespace: Index
    scheduler: Index
    priority: Index
    created: Ints
    keys: list[str | None]
    pods: list[Pod | None]


@dataclass(frozen=True)
class Snapshot:
    """The cluster at ``sequence``.

    ``resources`` names the columns of every matrix of quantities: cpu, memory, then by name. ``facts`` are the
    nodes in order of name. ``job_keys``, ``shapes``, ``label_sets``, ``namespaces``, ``schedulers`` give meaning to
    the numbers in the columns of ``tasks``. ``volumes`` are what pods that are being bound get for their claims,
    ``annotations`` what they get with the bind and do not show yet. ``lifting`` are pods whose
    queue's scheduling gate is being lifted, with their UIDs. ``nominated`` are pods that wait for room that
    evictions free, and the node where; ``turns`` say of each when that room was promised, the later the higher, 0 where
    only the API server tells of it. ``evicted`` is what groups lost to others; ``rounds`` when plugins that act in
    rounds held their last one. ``former`` are groups that pods name and that are not there,
    with the queue that each was in, None where it was never seen.
    """

    sequence: int
    resources: tuple[str, ...]
    facts: NodeFacts
    tasks: TaskColumns
    job_keys: list[str | None]
    shapes: list[Shape | None]
    label_sets: list[dict[str, str] | None]
    namespaces: list[str | None]
    schedulers: list[str | None]
    groups: Mapping[str, GroupRecord]
    queues: Mapping[str, QueueRecord]
    bad_queues: Mapping[str, str]
    others: Mapping[str, Mapping[str, Object]]
    others_version: Mapping[str, int]
    answers: Mapping[str, bytes]
    waiting: Mapping[str, tuple[Waiting, ...]]
    stranded: Mapping[str, int]
    volumes: Mapping[str, tuple[VolumeChoice, ...]]
    annotations: Mapping[str, Mapping[str, str]]
    lifting: Mapping[str, str]
    nominated: Mapping[str, str]
    turns: Mapping[str, int]
    evicted: Mapping[str, Evicted]
    rounds: Mapping[str, int]
    former: Mapping[str, str | None]
    settings: Settings

    @cached_property
    def orphans(self) -> Mapping[int, str]:
        """Pods that are on a node, or on their way there, and whose group is gone, by row: the queue that each counts
        against as long as it is there. It is the one that the group was in, or, where nobody saw it, that the pod names
        itself; pods that tell neither are left out."""
        if not self.former:
            return {}
        numbers = [number for number, key in enumerate(self.job_keys) if key in self.former]
        tasks = self.tasks
        held = np.isin(tasks.job, numbers) & (tasks.node != _NOWHERE) & ~np.isin(tasks.status, TERMINATED_STATUSES)
        found = {}
        for row in np.flatnonzero(held).tolist():
            queue, pod = self.former[self.job_keys[tasks.job[row]] or ""], tasks.pods[row]
            if queue is None:
                queue = "" if pod is None else stated_queue(pod)
            else:
                queue = queue or self.settings.default_queue
            if queue:
                found[row] = queue
        return found

    def shape_requests(self) -> Ints:
        """What a task of each shape asks for, as (shapes + 1, resources): the last row stands for no shape."""
        column_of = {name: column for column, name in enumerate(self.resources)}
        requests = np.zeros((len(self.shapes) + 1, len(column_of)), np.int64)
        for number, shape in enumerate(self.shapes):
            if shape is not None:
                for name, value in shape.requests.items():
                    requests[number, column_of[name]] = value
        return requests

    def idle_rooms(self, requests: Ints) -> Ints:
        """What placed pods leave of each node, as (nodes, resources); ``requests`` by shape."""
        tasks = self.tasks
        placed = (tasks.node >= 0) & ~np.isin(tasks.status, TERMINATED_STATUSES)
        return self.facts.allocatable - sums_by(tasks.node[placed], requests[tasks.shape[placed]], len(self.facts))


class SnapshotMaker:
    """Makes snapshots of one state, keeping what did not change since the last one."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._facts: NodeFacts | None = None
        self._facts_version = -1
        self._resources: tuple[str, ...] = ()
        self._others: dict[str, tuple[int, Objects]] = {}

    def snapshot(self) -> Snapshot:
        """The state as it is now. Costs copies of the columns, and of the node facts when a node changed."""
        state = self._state
        self._refresh_facts()
        facts = self._facts
        assert facts is not None
        columns, nominations = state.tasks, state.nominations()
        node_rows = np.full(len(state.node_names.values) + 1, -1, np.int32)
        for number, name in enumerate(state.node_names.values):
            if name is not None:
                node_rows[number] = facts.row_of.get(name, GONE)
        return Snapshot(
            sequence=state.sequence,
            resources=self._resources,
            facts=facts,
            tasks=TaskColumns(
                status=columns.column("status").astype(np.int8),
                node=node_rows[columns.column("node")],
                job=columns.column("job").astype(np.int32),
                shape=columns.column("shape").astype(np.int32),
                labels=columns.column("labels").astype(np.int32),
                namespace=columns.column("namespace").astype(np.int32),
                scheduler=columns.column("scheduler").astype(np.int32),
                priority=columns.column("priority").astype(np.int32),
                created=columns.column("created").astype(np.int64),
                keys=list(columns.keys),
                pods=list(state.pods),
            ),
            job_keys=list(state.job_keys.values),
            shapes=list(state.shapes.values),
            label_sets=list(state.label_sets.values),
            namespaces=list(state.namespaces.values),
            schedulers=list(state.schedulers.values),
            groups=dict(state.groups),
            queues=dict(state.queues),
            bad_queues={key: message for (kind, key), message in state.bad.items() if kind == "Queue"},
            others={kind: self._copy_of(kind) for kind in state.others},
            others_version=dict(state.others_version),
            answers=dict(state.answers),
            waiting=dict(state.waiting),
            stranded=dict(state.stranded),
            volumes=dict(state.intended_volumes),
            annotations=dict(state.intended_annotations),
            lifting=dict(state.lifting),
            nominated={key: node for key, (node, _) in nominations.items()},
            turns={key: turn for key, (_, turn) in nominations.items()},
            evicted=dict(state.evicted),
            rounds=dict(state.rounds),
            former=dict(state.former),
            settings=state.settings,
        )

    def _copy_of(self, kind: str) -> Objects:
        version = self._state.others_version.get(kind, 0)
        kept = self._others.get(kind)
        if kept is None or kept[0] != version:
            kept = self._others[kind] = (version, Objects(self._state.others[kind]))
        return kept[1]

    def _refresh_facts(self) -> None:
        state = self._state
        resources = tuple(names_in_order(state.resources))
        if self._facts_version != state.facts_version or resources != self._resources:
            self._facts = NodeFacts(_selected(state.nodes, state.settings.node_selector), resources)
            self._facts_version = state.facts_version
            self._resources = resources


def _selected(nodes: Mapping[str, NodeRecord], selector: tuple[str, ...]) -> Mapping[str, NodeRecord]:
    """The nodes that have one of the labels ``key:value``; all where none are given (vc-scheduler --node-selector)."""
    if not selector:
        return nodes
    wanted = [tuple(pair.split(":", 1)) for pair in selector]
    return {
        name: record
        for name, record in nodes.items()
        if any(record.node.metadata.labels.get(key) == value for key, value in wanted)
    }
