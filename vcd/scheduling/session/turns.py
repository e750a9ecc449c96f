"""Which waiting jobs a session tries, where a namespace has pending pods of more kinds than one session tries.

A tenant chooses how many kinds of pods there are, and each kind has costs of its own. So a session tries jobs of each
namespace until their pods are of ``Settings.kinds`` kinds, the first by priority, age and key; the next session goes on
behind them (``Plan.turns``), and nobody of lower priority comes before those whose turn is still to come. A pod that
states many terms counts as several kinds. Once all jobs of a namespace had their turn, the first are tried again if
anything happened meanwhile. Nothing here depends on what earlier sessions left in memory, so that a replay gives the
same turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.events import Turn
from vcd.model.status import Phase
from vcd.scheduling.session.classes import EquivalenceClasses
from vcd.scheduling.session.views import PendingRows
from vcd.state.groups import GroupColumns
from vcd.state.snapshot import Snapshot
from vcd.state.turns import TurnsTaken

Ints = npt.NDArray[np.int64]
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

    ``aside`` marks the jobs, by index, that are not tried in it; ``taken`` is what the plan says of it; ``goes_on``
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
        counted = ~classes.follows[pending.jobs]
        owners, shapes = pending.jobs[counted], snapshot.tasks.shape[pending.rows[counted]].astype(np.int64)
        weights = snapshot.shape_columns.weights
        if not snapshot.turns and (not limit or len(leads) + int(weights[_distinct(owners, shapes)[1]].sum()) <= limit):
            return
        owners, shapes = _distinct(*_in_order(owners, shapes))
        kinds = np.maximum(np.bincount(owners, weights[shapes], len(jobs)).astype(np.int64), 1)
        by_namespace: dict[str, list[int]] = {}
        for index in leads:
            by_namespace.setdefault(jobs.keys[index].partition("/")[0], []).append(index)
        large = []
        for name in sorted({*by_namespace, *snapshot.turns}):
            indices, last = by_namespace.get(name, []), snapshot.turns.get(name)
            if limit and int(kinds[indices].sum()) > limit:
                ordered = sorted((_place(jobs, index), index) for index in indices)
                large.append(_some_of(name, ordered, kinds, limit, last))
            elif last is not None:
                self.taken = (*self.taken, Turn(name))
        to_come = [priority for each in large if (priority := each.next_priority) is not None]
        if to_come:  # nobody of lower priority comes before one whose turn is still to come
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


def _some_of(
    name: str, ordered: list[tuple[_Place, int]], kinds: Ints, limit: int, last: TurnsTaken | None
) -> _Namespace:
    """As many jobs of a namespace as the limit allows, from the one behind the last on; one at least."""
    begin = 0 if last is None else bisect_right(ordered, _place_of(last.last), key=itemgetter(0))
    count = int(np.searchsorted(np.cumsum(kinds[[index for _, index in ordered[begin:]]]), limit, "right"))
    return _Namespace(name, ordered, begin, min(begin + max(count, 1), len(ordered)), last)


def _place(jobs: GroupColumns, index: int) -> _Place:
    return -int(jobs.priority[index]), int(jobs.created[index]), jobs.keys[index]


def _place_of(turn: Turn) -> _Place:
    return -turn.priority, turn.created, turn.group


def _in_order(owners: Ints, shapes: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((shapes, owners))
    return owners[order], shapes[order]


def _distinct(owners: Ints, shapes: Ints) -> tuple[Ints, Ints]:
    """Pairs that are not the same as the one before."""
    first = (np.diff(owners, prepend=-1) != 0) | (np.diff(shapes, prepend=-1) != 0)
    return owners[first], shapes[first]


def _nominated(snapshot: Snapshot, pending: PendingRows) -> list[int]:
    """The jobs that capacity is being freed for: it would be given away without them."""
    names: Mapping[str, str] = snapshot.nominated
    if not names:
        return []
    keys = snapshot.tasks.keys_of(pending.rows.tolist())
    return [job for key, job in zip(keys, pending.jobs.tolist(), strict=True) if key in names]
