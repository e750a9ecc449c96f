"""Random full clusters in which room is made before it is given out, or given out again afterwards."""

from __future__ import annotations

from tests.reference.clusters import RandomCase
from tests.reference.crowded import CrowdedMaker
from tests.reference.reclaiming import ReclaimMaker

ORDERS = ("{0}, allocate", "{0}, allocate, backfill", "enqueue, {0}, allocate, backfill", "allocate, {0}, backfill")


class PreemptFirst(CrowdedMaker):
    """Preemption before, or between, allocate and backfill."""

    def actions(self) -> str:
        return str(self.pick(ORDERS)).format("preempt")


class ReclaimFirst(ReclaimMaker):
    """Reclaim before, or between, allocate and backfill; sometimes preemption, too."""

    def actions(self) -> str:
        return str(self.pick(ORDERS)).format(self.pick(("reclaim", "reclaim", "preempt, reclaim", "reclaim, preempt")))


def ordering_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = (PreemptFirst, ReclaimFirst)[seed % 2](seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
