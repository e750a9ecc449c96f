"""backfill: place tasks that ask for no resources (docs/semantics/actions.md)."""

from __future__ import annotations

from vcd.model.status import TaskStatus
from vcd.scheduling.actions.allocate import PREDICATE_ERROR_CACHE, AllocateAction, is_held, place
from vcd.scheduling.eviction.idle import unpipeline_idle
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.order import PriorityQueue
from vcd.scheduling.framework.validity import note_not_ready, why_invalid
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import asks_for_nothing, has_gate


class BackfillAction(Action):
    """Best-effort tasks of admitted, valid jobs, in the order of queues, jobs and tasks as it was before the first
    placement, those that other actions let wait for idle room included. A task is placed at once, where there is room
    now; when its job is ready after that, all that the job holds is bound, and what does not make it ready is taken
    back, so that it is in nobody's way."""

    name = "backfill"
    treats_alike = True
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
        """Place a job's tasks; what does not make it ready keeps its places only while the job waits for room."""
        session = framework.session
        statement = framework.statement(self.name, job)
        for task in tasks:
            refused = framework.allocatable(job.queue, task)
            if refused is not None:
                job.note("queue", *refused, task=task)
                continue
            if is_held(session, task, task.gated):
                continue
            if place(framework, statement, task, may_wait=False) and len(statement) and framework.job_ready(job):
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
        for job in session.jobs_with_pending(asks_for_nothing):
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
