"""One thing of a snapshot changed, for who asks what would have been decided then.

What is remembered of earlier sessions stays as it was: in the cluster a changed queue or node also makes the scheduler
forget what evictions took (``ClusterState``), and then anything at all could be the change that lets a job in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from vcd.model.objects import Object, ObjectMeta, PriorityClass, Queue, altered
from vcd.model.quantity import format_resource
from vcd.model.requests import resource_values
from vcd.model.status import TaskStatus
from vcd.state.facts import NodeFacts
from vcd.state.interning import Pages
from vcd.state.records import NodeRecord, QueueRecord
from vcd.state.snapshot import Snapshot

What = Literal["quota", "room", "priority", "job"]

_BY_GROUP = ("groups", "waiting", "stranded", "evicted")
_BY_POD = ("volumes", "annotations", "lifting", "nominated", "nomination_turns")
"""What a snapshot holds by the keys of groups, and of pods."""

CHANGED_CLASS = "(changed)"
"""The PriorityClass of a changed priority: no cluster can have one of this name."""


class Change(msgspec.Struct, frozen=True):
    """One change. ``what`` it is of: a queue's "quota", a node's "room", the "priority" of the job, a running "job"
    gone. ``subject`` names the queue, node or job; ``field`` what is changed of it; ``before`` and ``after`` are
    quantities by resource (under the empty name where there is but one number; both empty for a job that is gone).
    ``by`` names the lowest PriorityClass there is that gives the job such a priority.
    """

    what: What
    subject: str
    field: str
    before: dict[str, str]
    after: dict[str, str]
    by: str = ""

    def text(self) -> str:
        """``queue team-a's capability of cpu 40 -> 42``."""
        if self.what == "job":
            return f"running job {self.subject} gone"
        whose = {"quota": "queue", "room": "node", "priority": "job"}[self.what]
        of = " of " if any(self.after) else " "
        steps = " and ".join(f"{name} {self.before[name]} -> {after}".strip() for name, after in self.after.items())
        return f"{whose} {self.subject}'s {self.field}{of}{steps}" + (f" ({self.by})" if self.by else "")


def with_queue(snapshot: Snapshot, queue: Queue) -> Snapshot:
    """With another content of a queue. Raises BadObject where its quantities cannot be read."""
    return dataclasses.replace(snapshot, queues={**snapshot.queues, queue.metadata.name: QueueRecord.of(queue)})


def with_room(snapshot: Snapshot, name: str, more: Mapping[str, int]) -> Snapshot:
    """With more allocatable on a node, by resource in the units of ``vcd.model.requests``."""
    facts = snapshot.facts
    records = {}
    for row, node in enumerate(facts.nodes):
        if facts.names[row] == name:
            offered = node.status.allocatable or node.status.capacity
            values = resource_values(offered)
            texts = {key: format_resource(key, values.get(key, 0) + amount) for key, amount in more.items()}
            node = altered(node, status={"allocatable": {**offered, **texts}})
        records[facts.names[row]] = NodeRecord.of(node)
    return dataclasses.replace(snapshot, facts=NodeFacts(records, facts.resources))


def with_priority(snapshot: Snapshot, group: str, value: int) -> Snapshot:
    """With another priority of a group, as by a PriorityClass of that value."""
    record = snapshot.groups[group]
    changed = dataclasses.replace(record, group=altered(record.group, spec={"priority_class_name": CHANGED_CLASS}))
    made: dict[str, Object] = {CHANGED_CLASS: PriorityClass(metadata=ObjectMeta(name=CHANGED_CLASS), value=value)}
    classes = {**snapshot.others.get("PriorityClass", {}), **made}
    return dataclasses.replace(
        snapshot, groups={**snapshot.groups, group: changed}, others={**snapshot.others, "PriorityClass": classes}
    )


def without_jobs(snapshot: Snapshot, groups: Collection[str]) -> Snapshot:
    """Without some groups and all of their pods, as if they had been deleted and were gone."""
    tasks = snapshot.tasks
    numbers = [number for number, key in enumerate(snapshot.job_keys) if key in groups]
    gone = np.isin(tasks.job, numbers)
    rows = np.flatnonzero(gone).tolist()
    keys, pods = list(tasks.keys), list(tasks.pods)
    for row in rows:
        keys[row] = pods[row] = None
    names = frozenset(key for row in rows if (key := tasks.keys[row]) is not None)
    columns = dataclasses.replace(
        tasks,
        status=np.where(gone, TaskStatus.UNKNOWN, tasks.status).astype(tasks.status.dtype),
        node=np.where(gone, -1, tasks.node).astype(tasks.node.dtype),
        job=np.where(gone, -1, tasks.job).astype(tasks.job.dtype),
        keys=Pages(keys),
        pods=Pages(pods),
    )
    kept: dict[str, Any] = {
        name: {key: value for key, value in getattr(snapshot, name).items() if key not in gone_keys}
        for known, gone_keys in ((_BY_GROUP, groups), (_BY_POD, names))
        for name in known
    }
    return dataclasses.replace(snapshot, tasks=columns, **kept)
