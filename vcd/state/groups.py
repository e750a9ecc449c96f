"""Groups in columns, with what their pods sum up to: what a session and its plugins read of all groups at once.

The columns of one snapshot are made from those of the one before by what changed in between; made from nothing, they
are the same.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from vcd.model.events import Waiting
from vcd.model.objects import PodGroup, PriorityClass
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, STATUSES, TaskStatus
from vcd.state.content import Content, TaskColumns
from vcd.state.interning import Computed, Pages
from vcd.state.records import GroupRecord, Shape, has_gate, has_queue_gate, needs_no_room, opts_into_queue_gate
from vcd.state.sums import Ints, changed, sums_by

Rows = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int32]
Column = npt.NDArray[Any]
Derived = Callable[["GroupColumns", Rows], Column]
"""What is computed of some groups, by index, in their order."""

NO_GROUP = -1
_NOWHERE = -1
_FEW = 1000
"""Up to so many groups are looked for one by one."""
_ALLOCATED = np.array([status in ALLOCATED_STATUSES for status in TaskStatus])
_HOLDABLE = [int(status) for status in (*READY_STATUSES, TaskStatus.PENDING)]
_VOLCANO_JOBS = "batch.volcano.sh/"


class By(enum.Enum):
    """What groups are summed up by."""

    QUEUE = enum.auto()
    PRIORITY = enum.auto()
    QUEUE_AND_PRIORITY = enum.auto()


class GroupColumns:
    """The groups whose queue exists, in order of key, one row each.

    ``queue`` is a position among the queues' sorted names. ``counts`` (groups, statuses); ``allocated``, ``pending``,
    ``min_resources`` (groups, resources), where ``pending`` sums the requests of pending tasks; ``states_minimum``
    whether minResources is given; ``releasing`` counts those being deleted that are still on a node, be it one that is
    gone. ``of_row`` is the group of each row of the snapshot's tasks, NO_GROUP where there is
    none, or where the pod is another scheduler's and waits.

    ``too_large`` marks groups that no node could hold: of whose pods too few for the minimum are as small as a node,
    or, before a Volcano Job has pods, whose mean pod is larger than any. Not ``reserves`` one that no node could hold,
    or that asks for what is not supported; ``held_back`` (groups, resources) is what pods ask for that a foreign
    scheduling gate holds or that are larger than any node.
    """

    keys: list[str]
    records: list[GroupRecord]
    tasks: TaskColumns
    shapes: Pages[Shape | None]
    waiting: Mapping[str, tuple[Waiting, ...]]
    of_row: Ints
    created: Ints
    phase: npt.NDArray[np.int8]
    min_member: Ints
    queue: npt.NDArray[np.int32]
    priority: Ints
    states_minimum: npt.NDArray[np.bool_]
    min_resources: Ints
    counts: Counts
    allocated: Ints
    pending: Ints
    best_effort_pending: Counts
    releasing: Counts
    too_large: npt.NDArray[np.bool_]
    reserves: npt.NDArray[np.bool_]
    held_back: Ints

    def __init__(self, snapshot: Content) -> None:
        self._basis = _basis(snapshot)
        self._queues = len(snapshot.queues)
        self.cached = Computed()
        """What follows from these columns alone."""
        self._sums: dict[tuple[str | Derived, By], Ints] = {}
        self._derived: dict[Derived, Column] = {}
        self.tasks, self.shapes, self.waiting = snapshot.tasks, snapshot.shapes, snapshot.waiting
        queues = frozenset(snapshot.queues)
        default = snapshot.settings.default_queue
        keys = sorted(snapshot.groups)
        records = [snapshot.groups[key] for key in keys]
        stays = [(record.group.spec.queue or default) in queues for record in records]
        self.keys, self.records = list(compress(keys, stays)), list(compress(records, stays))
        count, width = len(self.keys), len(snapshot.resources)
        for name, (dtype, wide) in _COLUMNS.items():
            setattr(self, name, np.zeros((count, width) if wide else count, dtype))
        self.counts = np.zeros((count, STATUSES), np.int32)
        self.of_row = np.full(len(snapshot.tasks.job), NO_GROUP, np.int64)
        self._find_groups(snapshot, np.arange(len(self.of_row)))
        self._fill(snapshot, np.arange(count), np.arange(count))

    def with_changes(self, snapshot: Content, groups: Sequence[str], rows: Sequence[int]) -> GroupColumns:
        """The columns of a later snapshot in which no more than some groups, by key, and rows of tasks are others."""
        if self._basis != _basis(snapshot):
            return GroupColumns(snapshot)
        if not (groups or rows):
            return self
        result = object.__new__(GroupColumns)
        result._basis, result._queues, result.cached, result._sums = self._basis, self._queues, Computed(), {}
        result.tasks, result.shapes, result.waiting = snapshot.tasks, snapshot.shapes, snapshot.waiting
        moved, added = result._arrange(self, snapshot, groups)
        of_row = np.full(len(snapshot.tasks.job), NO_GROUP, np.int64)
        of_row[: len(self.of_row)] = moved[self.of_row]
        changed = np.array(rows, np.intp)
        of_row_before = self.of_row[changed[changed < len(self.of_row)]]
        before = moved[of_row_before]
        if len(added):  # pods may have been there before their group
            changed = np.union1d(changed, np.flatnonzero((of_row == NO_GROUP) & (snapshot.tasks.job >= 0)))
        result.of_row = of_row
        result._find_groups(snapshot, changed)
        renewed = np.array([index for key in groups if (index := result.index(key)) is not None], np.intp)
        touched = np.unique(np.concatenate([before, of_row[changed], renewed]))
        touched = touched[touched >= 0]
        result._fill(snapshot, touched, np.unique(renewed))
        place_before = np.full(len(result) + 1, NO_GROUP, np.int64)
        place_before[moved[:-1]] = np.arange(len(self))
        gone = np.array([index for key in groups if (index := self.index(key)) is not None], np.intp)
        then = np.unique(np.concatenate([of_row_before, gone, place_before[touched]]))
        result._carry_sums(self, then[then >= 0], touched)
        return result

    # --- what others ask --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.keys)

    def index(self, key: str) -> int | None:
        """The row of a group, None where it is not among these."""
        at = bisect_left(self.keys, key)
        return at if at < len(self.keys) and self.keys[at] == key else None

    def records_of(self, rows: Rows) -> list[GroupRecord]:
        """The records of some rows, ascending."""
        return self.records if len(rows) == len(self) else [self.records[row] for row in rows.tolist()]

    def derived(self, of: Derived) -> Column:
        """A column that a function of a module computes of each group, from its record and these columns alone; it is
        computed again only for groups of which something changed."""
        found = self._derived.get(of)
        if found is None:
            found = self._derived[of] = of(self, np.arange(len(self)))
        return found

    def sums(self, of: str | Derived, by: By = By.QUEUE) -> Ints:
        """Sums of one of these columns, by its name, or of what a function of a module computes of groups: one row by
        queue, by rank of the priority, or for each queue its ranks; by resource. Groups that did not change are not
        looked at again."""
        found = self._sums.get((of, by))
        if found is None:
            found = self._sums[of, by] = self._summed(of, by, np.arange(len(self)))
        return found

    @cached_property
    def priorities(self) -> Ints:
        """The priorities of groups, ascending; one's rank is its place here."""
        first = self.priority[:1]
        return first if (self.priority == first).all() else np.unique(self.priority)

    def reservable(self, rows: int | Rows) -> Ints:
        """What an admitted group's minimum counts as: nothing where it does not reserve."""
        return self._not_held_back(self.min_resources[rows], rows)

    def missing(self, rows: int | Rows) -> Ints:
        """The same beside what it holds."""
        return self._not_held_back(np.maximum(self.min_resources[rows] - self.allocated[rows], 0), rows)

    def rows_of(self, index: int) -> list[int]:
        """The rows of a group's pods, ascending."""
        order, groups = self.cached("rows by group", self._rows_by_group)
        first, last = np.searchsorted(groups, [index, index + 1])
        rows: list[int] = order[first:last].tolist()
        return rows

    def _rows_by_group(self) -> tuple[Rows, Ints]:
        order = np.argsort(self.of_row, kind="stable")
        return order, self.of_row[order]

    def members(self, indices: Rows) -> list[list[int]]:
        """Of each of some groups the rows of its pods, in order of key."""
        place = np.full(len(self) + 1, NO_GROUP, np.int64)
        place[indices] = np.arange(len(indices))
        of_row = place[self.of_row]
        rows = np.flatnonzero(of_row >= 0)
        listed: list[int] = rows.tolist()
        found: list[list[tuple[str, int]]] = [[] for _ in range(len(indices))]
        for group, key, row in zip(of_row[rows].tolist(), self.tasks.keys_of(listed), listed, strict=True):
            found[group].append((key, row))
        return [[row for _, row in sorted(pods)] for pods in found]

    def mean_minimum(self, index: int | slice | Rows) -> Ints:
        """What a pod of the minimum asks for on average, rounded up."""
        members = np.maximum(self.min_member[index], 1)
        return -(-self.min_resources[index] // members[..., None])

    def _not_held_back(self, amounts: Ints, rows: int | Rows) -> Ints:
        left: Ints = np.maximum(amounts - self.held_back[rows], 0) * self.reserves[rows][..., None]
        return left

    # --- keeping up -------------------------------------------------------------------------------------------------

    def _summed(self, of: str | Derived, by: By, rows: Rows) -> Ints:
        """The sums over some groups."""
        number, count = np.zeros(len(rows), np.int64), 1
        if by is not By.PRIORITY:
            number, count = number + self.queue[rows], self._queues
        if by is not By.QUEUE:
            ranks = np.searchsorted(self.priorities, self.priority[rows])
            number, count = number * len(self.priorities) + ranks, count * len(self.priorities)
        return sums_by(number, getattr(self, of)[rows] if isinstance(of, str) else of(self, rows), count)

    def _carry_sums(self, before: GroupColumns, then: Rows, now: Rows) -> None:
        """Take over sums, less those of some groups as they were before, and with those of some as they are now."""
        ranked = np.array_equal(self.priorities, before.priorities)
        for (of, by), sums in before._sums.items():
            if ranked or by is By.QUEUE:
                carried = changed(sums, before._summed(of, by, then), self._summed(of, by, now))
                if carried is not None:
                    self._sums[of, by] = carried

    def _arrange(self, before: GroupColumns, snapshot: Content, groups: Iterable[str]) -> tuple[Ints, Rows]:
        """Take over what was, with rows for new groups and none for those that are gone: the new row of each old one,
        with a last entry for none, and the new rows."""
        default, queues = snapshot.settings.default_queue, snapshot.queues
        gone, new = [], []
        records = list(before.records)
        for key in groups:
            record, index = snapshot.groups.get(key), before.index(key)
            if record is not None and (record.group.spec.queue or default) not in queues:
                record = None
            if index is None:
                if record is not None:
                    new.append(key)
            elif record is None:
                gone.append(index)
            else:
                records[index] = record
        new.sort()
        gone.sort()
        moved = np.arange(len(before) + 1)
        moved[-1] = NO_GROUP
        if not (gone or new):
            self.keys, self.records = before.keys, records
            for name in (*_COLUMNS, "counts"):
                setattr(self, name, getattr(before, name).copy())
            self._derived = {of: column.copy() for of, column in before._derived.items() if not _is_spent(of)}
            return moved, np.zeros(0, np.intp)
        keys = list(before.keys)
        for index in reversed(gone):
            del keys[index], records[index]
        places = np.array([bisect_left(keys, key) for key in new], np.intp)
        for place, key in zip(places[::-1].tolist(), reversed(new), strict=True):
            keys.insert(place, key)
            records.insert(place, snapshot.groups[key])
        self.keys, self.records = keys, records
        stays = np.ones(len(before), np.bool_)
        stays[gone] = False
        rank = np.arange(int(stays.sum()))
        moved[:-1][stays] = rank + np.searchsorted(places, rank, side="right")
        moved[gone] = NO_GROUP
        for name in (*_COLUMNS, "counts"):
            setattr(self, name, _rearranged(getattr(before, name), gone, places))
        self._derived = {
            of: _rearranged(column, gone, places) for of, column in before._derived.items() if not _is_spent(of)
        }
        return moved, places + np.arange(len(places))

    def _find_groups(self, snapshot: Content, rows: Rows) -> None:
        """Of which group the pods of some rows are."""
        tasks, job_keys = snapshot.tasks, snapshot.job_keys
        names = snapshot.settings.scheduler_names
        ours = np.array([not names or name in names for name in snapshot.schedulers] + [False], np.bool_)
        numbers, at = np.unique(tasks.job[rows], return_inverse=True)
        index = self.index if len(numbers) < _FEW else dict(zip(self.keys, range(len(self)), strict=True)).get
        named = numbers >= 0
        found = [index(key or "") for key in job_keys.at(numbers[named].tolist())]
        of_number = np.full(len(numbers), NO_GROUP, np.int64)
        of_number[named] = [NO_GROUP if index is None else index for index in found]
        visible = ours[tasks.scheduler[rows]] | (tasks.node[rows] != _NOWHERE)
        self.of_row[rows] = np.where(visible, of_number[at.reshape(-1)], NO_GROUP)

    def _fill(self, snapshot: Content, indices: Rows, renewed: Rows) -> None:
        """Compute the rows of some groups anew; the objects of those ``renewed`` are others."""
        self._read(snapshot, renewed)
        self._sum_up(snapshot, indices)
        self._judge_sizes(snapshot, indices)
        for of, column in self._derived.items():
            column[indices] = of(self, indices)

    def _read(self, snapshot: Content, indices: Rows) -> None:
        records = [self.records[index] for index in indices.tolist()]
        specs = [record.group.spec for record in records]
        default = snapshot.settings.default_queue
        number_of = {name: number for number, name in enumerate(sorted(snapshot.queues))}
        column_of = {name: column for column, name in enumerate(snapshot.resources)}
        self.phase[indices] = np.frombuffer(bytes([record.phase for record in records]), np.int8)
        self.created[indices] = [record.created for record in records]
        self.min_member[indices] = [spec.min_member for spec in specs]
        self.queue[indices] = [number_of[spec.queue or default] for spec in specs]
        self.priority[indices] = priorities_of(snapshot, records)
        minima = [record.min_resources for record in records]
        self.states_minimum[indices] = [minimum is not None for minimum in minima]
        self.unsupported[indices] = [bool(record.unsupported) for record in records]
        self.min_resources[indices] = 0
        for index, minimum in zip(compress(indices.tolist(), minima), filter(None, minima), strict=True):
            for name, value in minimum.items():
                self.min_resources[index, column_of[name]] = value

    def _sum_up(self, snapshot: Content, indices: Rows) -> None:
        tasks, shapes, count = snapshot.tasks, snapshot.shape_columns, len(indices)
        place = np.full(len(self) + 1, NO_GROUP, np.int64)
        place[indices] = np.arange(count)
        all_groups = place[self.of_row]
        rows = np.flatnonzero(all_groups >= 0)
        group, status, shape = all_groups[rows], tasks.status[rows].astype(np.int64), tasks.shape[rows]
        self.counts[indices] = np.bincount(group * STATUSES + status, minlength=count * STATUSES).reshape(-1, STATUSES)
        releasing = (status == TaskStatus.RELEASING) & (tasks.node[rows] != _NOWHERE)
        self.releasing[indices] = np.bincount(group[releasing], minlength=count)
        held = _ALLOCATED[status]
        self.allocated[indices] = sums_by(group[held], shapes.requests[shape[held]], count)
        waits = status == TaskStatus.PENDING  # few beside those that run
        rows, group, shape = rows[waits], group[waits], shape[waits]
        best_effort = shapes.flags(needs_no_room)[shape]
        too_large = snapshot.facts.too_large(shapes.requests[shape])
        held_back = too_large | scheduling_gated(snapshot, rows)
        self.too_large_pending[indices] = np.bincount(group[too_large], minlength=count)
        self.best_effort_pending[indices] = np.bincount(group[best_effort], minlength=count)
        self.pending[indices] = sums_by(group, shapes.requests[shape], count)
        self.held_back[indices] = sums_by(group[held_back], shapes.requests[shape[held_back]], count)

    def _judge_sizes(self, snapshot: Content, indices: Rows) -> None:
        facts, counts, pending = snapshot.facts, self.counts[indices], self.too_large_pending[indices]
        possible = counts[:, _HOLDABLE].sum(axis=1) - pending
        too_large = (pending > 0) & (possible < np.maximum(self.min_member[indices], 1))
        unborn = np.flatnonzero((counts.sum(axis=1) == 0) & (len(facts) > 0))
        larger = (self.mean_minimum(indices[unborn]) > facts.largest).any(axis=1)
        for index in unborn[larger].tolist():
            too_large[index] = _is_of_volcano_job(self.records[indices[index]].group)
        self.too_large[indices] = too_large
        self.reserves[indices] = ~(too_large | self.unsupported[indices])

    unsupported: npt.NDArray[np.bool_]
    too_large_pending: Counts


_COLUMNS: dict[str, tuple[Any, bool]] = {
    "phase": (np.int8, False),
    "created": (np.int64, False),
    "min_member": (np.int64, False),
    "queue": (np.int32, False),
    "priority": (np.int64, False),
    "states_minimum": (np.bool_, False),
    "unsupported": (np.bool_, False),
    "min_resources": (np.int64, True),
    "allocated": (np.int64, True),
    "pending": (np.int64, True),
    "best_effort_pending": (np.int32, False),
    "releasing": (np.int32, False),
    "too_large_pending": (np.int32, False),
    "held_back": (np.int64, True),
    "too_large": (np.bool_, False),
    "reserves": (np.bool_, False),
}
"""The columns by name: their type, and whether they have one number per resource."""


def _basis(snapshot: Content) -> Hashable:
    """What else the columns follow from; where it is another one, they are made anew."""
    return (
        snapshot.settings,
        snapshot.resources,
        tuple(sorted(snapshot.queues)),
        snapshot.others_version.get("PriorityClass", 0),
        len(snapshot.facts) > 0,
        snapshot.facts.largest.tobytes(),
        snapshot.facts.sizes.tobytes(),
    )


def _is_spent(of: Derived) -> bool:
    """Whether what computes a column says that it should begin anew."""
    return bool(getattr(of, "is_spent", False))


def _rearranged(column: Column, gone: Sequence[int], places: Rows) -> Column:
    """Without some rows, and with new ones before some of those that are left."""
    if not column.any():  # sparing the copy of what nobody has is most of the work
        return np.zeros((len(column) - len(gone) + len(places), *column.shape[1:]), column.dtype)
    if len(gone):
        column = np.delete(column, gone, axis=0)
    if len(places) > _FEW:
        return np.insert(column, places, 0, axis=0)
    blank = np.zeros((1, *column.shape[1:]), column.dtype)
    parts, last = [], 0
    for place in places.tolist():
        parts += [column[last:place], blank]
        last = place
    return np.concatenate([*parts, column[last:]])


def priorities_of(snapshot: Content, records: Sequence[GroupRecord]) -> Ints:
    """Groups' priorities: of their class, else of the global default class, else 0."""
    classes = snapshot.others.get("PriorityClass", {})
    values = {name: obj.value for name, obj in classes.items() if isinstance(obj, PriorityClass)}
    defaults = [
        (name, obj.value) for name, obj in classes.items() if isinstance(obj, PriorityClass) and obj.global_default
    ]
    default = min(defaults)[1] if defaults else 0
    if not classes:
        return np.zeros(len(records), np.int64)
    return np.array([values.get(record.group.spec.priority_class_name, default) for record in records], np.int64)


def scheduling_gated(snapshot: Content, rows: Rows) -> npt.NDArray[np.bool_]:
    """Of tasks, by row, those that `has_gate` is true of, or that wait at their queue's gate and do not ask for it to
    be lifted: what nobody lets through holds no quota."""
    tasks, columns = snapshot.tasks, snapshot.shape_columns
    shapes = tasks.shape[rows]
    held = columns.flags(has_gate)[shapes]
    at_queue = columns.flags(_has_queue_gate)[shapes]
    for index in np.flatnonzero(at_queue & ~held).tolist():
        pod = tasks.pods[rows[index]]
        held[index] = pod is not None and not opts_into_queue_gate(pod)
    return held


def _has_queue_gate(shape: Any) -> bool:
    return has_queue_gate(shape.spec)


def _is_of_volcano_job(group: PodGroup) -> bool:
    """Whether a group's minimum is the sum of what minMember pods ask for, as the controller of Volcano Jobs writes
    it: others, such as Spark's, write what all of their pods together need."""
    owners = group.metadata.owner_references
    return any(owner.kind == "Job" and owner.api_version.startswith(_VOLCANO_JOBS) for owner in owners)
