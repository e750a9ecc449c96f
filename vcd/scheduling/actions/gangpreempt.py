"""gangpreempt: starving gangs take room from jobs of lower priority in their queue (Volcano, same name)."""

from __future__ import annotations

from vcd.scheduling.actions._gangs import Bundle, GangEvictionAction, by_gain
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, Task


class GangPreemptAction(GangEvictionAction):
    """All pending tasks of a starving job wait for room that jobs of lower priority in its queue give up.

    First go tasks that their jobs can spare, then jobs as a whole: the job that comes last first, then the one whose
    loss is smallest against what it gives. A job goes as a whole or keeps its minimum. Source: Volcano
    ``actions/gangpreempt``.
    """

    name = "gangpreempt"
    why = "preemption"

    def may_take(self, framework: Framework, queue: Queue) -> bool:
        """Jobs of any queue may."""
        return True

    def may_ask(self, framework: Framework, job: Job, tasks: list[Task]) -> bool:
        """Any starving job may."""
        return True

    def may_go(self, other: Job, job: Job) -> bool:
        """Jobs of lower priority in the same queue."""
        return other.queue is job.queue and other is not job and other.priority < job.priority

    def in_order(self, framework: Framework, job: Job, bundles: list[Bundle], need: Ints) -> list[Bundle]:
        """Spare tasks before whole jobs, the job that comes last first."""
        result = by_gain(bundles, need)
        result.sort(key=lambda bundle: framework.job_key(bundle.job), reverse=True)
        result.sort(key=lambda bundle: bundle.whole)
        return result
