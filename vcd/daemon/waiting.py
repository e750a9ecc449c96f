"""Who waits, by queue, gate and cause: few words, however many reasons there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from vcd.diagnosis.case import rank
from vcd.model.events import Plan, Waiting, waits_after
from vcd.model.reasons import Cause
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.reasons import cause_of
from vcd.scheduling.session.session import Session
from vcd.state.records import GroupRecord

NO_QUEUE = ""
"""Stands for every queue that does not exist, so that groups cannot make up labels."""

_NEVER = int(np.iinfo(np.int64).max)

Labels = tuple[str, str, str]
"""Queue, gate, cause."""

Verdict = tuple[str, ...]
"""Queue, cause."""


@dataclass
class _Known:
    """What is known of a group that waits: why, its record, how many of its pods are pending, these by label, and its
    verdict."""

    reasons: tuple[Waiting, ...]
    record: GroupRecord | None
    pending: int
    share: dict[Labels, int]
    verdict: Verdict


class WaitingCounts:
    """Groups and pods that wait, kept up from session to session: only groups whose reasons changed are looked at.

    A pod that several kinds of reasons keep waiting counts once for each kind; once in ``verdicts``, by the cause of
    its group's wait: that which held longest where it is known, else the first that is given.
    """

    def __init__(self) -> None:
        self.groups: Counter[Labels] = Counter()
        self.pods: Counter[Labels] = Counter()
        self.verdicts: Counter[Verdict] = Counter()
        self._known: dict[str, _Known] = {}
        self._causes: dict[str, str] = {}

    def update(self, session: Session, plan: Plan) -> None:
        """Count as of the end of a session."""
        waiting = waits_after(session.snapshot.waiting, plan.waiting)
        records, jobs = session.snapshot.groups, session.jobs
        pending = jobs.counts[:, TaskStatus.PENDING].tolist()
        known, elsewhere = self._known, None
        for key, reasons in waiting.items():
            index = jobs.index(key)
            if index is None:
                elsewhere = _pending_elsewhere(session) if elsewhere is None else elsewhere
                count = elsewhere[key]
            else:
                count = pending[index]
            record = records.get(key)
            before = known.get(key)
            if before and before.reasons is reasons and before.record is record and before.pending == count:
                continue
            self._forget(key)
            queue = NO_QUEUE if index is None or record is None else session.queue_name_of(record)
            share = _pods_by_label(queue, reasons, count)
            cause = self._causes.get(key) or _first_cause(share)
            known[key] = _Known(reasons, record, count, share, (queue, cause))
            self.verdicts[queue, cause] += count
            for labels, pods in share.items():
                self.groups[labels] += 1
                self.pods[labels] += pods
        for key in known.keys() - waiting.keys():
            self._forget(key)
            self._causes.pop(key, None)

    def judge(self, causes: Mapping[str, str]) -> None:
        """Note the causes that held longest, by group."""
        for key, cause in causes.items():
            known = self._known.get(key)
            if known is not None:
                self._causes[key] = cause
                self._count_verdict(known, -known.pending)
                known.verdict = (known.verdict[0], cause)
                self._count_verdict(known, known.pending)

    def _count_verdict(self, known: _Known, pods: int) -> None:
        self.verdicts[known.verdict] += pods
        if not self.verdicts[known.verdict]:
            del self.verdicts[known.verdict]

    def oldest(self, session: Session) -> dict[tuple[str], int]:
        """By queue, when the oldest pod that waits was created, or the group where it has no pods; Unix seconds."""
        jobs, tasks = session.jobs, session.snapshot.tasks
        times = np.full(len(jobs) + 1, _NEVER)
        rows = np.flatnonzero((session.job_of_row >= 0) & (tasks.status == TaskStatus.PENDING) & (tasks.created > 0))
        np.minimum.at(times, session.job_of_row[rows], tasks.created[rows])
        found: dict[tuple[str], int] = {}
        for key, one in self._known.items():
            record, pending, share = one.record, one.pending, one.share
            index = jobs.index(key)
            since = int(times[-1 if index is None else index])
            if since == _NEVER and not pending and record is not None:
                since = record.created
            if 0 < since < _NEVER and share:
                queue = (next(iter(share))[0],)
                found[queue] = min(since, found.get(queue, since))
        return found

    def _forget(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is None:
            return
        self._count_verdict(known, -known.pending)
        for labels, pods in known.share.items():
            self.groups[labels] -= 1
            self.pods[labels] -= pods
            if not self.groups[labels]:
                del self.groups[labels], self.pods[labels]


def _pending_elsewhere(session: Session) -> Counter[str]:
    """How many pods are pending of groups whose queue does not exist: these are not among the session's jobs."""
    tasks, names = session.snapshot.tasks, session.snapshot.job_keys
    found = tasks.job[(session.job_of_row < 0) & (tasks.job >= 0) & (tasks.status == TaskStatus.PENDING)]
    numbers, counts = np.unique(found, return_counts=True)
    return Counter({names[job] or "": count for job, count in zip(numbers.tolist(), counts.tolist(), strict=True)})


def _first_cause(share: Mapping[Labels, int]) -> str:
    """The cause of a group's first reason."""
    found = [labels for labels in share if labels[2] != Cause.GANG_INCOMPLETE]
    return found[0][2] if len(found) == 1 else min(share, key=lambda labels: rank(labels[1], labels[2]))[2]


def _pods_by_label(queue: str, reasons: Iterable[Waiting], pending: int) -> dict[Labels, int]:
    """A group's waiting pods by label: those that the reasons count, all pending ones for reasons of the group."""
    shares: dict[Labels, int] = {}
    for waiting in reasons:
        labels = (queue, waiting.gate, cause_of(waiting))
        shares[labels] = min(pending, shares.get(labels, 0) + (waiting.tasks or pending))
    return shares
