"""priority: higher priority first, and only lower priority gives way (docs/semantics/plugins.md)."""

from __future__ import annotations

from vcd.scheduling.eviction.room import EvictionContext
from vcd.scheduling.framework.order import PRIORITY, labelled
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import lets_go
from vcd.scheduling.session.views import Job, SubJob, Task


class PriorityPlugin(Plugin):
    """Orders jobs by the value of their group's PriorityClass and tasks by their pod's priority.

    Between jobs a task may be preempted by a job of higher priority, within a job by a task of higher priority. A
    job starves while not all of its tasks have room or wait for it. Source: Volcano ``plugins/priority``.
    """

    name = "priority"
    treats_alike = True
    kinds = ("PriorityClass",)
    annotations = ("volcano.sh/task-priority",)

    @labelled(PRIORITY)
    def job_order(self, job: Job) -> int:
        """Higher priority first."""
        return -job.priority

    @labelled(PRIORITY)
    def sub_job_order(self, sub_job: SubJob) -> int:
        """The sub-job whose most urgent task has the higher priority first."""
        return -sub_job.priority

    @labelled(PRIORITY)
    def task_order(self, task: Task) -> int:
        """Higher priority first."""
        return -task.priority

    def minds_exchanges(self) -> bool:
        """No: priorities stay."""
        return False

    @lets_go("tasks of jobs of lower priority; in the preemptor's own job, tasks of lower priority")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        """Tasks of jobs of lower priority; in the preemptor's own job, tasks of lower priority."""
        return [
            task
            for task in tasks
            if (
                task.priority < preemptor.priority
                if task.job is preemptor.job
                else task.job.priority < preemptor.job.priority
            )
        ]

    @lets_go("for gangpreempt the tasks of jobs of lower priority")
    def unified_evictable(self, context: EvictionContext, tasks: list[Task]) -> list[Task]:
        """For gangpreempt the tasks of jobs of lower priority; gangreclaim is about shares, not priorities."""
        if context.kind != "gangpreempt":
            return tasks
        return [task for task in tasks if task.job.priority < context.job.priority]

    def job_starving(self, job: Job) -> bool:
        """Whether some task neither has room nor waits for it."""
        return job.ready_count + job.waiting_count < job.task_count
