"""Snapshots with one change, to find out what would have been decided then.

Memory of earlier sessions stays unchanged: in the cluster, a changed queue or node also makes the scheduler forget
earlier evictions (``ClusterState``), and then any change at all could be the one that lets a job start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from vcd.model.objects import Node, Object, ObjectMeta, PodSpec, PriorityClass, Queue, altered
from vcd.model.quantity import format_resource
from vcd.model.resource_requests import resource_values
from vcd.model.status import TaskStatus
from vcd.scheduling.search.predicates.node_predicates import CORDON
from vcd.scheduling.search.predicates.spread_predicate import HOSTNAME
from vcd.state.interning import Pages
from vcd.state.node_facts import NodeFacts
from vcd.state.records import GroupRecord, NodeRecord, QueueRecord, Shape
from vcd.state.snapshot import Snapshot
from vcd.state.snapshot_content import GONE
from vcd.text.trial_templates import CHANGES

What = Literal["cordon", "label", "toleration", "term", "tier", "quota", "priority", "minimum", "room", "job", "node"]
"""The kinds of change, the cheapest first: a single command, then a quota taken from others, then hardware."""

_BY_GROUP = ("groups", "waiting", "stranded", "released", "admissions", "evicted")
_BY_POD = ("volumes", "annotations", "lifting", "nominated", "nomination_turns")
"""Mappings of a snapshot by the keys of groups, and of pods."""

_NOWHERE = -1
_NAMED = 2
"""Nodes that a text names, at most."""

CHANGED_CLASS = "(changed)"
"""The PriorityClass of a changed priority: no cluster can have one of this name."""


class Change(msgspec.Struct, frozen=True):
    """One change.

    ``what`` is its kind: nodes whose "cordon" is lifted, that get a "label", or one "node" more; a "toleration" or
    "term" of the pods; the highest "tier" that a group may use; a queue's "quota", the "priority" or "minimum" of the
    job, a node's ``"room"``, a running "job" gone. ``subject`` names the queue, node, job, label, taint or term;
    ``field`` is the changed field; ``before`` and ``after`` are quantities by resource (with the empty name for a plain
    number; both empty for a job that is gone).
    ``by`` names the lowest existing PriorityClass with such a priority; ``nodes`` are the nodes that are uncordoned or
    get a label.
    """

    what: What
    subject: str
    field: str
    before: dict[str, str]
    after: dict[str, str]
    by: str = ""
    nodes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the change as text: ``queue team-a's capability of cpu 40 -> 42``."""
        count = self.after.get("", "1")
        nodes = "1 node" if count == "1" else f"{count} nodes"
        nodes = " and ".join(self.nodes) if 0 < len(self.nodes) <= _NAMED else nodes
        steps = " and ".join(f"{name} {self.before[name]} -> {after}".strip() for name, after in self.after.items())
        facts = {
            "subject": self.subject,
            "nodes": nodes,
            "more": nodes.replace(" ", " more ", 1),
            "whose": {"quota": "queue", "room": "node"}.get(self.what, "job"),
            "field": self.field,
            "steps": f" of {steps}" if any(self.after) else f" {steps}",
            "by": f" ({self.by})" if self.by else "",
        }
        return CHANGES.sentence(self.what if self.what in CHANGES else "field", facts)


def with_queue(snapshot: Snapshot, queue: Queue) -> Snapshot:
    """Return a snapshot with another content of a queue. Raises BadObject if its quantities cannot be parsed."""
    return dataclasses.replace(snapshot, queues={**snapshot.queues, queue.metadata.name: QueueRecord.of(queue)})


def with_resources(snapshot: Snapshot, name: str, more: Mapping[str, int]) -> Snapshot:
    """Return a snapshot with more allocatable on a node, by resource in the units of
    ``vcd.model.resource_requests``."""

    def changed(node: Node) -> Node:
        offered = node.status.allocatable or node.status.capacity
        values = resource_values(offered)
        texts = {key: format_resource(key, values.get(key, 0) + amount) for key, amount in more.items()}
        return altered(node, status={"allocatable": {**offered, **texts}})

    return _with_nodes(snapshot, [name], changed)


def _with_nodes(
    snapshot: Snapshot, names: Collection[str], change: Callable[[Node], Node], more: Iterable[Node] = ()
) -> Snapshot:
    """Return a snapshot with some nodes changed, and some added. Tasks keep their nodes, which are row numbers."""
    facts = snapshot.facts
    records = {
        node.metadata.name: NodeRecord.of(change(node) if node.metadata.name in names else node) for node in facts.nodes
    }
    records |= {node.metadata.name: NodeRecord.of(node) for node in more}
    found = NodeFacts(records, facts.resources)
    if len(found) == len(facts):
        return dataclasses.replace(snapshot, facts=found)
    rows = np.array([*(found.row_of[name] for name in facts.names), GONE, _NOWHERE], snapshot.tasks.node.dtype)
    tasks = msgspec.structs.replace(snapshot.tasks, node=rows[snapshot.tasks.node])
    return dataclasses.replace(snapshot, facts=found, tasks=tasks)


def with_labels(snapshot: Snapshot, names: Collection[str], labels: Mapping[str, str]) -> Snapshot:
    """Return a snapshot with more labels on some nodes."""
    return _with_nodes(
        snapshot, names, lambda node: altered(node, metadata={"labels": {**node.metadata.labels, **labels}})
    )


def without_cordons(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Return a snapshot with some nodes uncordoned, without the cordon's taint."""

    def changed(node: Node) -> Node:
        taints = tuple(taint for taint in node.spec.taints if taint.key != CORDON.key)
        return altered(node, spec={"unschedulable": False, "taints": taints})

    return _with_nodes(snapshot, names, changed)


def with_more_nodes(snapshot: Snapshot, name: str, count: int) -> Snapshot:
    """Return a snapshot with ``count`` more nodes equal to one, and empty."""
    node = snapshot.facts.nodes[snapshot.facts.row_of[name]]

    def another(number: int) -> Node:
        new = f"{name}-another-{number}"
        labels = {key: new if key == HOSTNAME else value for key, value in node.metadata.labels.items()}
        return altered(node, metadata={"name": new, "labels": labels})

    return _with_nodes(snapshot, (), lambda node: node, [another(number) for number in range(count)])


def with_minimum(snapshot: Snapshot, group: str, count: int) -> Snapshot:
    """Return a snapshot with another minMember of a group, and proportionally less minResources."""
    record = snapshot.groups[group]
    before = max(record.group.spec.min_member, 1)
    stated = record.group.spec.min_resources
    resources = stated and {
        name: format_resource(name, amount * count // before) for name, amount in resource_values(stated).items()
    }
    spec = {"min_member": count, "min_resources": resources}
    changed = msgspec.structs.replace(record, group=altered(record.group, spec=spec))
    if resources is not None:
        changed = msgspec.structs.replace(changed, min_resources=resource_values(resources))
    return with_group(snapshot, changed)


def with_age(snapshot: Snapshot, group: str, created: int) -> Snapshot:
    """Return a snapshot with another creation time (seconds) of a group."""
    return with_group(snapshot, msgspec.structs.replace(snapshot.groups[group], created=created))


def in_queue(snapshot: Snapshot, group: str, queue: str) -> Snapshot:
    """Return a snapshot with a group in another queue."""
    record = snapshot.groups[group]
    return with_group(snapshot, msgspec.structs.replace(record, group=altered(record.group, spec={"queue": queue})))


def with_group(snapshot: Snapshot, record: GroupRecord) -> Snapshot:
    """Return a snapshot with another record of a group."""
    return dataclasses.replace(snapshot, groups={**snapshot.groups, record.group.key: record})


def with_pods(
    snapshot: Snapshot, group: str, change: Callable[[PodSpec], PodSpec], *, counted: bool = False
) -> Snapshot:
    """Return a snapshot with another spec of a group's pods; their requests stay, unless they are ``counted`` again."""
    tasks, shapes = snapshot.tasks, list(snapshot.shapes)
    (number,) = [number for number, key in enumerate(snapshot.job_keys) if key == group]
    rows = np.flatnonzero(tasks.job == number)
    column, pods, made = tasks.shape.copy(), list(tasks.pods), dict[int, int]()
    for row in rows.tolist():
        old, pod = int(column[row]), pods[row]
        shape = shapes[old]
        if shape is None or pod is None:
            continue
        if old not in made:
            made[old] = len(shapes)
            spec = change(shape.spec)
            shapes.append(Shape.of(spec) if counted else msgspec.structs.replace(shape, spec=spec))
        column[row] = made[old]
        pods[row] = altered(pod, spec=change(pod.spec))
    columns = msgspec.structs.replace(tasks, shape=column, pods=Pages(pods))
    return dataclasses.replace(snapshot, tasks=columns, shapes=Pages(shapes))


def with_priority(snapshot: Snapshot, group: str, value: int) -> Snapshot:
    """Return a snapshot with another priority of a group, as by a PriorityClass of that value."""
    record = snapshot.groups[group]
    changed = msgspec.structs.replace(record, group=altered(record.group, spec={"priority_class_name": CHANGED_CLASS}))
    made: dict[str, Object] = {CHANGED_CLASS: PriorityClass(metadata=ObjectMeta(name=CHANGED_CLASS), value=value)}
    classes = {**snapshot.others.get("PriorityClass", {}), **made}
    return dataclasses.replace(with_group(snapshot, changed), others={**snapshot.others, "PriorityClass": classes})


def _less(known: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """Return a mapping without some keys."""
    left = dict(known)
    for key in gone:
        left.pop(key, None)
    return left


def without_jobs(snapshot: Snapshot, groups: Collection[str]) -> Snapshot:
    """Return a snapshot without some groups and all of their pods, as if they had been deleted."""
    tasks = snapshot.tasks
    numbers = [number for number, key in enumerate(snapshot.job_keys) if key in groups]
    gone = np.isin(tasks.job, numbers)
    rows = np.flatnonzero(gone).tolist()
    keys, pods = tasks.keys.copy(), tasks.pods.copy()
    for row in rows:
        keys[row] = pods[row] = None
    names = frozenset(key for row in rows if (key := tasks.keys[row]) is not None)
    columns = msgspec.structs.replace(
        tasks,
        status=np.where(gone, TaskStatus.UNKNOWN, tasks.status).astype(tasks.status.dtype),
        node=np.where(gone, -1, tasks.node).astype(tasks.node.dtype),
        job=np.where(gone, -1, tasks.job).astype(tasks.job.dtype),
        keys=keys,
        pods=pods,
    )
    kept: dict[str, Any] = {
        name: _less(getattr(snapshot, name), gone_keys)
        for known, gone_keys in ((_BY_GROUP, groups), (_BY_POD, names))
        for name in known
    }
    return dataclasses.replace(snapshot, tasks=columns, **kept)
