"""What of the cluster our pods can have: what queues divide among themselves."""

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
from vcd.scheduling.search.predicates.node import (
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
"""Where pods tell nodes apart in more ways, all nodes that any of them takes are one: else each way is looked at."""


class Reach:
    """Which nodes take our pods, by what nothing that is placed changes: cordon, taints, node affinity, as far as these
    are looked at. Pods that say the same of nodes are one kind."""

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
        """The nodes that take any of our pods."""
        result = np.zeros(len(self._session.nodes), np.bool_)
        for task in self._examples.values():
            result |= self._of(task)
            if result.all():
                break
        return result

    def beyond(self, task: Task) -> Mask | None:
        """The nodes that take others of our pods, and not this one by a taint or because they are cordoned; None where
        there are none. Which of the others it asks for is its own affair."""
        if len(self._examples) > _MOST_KINDS:
            return None
        tolerations = task.shape.spec.tolerations
        result = self._beyond.get(tolerations)
        if result is None:
            tests = [test for test in self._tests if not isinstance(test, NodeAffinity)]
            result = self._beyond[tolerations] = self.open & ~self._passing(task, tests)
        return result if result.any() else None

    def total(self, held: Ints, nodes: Mask) -> Ints:
        """What our pods hold (``held``, by resource) and what else they could have on some of the nodes.

        That is what is free there, or being freed; and of each node whole multiples of the largest amount of which the
        requests of all pods that it could take are multiples: four nodes with 1.5 CPU free each are 4 CPU to pods of 1.
        """
        free = np.maximum(self._session.nodes.usage.future_idle, 0)
        free[:, ~(nodes & self.open)] = 0
        shapes = self._shapes[self._may_use(nodes)]
        for column, requests in enumerate(self._session.requests[shapes].T.tolist()):
            grain = gcd(*requests)
            if grain > 1:
                free[column] -= free[column] % grain
        return bounded(held + sum_of(free, axis=1))

    def stays_out(self, nodes: Mask) -> Mask:
        """Which rows are pending pods for which there is none of the nodes."""
        tasks = self._session.snapshot.tasks
        shapes = self._shapes[~self._may_use(nodes)]
        pending = (self._session.job_of_row >= 0) & (tasks.status == TaskStatus.PENDING)
        result: Mask = pending & np.isin(tasks.shape, shapes)
        return result

    def _may_use(self, nodes: Mask) -> Mask:
        """Which shapes some of the nodes take that have any of all that they ask for; all shapes, where these are all
        nodes."""
        result = np.ones(len(self._kinds), np.bool_)
        if nodes.all():
            return result
        has = self._session.nodes.facts.allocatable > 0
        known: dict[tuple[_Kind, bytes], bool] = {}
        for index, (kind, asks) in enumerate(zip(self._kinds, self._session.requests[self._shapes] > 0, strict=True)):
            key = (kind, asks.tobytes())
            if key not in known:
                known[key] = bool((self._of(self._examples[kind]) & nodes & has[:, asks].all(axis=1)).any())
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
