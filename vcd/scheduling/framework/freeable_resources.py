"""Admission that counts resources which evictions could free: an upper bound per group, for the queue plugins.

Without it, a full cluster of low priority would never admit a group of high priority, and a queue below its share would
never get back what others borrowed, because preempt and reclaim serve admitted groups only (volcano#4439).
"""

from __future__ import annotations

import numpy as np

from vcd.model.objects import PriorityClass
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.framework import Framework, framework_of
from vcd.scheduling.framework.rules import plugin_of
from vcd.scheduling.framework.shares import KeepsShares
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.job_columns import are_preemptable
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.group_columns import By, Derived, GroupColumns, Rows
from vcd.state.sums import Ints, sum_of

COUNT_VICTIMS = Argument(
    "countVictimsEnable",
    "bool",
    True,
    "Whether admission counts resources that evictions could free for a group. With preempt or gangpreempt, these are "
    "resources of preemptable groups of lower priority in its queue. With reclaim or gangreclaim, plugins that admit "
    "by the whole cluster also count resources that other reclaimable queues hold above their shares, unless the group "
    "takes its own queue above its share. Volcano counts neither.",
)
_PREEMPT, _PREEMPT_GANGS = "preempt", "gangpreempt"
_RECLAIM, _RECLAIM_GANGS = "reclaim", "gangreclaim"


class FreeableByEviction:
    """Upper bounds, by resource, of what preempt could free for a group in its own queue, and reclaim in other queues.

    A preemptable group can lose what it holds above its minimum resources. It can lose everything if only one of its
    pods is placed, if gangs are evicted as a whole (gangpreempt, gangreclaim), or if no plugin protects gangs:
    Volcano's default configuration has ``enablePreemptable: false`` for gang. Counting more would admit a group for
    which nothing is evicted, and its reservation would block all others. Disruption budgets are not considered, so a
    group may wait for pods that a budget protects, and delay others of its priority.
    """

    def __init__(self, session: Session, counts: bool) -> None:
        self._session = session
        self._jobs = session.jobs
        self._classes = session.objects("PriorityClass", PriorityClass)
        framework = framework_of(session)
        actions = framework.policy.actions
        self._preempts = counts and (_PREEMPT in actions or _PREEMPT_GANGS in actions)
        self._reclaims = counts and (_RECLAIM in actions or _RECLAIM_GANGS in actions)
        self._preempt_retains_minima = _protects_gangs(framework, "preemptable") and _PREEMPT_GANGS not in actions
        self._reclaim_retains_minima = _protects_gangs(framework, "reclaimable") and _RECLAIM_GANGS not in actions
        self._surplus: dict[tuple[int, int], Ints] = {}

    def held(self, job: Job) -> Ints:
        """Return what groups of lower priority in the job's queue can lose; zero for a group that never preempts."""
        return self._below(job, _spare if self._preempt_retains_minima else _preemptable)

    def minimum_held(self, job: Job) -> Ints:
        """Return the part of ``held`` that lies within the minimum resources of these groups."""
        return self._below(job, _spare_of_minimum if self._preempt_retains_minima else _within_minimum)

    def may_preempt(self, job: Job) -> bool:
        """Return whether preempt may evict pods for a group."""
        return self._preempts and not self._never_evicts(job)

    def lose_minimum(self, job: Job) -> Mask:
        """Return which groups are of lower priority in the same queue and can lose all of their minimum."""
        jobs = self._jobs
        if not self.may_preempt(job):
            return np.zeros(len(jobs), np.bool_)
        may_go: Mask = jobs.derived(_may_lose_minimum if self._preempt_retains_minima else are_preemptable)
        below: Mask = (jobs.queue == job.queue.index) & (jobs.priority < job.priority)
        return below & may_go

    def reclaimable(self, job: Job) -> Ints:
        """Return what reclaim could free in other queues; zero if the group would take its queue above its share."""
        nothing = np.zeros(self._jobs.allocated.shape[1], np.int64)
        if not self._reclaims or self._never_evicts(job):
            return nothing
        methods = framework_of(self._session).participants["reclaimable"].methods
        plugins = [plugin for method in methods if isinstance(plugin := plugin_of(method), KeepsShares)]
        if not plugins or not all(plugin.stays_within_share(job) for plugin in plugins):
            return nothing
        key = (job.queue.index, self._session.trial.changes)
        if key not in self._surplus:
            loses = self._jobs.sums(_spare if self._reclaim_retains_minima else _preemptable)
            bound = np.minimum.reduce([loses, *[plugin.surplus(job.queue) for plugin in plugins]])
            gives = [other.reclaimable and other is not job.queue for other in self._session.queue_list]
            self._surplus[key] = sum_of(np.maximum(bound[gives], 0))
        return self._surplus[key]

    def _below(self, job: Job, of: Derived) -> Ints:
        if not self.may_preempt(job):
            return np.zeros(self._jobs.allocated.shape[1], np.int64)
        sums = self._jobs.sums(of, By.QUEUE_AND_PRIORITY)
        ranks = len(self._jobs.priorities)
        first = job.queue.index * ranks
        return sum_of(sums[first : first + int(np.searchsorted(self._jobs.priorities, job.priority))])

    def _never_evicts(self, job: Job) -> bool:
        found = self._classes.get(job.record.group.spec.priority_class_name)
        return found is not None and found.preemption_policy == "Never"


def _protects_gangs(framework: Framework, point: str) -> bool:
    """Return whether a plugin that defines when gangs are ready also limits the victims."""
    return any(hasattr(plugin_of(method), "job_ready") for method in framework.participants[point].methods)


def _preemptable(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what preemptable groups hold."""
    held: Ints = jobs.allocated[rows] * are_preemptable(jobs, rows)[:, None]
    return held


def _within_minimum(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what preemptable groups hold of their minimum resources."""
    held: Ints = np.minimum(_preemptable(jobs, rows), jobs.min_resources[rows])
    return held


def _spare(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what groups can lose if gangs retain their minimum."""
    return _spare_of_minimum(jobs, rows) + _preemptable(jobs, rows) - _within_minimum(jobs, rows)


def _spare_of_minimum(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return what groups can lose of their minimum resources: all if one pod is placed, otherwise nothing."""
    spare: Ints = _within_minimum(jobs, rows) * _is_single(jobs, rows)[:, None]
    return spare


def _may_lose_minimum(jobs: GroupColumns, rows: Rows) -> Mask:
    """Return which groups may lose their minimum although gangs retain theirs."""
    return are_preemptable(jobs, rows) & _is_single(jobs, rows)


def _is_single(jobs: GroupColumns, rows: Rows) -> Mask:
    single: Mask = jobs.counts[rows][:, [TaskStatus.BOUND, TaskStatus.RUNNING]].sum(axis=1) <= 1
    return single
