"""gangpreempt: starving gangs take room from jobs of lower priority in their queue (Volcano, same name)."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.scheduling.actions._gangs import Bundle, GangEvictionAction
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, Task


class GangPreemptAction(GangEvictionAction):
    """All pending tasks of a starving job wait for room that jobs of lower priority in its queue give up.

    First go tasks that their jobs can spare, then jobs as a whole, the job that comes last first. A job goes as a whole
    or keeps its minimum. Source: Volcano ``actions/gangpreempt``.
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

    def in_order(self, framework: Framework, job: Job, others: list[Job], need: Ints, wanted: Mask) -> Iterator[Bundle]:
        """Spare tasks before whole jobs, the job that comes last first."""
        others = sorted(others, key=framework.victim_key, reverse=True)
        beside = [other for other in others if other.ready_count != other.min_available]  # the rest has none to spare
        known = {other: self.bundles(framework.session, other, wanted) for other in beside}
        for bundles in known.values():
            yield from (bundle for bundle in bundles if not bundle.whole)
        for other in others:
            bundles = known[other] if other in known else self.bundles(framework.session, other, wanted)
            yield from (bundle for bundle in bundles if bundle.whole)
