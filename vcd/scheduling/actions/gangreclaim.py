"""gangreclaim: starving gangs take room from jobs of other queues (Volcano, same name)."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.status import TaskStatus
from vcd.scheduling.actions._gangs import Bundle, GangEvictionAction, by_gain
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, Task


class GangReclaimAction(GangEvictionAction):
    """All pending tasks of a starving job wait for room that running jobs of other, reclaimable queues give up.

    First go tasks that their jobs can spare, then jobs as a whole: queues in the plugins' order of victim queues, then
    the job whose loss is smallest against what it gives. A job goes as a whole or keeps its minimum. Source: Volcano
    ``actions/gangreclaim``.
    """

    name = "gangreclaim"
    why = "reclaim"

    def may_take(self, framework: Framework, queue: Queue) -> bool:
        """Not for queues that have their share."""
        return framework.overused(queue) is None

    def may_ask(self, framework: Framework, job: Job, tasks: list[Task]) -> bool:
        """Whether the queue stays within its share with all of the tasks."""
        return framework.preemptive(job.queue, tasks) is None

    def may_go(self, other: Job, job: Job) -> bool:
        """Jobs of other queues that are reclaimable."""
        return other.queue is not job.queue and other.queue.reclaimable

    def is_asked(self, task: Task) -> bool:
        """Running tasks."""
        return task.status == TaskStatus.RUNNING

    def in_order(self, framework: Framework, job: Job, others: list[Job], need: Ints, wanted: Mask) -> Iterator[Bundle]:
        """Spare tasks before whole jobs, queues in the order in which they give."""
        bundles = [bundle for other in others for bundle in self.bundles(framework.session, other, wanted)]
        result = by_gain(bundles, need)
        framework.sort_by_victim_queue(result, lambda bundle: bundle.job.queue, job.queue)
        result.sort(key=lambda bundle: bundle.whole)
        return iter(result)
