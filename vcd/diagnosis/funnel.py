"""Which nodes would take a pod, and what keeps it from the others: asked of all nodes, clause by clause."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vcd.model.diagnosis import FunnelLine
from vcd.model.reasons import Cause, Reason
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.reasons import label_of
from vcd.scheduling.search.parts import Depends, Mask, Rows
from vcd.scheduling.session.nodes import Ints, fits, room_needed
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class Clause(NamedTuple):
    """One thing that nodes have to pass for a pod: why they fail it, and which pass."""

    reason: Reason
    passes: Mask

    @property
    def cause(self) -> str:
        """What it comes to where it keeps the pod out."""
        return label_of(self.reason)

    @property
    def text(self) -> str:
        """As a user wrote it, where it is that short."""
        return dict(self.reason.names).get("clause") or self.reason.words


class Funnel:
    """The nodes of a session as it ended, for one more pod like a task, and how many such pods each takes.

    ``lasting`` are the clauses that no placement changes (selectors, taints, cordons, volumes of nodes), ``moving``
    those that look at other pods, quotas or time. ``empty`` counts the pods for which a node has room when nothing is
    on it, ``now`` as it is, ``freed`` once what is leaving has gone and what waits for room has it.
    """

    def __init__(self, session: Session, task: Task) -> None:
        self.session, self.task = session, task
        usage = session.nodes.usage
        self.lasting: list[Clause] = []
        self.moving: list[Clause] = []
        within = np.ones(len(session.nodes), np.bool_)
        for predicate in framework_of(session).evaluator.predicates:
            if predicate.idle or not predicate.applies(task):
                continue
            if predicate.depends & Depends.USAGE:
                within &= predicate.mask(task, usage)
            else:
                clauses = self.moving if predicate.depends else self.lasting
                clauses += [Clause(reason, mask) for reason, mask in predicate.clauses(task, usage)]
        self._within = within
        self.empty = how_many(usage.allocatable, task.request)
        self.now = self.with_room(usage.idle)
        self.freed = self.with_room(usage.future_idle)

    @cached_property
    def allowed(self) -> Mask:
        """The nodes that pass all lasting clauses."""
        return _all(self.lasting, len(self.now))

    @property
    def never(self) -> bool:
        """Whether no node takes the pod even when empty: none at all, or none of those that its own terms allow."""
        takes = self.empty > 0
        return not takes.any() or bool(self.wanted.any() and not takes[self.wanted].any())

    @cached_property
    def wanted(self) -> Mask:
        """The nodes that pass all lasting clauses but those that nodes themselves put up: taints and cordons."""
        own = (one for one in self.lasting if one.cause not in (Cause.TAINT, Cause.UNSCHEDULABLE_NODE))
        return _all(own, len(self.now))

    def without(self, clause: Clause) -> Mask:
        """The nodes that pass all lasting clauses but one."""
        return _all([other for other in self.lasting if other is not clause], len(self.now))

    @property
    def fits(self) -> int:
        """How many such pods the allowed nodes take now, each by its room."""
        return int(self.now[self.allowed].sum())

    def with_room(self, room: Ints, rows: Rows | None = None) -> Ints:
        """How many such pods each node takes, or each of some, were its room this."""
        return how_many(room, self.task.request) * (self._within if rows is None else self._within[rows])

    def lines(self) -> list[FunnelLine]:
        """The funnel: clause after clause, and how many of what is left have room."""
        left, found = np.ones(len(self.now), np.bool_), []
        for clause in (*self.lasting, *self.moving):
            left = left & clause.passes
            found.append(FunnelLine(clause.cause, clause.text, int(clause.passes.sum()), int(left.sum())))
        has_room = self.now > 0
        return [*found, FunnelLine(Cause.NODE_ROOM, "free capacity", int(has_room.sum()), int((left & has_room).sum()))]


def _all(clauses: Iterable[Clause], count: int) -> Mask:
    found = np.ones(count, np.bool_)
    for clause in clauses:
        found &= clause.passes
    return found


def how_many(room: Ints, request: Ints) -> Ints:
    """How many pods that ask for so much fit into the room of each node, by ``room_needed`` for the first of them."""
    asked = request > 0
    first = fits(room_needed(request), room)
    if not asked.any():
        return first.astype(np.int64)
    count: Ints = np.maximum((room[asked] // request[asked][:, None]).min(axis=0), 1) * first
    return count
