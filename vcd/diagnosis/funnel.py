"""Which nodes fit a pod, and which clauses of the filters exclude the others. All nodes are examined, clause by
clause."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vcd.model.diagnosis import FunnelLine
from vcd.model.reasons import Cause, Reason
from vcd.scheduling.framework.declared_reasons import label_of
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Mask, Rows, is_by_usage, is_fixed
from vcd.scheduling.session.nodes import Ints, fits, room_needed
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class Clause(NamedTuple):
    """One condition of a filter for a pod: the reason of nodes that fail it, and the mask of nodes that pass it."""

    reason: Reason
    passes: Mask

    @property
    def cause(self) -> str:
        """The cause that this clause states if it excludes the pod."""
        return label_of(self.reason)

    @property
    def text(self) -> str:
        """The clause as the user wrote it if the reason has it, else the reason's words."""
        return dict(self.reason.names).get("clause") or self.reason.words


class Funnel:
    """The nodes at the end of a session, and how many more pods like ``task`` fit on each.

    ``lasting`` are the clauses that no placement changes (selectors, taints, cordons, node affinity of volumes),
    ``moving`` those that depend on other pods, quotas or time; ``within`` are the nodes that pass filters of their
    usage. ``empty`` counts the pods that fit by resources when
    the node is empty, ``now`` those that fit into its idle resources, ``freed`` those that fit into its future idle
    resources.
    """

    def __init__(self, session: Session, task: Task) -> None:
        self.session, self.task = session, task
        usage = session.nodes.usage
        self.lasting: list[Clause] = []
        self.moving: list[Clause] = []
        within = np.ones(len(session.nodes), np.bool_)
        for predicate in framework_of(session).evaluator.predicates:
            if not predicate.applies(task):
                continue
            if is_by_usage(predicate):
                within &= predicate.mask(task, usage)
            else:
                clauses = self.lasting if is_fixed(predicate) else self.moving
                clauses += [Clause(reason, mask) for reason, mask in predicate.clauses(task, usage)]
        self.within = within
        self.empty = fitting_pods(usage.allocatable, task.request)
        self.now = self.count_fitting(usage.idle)
        self.freed = self.count_fitting(usage.future_idle)

    @cached_property
    def allowed(self) -> Mask:
        """The nodes that pass all lasting clauses."""
        return all_passing(self.lasting, len(self.now))

    @property
    def passing(self) -> Mask:
        """The nodes that pass all clauses, lasting or not."""
        return all_passing([*self.lasting, *self.moving], len(self.now))

    @property
    def never(self) -> bool:
        """Whether no node fits the pod even when empty: none of all, or none of those that the pod's own clauses
        allow."""
        takes = self.empty > 0
        return not takes.any() or bool(self.wanted.any() and not takes[self.wanted].any())

    @cached_property
    def wanted(self) -> Mask:
        """The nodes that pass all lasting clauses but taints and cordons."""
        own = (one for one in self.lasting if one.cause not in (Cause.TAINT, Cause.UNSCHEDULABLE_NODE))
        return all_passing(own, len(self.now))

    def without(self, clause: Clause) -> Mask:
        """Return the nodes that pass all lasting clauses but one."""
        return all_passing([other for other in self.lasting if other is not clause], len(self.now))

    @property
    def fits(self) -> int:
        """How many such pods fit on the allowed nodes now, by resources."""
        return int(self.now[self.allowed].sum())

    def count_fitting(self, free: Ints, rows: Rows | None = None) -> Ints:
        """Return how many such pods fit on each node, or on those at ``rows``, with these free resources."""
        return fitting_pods(free, self.task.request) * (self.within if rows is None else self.within[rows])

    def lines(self) -> list[FunnelLine]:
        """Return the funnel: how many nodes pass each clause, and how many are left after it; free capacity last."""
        left, found = np.ones(len(self.now), np.bool_), []
        for clause in (*self.lasting, *self.moving):
            left = left & clause.passes
            found.append(FunnelLine(clause.cause, clause.text, int(clause.passes.sum()), int(left.sum())))
        has_capacity = self.now > 0
        return [
            *found,
            FunnelLine(Cause.NODE_ROOM, "free capacity", int(has_capacity.sum()), int((left & has_capacity).sum())),
        ]


def all_passing(clauses: Iterable[Clause], count: int) -> Mask:
    """Return which of ``count`` nodes pass some clauses."""
    found = np.ones(count, np.bool_)
    for clause in clauses:
        found &= clause.passes
    return found


def fitting_pods(free: Ints, request: Ints) -> Ints:
    """Return how many pods with this request fit into the free resources of each node, applying the tolerance of
    ``room_needed`` to the first pod."""
    requested = request > 0
    first = fits(room_needed(request), free)
    if not requested.any():
        return first.astype(np.int64)
    count: Ints = np.maximum((free[requested] // request[requested][:, None]).min(axis=0), 1) * first
    return count
