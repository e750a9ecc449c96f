"""The resources of the cluster that pods of this scheduler can have, which proportion divides among queues."""

from __future__ import annotations

from functools import cached_property
from math import gcd
from typing import cast

import numpy as np

from vcd.model.objects import PodSpec
from vcd.model.selectors import NodeSelector, Toleration
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Mask, Predicate
from vcd.scheduling.search.predicates.node_predicates import (
    NodeAffinity,
    NodeUnschedulable,
    TaintToleration,
    affinity_refusal,
    required_nodes,
    tolerations_refusal,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape
from vcd.state.sums import Ints, bounded, sum_of

_Kind = tuple[tuple[Toleration, ...], frozenset[tuple[str, str]], NodeSelector | None]

_FIXED = (NodeUnschedulable, NodeAffinity, TaintToleration)
_MOST_KINDS = 64
"""With more kinds of pods, masks are not cached, and all nodes count as one pool: one mask per kind is too much."""


class Reach:
    """Computes which nodes take pods of this scheduler, by properties that no placement changes.

    These are cordons, taints and node affinity, if their filters are active. Pods with the same node requirements are
    one kind.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        tasks = session.snapshot.tasks
        alive = np.flatnonzero((session.job_of_row >= 0) & tasks.alive)
        self._shapes, first = np.unique(tasks.shape[alive], return_index=True)
        shapes = session.snapshot.shapes
        self._kinds: list[_Kind] = session.snapshot.shape_columns.cached(
            "reach", self._shapes.tolist(), lambda new: [_kind_of(cast(Shape, shapes[number]).spec) for number in new]
        )
        row_of = dict(zip(self._kinds, alive[first].tolist(), strict=True))
        self._examples = {kind: session.task(row) for kind, row in row_of.items()}
        self._masks: dict[_Kind, Mask] = {}
        self._beyond: dict[tuple[Toleration, ...], Mask] = {}
        self._tests: list[Predicate] = [
            test for test in framework_of(session).evaluator.predicates if isinstance(test, _FIXED)
        ]

    @cached_property
    def open(self) -> Mask:
        """The nodes that at least one pod of this scheduler may use."""
        result = np.zeros(len(self._session.nodes), np.bool_)
        for task in self._examples.values():
            result |= self._of(task)
            if result.all():
                break
        return result

    def beyond(self, task: Task) -> Mask | None:
        """Return the nodes that other pods of this scheduler may use, and this one may not for a taint or a cordon.

        None if there are none. The task's own node affinity does not count: it restricts the task by choice.
        """
        if len(self._examples) > _MOST_KINDS:
            return None
        tolerations = task.shape.spec.tolerations
        result = self._beyond.get(tolerations)
        if result is None:
            tests = [test for test in self._tests if not isinstance(test, NodeAffinity)]
            result = self._beyond[tolerations] = self.open & ~self._passing(task, tests)
        return result if result.any() else None

    def total(self, held: Ints, nodes: Mask) -> Ints:
        """Return what pods of this scheduler hold (``held``, by resource) plus what they could still get on ``nodes``.

        Of each node, future idle resources count in multiples of the greatest common divisor of the requests of all
        pods that may use ``nodes``: four nodes with 1.5 CPU free each count as 4 CPU for pods of 1 CPU.
        """
        free = np.maximum(self._session.nodes.usage.future_idle, 0)
        free[:, ~(nodes & self.open)] = 0
        shapes = self._shapes[self._may_use(nodes)]
        for column, requests in enumerate(self._session.requests[shapes].T.tolist()):
            grain = gcd(*requests)
            if grain > 1:
                free[column] -= free[column] % grain
        return bounded(held + sum_of(free, axis=1))

    def excluded_from(self, nodes: Mask) -> Mask:
        """Return a mask of task rows: pending pods that none of the nodes takes."""
        tasks = self._session.snapshot.tasks
        shapes = self._shapes[~self._may_use(nodes)]
        pending = (self._session.job_of_row >= 0) & (tasks.status == TaskStatus.PENDING)
        result: Mask = pending & np.isin(tasks.shape, shapes)
        return result

    def _may_use(self, nodes: Mask) -> Mask:
        """Return which shapes some of the nodes take that offer all requested resources; all shapes for all nodes."""
        result = np.ones(len(self._kinds), np.bool_)
        if nodes.all():
            return result
        has = self._session.nodes.facts.allocatable > 0
        known: dict[tuple[_Kind, bytes], bool] = {}
        for index, (kind, needs) in enumerate(zip(self._kinds, self._session.requests[self._shapes] > 0, strict=True)):
            key = (kind, needs.tobytes())
            if key not in known:
                known[key] = bool((self._of(self._examples[kind]) & nodes & has[:, needs].all(axis=1)).any())
            result[index] = known[key]
        return result

    def _of(self, task: Task) -> Mask:
        kind = _kind_of(task.shape.spec)
        found = self._masks.get(kind)
        if found is None:
            found = self._taken_by(task)
            if len(self._examples) <= _MOST_KINDS:
                self._masks[kind] = found
        return found

    def _taken_by(self, task: Task) -> Mask:
        if not self._tests:
            return np.ones(len(self._session.nodes), np.bool_)
        spec = task.shape.spec
        if tolerations_refusal(spec) is not None or affinity_refusal(spec) is not None:
            return np.zeros(len(self._session.nodes), np.bool_)
        return self._passing(task, self._tests)

    def _passing(self, task: Task, tests: list[Predicate]) -> Mask:
        mask = np.ones(len(self._session.nodes), np.bool_)
        for test in tests:
            if test.applies(task):
                mask &= test.mask(task, self._session.nodes.usage)
        return mask


def _kind_of(spec: PodSpec) -> _Kind:
    return spec.tolerations, frozenset(spec.node_selector.items()), required_nodes(spec)
