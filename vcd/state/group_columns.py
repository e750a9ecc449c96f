"""Groups in columns, with sums over their pods: what a session and its plugins read of all groups at once.

The columns of a snapshot are derived from those of the previous one and the changes since. Built from scratch, they
must be equal.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import chain, compress, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.events import Waiting
from vcd.model.objects import PodGroup, PriorityClass
from vcd.model.status import ALLOCATED_STATUSES, READY_STATUSES, STATUSES, TaskStatus
from vcd.state.interning import NO_ROW, Computed, Pages
from vcd.state.records import (
    GroupRecord,
    Shape,
    has_gate,
    has_queue_gate,
    needs_no_room,
    opts_into_queue_gate,
    task_role,
)
from vcd.state.row_rearrangement import NEW, Rearrangement
from vcd.state.shape_columns import write_amounts
from vcd.state.snapshot_content import Content, TaskColumns
from vcd.state.sums import Ints, changed, sums_by

Rows = npt.NDArray[np.intp]
Counts = npt.NDArray[np.int32]
Column = npt.NDArray[Any]
Derived = Callable[["GroupColumns", Rows], Column]
"""Computes a value for each of some groups, given by index, in their order."""

NO_GROUP = -1
_FEW = 1000
"""Up to this many groups are looked up one by one."""
_ALLOCATED = np.array([status in ALLOCATED_STATUSES for status in TaskStatus])
_HOLDABLE = np.array([status in (*READY_STATUSES, TaskStatus.PENDING) for status in TaskStatus], np.int32)
_VOLCANO_JOBS = "batch.volcano.sh/"


class By(enum.Enum):
    """The keys by which groups are summed up."""

    QUEUE = enum.auto()
    PRIORITY = enum.auto()
    QUEUE_AND_PRIORITY = enum.auto()


class GroupColumns:
    """The groups whose queue exists, in order of key, one row each.

    ``queue`` is an index into the sorted names of queues. ``counts`` is (groups, statuses). ``allocated``, ``pending``
    and ``min_resources`` are (groups, resources); ``pending`` sums the requests of pending tasks. ``states_minimum`` is
    whether minResources is given. ``releasing`` counts terminating pods on a node, even a deleted one. ``of_row`` is
    the group of each row of the snapshot's tasks, NO_GROUP if there is none or if the pod is pending and belongs to
    another scheduler.

    ``too_large`` marks groups that fit no nodes: too few of their pods for the minimum fit a node or, before a Volcano
    Job has pods, its mean pod fits none. ``reserves`` is false for groups that are too large, that were released
    and have not got their minimum since, or whose pods did not arrive in time. ``unsupported`` marks groups with fields
    for which they wait unless a plugin supports them. ``held_back`` (groups,
    resources) are the requests of pods with a foreign scheduling gate, of pods larger than any node, and of pods with a
    refused operation. ``lacks_role`` marks groups with fewer pods of some role than its minimum (minTaskMember).
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
    lacks_role: npt.NDArray[np.bool_]

    def __init__(self, snapshot: Content) -> None:
        self._basis = _basis(snapshot)
        self._queues = len(snapshot.queues)
        self.cached = Computed()
        """Results computed from these columns alone."""
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
        more = {"": (), "resources": (width,), "statuses": (STATUSES,)}
        self._take([np.zeros((len(block.names), count, *more[block.by]), block.dtype) for block in _BLOCKS])
        self.of_row = np.full(len(snapshot.tasks.job), NO_GROUP, np.int64)
        self._find_groups(snapshot, np.arange(len(self.of_row)))
        order = np.argsort(self.of_row, kind="stable")
        ends, rows = np.searchsorted(self.of_row[order], np.arange(count + 1)).tolist(), order.tolist()
        self._rows = [tuple(rows[start:end]) for start, end in pairwise(ends)]
        self._fill(snapshot, np.arange(count), np.arange(count))

    def with_changes(self, snapshot: Content, groups: Sequence[str], rows: Sequence[int]) -> GroupColumns:
        """Return the columns of a later snapshot, in which only the given groups (by key) and rows of tasks changed."""
        if self._basis != _basis(snapshot) or not len(self):
            return GroupColumns(snapshot)
        if not (groups or rows):
            return self
        result = object.__new__(GroupColumns)
        result._basis, result._queues, result.cached, result._sums = self._basis, self._queues, Computed(), {}
        result.tasks, result.shapes, result.waiting = snapshot.tasks, snapshot.shapes, snapshot.waiting
        place, place_before = result._arrange(self, snapshot, groups)
        of_row, more = place.take(self.of_row), len(snapshot.tasks.job) - len(self.of_row)
        result.of_row = np.concatenate([of_row, np.full(more, NO_GROUP, np.int64)]) if more else of_row
        changed = np.zeros(len(result.of_row), np.bool_)
        changed[rows] = True
        if (place_before == NEW).any():  # pods may be older than their group
            changed |= (result.of_row == NO_GROUP) & (snapshot.tasks.job >= 0)
        moved = np.flatnonzero(changed)
        then = result.of_row[moved].tolist()
        result._find_groups(snapshot, moved)
        now = result.of_row[moved].tolist()
        result._move(moved.tolist(), then, now)
        renewed = [index for key in groups if (index := result.index(key)) is not None]
        touched = np.array(sorted({*then, *now, *renewed} - {NO_GROUP}), np.intp)
        result._fill(snapshot, touched, np.array(sorted(renewed), np.intp))
        gone = np.flatnonzero(place[:-1] == NO_GROUP)
        before = place_before[touched]
        result._carry_sums(self, np.concatenate([before[before != NEW], gone]), touched)
        return result

    # --- queries ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.keys)

    def index(self, key: str) -> int | None:
        """Return the row of a group, or None if it is not among these."""
        at = bisect_left(self.keys, key)
        return at if at < len(self.keys) and self.keys[at] == key else None

    def records_of(self, rows: Rows) -> list[GroupRecord]:
        """Return the records of some rows, in ascending order."""
        return self.records if len(rows) == len(self) else [self.records[row] for row in rows.tolist()]

    def derived(self, of: Derived) -> Column:
        """Return a column computed by a function of a module, from each group's record and these columns alone.

        It is computed again only for changed groups.
        """
        found = self._derived.get(of)
        if found is None:
            found = self._derived[of] = of(self, np.arange(len(self)))
        return found

    def sums(self, of: str | Derived, by: By = By.QUEUE) -> Ints:
        """Return sums of a column, given by name, or of values computed by a function of a module.

        The result has one row per queue, per rank of priority, or per queue and rank, with a column per resource. Only
        changed groups are summed again.
        """
        found = self._sums.get((of, by))
        if found is None:
            found = self._sums[of, by] = self._sum_of_all(of, by)
        return found

    @cached_property
    def priorities(self) -> Ints:
        """The distinct priorities of groups, ascending; the rank of a priority is its index here."""
        first = self.priority[:1]
        return first if (self.priority == first).all() else np.unique(self.priority)

    def reservable(self, rows: int | Rows) -> Ints:
        """Return what an admitted group's minimum counts as: nothing if it does not reserve."""
        return self._not_held_back(self.min_resources[rows], rows)

    def missing(self, rows: int | Rows) -> Ints:
        """Return the part of ``reservable`` that exceeds what the group holds."""
        return self._not_held_back(np.maximum(self.min_resources[rows] - self.allocated[rows], 0), rows)

    def rows_of(self, index: int) -> list[int]:
        """Return the rows of a group's pods, ascending."""
        return list(self._rows[index])

    def members(self, indices: Rows) -> list[list[int]]:
        """Return the rows of the pods of each group, in order of key."""
        return [self.tasks.in_order(self._rows[index]) for index in indices.tolist()]

    def mean_minimum(self, index: int | slice | Rows) -> Ints:
        """Return the mean request of a pod of the minimum, rounded up."""
        members = np.maximum(self.min_member[index], 1)
        return -(-self.min_resources[index] // members[..., None])

    def _not_held_back(self, amounts: Ints, rows: int | Rows) -> Ints:
        left: Ints = np.maximum(amounts - self.held_back[rows], 0) * self.reserves[rows][..., None]
        return left

    def holding_back(self, rows: Rows, more: Ints, never: npt.NDArray[np.bool_]) -> GroupColumns:
        """Return these columns with ``more`` held back of some rows; rows marked ``never`` reserve nothing."""
        if not len(rows):
            return self
        result = copy(self)
        result.cached, result._sums, result._derived, result._base = Computed(), {}, {}, (self, rows)
        result.held_back, result.reserves = self.held_back.copy(), self.reserves.copy()
        result.held_back[rows] += more
        result.reserves[rows[never]] = False
        return result

    # --- updates ------------------------------------------------------------------------------------------------------

    def _sum_of_all(self, of: str | Derived, by: By) -> Ints:
        if self._base is None:
            return self._sum_over(of, by, np.arange(len(self)))
        base, rows = self._base
        found = changed(base.sums(of, by), base._sum_over(of, by, rows), self._sum_over(of, by, rows))
        return self._sum_over(of, by, np.arange(len(self))) if found is None else found

    def _sum_over(self, of: str | Derived, by: By, rows: Rows) -> Ints:
        return sums_by(self._numbers(by, rows), self._amounts(of, rows), self._count(by))

    def _amounts(self, of: str | Derived, rows: Rows) -> Ints:
        amounts: Ints = getattr(self, of)[rows] if isinstance(of, str) else of(self, rows)
        return amounts

    def _count(self, by: By) -> int:
        """Return the number of sums."""
        return (1 if by is By.PRIORITY else self._queues) * (1 if by is By.QUEUE else len(self.priorities))

    def _numbers(self, by: By, rows: Rows) -> Ints:
        """Return the index of the sum in which each group counts."""
        if by is By.QUEUE:
            return self.queue[rows].astype(np.int64)
        ranks = np.searchsorted(self.priorities, self.priority[rows])
        return ranks if by is By.PRIORITY else self.queue[rows] * len(self.priorities) + ranks

    def _carry_sums(self, before: GroupColumns, then: Rows, now: Rows) -> None:
        """Take over sums, minus the earlier values of groups ``then``, plus the current values of groups ``now``."""
        ranked = np.array_equal(self.priorities, before.priorities)
        numbers: dict[By, Ints] = {}
        for (of, by), sums in before._sums.items():
            if not (ranked or by is By.QUEUE):
                continue
            count = len(sums)
            if by not in numbers:
                numbers[by] = np.concatenate([before._numbers(by, then), self._numbers(by, now) + count])
            amounts = np.concatenate([before._amounts(of, then), self._amounts(of, now)])
            less, more = sums_by(numbers[by], amounts, 2 * count).reshape(2, *sums.shape)
            carried = changed(sums, less, more)
            if carried is not None:
                self._sums[of, by] = carried

    def _arrange(self, before: GroupColumns, snapshot: Content, groups: Iterable[str]) -> tuple[Ints, Ints]:
        """Take over rows, with unfilled rows for new groups and without deleted ones.

        Return the current row of each earlier row (with a last entry for none), and the earlier row of each current
        one.
        """
        default, queues = snapshot.settings.default_queue, snapshot.queues
        gone: list[int] = []
        new: dict[str, GroupRecord] = {}
        renewed: dict[int, GroupRecord] = {}
        for key in groups:
            record, index = snapshot.groups.get(key), before.index(key)
            if record is not None and (record.group.spec.queue or default) not in queues:
                record = None
            if index is not None and record is None:
                gone.append(index)
            elif index is not None and record is not None:
                renewed[index] = record
            elif record is not None:
                new[key] = record
        gone.sort()
        stays = np.ones(len(before), np.bool_)
        stays[gone] = False
        remaining, added = np.flatnonzero(stays), sorted(new)
        places = [at - bisect_left(gone, at) for at in [bisect_left(before.keys, key) for key in added]]
        is_old = np.ones(len(remaining) + len(added), np.bool_)
        is_old[[at + others for others, at in enumerate(places)]] = False
        place_before = np.full(len(is_old), NEW, np.int64)
        place_before[is_old] = remaining
        place = np.full(len(before) + 1, NO_GROUP, np.int64)
        place[remaining] = np.flatnonzero(is_old)
        now = Rearrangement(place_before)
        self.keys = now.items(before.keys, added)
        self.records = now.items(before.records, [new[key] for key in added])
        for index, record in renewed.items():
            self.records[place[index]] = record
        self._rows = now.items(before._rows, [()] * len(added))
        self._take([now.column(block, axis=1) for block in before._blocks])
        self._derived = {of: now.column(column) for of, column in before._derived.items() if not _is_spent(of)}
        return place, place_before

    def _take(self, blocks: list[Column]) -> None:
        """Set the columns as attributes, from one array for each of ``_BLOCKS``."""
        self._blocks = blocks
        for block, columns in zip(_BLOCKS, blocks, strict=True):
            for name, column in zip(block.names, columns, strict=True):
                setattr(self, name, column)

    def _move(self, rows: Sequence[int], then: Sequence[int], now: Sequence[int]) -> None:
        """Record pods, by row, that now belong to another group."""
        held: dict[int, list[int]] = {}
        for row, left, joined in zip(rows, then, now, strict=True):
            if left == joined:
                continue
            for group in (left, joined):
                if group != NO_GROUP and group not in held:
                    held[group] = list(self._rows[group])
            if left != NO_GROUP:
                del held[left][bisect_left(held[left], row)]
            if joined != NO_GROUP:
                insort(held[joined], row)
        for group, pods in held.items():
            self._rows[group] = tuple(pods)

    def _find_groups(self, snapshot: Content, rows: Rows) -> None:
        tasks, names = snapshot.tasks, snapshot.settings.scheduler_names
        ours = np.array([not names or name in names for name in snapshot.schedulers] + [False], np.bool_)
        jobs = tasks.job[rows]
        numbers = np.flatnonzero(np.bincount(jobs + 1)[1:]).tolist()
        index = self.index if len(numbers) < _FEW else dict(zip(self.keys, range(len(self)), strict=True)).get
        found = [index(key or "") for key in snapshot.job_keys.at(numbers)]
        of_number = np.full(len(snapshot.job_keys) + 1, NO_GROUP, np.int64)  # one more for pods without a group
        of_number[numbers] = [NO_GROUP if group is None else group for group in found]
        visible = ours[tasks.scheduler[rows]] | (tasks.node[rows] != NO_ROW)
        self.of_row[rows] = np.where(visible, of_number[jobs], NO_GROUP)

    def _fill(self, snapshot: Content, indices: Rows, renewed: Rows) -> None:
        """Recompute the rows of some groups; the objects of those ``renewed`` changed."""
        self._read(snapshot, renewed)
        self._sum_up(snapshot, indices)
        self._judge_sizes(snapshot, indices)
        self.lacks_role[indices] = False
        for index in indices.tolist():
            if self.records[index].group.spec.min_task_member:
                self.lacks_role[index] = self.lacks(index, self._rows[index])
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
            write_amounts(self.min_resources[index], column_of, minimum)

    def _sum_up(self, snapshot: Content, indices: Rows) -> None:
        tasks, shapes, count = snapshot.tasks, snapshot.shape_columns, len(indices)
        if count == len(self):
            rows = np.flatnonzero(self.of_row != NO_GROUP)
            group = self.of_row[rows]
        else:
            members = [self._rows[index] for index in indices.tolist()]
            rows = np.fromiter(chain.from_iterable(members), np.intp)
            group = np.repeat(np.arange(count), np.fromiter(map(len, members), np.intp, count))
        status, shape = tasks.status[rows].astype(np.int64), tasks.shape[rows]
        self.counts[indices] = np.bincount(group * STATUSES + status, minlength=count * STATUSES).reshape(-1, STATUSES)
        releasing = (status == TaskStatus.RELEASING) & (tasks.node[rows] != NO_ROW)
        self.releasing[indices] = np.bincount(group[releasing], minlength=count)
        held = _ALLOCATED[status]
        self.allocated[indices] = sums_by(group[held], shapes.requests[shape[held]], count)
        waits = status == TaskStatus.PENDING  # few compared to the running ones
        rows, group, shape = rows[waits], group[waits], shape[waits]
        best_effort = shapes.flags(needs_no_room)[shape]
        too_large = snapshot.facts.too_large(shapes.requests[shape])
        held_back = too_large | scheduling_gated(snapshot, rows)
        self.too_large_pending[indices] = np.bincount(group[too_large], minlength=count)
        self.best_effort_pending[indices] = np.bincount(group[best_effort], minlength=count)
        self.pending[indices] = sums_by(group, shapes.requests[shape], count)
        self.held_back[indices] = sums_by(group[held_back], shapes.requests[shape[held_back]], count)

    def lacks(self, index: int, rows: Iterable[int]) -> bool:
        """Whether too few of some pods of a group, by row, have some role. Only pending and ready pods count."""
        spec = self.records[index].group.spec
        if not spec.min_task_member or spec.min_member < sum(spec.min_task_member.values()):
            return False
        status = self.tasks.status
        have = Counter(map(task_role, self.tasks.pods_of([row for row in rows if _HOLDABLE[status[row]]])))
        return any(have[role] < minimum for role, minimum in spec.min_task_member.items())

    def _judge_sizes(self, snapshot: Content, indices: Rows) -> None:
        facts, counts, pending = snapshot.facts, self.counts[indices], self.too_large_pending[indices]
        possible = counts @ _HOLDABLE - pending
        too_large = (pending > 0) & (possible < np.maximum(self.min_member[indices], 1))
        unborn = np.flatnonzero(counts.sum(axis=1) == 0)
        larger = (self.mean_minimum(indices[unborn]) > facts.largest).any(axis=1) & (len(facts) > 0)
        for index in unborn[larger].tolist():
            too_large[index] = _is_of_volcano_job(self.records[indices[index]].group)
        self.too_large[indices] = too_large
        self.reserves[indices] = ~too_large
        for index in indices.tolist() if snapshot.admissions else ():
            admission = snapshot.admissions.get(self.keys[index])
            self.reserves[index] &= admission is None or not admission.ended
        if snapshot.released:
            self.reserves[[index for key in snapshot.released if (index := self.index(key)) is not None]] = False

    unsupported: npt.NDArray[np.bool_]
    too_large_pending: Counts
    _base: tuple[GroupColumns, Rows] | None = None
    """The columns from which these differ in some rows alone (``holding_back``)."""


class _Block(NamedTuple):
    """Columns of one type that share an array. Each group has one value, or one for each of ``by``."""

    dtype: type[np.generic]
    by: str
    names: tuple[str, ...]


_BLOCKS = (
    _Block(np.int64, "", ("created", "min_member", "priority")),
    _Block(np.int64, "resources", ("min_resources", "allocated", "pending", "held_back")),
    _Block(np.int32, "", ("queue", "best_effort_pending", "releasing", "too_large_pending")),
    _Block(np.int32, "statuses", ("counts",)),
    _Block(np.int8, "", ("phase",)),
    _Block(np.bool_, "", ("states_minimum", "unsupported", "too_large", "reserves", "lacks_role")),
)


def _basis(snapshot: Content) -> Hashable:
    """Return the inputs that all groups share; if one changes, the columns are built from scratch."""
    return (
        snapshot.settings,
        snapshot.resources,
        tuple(sorted(snapshot.queues)),
        frozenset(snapshot.held_namespaces),
        snapshot.others_version.get("PriorityClass", 0),
        snapshot.facts.sizes.tobytes(),  # shows whether there are nodes, and their largest amounts
    )


def _is_spent(of: Derived) -> bool:
    """Whether the function of a derived column declares that the column must be rebuilt."""
    return bool(getattr(of, "is_spent", False))


def priorities_of(snapshot: Content, records: Sequence[GroupRecord]) -> Ints:
    """Return groups' priorities: of their class, else of the global default class, else 0."""
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
    """Return which tasks, by row, cannot be placed at present, so that they do not count against quotas.

    They have a foreign gate or unsupported field (`has_gate`), wait at their queue's gate without the annotation that
    lets vcd remove it, back off after a refused operation, or belong to a namespace that is held back.
    """
    tasks, columns = snapshot.tasks, snapshot.shape_columns
    shapes = tasks.shape[rows]
    held = columns.flags(has_gate)[shapes] | np.isin(rows, [*snapshot.backoffs, *snapshot.held_rows])
    at_queue = columns.flags(_has_queue_gate)[shapes]
    for index in np.flatnonzero(at_queue & ~held).tolist():
        pod = tasks.pods[rows[index]]
        held[index] = pod is not None and not opts_into_queue_gate(pod)
    return held


def _has_queue_gate(shape: Any) -> bool:
    return has_queue_gate(shape.spec)


def _is_of_volcano_job(group: PodGroup) -> bool:
    """Whether a group's minResources is the sum of the requests of minMember pods.

    The controller of Volcano Jobs writes it so. Other controllers, such as Spark's, write the sum of all their pods.
    """
    owners = group.metadata.owner_references
    return any(owner.kind == "Job" and owner.api_version.startswith(_VOLCANO_JOBS) for owner in owners)
