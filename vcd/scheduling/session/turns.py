"""Which waiting jobs a session tries, where a namespace has pending pods of more kinds than one session tries.

A tenant chooses how many kinds of pods there are, and each kind has costs of its own. So a session tries jobs of each
namespace until their pods are of ``Settings.kinds`` kinds, or until the jobs are sixteen times as many, the first by
priority, age and key. The next session goes on behind them (``Plan.turns``), and no job of lower priority comes before
those whose turn is still to come. A pod that states many terms counts as several kinds. Once all jobs of a namespace
had their turn, the first are tried again if anything happened meanwhile. Nothing here depends on what earlier sessions
left in memory, so that a replay gives the same turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.events import Turn
from vcd.model.status import Phase
from vcd.scheduling.session.classes import EquivalenceClasses, minds_labels
from vcd.scheduling.session.views import PendingRows
from vcd.state.groups import GroupColumns
from vcd.state.snapshot import Snapshot
from vcd.state.turns import TurnsTaken

Ints = npt.NDArray[np.int64]
_JOBS_A_KIND = 16
"""So many jobs are tried for each kind that a session may try: their pods need not be of other kinds."""
_Place = tuple[int, int, str]
"""What orders a job within its namespace: lower priority later, then younger, then key."""


class _Namespace(NamedTuple):
    """A namespace whose jobs are not all tried: all of them in order, and from and up to which."""

    name: str
    ordered: list[tuple[_Place, int]]
    begin: int
    end: int
    last: TurnsTaken | None

    @property
    def next_priority(self) -> int | None:
        """The priority of the job whose turn is next; None if there is none."""
        return -self.ordered[self.end][0][0] if self.end < len(self.ordered) else None

    def down_to(self, priority: int) -> _Namespace:
        """The same without jobs of lower priority."""
        end = self.end
        while end > self.begin and -self.ordered[end - 1][0][0] < priority:
            end -= 1
        return self._replace(end=end)


class Turns:
    """The turns of one session.

    ``aside`` marks the jobs, by index, that are not tried in it; ``taken`` is recorded in the plan; ``goes_on``
    whether the next session has to follow at once; ``ends`` whether all jobs of a namespace had their turn.
    """

    def __init__(self, jobs: int) -> None:
        self.aside: npt.NDArray[np.bool_] = np.zeros(jobs, np.bool_)
        self.taken: tuple[Turn, ...] = ()
        self.goes_on = self.ends = False

    def take(self, snapshot: Snapshot, pending: PendingRows, classes: EquivalenceClasses) -> None:
        """Choose the jobs that are tried; of equal ones only the first counts."""
        jobs, limit = snapshot.group_columns, snapshot.settings.kinds
        waits = jobs.phase == Phase.PENDING
        waits[pending.distinct] = True
        leads = classes.leads(np.flatnonzero(waits))
        costs = _Costs(snapshot, pending, ~classes.follows[pending.jobs])
        if not snapshot.turns and (not limit or len(leads) + costs.at_most <= limit):
            return
        by_namespace: dict[str, list[int]] = {}
        for index in leads:
            by_namespace.setdefault(jobs.keys[index].partition("/")[0], []).append(index)
        large = []
        for name in sorted({*by_namespace, *snapshot.turns}):
            indices, last = by_namespace.get(name, []), snapshot.turns.get(name)
            if limit and costs.count(indices, limit) < len(indices):
                ordered = sorted((_place(jobs, index), index) for index in indices)
                begin = 0 if last is None else bisect_right(ordered, _place_of(last.last), key=itemgetter(0))
                count = costs.count([index for _, index in ordered[begin:]], limit)
                large.append(_Namespace(name, ordered, begin, begin + count, last))
            elif last is not None:
                self.taken = (*self.taken, Turn(name))
        to_come = [priority for each in large if (priority := each.next_priority) is not None]
        if to_come:  # no job of lower priority comes before one whose turn is still to come
            self.aside |= waits & (jobs.priority < max(to_come))
            large = [each.down_to(max(to_come)) for each in large]
        for each in large:
            self._take_in(each)
        self.aside[_nominated(snapshot, pending)] = False
        for lead, others in classes.followers():
            self.aside[others] = self.aside[lead]

    def _take_in(self, of: _Namespace) -> None:
        """Set aside the jobs of a namespace that have no turn, and note how far it came."""
        self.aside[[index for _, index in (*of.ordered[: of.begin], *of.ordered[of.end :])]] = True
        if of.end == len(of.ordered):
            self.taken = (*self.taken, Turn(of.name))
            self.ends = True
            self.goes_on |= of.last is not None and of.last.is_news
            return
        self.goes_on = True
        if of.end > of.begin:
            priority, created, key = of.ordered[of.end - 1][0]
            self.taken = (*self.taken, Turn(of.name, -priority, created, key))


class _Costs:
    """The kinds of pods that jobs ask a session to try: shapes, and labels where these matter to a shape."""

    def __init__(self, snapshot: Snapshot, pending: PendingRows, counted: npt.NDArray[np.bool_]) -> None:
        tasks, columns = snapshot.tasks, snapshot.shape_columns
        rows, self._owners = pending.rows[counted], pending.jobs[counted]
        self._shapes = tasks.shape[rows].astype(np.int64)
        labels = np.where(columns.flags(minds_labels)[self._shapes], tasks.labels[rows] + 1, 0)
        self._kinds = self._shapes * (len(snapshot.label_sets) + 1) + labels
        self._weights = columns.weights

    @property
    def at_most(self) -> int:
        """No fewer than the kinds of all jobs."""
        first = (np.diff(self._owners, prepend=-1) != 0) | (np.diff(self._kinds, prepend=-1) != 0)
        return int(self._weights[self._shapes[first]].sum())

    @cached_property
    def _of_job(self) -> dict[int, dict[int, int]]:
        """The kinds of each job, and what each counts."""
        found: dict[int, dict[int, int]] = {}
        weights = self._weights[self._shapes].tolist()
        for owner, kind, weight in zip(self._owners.tolist(), self._kinds.tolist(), weights, strict=True):
            found.setdefault(owner, {})[kind] = weight
        return found

    def count(self, indices: Sequence[int], limit: int) -> int:
        """Return how many of some jobs, from the first on, have no more kinds than ``limit``, and are not too many; one
        at least."""
        seen: set[int] = set()
        left = limit
        for number, index in enumerate(indices):
            of_job = self._of_job.get(index, {})
            left -= sum(weight for kind, weight in of_job.items() if kind not in seen)
            seen.update(of_job)
            if number and (left < 0 or number == limit * _JOBS_A_KIND):
                return number
        return len(indices)


def _place(jobs: GroupColumns, index: int) -> _Place:
    return -int(jobs.priority[index]), int(jobs.created[index]), jobs.keys[index]


def _place_of(turn: Turn) -> _Place:
    return -turn.priority, turn.created, turn.group


def _nominated(snapshot: Snapshot, pending: PendingRows) -> list[int]:
    """The jobs that capacity is being freed for: it would be given away without them."""
    names: Mapping[str, str] = snapshot.nominated
    if not names:
        return []
    keys = snapshot.tasks.keys_of(pending.rows.tolist())
    return [job for key, job in zip(keys, pending.jobs.tolist(), strict=True) if key in names]
