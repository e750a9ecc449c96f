"""Equivalence classes of pending jobs: jobs that no rule distinguishes are tried once, and each gets its own reasons.

A class is in order of age and name. The first job represents the others: its result holds for them until the session
places or evicts something. After a decision, the next job is tried, and represents those after it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import numpy as np
import numpy.typing as npt

from vcd.model.objects import ObjectMeta, Pod
from vcd.model.status import TaskStatus
from vcd.scheduling.session.reason_templates import keys_as_tried
from vcd.state.group_columns import GroupColumns, Rows
from vcd.state.records import PREEMPTABLE, TASK_SPEC, Shape, set_of
from vcd.state.snapshot import Snapshot
from vcd.state.sums import Ints

_ALONE = 0
"""The number of a job that is equivalent to no other."""
_MARKS = (TASK_SPEC, PREEMPTABLE)
"""Annotations and labels that matter whatever plugins are active."""
_MIXED = -1
_MOST = 100_000
"""How many keys are remembered before numbering starts again."""


@dataclass(frozen=True)
class _Kinds:
    """Numbers jobs: equal numbers mean equal in everything except name, age, and labels and annotations not in
    ``marks``.

    Which of a job's pods have the same labels is part of the key. The number is 0 for a job that has pods that are not
    pending, pods of several kinds, or pods that are always evaluated one by one.
    """

    marks: frozenset[str]
    supported: frozenset[str]
    """Fields that are unsupported unless a plugin supports them, as these are."""
    numbers: dict[Hashable, int] = field(default_factory=dict, compare=False)

    @property
    def is_spent(self) -> bool:
        """Whether too many keys are remembered."""
        return len(self.numbers) > _MOST

    def __call__(self, jobs: GroupColumns, rows: Rows) -> Ints:
        counts, numbers = jobs.counts[rows], self.numbers
        found = np.full(len(rows), _ALONE, np.int64)
        pending = counts[:, TaskStatus.PENDING]
        wait = np.flatnonzero((pending > 0) & (pending == counts.sum(axis=1)))
        members = jobs.members(rows[wait])
        common = _common_columns(jobs, members)
        for place, index, pods, columns in zip(wait.tolist(), rows[wait].tolist(), members, common, strict=True):
            key = None if columns is None else self._key(jobs, index, pods, columns)
            if key is not None:
                found[place] = numbers.setdefault(key, len(numbers) + 1)
        return found

    def _key(self, jobs: GroupColumns, index: int, rows: list[int], columns: tuple[int, ...]) -> Hashable:
        record, shape = jobs.records[index], cast(Shape, jobs.shapes[columns[0]])
        spec = record.group.spec
        if (
            not self.supported.issuperset(record.unsupported)
            or spec.sub_group_policy
            or shape.best_effort
            or shape.unsupported
        ):
            return None
        if shape.spec.scheduling_gates or shape.spec.volumes:
            return None
        pods = jobs.tasks.pods_of(rows)
        if not self._have_equal_marks(pods):
            return None
        minimum = None if record.min_resources is None else tuple(sorted(record.min_resources.items()))
        roles = tuple(sorted(spec.min_task_member.items()))
        topology = spec.network_topology
        stated = (spec.queue, spec.priority_class_name, spec.min_member, roles, minimum, record.phase, topology)
        first: dict[int, int] = {}
        numbers = enumerate(jobs.tasks.labels[rows].tolist())
        labels = tuple([first.setdefault(number, place) for place, number in numbers])
        pod_key = (columns, set_of(pods[0]), self._marks_of(pods[0].metadata))
        # Of several pods that are too large, the reason names the one whose name sorts first. So its position among the
        # tried pods is part of the key.
        position = keys_as_tried(jobs, rows).index(cast(str, jobs.tasks.keys[rows[0]])) if jobs.too_large[index] else 0
        return pod_key, labels, stated, self._marks_of(record.group.metadata), position

    def _have_equal_marks(self, pods: list[Pod]) -> bool:
        """Return whether pods of one job have the same owner and the same marks."""
        first = pods[0].metadata
        annotations, labels, owners = first.annotations, first.labels, first.owner_references
        for pod in pods:
            meta = pod.metadata
            same = meta.annotations == annotations and meta.labels == labels and meta.owner_references == owners
            if not same and (set_of(pod) != set_of(pods[0]) or self._marks_of(meta) != self._marks_of(first)):
                return False
        return True

    def _marks_of(self, meta: ObjectMeta) -> Hashable:
        return self._marks_in(meta.annotations), self._marks_in(meta.labels)

    def _marks_in(self, texts: Mapping[str, str]) -> Hashable:
        marks = self.marks
        return () if marks.isdisjoint(texts) else tuple(sorted([pair for pair in texts.items() if pair[0] in marks]))


def _common_columns(jobs: GroupColumns, members: list[list[int]]) -> list[tuple[int, ...] | None]:
    """Return, by job, the columns that distinguish its pods from others, shape first; None if its pods differ."""
    if not members:
        return []
    tasks, counts = jobs.tasks, np.array([len(rows) for rows in members], np.int64)
    rows, starts = np.array(list(chain.from_iterable(members)), np.intp), np.cumsum(counts) - counts
    shapes = tasks.shape[rows]
    label_dependent = [number for number in np.unique(shapes).tolist() if uses_labels(cast(Shape, jobs.shapes[number]))]
    labels = np.where(np.isin(shapes, label_dependent), tasks.labels[rows], _MIXED)
    columns = [shapes, *[column[rows] for column in (tasks.namespace, tasks.scheduler, tasks.priority)], labels]
    firsts = [column[starts] for column in columns]
    differ = np.zeros(len(rows), np.bool_)
    for column, first in zip(columns, firsts, strict=True):
        differ |= column != np.repeat(first, counts)
    values = zip(*[first.tolist() for first in firsts], strict=True)
    mixed = np.logical_or.reduceat(differ, starts).tolist()
    return [None if differs else each for each, differs in zip(values, mixed, strict=True)]


def uses_labels(shape: Shape) -> bool:
    """Return whether a shape's terms may refer to labels."""
    return shape.spec.affinity is not None or bool(shape.spec.topology_spread_constraints)


def _labels(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return the number of the label set that all pods of a pending job have; _MIXED if they differ."""
    found = np.full(len(rows), _MIXED, np.int64)
    wait = np.flatnonzero(jobs.counts[rows, TaskStatus.PENDING])  # only pending jobs belong to classes
    for place, pods in zip(wait.tolist(), jobs.members(rows[wait]), strict=True):
        labels = jobs.tasks.labels[pods]
        if (labels == labels[0]).all():
            found[place] = labels[0]
    return found


class EquivalenceClass:
    """Equivalent jobs, by index, the oldest first; ``leads`` are the positions of representatives."""

    def __init__(self, order: Ints) -> None:
        self.order = order
        self.leads = [0]

    def end_of(self, lead: int) -> int:
        """Return the position after the last job that a representative stands for."""
        after = bisect_right(self.leads, lead)
        return self.leads[after] if after < len(self.leads) else len(self.order)


class EquivalenceClasses:
    """The classes of a session's jobs that have more than one job; empty until ``find`` is called."""

    def __init__(self, jobs: GroupColumns) -> None:
        self._jobs = jobs
        self.classes: list[EquivalenceClass] = []
        self._class_of: Ints = np.zeros(0, np.int64)
        self._position: Ints = np.zeros(0, np.int64)
        self._follows = np.zeros(len(jobs), np.bool_)
        self._kinds: Ints = np.zeros(0, np.int64)
        self._of_different_pods: set[int] = set()

    def find(
        self,
        snapshot: Snapshot,
        marks: Iterable[str],
        supported: frozenset[str],
        labels_matter_in: Callable[[str], bool],
    ) -> None:
        """Find the classes.

        ``marks`` are the annotations and labels that plugins read, ``supported`` the fields of PodGroups that would be
        unsupported without them. ``labels_matter_in`` returns whether other labels can matter for the placement of a
        namespace's pods.
        """
        jobs = self._jobs
        kinds = jobs.derived(_Kinds(frozenset((*_MARKS, *marks)), supported))
        if not kinds.any():
            return
        self._kinds = kinds = kinds.copy()
        tasks = snapshot.tasks
        owners = [owner for evicted in snapshot.evicted.values() for owner in evicted.losses]
        owners += [backoff.preemptor for backoff in snapshot.backoffs.values()]
        alone = [*snapshot.evicted, *owners, *snapshot.stranded, *snapshot.released]
        kinds[[index for key in alone if (index := jobs.index(key)) is not None]] = _ALONE
        apart = jobs.of_row[[*snapshot.backoffs, *snapshot.held_rows]]
        kinds[apart[apart >= 0]] = _ALONE
        if snapshot.nominated:
            waiting = np.flatnonzero((tasks.status == TaskStatus.PENDING) & (jobs.of_row >= 0))
            rows = [row for row in waiting.tolist() if tasks.keys[row] in snapshot.nominated]
            kinds[jobs.of_row[rows]] = _ALONE
        labels = np.zeros(len(jobs), np.int64)
        namespaces = {name for name in snapshot.namespaces if name is not None and labels_matter_in(name)}
        if namespaces:
            affected = [
                index for index in np.flatnonzero(kinds).tolist() if jobs.keys[index].partition("/")[0] in namespaces
            ]
            labels[affected] = jobs.derived(_labels)[affected]
            kinds[labels == _MIXED] = _ALONE
        members = np.flatnonzero(kinds)
        if len(members) < 2:
            return
        order = members[np.lexsort((members, jobs.created[members], labels[members], kinds[members]))]
        changes = np.diff(kinds[order], prepend=_ALONE) | np.diff(labels[order], prepend=_MIXED)
        starts = np.flatnonzero(changes)
        self._class_of = np.full(len(jobs), -1, np.int64)
        self._position = np.zeros(len(jobs), np.int64)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            if end - start > 1:
                equivalents = order[start:end]
                self._class_of[equivalents] = len(self.classes)
                self._position[equivalents] = np.arange(len(equivalents))
                self._follows[equivalents[1:]] = True
                self.classes.append(EquivalenceClass(equivalents))

    def distinguish_pods(self, index: int) -> None:
        """Record that a plugin distinguishes the pods of a job, even if their specs and keys are equal."""
        self._of_different_pods.add(index)

    def has_equivalent_pods(self, index: int) -> bool:
        """Return whether a job's pods are equivalent, too: all are pending and of one kind."""
        return self._kinds.size > 0 and self._kinds.item(index) != _ALONE and index not in self._of_different_pods

    def of(self, index: int) -> tuple[EquivalenceClass, int] | None:
        """Return the class of a job and its position there; None if no other job is equivalent to it."""
        number = int(self._class_of[index]) if self.classes else -1
        return (self.classes[number], int(self._position[index])) if number >= 0 else None

    def lead(self, equivalents: EquivalenceClass, position: int) -> None:
        """Make a represented job the representative of itself and of those after it."""
        self._follows[equivalents.order[position]] = False
        insort(equivalents.leads, position)

    def leads(self, indices: npt.NDArray[np.intp]) -> list[int]:
        """Return the jobs, by index, that no other job represents."""
        found: list[int] = indices[~self._follows[indices]].tolist()
        return found

    @property
    def follows(self) -> npt.NDArray[np.bool_]:
        """Which jobs another one represents."""
        return self._follows

    def followers(self) -> Iterator[tuple[int, Ints]]:
        """Yield each representative with the jobs that it represents, by index."""
        for cls in self.classes:
            for lead in cls.leads:
                others = cls.order[lead + 1 : cls.end_of(lead)]
                if len(others):
                    yield int(cls.order[lead]), others
