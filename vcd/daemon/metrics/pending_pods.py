"""Counts waiting groups and pods by queue, gate and cause, for metrics with few label values.

Only groups that changed since the last session are counted again, so the cost grows with the changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from vcd.diagnosis.waiting_job import rank
from vcd.model.events import Plan, Waiting, waits_by_group
from vcd.model.reasons import Cause
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.declared_reasons import cause_of, keeps_back
from vcd.scheduling.session.reason_templates import shown_reasons
from vcd.scheduling.session.session import Session
from vcd.state.interning import Computed
from vcd.state.row_rearrangement import NEW
from vcd.state.sums import Ints

NO_QUEUE = ""
"""Label of all queues that do not exist, so that groups cannot create label values."""

_NEVER = int(np.iinfo(np.int64).max)
_MOST_AT_ONCE: Final = 256
"""Keys per comparison. A larger number makes each new key costly; a smaller one needs too many steps."""

Labels = tuple[str, str, str]
"""Queue, gate, cause."""

Verdict = tuple[str, ...]
"""Queue, cause."""

L = TypeVar("L", bound=tuple[str, ...])

_Kinds = tuple[tuple[str, str, int], ...]
"""Gate, cause and number of pods of each reason of a group."""
_REASONS, _PENDING, _QUEUE = range(3)
"""Rows of the compared columns: number of the group's known reasons, pending pods, number of the queue."""
_NONE, _OTHER = 0, -1
"""Number of no reasons; and a number that differs from every number in the next session."""


class Alignment:
    """``places`` are the earlier indices of the keys ``now``, NEW for new keys; ``gone`` the earlier indices of all
    other keys. Both lists of keys must be sorted."""

    def __init__(self, before: list[str], now: list[str]) -> None:
        self.places = np.arange(len(now)) if now == before else _places(before, now)
        gone = np.ones(len(before) + 1, np.bool_)
        gone[self.places] = gone[NEW] = False
        self.gone = {before[place]: place for place in np.flatnonzero(gone).tolist()}

    def carried(self, columns: Ints) -> Ints:
        """Reorder columns from the earlier keys to the keys now, with 0 for new keys."""
        nothing = np.zeros((*columns.shape[:-1], 1), np.int64)
        return np.append(columns, nothing, axis=-1).take(self.places, axis=-1)  # NEW is the last one


def _places(before: list[str], now: list[str]) -> Ints:
    """Compare slices of both lists, which is fast because few of many keys change between two sessions."""
    places = np.full(len(now), NEW, np.int64)
    here = there = 0
    size = _MOST_AT_ONCE
    while here < len(now) and there < len(before):
        if now[here : here + size] == before[there : there + size]:
            count = min(size, len(now) - here)
            places[here : here + count] = np.arange(there, there + count)
            here, there, size = here + count, there + count, min(2 * size, _MOST_AT_ONCE)
        elif size > 1:
            size //= 2
        elif now[here] < before[there]:
            here += 1
        else:
            there += 1
    return places


class _Waits(Generic[L]):
    """Numbers of groups and pods by labels, for labels of at least one group."""

    def __init__(self) -> None:
        self.groups: Counter[L] = Counter()
        self.pods: Counter[L] = Counter()

    def count(self, labels: L, groups: int, pods: int) -> None:
        """Add to the numbers; the arguments may be negative."""
        self.groups[labels] += groups
        self.pods[labels] += pods
        if not self.groups[labels]:
            del self.groups[labels], self.pods[labels]


@dataclass(slots=True)
class _Known:
    """A counted group. ``share`` is its number of pending pods by label."""

    reasons: tuple[Waiting, ...]
    pending: int
    share: dict[Labels, int]
    verdict: Verdict


class WaitingCounts:
    """Numbers of waiting groups and pods, updated by each session.

    A pod counts once for each kind of reason in ``reasons``, and once in ``verdicts``, by the cause of its group's
    wait: the one that held longest if it is known, else the first one.
    """

    def __init__(self) -> None:
        self.reasons: _Waits[Labels] = _Waits()
        self.verdicts: _Waits[Verdict] = _Waits()
        self._known: dict[str, _Known] = {}
        self._causes: dict[str, str] = {}
        self._shares = Computed()
        self._keys: list[str] = []
        self._queues: list[str] = []
        self._compared: Ints = np.zeros((3, 0), np.int64)
        """The compared columns of the last session, by job."""
        self._no_jobs: list[str] = []
        """Groups that wait and are not jobs of the last session."""

    def update(self, session: Session, plan: Plan) -> Alignment:
        """Count the groups at the end of a session. Return how its jobs map to the last session's."""
        jobs, shown, changes = session.jobs, session.snapshot.waiting, waits_by_group(plan.waiting)
        aligned, compared = Alignment(self._keys, jobs.keys), _compared_columns(session)
        found = {key: jobs.index(key) for key in (*changes, *self._no_jobs, *aligned.gone)}
        here = {key: index for key, index in found.items() if index is not None}
        no_jobs = _no_jobs(session, [key for key in found if key not in here])
        queues = [queue.name for queue in session.queue_list]
        differ = self._differ(compared, aligned, queues)
        differ[list(here.values())] = True
        indices = np.flatnonzero(differ)
        pending, queue = (compared[row, indices].tolist() for row in (_PENDING, _QUEUE))
        for index, count, number in zip(indices.tolist(), pending, queue, strict=True):
            key = jobs.keys[index]
            self._count(key, queues[number], changes.get(key, shown.get(key, ())), count)
        elsewhere = _pending_elsewhere(session) if no_jobs else Counter[str]()
        for key in no_jobs:
            self._count(key, NO_QUEUE, changes.get(key, shown.get(key, ())), elsewhere[key])
        # compare again at the next session, which shows whether these reasons took effect
        for key in changes.keys() & here.keys():
            compared[_REASONS, here[key]] = _OTHER if changes[key] else _NONE
        self._keys, self._queues, self._compared = jobs.keys, queues, compared
        self._no_jobs = [key for key in no_jobs if key in self._known]
        return aligned

    def _differ(self, compared: Ints, aligned: Alignment, queues: list[str]) -> npt.NDArray[np.bool_]:
        """Return a mask of the jobs to count: waiting now or before, with a change in a compared column."""
        before = aligned.carried(self._compared)
        if queues != self._queues:  # the indices in the column refer to other queues: every job differs
            before[_QUEUE] = _OTHER
        waits = (compared[_REASONS] != _NONE) | (before[_REASONS] != _NONE)
        differ: npt.NDArray[np.bool_] = waits & (compared != before).any(axis=0)
        return differ

    def _count(self, key: str, queue: str, reasons: tuple[Waiting, ...], pending: int) -> None:
        known = self._known.get(key)
        if known is not None:
            if known.reasons == reasons and known.pending == pending and known.verdict[0] == queue:
                known.reasons = reasons  # the state's tuple instead of the plan's equal one, to free memory
                return
            self._tally(known, -1)
        holding = filter(keeps_back, reasons)
        kinds = tuple([(waiting.gate, cause_of(waiting), waiting.tasks) for waiting in holding])
        if not kinds:  # remarks alone do not make a group wait
            self._known.pop(key, None)
            self._causes.pop(key, None)
            return
        share, cause = self._shares((queue, kinds, pending), partial(_share, queue, kinds, pending))
        self._known[key] = known = _Known(reasons, pending, share, (queue, self._causes.get(key, cause)))
        self._tally(known, 1)

    def _tally(self, known: _Known, times: int) -> None:
        self.verdicts.count(known.verdict, times, times * known.pending)
        for labels, pods in known.share.items():
            self.reasons.count(labels, times, times * pods)

    def judge(self, causes: Mapping[str, str]) -> None:
        """Note the causes that held longest, by group."""
        for key, cause in causes.items():
            known = self._known.get(key)
            if known is not None:
                self._causes[key] = cause
                self.verdicts.count(known.verdict, -1, -known.pending)
                known.verdict = (known.verdict[0], cause)
                self.verdicts.count(known.verdict, 1, known.pending)

    def oldest(self, session: Session) -> dict[tuple[str], int]:
        """Return by queue when its oldest waiting pod, or group without pods, was created (Unix seconds).

        ``session`` must be the last one that was counted.
        """
        jobs, tasks, waits = session.jobs, session.snapshot.tasks, np.flatnonzero(self._compared[_REASONS] != _NONE)
        times = np.full(len(jobs), _NEVER)
        rows = np.flatnonzero((session.job_of_row >= 0) & (tasks.status == TaskStatus.PENDING) & (tasks.created > 0))
        np.minimum.at(times, session.job_of_row[rows], tasks.created[rows])
        has_pods = jobs.counts[waits, TaskStatus.PENDING] > 0
        since = np.where((times[waits] == _NEVER) & ~has_pods, jobs.created[waits], times[waits])
        since[since <= 0] = _NEVER
        oldest = np.full(len(session.queue_list), _NEVER)
        np.minimum.at(oldest, jobs.queue[waits], since)
        by_queue = zip(session.queue_list, oldest.tolist(), strict=True)
        found = {(queue.name,): time for queue, time in by_queue if time < _NEVER}
        records = [session.snapshot.groups.get(key) for key in self._no_jobs if not self._known[key].pending]
        if known := [record.created for record in records if record is not None and record.created > 0]:
            found[NO_QUEUE,] = min(known)
        return found


def _no_jobs(session: Session, known: list[str]) -> list[str]:
    """Return the waiting groups that are not jobs of the session, including all ``known`` ones."""
    shown, waiting_jobs = session.snapshot.waiting, np.count_nonzero(session.jobs.derived(shown_reasons))
    if waiting_jobs + sum(key in shown for key in known) == len(shown):
        return known
    seen = {*session.jobs.keys, *known}  # some appeared in sessions that were not counted
    return [*known, *(key for key in shown if key not in seen)]


def _compared_columns(session: Session) -> Ints:
    jobs = session.jobs
    compared = np.empty((3, len(jobs)), np.int64)
    compared[_REASONS], compared[_QUEUE] = jobs.derived(shown_reasons), jobs.queue
    compared[_PENDING] = jobs.counts[:, TaskStatus.PENDING]
    return compared


def _pending_elsewhere(session: Session) -> Counter[str]:
    """Return the number of pending pods of each group whose queue does not exist, so that it is no job."""
    tasks, names = session.snapshot.tasks, session.snapshot.job_keys
    found = tasks.job[(session.job_of_row < 0) & (tasks.job >= 0) & (tasks.status == TaskStatus.PENDING)]
    numbers, counts = np.unique(found, return_counts=True)
    return Counter({names[job] or "": count for job, count in zip(numbers.tolist(), counts.tolist(), strict=True)})


def _share(queue: str, kinds: _Kinds, pending: int) -> tuple[dict[Labels, int], str]:
    """Return a group's pending pods by label, and its cause. A reason without a number of pods counts all of them."""
    shares: dict[Labels, int] = {}
    for gate, cause, tasks in kinds:
        labels = (queue, gate, cause)
        shares[labels] = min(pending, shares.get(labels, 0) + (tasks or pending))
    found = [labels for labels in shares if labels[2] != Cause.GANG_INCOMPLETE]
    first = found[0] if len(found) == 1 else min(shares, key=lambda labels: rank(labels[1], labels[2]))
    return shares, first[2]
