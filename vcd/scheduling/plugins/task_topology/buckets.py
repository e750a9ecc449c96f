"""Buckets of one job's tasks that belong on the same node, by the affinity of their roles.

Source: Volcano ``plugins/task-topology``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.quantity import to_volcanos_unit
from vcd.model.resource_requests import CPU, LARGEST_SUM, MEMORY
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.search.parts import Scores
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.views import Task
from vcd.state.interning import NO_ROW
from vcd.state.records import TASK_SPEC, Shape
from vcd.state.snapshot_content import GONE
from vcd.state.sums import sums_up_to

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER = "volcano.sh/task-topology-task-order"
ANNOTATIONS = (AFFINITY, ANTI_AFFINITY, TASK_ORDER)

_SELF_ANTI, _INTER, _SELF, _INTER_ANTI = 4, 3, 2, 1
"""Rank of a role by the kinds of its rules; the highest counts, and higher ranks are placed first."""
_MIB = 1024 * 1024


class TopologyError(ValueError):
    """Annotations that do not describe a topology of the job; the message names the annotation and the problem."""


class Topology(NamedTuple):
    """Sets of roles with affinity or anti-affinity (a single role: to its own tasks), and ordered roles."""

    affinity: tuple[tuple[str, ...], ...] = ()
    anti_affinity: tuple[tuple[str, ...], ...] = ()
    order: tuple[str, ...] = ()


def read_topology(annotations: Mapping[str, str], roles: Collection[str]) -> Topology:
    """Parse a group's annotations. Raises TopologyError."""
    affinity, anti, order = (annotations.get(key) for key in ANNOTATIONS)
    return Topology(
        () if affinity is None else _sets_of(AFFINITY, affinity.split(";"), roles),
        () if anti is None else _sets_of(ANTI_AFFINITY, anti.split(";"), roles),
        () if order is None else _sets_of(TASK_ORDER, [order], roles)[0],
    )


def _sets_of(key: str, texts: Iterable[str], roles: Collection[str]) -> tuple[tuple[str, ...], ...]:
    found = tuple(tuple(text.split(",")) for text in texts)
    for names in found:
        seen: list[str] = []
        for name in filter(None, names):
            if name not in roles:
                raise TopologyError(f"{key}: task {name} does not exist in the job")
            if name in seen:
                raise TopologyError(f"{key}: task {name} is named twice in {','.join(names)}")
            seen.append(name)
    return found


class _Relations:
    """Affinity and anti-affinity between roles: role -> roles, possibly including itself."""

    def __init__(self, topology: Topology) -> None:
        self.affinity: dict[str, dict[str, None]] = {}
        self.anti_affinity: dict[str, dict[str, None]] = {}
        self.priority: dict[str, int] = {}
        self._relate(self.affinity, topology.affinity, _SELF, _INTER)
        self._relate(self.anti_affinity, topology.anti_affinity, _SELF_ANTI, _INTER_ANTI)
        count = len(topology.order)
        self.order = {name: count - place for place, name in enumerate(topology.order)}

    def _relate(
        self, table: dict[str, dict[str, None]], sets: Iterable[tuple[str, ...]], alone: int, together: int
    ) -> None:
        for names in sets:
            for name in names:
                others = names if len(names) == 1 else [other for other in names if other != name]
                table.setdefault(name, {}).update(dict.fromkeys(others))
                self.priority[name] = max(self.priority.get(name, 0), alone if len(names) == 1 else together)

    def affinity_between(self, role: str, other: str) -> int:
        """Return 1 for affinity of a role to another, -1 for anti-affinity, 0 for neither or both."""
        return (other in self.affinity.get(role, ())) - (other in self.anti_affinity.get(role, ()))

    def roles_against(self, role: str) -> list[str]:
        """Return the roles with anti-affinity to a role."""
        return [other for other, disliked in self.anti_affinity.items() if role in disliked]

    def rank(self, role: str) -> tuple[int, int]:
        """Return a sort key, smallest first: the order that the user gave, then the kind of rule."""
        return -self.order.get(role, 0), -self.priority.get(role, 0)


class Bucket:
    """Tasks that belong together. ``waiting`` counts those without a node, ``placed`` the others by node.

    The bucket has the name of its first task.
    """

    def __init__(self, index: int, name: str, width: int) -> None:
        self.index = index
        self.name = name
        self.total = 0
        self.placed: dict[int, int] = {}
        self.request = [0] * width
        """What the pending tasks request together."""
        self._place_of: dict[int, int] = {}
        self._waiting: dict[int, int] = {}
        self._amounts: list[tuple[int, ...]] = []
        self._matrix: Ints | None = None
        self._shapes: list[Shape] = []

    @property
    def waiting(self) -> int:
        """The number of pending tasks."""
        return len(self._waiting)

    def add(self, task: Task) -> None:
        """Add a task, pending or on a node."""
        self.total += 1
        if task.node == NO_ROW:
            self._place_of[task.row] = len(self._shapes)
            self._amounts.append(task.amounts)
            self._shapes.append(task.shape)
            self.moved(task, 1)
        else:
            self.placed[task.node] = self.placed.get(task.node, 0) + 1

    def moved(self, task: Task, sign: int) -> None:
        """Count a task that was pending when the session began as pending (``sign`` 1), or as placed (-1)."""
        if task.row not in self._place_of:
            return
        if sign > 0:
            self._waiting[task.row] = self._place_of[task.row]
        else:
            del self._waiting[task.row]
        for column, amount in enumerate(task.amounts):
            self.request[column] += sign * amount

    def others(self, task: Task) -> Ints:
        """Return the requests (tasks, resources) of the pending tasks except one like ``task``, in order of adding."""
        if self._matrix is None:
            self._matrix = np.array(self._amounts, np.int64)
        places = sorted(self._waiting.values())
        place_of_task = next((place for place in places if self._shapes[place] is task.shape), None)
        others: Ints = self._matrix[[place for place in places if place != place_of_task]]
        return others


class _Filling:
    """The buckets of a job while they are built, as columns: tasks by role, and the load of pending tasks."""

    def __init__(self, relations: _Relations, tasks: int) -> None:
        self._code_of = {role: code for code, role in enumerate(relations.priority)}
        self._affinity = np.array(
            [[relations.affinity_between(role, other) for other in self._code_of] for role in self._code_of], np.int64
        ).reshape(len(self._code_of), len(self._code_of))
        self._counts = np.zeros((tasks, len(self._code_of)), np.int64)
        self._loads = np.zeros(tasks)
        self._buckets = 0

    def add(self, index: int, role: str, load: float) -> None:
        """Count a task in a bucket."""
        self._buckets = max(self._buckets, index + 1)
        self._counts[index, self._code_of[role]] += 1
        self._loads[index] += load

    def best(self, role: str) -> int | None:
        """Return the bucket with the highest affinity for a role, at equality the least load, then the oldest.

        None if anti-affinity prevails in all.
        """
        if not self._buckets:
            return None
        affinity = self._counts[: self._buckets] @ self._affinity[self._code_of[role]]
        most = affinity.max()
        if most < 0:
            return None
        ties = np.flatnonzero(affinity == most)
        return int(ties[self._loads[ties].argmin()])


def _load(task: Task) -> float:
    """Return a task's request as one number: a thousandth of a unit counts as much as a mebibyte of memory."""
    requested = dict(task.shape.requests)
    cpu, memory = requested.pop(CPU, 0), requested.pop(MEMORY, 0)
    return cpu + memory / _MIB + sum(amount * to_volcanos_unit(name) for name, amount in requested.items())


class JobTopology:
    """The buckets of one job. Tasks without a role, or with a role without rules, are in none."""

    def __init__(self, topology: Topology, tasks: Iterable[Task]) -> None:
        self._relations = _Relations(topology)
        self.buckets: list[Bucket] = []
        self.bucket_of: dict[int, Bucket] = {}
        self.largest = 0
        self._role_of: dict[int, str] = {}
        self._avoided: dict[str, dict[int, int]] = {}
        """Role -> node -> the number of tasks there to which the role has anti-affinity."""
        self._kind_of: dict[int, tuple[str, str]] = {}
        self._build(tasks)

    # --- building ---------------------------------------------------------------------------------------------------

    def _build(self, tasks: Iterable[Task]) -> None:
        """Build buckets of tasks on nodes, one per node, and then add each other task to its best bucket."""
        concerned = []
        for task in tasks:
            role = task.pod.metadata.annotations.get(TASK_SPEC, "")
            if role:
                self._role_of[task.row] = role
                if task.node >= 0 and task.status in ALLOCATED_STATUSES:
                    self._count(task.row, task.node, 1)
            if role and role in self._relations.priority:
                concerned.append(task)
        filling = _Filling(self._relations, len(concerned))
        by_node: dict[int, Bucket] = {}
        # rows are sorted by name; all deleted nodes, whose names are unknown, count as one
        for task in sorted(concerned, key=lambda task: (task.node == GONE, task.node)):
            if task.node != NO_ROW:
                by_node[task.node] = self._put(by_node.get(task.node), task, filling)
        waiting = [task for task in concerned if task.node == NO_ROW]
        waiting.sort(key=lambda task: (self._relations.rank(self._role_of[task.row]), task.name))
        for task in waiting:
            role = self._role_of[task.row]
            best = filling.best(role)
            bucket = self._put(None if best is None else self.buckets[best], task, filling)
            self._kind_of[task.row] = (bucket.name, role)

    def _put(self, bucket: Bucket | None, task: Task, filling: _Filling) -> Bucket:
        """Add a task to a bucket, to a new one if None is given."""
        if bucket is None:
            bucket = Bucket(len(self.buckets), task.name, len(task.amounts))
            self.buckets.append(bucket)
        bucket.add(task)
        filling.add(bucket.index, self._role_of[task.row], _load(task) if task.node == NO_ROW else 0.0)
        self.bucket_of[task.row] = bucket
        self.largest = max(self.largest, bucket.total)
        return bucket

    # --- placements -------------------------------------------------------------------------------------------------

    def _count(self, row: int, node: int, change: int) -> None:
        role = self._role_of.get(row)
        for other in () if role is None else self._relations.roles_against(role):
            avoided = self._avoided.setdefault(other, {})
            avoided[node] = avoided.get(node, 0) + change

    def placed(self, task: Task, node: int) -> None:
        """Record that a task was placed on a node, or that its eviction was rolled back."""
        self._count(task.row, node, 1)
        bucket = self.bucket_of.get(task.row)
        if bucket is not None:
            bucket.placed[node] = bucket.placed.get(node, 0) + 1
            bucket.moved(task, -1)

    def removed(self, task: Task, node: int) -> None:
        """Record that a task was removed from a node; it is pending again if it was when the session began."""
        self._count(task.row, node, -1)
        bucket = self.bucket_of.get(task.row)
        if bucket is not None:
            bucket.placed[node] = bucket.placed.get(node, 0) - 1
            bucket.moved(task, 1)

    # --- queries ----------------------------------------------------------------------------------------------------

    def key_of(self, task: Task) -> tuple[str, str] | None:
        """Return bucket name and role of a task that was pending when the session began; None in no bucket."""
        return self._kind_of.get(task.row)

    def order(self, task: Task) -> tuple[int, int, int, int, int]:
        """Return a sort key, smallest first."""
        bucket = self.bucket_of.get(task.row)
        if bucket is None:
            return 1, 0, 0, 0, 0
        return 0, -bucket.waiting, bucket.index, *self._relations.rank(self._role_of[task.row])

    def points(self, task: Task, usage: Usage) -> Scores:
        """Return the score of each row of ``usage`` before weight.

        It counts the bucket's tasks there, less tasks that the task has anti-affinity to, plus pending ones that would
        fit with it. It is 0 if the task does not fit into idle and releasing resources.
        """
        bucket = self.bucket_of[task.row]
        free = usage.idle + usage.releasing
        fits = (free >= task.floor[:, None]).all(axis=0)
        score = np.full(len(usage), bucket.waiting, np.int64)
        self._add_present(score, bucket, self._role_of[task.row], usage)
        score -= _misfits(bucket, task, free)
        return np.where(fits, score, 0).astype(np.float64)

    def _add_present(self, score: Ints, bucket: Bucket, role: str, usage: Usage) -> None:
        """Add the bucket's tasks on the nodes, and subtract tasks to which the role has anti-affinity."""
        for count, sign in ((bucket.placed, 1), (self._avoided.get(role, {}), -1)):
            nodes = np.fromiter(count.keys(), np.intp, len(count))
            numbers = np.fromiter(count.values(), np.int64, len(count)) * sign
            if usage.rows is None:
                there = nodes != GONE
                score[nodes[there]] += numbers[there]
            else:
                score += np.array([sign * count.get(row, 0) for row in usage.rows.tolist()], np.int64)


def _misfits(bucket: Bucket, task: Task, free: Ints) -> Ints:
    """Return by node how many other pending tasks of the bucket do not fit with the task, the last added first."""
    misfits = np.zeros(free.shape[1], np.int64)
    tight = [
        column
        for column, amount in enumerate(bucket.request)
        if (amount or column < 2) and amount > free[column].min(initial=LARGEST_SUM)  # the sum may exceed int64
    ]
    if not tight:
        return misfits
    others = bucket.others(task)
    for column in tight:
        amounts = others[:, column].tolist()
        own = min(bucket.request[column] - sum(amounts), LARGEST_SUM)
        together = sums_up_to(np.array([own, *amounts]))
        over = len(together) - np.searchsorted(together, free[column], side="right")
        np.maximum(misfits, np.minimum(over, len(others)), out=misfits)
    return misfits
