"""backfill: place tasks that request no resources (docs/semantics/actions.md)."""

from __future__ import annotations

from vcd.model.status import TaskStatus
from vcd.scheduling.actions.allocate import PREDICATE_ERROR_CACHE, AllocateAction, is_held, place
from vcd.scheduling.eviction.idle_placement import unpipeline_idle
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.job_validity import note_not_ready, why_invalid
from vcd.scheduling.framework.order import PriorityQueue
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import has_gate, requests_nothing


class BackfillAction(Action):
    """Place best-effort tasks of admitted, valid jobs.

    The order of queues, jobs and tasks is that before the first placement. Tasks that other actions left waiting for
    idle resources are included. A task is only placed on a node that takes it now. When its job is ready then, all that
    the job holds is bound. Placements that do not make the job ready are rolled back, so that they block no other job.
    """

    name = "backfill"
    follows_order = True
    arguments = (PREDICATE_ERROR_CACHE,)

    def execute(self, framework: Framework) -> None:
        session = framework.session
        AllocateAction.place_nominated(framework)
        unpipeline_idle(framework, lambda task: task.best_effort)
        for job, tasks in self._pending(framework):
            if session.is_full():
                return
            self._place(framework, job, tasks)

    def _place(self, framework: Framework, job: Job, tasks: list[Task]) -> None:
        """Place a job's tasks. Placements that do not make it ready stay only if the job waits for releases."""
        session = framework.session
        statement = framework.statement(self.name, job)
        for task in tasks:
            refused = framework.allocatable(job.queue, task, 1)
            if refused is not None:
                job.note("queue", *refused, task=task)
                continue
            if is_held(session, task, task.gated):
                continue
            if place(framework, statement, [task], may_wait=False) and len(statement) and framework.job_ready(job):
                session.commit_pipelined(job)
                statement.commit()
                statement = framework.statement(self.name, job)
        if len(statement):
            note_not_ready(framework, job)
        if len(statement) and framework.job_pipelined(job):
            statement.stay_pipelined()
        else:
            statement.discard()

    @staticmethod
    def _pending(framework: Framework) -> list[tuple[Job, list[Task]]]:
        session = framework.session
        tasks: dict[int, list[Task]] = {}
        jobs: dict[int, list[Job]] = {}
        for job in session.jobs_with_pending(requests_nothing):
            if job.is_pending() or why_invalid(framework, job) is not None:
                continue
            wanted = [
                task
                for task in job.pending()
                if task.best_effort
                and task.status == TaskStatus.PENDING
                and not is_held(session, task, has_gate(task.shape))
            ]
            if wanted:
                tasks[job.index] = framework.in_task_order(wanted)
                jobs.setdefault(job.queue.index, []).append(job)
        queues: PriorityQueue[Queue] = PriorityQueue(
            framework.queue_key, [session.queue_list[index] for index in sorted(jobs)]
        )
        result: list[tuple[Job, list[Task]]] = []
        while queues:
            waiting = PriorityQueue(framework.job_key, jobs[queues.pop().index])
            while waiting:
                job = waiting.pop()
                result.append((job, tasks[job.index]))
        return result
