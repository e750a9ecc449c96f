"""Who waits, by queue, gate and cause: few words, however many reasons there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from vcd.diagnosis.case import rank
from vcd.model.events import Plan, Waiting, waits_by_group
from vcd.model.reasons import Cause
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.reasons import cause_of, keeps_back
from vcd.scheduling.session.alike import shown_reasons
from vcd.scheduling.session.session import Session
from vcd.state.interning import Computed
from vcd.state.rearranged import NEW
from vcd.state.sums import Ints

NO_QUEUE = ""
"""Stands for every queue that does not exist, so that groups cannot make up labels."""

_NEVER = int(np.iinfo(np.int64).max)
_MOST_AT_ONCE: Final = 256
"""So many keys are compared at once: of far more, each one that is new costs too much; far fewer are too many steps."""

Labels = tuple[str, str, str]
"""Queue, gate, cause."""

Verdict = tuple[str, ...]
"""Queue, cause."""

L = TypeVar("L", bound=tuple[str, ...])

_Kinds = tuple[tuple[str, str, int], ...]
"""Of each reason of a group: gate, cause, how many pods it concerns."""
_TOLD, _PENDING, _QUEUE = range(3)
"""What is compared of jobs from session to session, each as a number: what their groups are known to wait for, how many
of their pods are pending, and their queue."""
_NOT, _OTHER = 0, -1
"""What the groups of jobs are told to wait for that do not wait; a number that differs from whatever is found next."""


class Alignment:
    """Where some keys were among those of before, NEW where they were not; ``gone`` are those of before that are not
    here. Both are sorted."""

    def __init__(self, before: list[str], now: list[str]) -> None:
        self.places = np.arange(len(now)) if now == before else _places(before, now)
        gone = np.ones(len(before) + 1, np.bool_)
        gone[self.places] = gone[NEW] = False
        self.gone = {before[place]: place for place in np.flatnonzero(gone).tolist()}

    def carried(self, columns: Ints) -> Ints:
        """Columns that had a number for each key of before, with one for each of now, 0 for those that are new."""
        nothing = np.zeros((*columns.shape[:-1], 1), np.int64)
        return np.append(columns, nothing, axis=-1).take(self.places, axis=-1)  # NEW is the last one


def _places(before: list[str], now: list[str]) -> Ints:
    """Equal stretches are compared as lists, which is fast: few of many keys come and go between two sessions."""
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
    """How many groups have some labels, and pods of theirs; labels are here as long as a group has them."""

    def __init__(self) -> None:
        self.groups: Counter[L] = Counter()
        self.pods: Counter[L] = Counter()

    def count(self, labels: L, groups: int, pods: int) -> None:
        """So many more, or less."""
        self.groups[labels] += groups
        self.pods[labels] += pods
        if not self.groups[labels]:
            del self.groups[labels], self.pods[labels]


@dataclass(slots=True)
class _Known:
    """What is known of a group that waits: why, how many of its pods are pending, these by label, and its verdict."""

    reasons: tuple[Waiting, ...]
    pending: int
    share: dict[Labels, int]
    verdict: Verdict


class WaitingCounts:
    """Groups and pods that wait, kept up from session to session: only groups are looked at of which something is not
    as it was when they were counted last.

    A pod that several kinds of reasons keep waiting counts once for each kind; once in ``verdicts``, by the cause of
    its group's wait: that which held longest where it is known, else the first that is given.
    """

    def __init__(self) -> None:
        self.reasons: _Waits[Labels] = _Waits()
        self.verdicts: _Waits[Verdict] = _Waits()
        self._known: dict[str, _Known] = {}
        self._causes: dict[str, str] = {}
        self._shares = Computed()
        self._keys: list[str] = []
        self._queues: list[str] = []
        self._figures: Ints = np.zeros((3, 0), np.int64)
        """The jobs and queues of the session that was counted last, and what is compared of jobs,"""
        self._strangers: list[str] = []
        """and groups that wait and are none of its jobs."""

    def update(self, session: Session, plan: Plan) -> Alignment:
        """Count as of the end of a session; where its jobs were among those of the one that was counted last."""
        jobs, shown, changes = session.jobs, session.snapshot.waiting, waits_by_group(plan.waiting)
        aligned, figures = Alignment(self._keys, jobs.keys), _figures_of(session)
        found = {key: jobs.index(key) for key in (*changes, *self._strangers, *aligned.gone)}
        here = {key: index for key, index in found.items() if index is not None}
        strangers = _strangers(session, [key for key in found if key not in here])
        queues = [queue.name for queue in session.queue_list]
        differ = self._differ(figures, aligned, queues)
        differ[list(here.values())] = True
        indices = np.flatnonzero(differ)
        pending, queue = (figures[row, indices].tolist() for row in (_PENDING, _QUEUE))
        for index, count, number in zip(indices.tolist(), pending, queue, strict=True):
            key = jobs.keys[index]
            self._count(key, queues[number], changes.get(key, shown.get(key, ())), count)
        elsewhere = _pending_elsewhere(session) if strangers else Counter[str]()
        for key in strangers:
            self._count(key, NO_QUEUE, changes.get(key, shown.get(key, ())), elsewhere[key])
        for key in changes.keys() & here.keys():  # whether what the plan says comes to hold is seen next time
            figures[_TOLD, here[key]] = _OTHER if changes[key] else _NOT
        self._keys, self._queues, self._figures = jobs.keys, queues, figures
        self._strangers = [key for key in strangers if key in self._known]
        return aligned

    def _differ(self, figures: Ints, aligned: Alignment, queues: list[str]) -> npt.NDArray[np.bool_]:
        """Which jobs of those that wait, or did, have other figures than when they were counted last."""
        before = aligned.carried(self._figures)
        if queues != self._queues:  # their numbers mean others
            before[_QUEUE] = _OTHER
        waits = (figures[_TOLD] != _NOT) | (before[_TOLD] != _NOT)
        differ: npt.NDArray[np.bool_] = waits & (figures != before).any(axis=0)
        return differ

    def _count(self, key: str, queue: str, reasons: tuple[Waiting, ...], pending: int) -> None:
        """Count a group as it is now, in place of what it was."""
        known = self._known.get(key)
        if known is not None:
            if known.reasons == reasons and known.pending == pending and known.verdict[0] == queue:
                known.reasons = reasons  # those of the state, in place of a plan's: nothing is kept twice
                return
            self._tally(known, -1)
        holding = filter(keeps_back, reasons)
        kinds = tuple([(waiting.gate, cause_of(waiting), waiting.tasks) for waiting in holding])
        if not kinds:  # remarks alone keep nobody waiting
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
        """By queue, when the oldest pod that waits was created, or the group where it has no pods; Unix seconds.
        ``session`` is the one that was counted last."""
        jobs, tasks, waits = session.jobs, session.snapshot.tasks, np.flatnonzero(self._figures[_TOLD] != _NOT)
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
        records = [session.snapshot.groups.get(key) for key in self._strangers if not self._known[key].pending]
        if known := [record.created for record in records if record is not None and record.created > 0]:
            found[NO_QUEUE,] = min(known)
        return found


def _strangers(session: Session, known: list[str]) -> list[str]:
    """Those groups that are known to be none of a session's jobs, and all others that are none and wait."""
    shown, told = session.snapshot.waiting, np.count_nonzero(session.jobs.derived(shown_reasons))
    if told + sum(key in shown for key in known) == len(shown):
        return known
    seen = {*session.jobs.keys, *known}  # some came in sessions that were not counted
    return [*known, *(key for key in shown if key not in seen)]


def _figures_of(session: Session) -> Ints:
    jobs = session.jobs
    figures = np.empty((3, len(jobs)), np.int64)
    figures[_TOLD], figures[_QUEUE] = jobs.derived(shown_reasons), jobs.queue
    figures[_PENDING] = jobs.counts[:, TaskStatus.PENDING]
    return figures


def _pending_elsewhere(session: Session) -> Counter[str]:
    """How many pods are pending of groups whose queue does not exist: these are not among the session's jobs."""
    tasks, names = session.snapshot.tasks, session.snapshot.job_keys
    found = tasks.job[(session.job_of_row < 0) & (tasks.job >= 0) & (tasks.status == TaskStatus.PENDING)]
    numbers, counts = np.unique(found, return_counts=True)
    return Counter({names[job] or "": count for job, count in zip(numbers.tolist(), counts.tolist(), strict=True)})


def _share(queue: str, kinds: _Kinds, pending: int) -> tuple[dict[Labels, int], str]:
    """A group's waiting pods by label: those that the reasons count, all pending ones for reasons of the group; and the
    cause of its first reason."""
    shares: dict[Labels, int] = {}
    for gate, cause, tasks in kinds:
        labels = (queue, gate, cause)
        shares[labels] = min(pending, shares.get(labels, 0) + (tasks or pending))
    found = [labels for labels in shares if labels[2] != Cause.GANG_INCOMPLETE]
    first = found[0] if len(found) == 1 else min(shares, key=lambda labels: rank(labels[1], labels[2]))
    return shares, first[2]
