"""launch: each pending task goes to the node with the fewest pods."""

from __future__ import annotations

import numpy as np

from vcd.model.status import TaskStatus
from vcd.scheduling.actions.allocate import is_held
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.nodes import fits
from vcd.scheduling.session.views import Job, Task


class LaunchAction(Action):
    """Place each task on the feasible node with the fewest pods, the first by name if there are several.

    It obeys the plugins' orders, quotas and predicates, and ignores their scores. A job's statement is committed if the
    job is ready after its last task, else discarded.
    """

    name = "launch"

    def execute(self, framework: Framework) -> None:
        for job in sorted(framework.session.jobs_with_pending(), key=framework.job_key):
            if framework.session.is_full():
                return
            if self._may_start(framework, job):
                self._launch(framework, job)

    @staticmethod
    def _may_start(framework: Framework, job: Job) -> bool:
        if job.is_pending() and "enqueue" in framework.policy.actions:
            return False
        invalid = framework.job_valid(job)
        if invalid is not None:
            job.note("invalid", *invalid)
        return invalid is None

    def _launch(self, framework: Framework, job: Job) -> None:
        statement = framework.statement(self.name, job)
        for task in framework.in_task_order([task for task in job.pending() if task.status == TaskStatus.PENDING]):
            if is_held(framework.session, task, task.gated):
                continue
            refused = framework.allocatable(job.queue, task, 1)
            if refused is not None:
                job.note("queue", *refused, task=task)
                continue
            row = self._emptiest(framework, task)
            if row is not None:
                statement.allocate([task], [row])
        if framework.job_ready(job):
            statement.commit()
        else:
            statement.discard()

    @staticmethod
    def _emptiest(framework: Framework, task: Task) -> int | None:
        refused = framework.pre_predicate(task)
        if refused is not None:
            task.job.note("predicate", *refused, nodes=len(framework.session.nodes), task=task)
            return None
        usage, candidates = framework.session.nodes.usage, framework.candidates(task)
        rows = np.flatnonzero(candidates.passing() & fits(task.floor, usage.idle))
        if rows.size:
            return int(rows[usage.pods[rows].argmin()])
        for reason, nodes in candidates.reasons().items():
            task.job.note("predicate", "", reason, nodes=nodes, task=task)
        return None
