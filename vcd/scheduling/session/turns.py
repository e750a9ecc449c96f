"""Turns: which waiting jobs a session tries, if a namespace has pending pods of more kinds than one session tries.

A tenant determines how many kinds of pods there are, and each kind has its own cost. So a session tries jobs of each
namespace, in order of priority, age and key, until their pods have ``Settings.kinds`` kinds, or until there are sixteen
times as many jobs. A pod with many terms counts as several kinds. The next session continues after them
(``Plan.turns``). No job of lower priority is tried before jobs whose turn is still to come. When all jobs of a
namespace had their turn, the first are tried again if anything happened since. Turns depend on the snapshot only, so a
replay has the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.events import Turn
from vcd.model.status import Phase
from vcd.scheduling.session.equivalence_classes import EquivalenceClasses, uses_labels
from vcd.scheduling.session.views import PendingRows
from vcd.state.group_columns import GroupColumns
from vcd.state.snapshot import Snapshot
from vcd.state.turns_taken import TurnsTaken

Ints = npt.NDArray[np.int64]
_JOBS_A_KIND = 16
"""Jobs that are tried for each kind that a session may try: their pods may be of few kinds."""


class _Namespace(NamedTuple):
    """A namespace with more jobs than a session tries: all its jobs by index, in order, their priorities, and the range
    that this session tries."""

    name: str
    ordered: Ints
    priorities: Ints
    begin: int
    end: int
    last: TurnsTaken | None

    @property
    def next_priority(self) -> int | None:
        """The priority of the next job after the range; None if there is none."""
        return int(self.priorities[self.end]) if self.end < len(self.ordered) else None

    def down_to(self, priority: int) -> _Namespace:
        """Return the same without jobs of lower priority in the range."""
        return self._replace(end=self.begin + int((self.priorities[self.begin : self.end] >= priority).sum()))


class Turns:
    """The turns of one session.

    ``aside`` marks the jobs, by index, that are not tried. ``taken`` is recorded in the plan. ``goes_on`` is whether
    the next session must follow at once, and ``ends`` whether all jobs of a namespace had their turn.
    """

    def __init__(self, jobs: int) -> None:
        self.aside: npt.NDArray[np.bool_] = np.zeros(jobs, np.bool_)
        self.taken: tuple[Turn, ...] = ()
        self.goes_on = self.ends = False

    def take(self, snapshot: Snapshot, pending: PendingRows, classes: EquivalenceClasses) -> None:
        """Choose the jobs to try; of equivalent jobs only the first counts."""
        jobs, limit = snapshot.group_columns, snapshot.settings.kinds
        waits = jobs.phase == Phase.PENDING
        waits[pending.distinct] = True
        leads = classes.leads(np.flatnonzero(waits))
        costs = _Costs(snapshot, pending, ~classes.follows[pending.jobs])
        if not snapshot.turns and (not limit or len(leads) + costs.at_most <= limit):
            return
        by_namespace = _by_namespace(jobs.keys, np.array(leads, np.int64))
        large = []
        for name in sorted({*by_namespace, *snapshot.turns}):
            indices, last = by_namespace.get(name, np.empty(0, np.int64)), snapshot.turns.get(name)
            if limit and costs.count(indices, limit) < len(indices):
                ordered = indices[np.lexsort((indices, jobs.created[indices], -jobs.priority[indices]))]
                begin = 0 if last is None else _count_up_to(last.last, jobs, ordered)
                end = begin + costs.count(ordered[begin:], limit)
                large.append(_Namespace(name, ordered, jobs.priority[ordered], begin, end, last))
            elif last is not None:
                self.taken = (*self.taken, Turn(name))
        to_come = [priority for each in large if (priority := each.next_priority) is not None]
        if to_come:  # no job of lower priority is tried before one whose turn is still to come
            self.aside |= waits & (jobs.priority < max(to_come))
            large = [each.down_to(max(to_come)) for each in large]
        for each in large:
            self._set_range(each, jobs)
        self.aside[_nominated(snapshot, pending)] = False
        for lead, others in classes.followers():
            self.aside[others] = self.aside[lead]

    def _set_range(self, of: _Namespace, jobs: GroupColumns) -> None:
        """Set aside the jobs of a namespace outside its range, and record the end of the range."""
        self.aside[of.ordered[: of.begin]] = self.aside[of.ordered[of.end :]] = True
        if of.end == len(of.ordered):
            self.taken = (*self.taken, Turn(of.name))
            self.ends = True
            self.goes_on |= of.last is not None and of.last.is_news
            return
        self.goes_on = True
        if of.end > of.begin:
            last = int(of.ordered[of.end - 1])
            turn = Turn(of.name, int(jobs.priority[last]), int(jobs.created[last]), jobs.keys[last])
            self.taken = (*self.taken, turn)


class _Costs:
    """The kinds of pods in jobs: shapes, and labels if these matter to a shape."""

    def __init__(self, snapshot: Snapshot, pending: PendingRows, counted: npt.NDArray[np.bool_]) -> None:
        tasks, columns = snapshot.tasks, snapshot.shape_columns
        rows, self._owners = pending.rows[counted], pending.jobs[counted]
        self._shapes = tasks.shape[rows].astype(np.int64)
        labels = np.where(columns.flags(uses_labels)[self._shapes], tasks.labels[rows] + 1, 0)
        self._kinds = self._shapes * (len(snapshot.label_sets) + 1) + labels
        self._weights = columns.weights[self._shapes]

    @property
    def at_most(self) -> int:
        """An upper bound of the cost of all jobs."""
        first = (np.diff(self._owners, prepend=-1) != 0) | (np.diff(self._kinds, prepend=-1) != 0)
        return int(self._weights[first].sum())

    def count(self, indices: Ints, limit: int) -> int:
        """Return how many leading jobs, at least one, stay within ``limit`` kinds and the limit of jobs."""
        most = limit * _JOBS_A_KIND
        seen: set[int] = set()
        left = limit
        starts, ends = (np.searchsorted(self._owners, indices[: most + 1], side) for side in ("left", "right"))
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            of_job = dict(zip(self._kinds[start:end].tolist(), self._weights[start:end].tolist(), strict=True))
            left -= sum([weight for kind, weight in of_job.items() if kind not in seen])
            seen.update(of_job)
            if number and (left < 0 or number == most):
                return number
        return len(indices)


def _by_namespace(keys: Sequence[str], indices: Ints) -> dict[str, Ints]:
    """Group jobs, given by ascending index, by namespace. Keys are sorted, so each namespace has a range of them."""
    found: dict[str, Ints] = {}
    while len(indices):
        namespace = keys[indices[0]].partition("/")[0]
        end = np.searchsorted(indices, bisect_left(keys, f"{namespace}0"))  # "0" comes next after "/"
        found[namespace], indices = indices[:end], indices[end:]
    return found


def _count_up_to(turn: Turn, jobs: GroupColumns, ordered: Ints) -> int:
    """Return how many of some jobs in order had their turn by ``turn``, whose last job may be deleted."""
    priority, created = jobs.priority[ordered], jobs.created[ordered]
    is_before = (created < turn.created) | (created == turn.created) & (ordered < bisect_right(jobs.keys, turn.group))
    return int(((priority > turn.priority) | (priority == turn.priority) & is_before).sum())


def _nominated(snapshot: Snapshot, pending: PendingRows) -> list[int]:
    """Return the jobs for which resources are being freed: if they were not tried, others would get these resources."""
    names: Mapping[str, str] = snapshot.nominated
    if not names:
        return []
    keys = snapshot.tasks.keys_of(pending.rows.tolist())
    return [job for key, job in zip(keys, pending.jobs.tolist(), strict=True) if key in names]
