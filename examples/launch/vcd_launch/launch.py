"""launch: each pending task goes to the node with the fewest pods."""

from __future__ import annotations

import numpy as np

from vcd.model.status import TaskStatus
from vcd.scheduling.actions.allocate import is_held
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.order import ordered_tasks
from vcd.scheduling.framework.plugin import Refusal
from vcd.scheduling.session.nodes import fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task


class LaunchAction(Action):
    """Job by job, task by task: of the nodes that take the task now, the one with the fewest pods; of several, the
    first by name. What the plugins say of jobs, queues and nodes holds; what they say of which node is best does not.

    A job's placements are committed when it is ready after its last task was tried, else taken back.
    """

    name = "launch"

    def execute(self, session: Session) -> None:
        for job in sorted(session.jobs_with_pending(), key=session.job_key):
            if session.is_full():
                return
            if self._may_start(session, job):
                self._launch(session, job)

    @staticmethod
    def _may_start(session: Session, job: Job) -> bool:
        if job.is_pending() and "enqueue" in session.policy.actions:
            return False
        invalid = session.job_valid(job)
        if invalid is not None:
            session.note(job, "invalid", *invalid)
        return invalid is None

    def _launch(self, session: Session, job: Job) -> None:
        statement = Statement(session, self.name, job)
        for task in ordered_tasks(session, [task for task in job.pending() if task.status == TaskStatus.PENDING]):
            if is_held(session, task, task.gated):
                continue
            refused = session.allocatable(job.queue, task)
            if refused is not None:
                session.note(job, "queue", *refused, task=task)
                continue
            row = self._emptiest(session, task)
            if row is not None:
                statement.allocate(task, row)
        if session.job_ready(job):
            statement.commit()
        else:
            statement.discard()

    @staticmethod
    def _emptiest(session: Session, task: Task) -> int | None:
        refused = session.pre_predicate(task)
        if refused is not None:
            session.note(task.job, "predicate", *refused, nodes=len(session.nodes), task=task)
            return None
        usage, candidates = session.nodes.usage, session.candidates(task)
        rows = np.flatnonzero(candidates.passing() & fits(task.floor, usage.idle))
        if rows.size:
            return int(rows[usage.pods[rows].argmin()])
        for reason, nodes in candidates.reasons().items():
            session.note(task.job, "predicate", "", Refusal(reason), nodes=nodes, task=task)
        return None
