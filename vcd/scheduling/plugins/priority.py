"""priority: schedule higher priority first, and evict only lower priority (docs/semantics/plugins.md)."""

from __future__ import annotations

from vcd.scheduling.eviction.victim_search import EvictionContext
from vcd.scheduling.framework.order import PRIORITY, labelled
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import victim_rule
from vcd.scheduling.session.views import Job, SubJob, Task


class PriorityPlugin(Plugin):
    """Order jobs by the value of their group's PriorityClass, and tasks by their pod's priority.

    A job may preempt tasks of jobs of lower priority; a task may preempt tasks of lower priority in its own job. A
    job starves until all of its tasks are ready or pipelined. Source: Volcano ``plugins/priority``.
    """

    name = "priority"
    kinds = ("PriorityClass",)
    keys = ("volcano.sh/task-priority",)

    @labelled(PRIORITY)
    def job_order(self, job: Job) -> int:
        """Order jobs by priority, highest first."""
        return -job.priority

    @labelled(PRIORITY)
    def sub_job_order(self, sub_job: SubJob) -> int:
        """Order sub-jobs by the highest priority of their tasks, highest first."""
        return -sub_job.priority

    @labelled(PRIORITY)
    def task_order(self, task: Task) -> int:
        """Order tasks by priority, highest first."""
        return -task.priority

    @victim_rule("tasks of jobs of lower priority; in the preemptor's own job, tasks of lower priority")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        """Return tasks of jobs of lower priority, and tasks of lower priority in the preemptor's own job."""
        return [
            task
            for task in tasks
            if (
                task.priority < preemptor.priority
                if task.job is preemptor.job
                else task.job.priority < preemptor.job.priority
            )
        ]

    @victim_rule("for gangpreempt the tasks of jobs of lower priority")
    def unified_evictable(self, context: EvictionContext, tasks: list[Task]) -> list[Task]:
        """Return tasks of jobs of lower priority for gangpreempt; all for gangreclaim, which compares shares."""
        if context.kind != "gangpreempt":
            return tasks
        return [task for task in tasks if task.job.priority < context.job.priority]

    def job_starving(self, job: Job) -> bool:
        """Return whether a task is neither ready nor pipelined."""
        return job.ready_count + job.waiting_count < job.task_count
