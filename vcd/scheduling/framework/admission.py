"""Admission beside preempt: what preempt could free for a group counts as free when the group asks to be admitted.

Else a full cluster of low priority keeps a group of high priority out for ever, since preempt serves admitted groups
only (volcano#4439).
"""

from __future__ import annotations

import numpy as np

from vcd.model.objects import PriorityClass
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.groups import By, Derived, GroupColumns, Rows
from vcd.state.sums import Ints, sum_of

COUNT_VICTIMS = Argument(
    "countVictimsEnable",
    "bool",
    True,
    "Whether what preempt could free for a group counts as free when it is admitted: what groups of lower priority in "
    "its queue hold, if preempt or gangpreempt is among the actions. Volcano does not count it.",
)
_ACTIONS = ("preempt", "gangpreempt")


class Freeable:
    """What preempt could free for a group in its own queue, by resource."""

    def __init__(self, session: Session, counts: bool) -> None:
        self._jobs = session.jobs
        self._classes = session.objects("PriorityClass", PriorityClass)
        actions = framework_of(session).policy.actions
        self._counts = counts and any(action in actions for action in _ACTIONS)

    def held(self, job: Job) -> Ints:
        """Return what groups of lower priority hold in its queue; nothing for a group that never preempts."""
        return self._below(job, "allocated")

    def minimum_held(self, job: Job) -> Ints:
        """Return the same, without what they hold above their minimum resources."""
        return self._below(job, _within_minimum)

    def _below(self, job: Job, of: str | Derived) -> Ints:
        if not self._counts or self._never_preempts(job):
            return np.zeros(self._jobs.allocated.shape[1], np.int64)
        sums = self._jobs.sums(of, By.QUEUE_AND_PRIORITY)
        ranks = len(self._jobs.priorities)
        first = job.queue.index * ranks
        return sum_of(sums[first : first + int(np.searchsorted(self._jobs.priorities, job.priority))])

    def _never_preempts(self, job: Job) -> bool:
        found = self._classes.get(job.record.group.spec.priority_class_name)
        return found is not None and found.preemption_policy == "Never"


def _within_minimum(jobs: GroupColumns, rows: Rows) -> Ints:
    """What jobs hold of their minimum resources."""
    held: Ints = np.minimum(jobs.allocated[rows], jobs.min_resources[rows])
    return held
