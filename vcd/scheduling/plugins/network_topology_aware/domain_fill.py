"""How full the domains are: the weighted mean of (used + requested) / allocatable over resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcd.scheduling.search.parts import Scores
from vcd.scheduling.session.nodes import Ints, Nodes
from vcd.scheduling.session.views import Task
from vcd.scheduling.topology.tree import Tree


class DomainFill:
    """What is allocatable and used in each domain, in int64 of shape (domains, resources). ``used`` follows ``add``."""

    def __init__(self, tree: Tree, nodes: Nodes, weights: Mapping[str, int]) -> None:
        self._tree = tree
        columns = [(nodes.column_of[name], weight) for name, weight in weights.items() if name in nodes.column_of]
        self._columns = [(column, weight) for column, weight in sorted(columns) if weight > 0]
        self.allocatable = _sums(tree, nodes.usage.allocatable)
        self.used = _sums(tree, nodes.usage.used)
        self._known: dict[bytes, Scores] = {}
        """Results of ``with_request``, until ``used`` changes."""

    def add(self, tasks: Sequence[Task], rows: Sequence[int], sign: int) -> None:
        """Count what tasks use on nodes (``sign`` 1), or do not use any more (-1)."""
        self._known.clear()
        for task, row in zip(tasks, rows, strict=True):
            for domain in self._tree.domains_of[row]:
                self.used[domain] += task.request * sign

    def with_request(self, request: Ints) -> Scores:
        """Return how full each domain is with a request added, from 0 to 1; 0 where the request does not fit.

        Resources without a weight, or that the request does not have, do not count.
        """
        key = request.tobytes()
        if key not in self._known:
            self._known[key] = self.share(request, self.used, self.allocatable)
        return self._known[key]

    def share(self, request: Ints, used: Ints, allocatable: Ints) -> Scores:
        """Return ``with_request`` for some domains, by what is used and allocatable in each."""
        total = np.zeros(len(used))
        over = np.zeros(len(used), np.bool_)
        weights = 0
        for column, weight in self._columns:
            if not request[column]:
                continue
            weights += weight
            capacity = allocatable[:, column]
            wanted = used[:, column] + request[column]
            over |= wanted > capacity
            share = np.divide(wanted, capacity, out=np.zeros(len(total)), where=capacity > 0)
            total += share * weight
        if weights:
            total /= weights
        total[over] = 0
        return total


def _sums(tree: Tree, amounts: Ints) -> Ints:
    """Return the sum of the nodes' amounts, of shape (resources, nodes), in each domain."""
    starts, members = tree.members
    running = np.zeros((len(members) + 1, len(amounts)), np.int64)
    np.cumsum(amounts.T[members], axis=0, out=running[1:])
    sums: Ints = running[starts[1:]] - running[starts[:-1]]
    return sums
