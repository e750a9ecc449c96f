"""What of the cluster our pods can have: what queues divide among themselves."""

from __future__ import annotations

from math import gcd

import numpy as np

from vcd.model.status import TERMINATED_STATUSES
from vcd.scheduling.nodes import Ints
from vcd.scheduling.plugin import Mask
from vcd.scheduling.plugins.predicates import PredicatesPlugin
from vcd.scheduling.predicates.node import affinity_refusal, required_nodes, tolerations_refusal
from vcd.scheduling.session import Session
from vcd.scheduling.views import Task


def reachable(session: Session, held: Ints) -> Ints:
    """What our pods hold (``held``, by resource) and what else they could have, as integers by resource.

    That is what is free, or being freed, on nodes that take one of them by cordon, taints and node affinity, as far as
    the plugin predicates looks at these; and of each node whole multiples of the largest amount of which all our pods'
    requests are multiples: four nodes with 1.5 CPU free each are 4 CPU to pods of 1.
    """
    tasks, usage = session.snapshot.tasks, session.nodes.usage
    alive = np.flatnonzero((session.job_of_row >= 0) & ~np.isin(tasks.status, TERMINATED_STATUSES))
    shapes, first = np.unique(tasks.shape[alive], return_index=True)
    free = np.maximum(usage.future_idle, 0)
    free[:, ~_open_nodes(session, [session.task(row) for row in alive[first].tolist()])] = 0
    for column, requests in enumerate(session.requests[shapes].T.tolist()):
        grain = gcd(*requests)
        if grain > 1:
            free[column] -= free[column] % grain
    total: Ints = held + free.sum(axis=1)
    return total


def _open_nodes(session: Session, tasks: list[Task]) -> Mask:
    """Which nodes take one of the tasks, by what nothing that is placed changes."""
    count = len(session.nodes)
    plugin = next((each for each in session.plugins if isinstance(each, PredicatesPlugin)), None)
    if plugin is None:
        return np.ones(count, np.bool_)
    result = np.zeros(count, np.bool_)
    tests = plugin.fixed_tests(session)
    usage = session.nodes.usage
    known = set()
    for task in tasks:
        spec = task.shape.spec
        key = (spec.tolerations, frozenset(spec.node_selector.items()), required_nodes(spec))
        if key in known or tolerations_refusal(spec) is not None or affinity_refusal(spec) is not None:
            continue
        known.add(key)
        mask = np.ones(count, np.bool_)
        for test in tests:
            if test.applies(task):
                mask &= test.mask(task, usage)
        result |= mask
        if result.all():
            break
    return result
