"""The jobs of one queue that may lose tasks, in eviction order.

Many preemptors of one session share an order. It is sorted once; before each use only the jobs whose tasks moved are
ranked again. Sorting all jobs for each preemptor would make the session quadratic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from vcd.scheduling.session.views import Job, Task

Rank = tuple[Any, ...]


class Ranks(NamedTuple):
    """A job's ranks in the two orders, unique among all jobs; None leaves the job out of that order."""

    sparing: Rank | None
    whole: Rank | None


RankJobs = Callable[[Sequence[Job]], Iterable[Ranks]]
"""Returns the ranks of some jobs. A rank is valid until one of the job's tasks moves, as a key in ``VictimOrder``."""


class VictimJobs:
    """Jobs that can spare tasks, and jobs that may be evicted as a whole, by rank.

    ``moves`` lists the session's tasks as they move (``Views.moves``).
    """

    def __init__(self, moves: Sequence[Task], jobs: Sequence[Job], rank: RankJobs, *, largest_first: bool) -> None:
        self._step = -1 if largest_first else 1
        self._moves = moves
        self._seen = len(moves)
        self._rank = rank
        self._ranks = {job.index: ranks for job, ranks in zip(jobs, rank(jobs), strict=True)}
        self._sparing = _Sorted([(self._ranks[job.index].sparing, job) for job in jobs])
        self._whole = _Sorted([(self._ranks[job.index].whole, job) for job in jobs])

    def current_orders(self) -> tuple[list[Job], list[Job]]:
        """Return both orders as of now, as lists that later moves do not change."""
        moved = {task.job.index: task.job for task in self._moves[self._seen :] if task.job.index in self._ranks}
        self._seen = len(self._moves)
        jobs = list(moved.values())
        for job, ranks in zip(jobs, self._rank(jobs), strict=True):
            before, self._ranks[job.index] = self._ranks[job.index], ranks
            self._sparing.move(job, before.sparing, ranks.sparing)
            self._whole.move(job, before.whole, ranks.whole)
        return self._sparing.jobs[:: self._step], self._whole.jobs[:: self._step]


class _Sorted:
    def __init__(self, pairs: Iterable[tuple[Rank | None, Job]]) -> None:
        ranked = sorted(((rank, job) for rank, job in pairs if rank is not None), key=itemgetter(0))
        self._ranks = [rank for rank, _ in ranked]
        self.jobs = [job for _, job in ranked]

    def move(self, job: Job, before: Rank | None, after: Rank | None) -> None:
        if before == after:
            return
        if before is not None:
            place = bisect_left(self._ranks, before)
            del self._ranks[place], self.jobs[place]
        if after is not None:
            place = bisect_left(self._ranks, after)
            self._ranks.insert(place, after)
            self.jobs.insert(place, job)
