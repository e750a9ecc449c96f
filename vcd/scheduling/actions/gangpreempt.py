"""gangpreempt: starving gangs preempt jobs of lower priority in their queue (Volcano, same name)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vcd.model.status import TaskStatus
from vcd.scheduling.actions._gang_eviction import GangEvictionAction
from vcd.scheduling.eviction.victim_jobs import Ranks
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job


class GangPreemptAction(GangEvictionAction):
    """Evict jobs of lower priority in the same queue, until all pending tasks of a starving job can wait for capacity.

    Tasks that their jobs can spare are evicted first, then jobs as a whole, the last job in order first. A job loses
    all its tasks or keeps its minimum. Source: Volcano ``actions/gangpreempt``.
    """

    name = "gangpreempt"
    why = "preemption"
    largest_first = True

    def may_take(self, framework: Framework, queue: Queue) -> bool:
        return True

    def victim_queues(self, session: Session, job: Job) -> list[Queue]:
        return [job.queue]

    def victims_below(self, job: Job) -> int:
        return job.priority

    def rank(self, framework: Framework, need: Ints, wanted: Mask, jobs: Sequence[Job]) -> Iterator[Ranks]:
        """Rank the last job in order first. Bundles are built at their turn."""
        for job in jobs:
            is_there = job.counts[TaskStatus.BOUND] or job.counts[TaskStatus.RUNNING]
            key = framework.victim_key(job) if is_there else None
            yield Ranks(key if job.ready_count != job.min_available else None, key)
