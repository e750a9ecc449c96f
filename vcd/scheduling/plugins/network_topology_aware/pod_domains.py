"""Which domains hold the placed pods of a job or sub-job. Derived from the pods' nodes, never stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.plugins.network_topology_aware.tier_limits import Unit
from vcd.scheduling.session.views import Job, Task
from vcd.scheduling.topology.tree import Tree

_PLACED = (*ALLOCATED_STATUSES, TaskStatus.PIPELINED)


class Positions:
    """The number of a unit's placed tasks in each domain."""

    def __init__(self, tree: Tree, tasks: Iterable[Task] = ()) -> None:
        self._tree = tree
        self._counts: Counter[int] = Counter()
        self._domain: int | None = None
        """The result of ``domain``, until tasks are placed outside or removed."""
        for task in tasks:
            if task.status in _PLACED and task.node >= 0:
                self.add(tree.domains_of[task.node], 1)

    def copy(self) -> Positions:
        """Return a copy that does not follow the unit."""
        found = Positions(self._tree)
        found._counts, found._domain = self._counts.copy(), self._domain
        return found

    def add(self, domains: Sequence[int], count: int) -> None:
        """Count tasks on a node of these domains; a negative count removes them."""
        counts = self._counts
        for domain in domains:
            counts[domain] += count
        if count < 0 or (self._domain is not None and counts[self._domain] < self.total):
            self._domain = None

    @property
    def total(self) -> int:
        """The number of placed tasks."""
        return self._counts[self._tree.top]

    def count_in(self, domain: int) -> int:
        """Return the number of placed tasks in a domain."""
        return self._counts[domain]

    def counts(self) -> npt.NDArray[np.float64]:
        """Return the number of placed tasks in each domain."""
        found = np.zeros(len(self._tree))
        found[list(self._counts)] = list(self._counts.values())
        return found

    def domains_within(self, tier: int) -> list[int]:
        """Return the domains that hold all placed tasks and are not above a tier.

        Usually these are the ancestors of one domain. HyperNodes that overlap are not ancestors of each other.
        """
        total, tiers = self.total, self._tree.tiers
        return [domain for domain, count in self._counts.items() if count == total and tiers[domain] <= tier]

    @property
    def domain(self) -> int | None:
        """The lowest domain that holds all placed tasks, of several the first by name; None if no task is placed."""
        total = self.total
        if self._domain is None and total:
            self._domain = min(domain for domain, count in self._counts.items() if count == total)
        return self._domain


class UnitPositions:
    """The positions of jobs and sub-jobs, counted from their tasks on first access and updated by ``add``."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._jobs: dict[int, Positions] = {}
        self._sub_jobs: dict[tuple[int, int], Positions] = {}

    def of(self, unit: Unit) -> Positions:
        """Return the positions of a job or sub-job."""
        if isinstance(unit, Job):
            found = self._jobs.get(unit.index)
            if found is None:
                found = self._jobs[unit.index] = Positions(self._tree, unit.tasks())
            return found
        key = unit.job.index, unit.index
        known = self._sub_jobs.get(key)
        if known is None:
            known = self._sub_jobs[key] = Positions(self._tree, unit.tasks)
        return known

    def add(self, tasks: Sequence[Task], nodes: Sequence[int], count: int) -> None:
        """Count tasks of one job that were placed on nodes (1), or removed (-1)."""
        job = tasks[0].job
        known = self._jobs.get(job.index)
        for task, node in zip(tasks, nodes, strict=True):
            if known is not None:
                known.add(self._tree.domains_of[node], count)
            partition = job.partition
            sub_job = None if partition is None else self._sub_jobs.get((job.index, partition.of(task).index))
            if sub_job is not None:
                sub_job.add(self._tree.domains_of[node], count)
