"""gangreclaim: starving gangs reclaim resources from jobs of other queues (Volcano, same name)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

import numpy as np

from vcd.model.reasons import Reason
from vcd.scheduling.actions._gang_eviction import Bundle, GangEvictionAction
from vcd.scheduling.eviction.victim_jobs import Ranks
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Floats, Ints
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task


class GangReclaimAction(GangEvictionAction):
    """Evict jobs of other, reclaimable queues, until all pending tasks of a starving job can wait for capacity.

    Tasks that their jobs can spare are evicted first, then jobs as a whole: queues in the plugins' order of victim
    queues, then the job with the smallest loss relative to its gain. A job loses all its tasks or keeps its minimum.
    Source: Volcano ``actions/gangreclaim``.
    """

    name = "gangreclaim"
    why = "reclaim"

    def may_take(self, framework: Framework, queue: Queue) -> bool:
        """Whether the queue is below its share."""
        return framework.overused(queue) is None

    def refusal(self, framework: Framework, job: Job, tasks: list[Task]) -> tuple[str, Reason] | None:
        """Refuse tasks that together exceed the queue's share."""
        return framework.preemptive(job.queue, tasks)

    def victim_queues(self, session: Session, job: Job) -> list[Queue]:
        return [queue for queue in session.queue_list if queue is not job.queue and queue.reclaimable]

    def order_key(self, need: Ints, wanted: Mask) -> Hashable:
        """Return the need, with which a job's gain is compared."""
        return need.tobytes(), wanted.tobytes()

    def rank(self, framework: Framework, need: Ints, wanted: Mask, jobs: Sequence[Job]) -> Iterator[Ranks]:
        """Rank surplus tasks by their job's key, whole jobs by gain relative to loss, the highest first."""
        bundles = [self.bundles(framework.session, job, wanted) for job in jobs]
        whole = {bundle.job.index: bundle for bundle in chain.from_iterable(bundles) if bundle.whole}
        ratios = dict(zip(whole, _gain_by_loss(list(whole.values()), need), strict=True))
        for job, of_job in zip(jobs, bundles, strict=True):
            spares = any(not bundle.whole for bundle in of_job)
            ratio = ratios.get(job.index)
            yield Ranks((job.key,) if spares else None, None if ratio is None else (-ratio, job.key))


def _gain_by_loss(bundles: Sequence[Bundle], need: Ints) -> list[float]:
    """Return each bundle's freed share of the need, divided by the loss of its job; infinity if the loss is 0."""
    if not bundles:
        return []
    wanted = need > 0
    gains = _parts(np.minimum([bundle.freed for bundle in bundles], need), need, wanted)
    losses = _parts(np.array([bundle.lost for bundle in bundles]), need, wanted)
    ratios: list[float] = np.divide(gains, losses, out=np.full(len(bundles), np.inf), where=losses > 0).tolist()
    return ratios


def _parts(amounts: Ints, need: Ints, wanted: Mask) -> Floats:
    """Return rows of amounts as sums of fractions of the need.

    The memory layout is fixed, since the order in which floats are added follows it: a job must have the same rank
    alone and among others.
    """
    result: Floats = (np.ascontiguousarray(amounts[:, wanted]) / need[wanted]).sum(axis=1)
    return result
