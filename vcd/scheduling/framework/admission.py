"""Admission beside preempt: what preempt could free for a group counts as free when the group asks to be admitted.

Else a full cluster of low priority keeps a group of high priority out for ever, since preempt serves admitted groups
only (volcano#4439).
"""

from __future__ import annotations

import numpy as np

from vcd.model.objects import PriorityClass
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.groups import By, Derived, GroupColumns, Rows
from vcd.state.records import is_preemptable
from vcd.state.sums import Ints, sum_of

COUNT_VICTIMS = Argument(
    "countVictimsEnable",
    "bool",
    True,
    "Whether what preempt could free for a group counts as free when it is admitted: what preemptable groups of lower "
    "priority in its queue can lose, if preempt or gangpreempt is among the actions. Volcano does not count it.",
)
_WHOLE_GANGS = "gangpreempt"
_ACTIONS = ("preempt", _WHOLE_GANGS)


class FreeableByPreempt:
    """What preempt could free for a group in its own queue, by resource: an upper bound, which knows no budgets.

    Of a group that may be preempted that is what it holds above its minimum resources, and all where one pod of it has
    a place, or where gangpreempt or no gangs at all are configured. To count more would admit a group that nothing is
    evicted for, and its reservation would keep out all others.
    """

    def __init__(self, session: Session, counts: bool) -> None:
        self._jobs = session.jobs
        self._classes = session.objects("PriorityClass", PriorityClass)
        framework = framework_of(session)
        self._counts = counts and any(action in framework.policy.actions for action in _ACTIONS)
        keeps_gangs = bool(framework.participants["job_ready"].methods)
        self._keeps_minima = keeps_gangs and _WHOLE_GANGS not in framework.policy.actions

    def held(self, job: Job) -> Ints:
        """Return what groups of lower priority can lose in its queue; nothing for a group that never preempts."""
        return self._below(job, _spare if self._keeps_minima else _preemptable)

    def minimum_held(self, job: Job) -> Ints:
        """Return the same, without what they hold above their minimum resources."""
        return self._below(job, _spare_of_minimum if self._keeps_minima else _within_minimum)

    def _below(self, job: Job, of: Derived) -> Ints:
        if not self._counts or self._never_preempts(job):
            return np.zeros(self._jobs.allocated.shape[1], np.int64)
        sums = self._jobs.sums(of, By.QUEUE_AND_PRIORITY)
        ranks = len(self._jobs.priorities)
        first = job.queue.index * ranks
        return sum_of(sums[first : first + int(np.searchsorted(self._jobs.priorities, job.priority))])

    def _never_preempts(self, job: Job) -> bool:
        found = self._classes.get(job.record.group.spec.priority_class_name)
        return found is not None and found.preemption_policy == "Never"


def _preemptable(jobs: GroupColumns, rows: Rows) -> Ints:
    """What groups hold that may be preempted."""
    may_go = np.array([is_preemptable(record.group) for record in jobs.records_of(rows)], np.bool_)
    held: Ints = jobs.allocated[rows] * may_go[:, None]
    return held


def _within_minimum(jobs: GroupColumns, rows: Rows) -> Ints:
    """What they hold of their minimum resources."""
    held: Ints = np.minimum(_preemptable(jobs, rows), jobs.min_resources[rows])
    return held


def _spare(jobs: GroupColumns, rows: Rows) -> Ints:
    """What they can lose while gangs keep their minimum."""
    return _spare_of_minimum(jobs, rows) + _preemptable(jobs, rows) - _within_minimum(jobs, rows)


def _spare_of_minimum(jobs: GroupColumns, rows: Rows) -> Ints:
    """What they can lose of their minimum resources: all, where one pod has a place."""
    placed = jobs.counts[rows][:, [TaskStatus.BOUND, TaskStatus.RUNNING]].sum(axis=1)
    spare: Ints = _within_minimum(jobs, rows) * (placed <= 1)[:, None]
    return spare
