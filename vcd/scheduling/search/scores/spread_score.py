"""Soft topology spread constraints (kube-scheduler's PodTopologySpread score)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.selectors import Selector
from vcd.scheduling.search.defaultspread import DefaultSpread
from vcd.scheduling.search.parts import Mask, Reads, Score, Scores
from vcd.scheduling.search.podindex import index_of
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.search.predicates.spread_predicate import HOSTNAME, SOFT, Constraint, constraints_of, defaults_of
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


class PodTopologySpreadScore(Score):
    """The fewer matching pods a node's domains have, the better.

    A domain's count is weighted by the logarithm of the number of domains among the feasible nodes, so that pods in
    small topologies are not drowned by those in large ones. Nodes without one of the topology keys get 0. A pod without
    constraints that belongs to a Service, ReplicationController, ReplicaSet or StatefulSet is spread by host name and
    by zone. In that case a node without a key only skips that topology.
    """

    name: ClassVar[str] = "PodTopologySpread"
    reads = Reads.PODS
    keys = ()

    def __init__(self, session: Session, weight: float) -> None:
        super().__init__(weight)
        self._index = index_of(session)
        self._default_spread = DefaultSpread(session)
        self._constraints: dict[Hashable, tuple[Constraint, ...]] = {}
        self._counted: list[_CountedConstraint] = []
        self._by_default = False

    def applies(self, task: Task) -> bool:
        found = task.shape.spec.topology_spread_constraints
        if found:
            return any(raw.when_unsatisfiable == SOFT for raw in found)
        return self._default_spread.of(task) is not None

    def labels_matter_in(self, namespace: str) -> bool:
        return self._default_spread.depends_on_labels(namespace)

    def key_of(self, task: Task) -> Selector | None:
        return None if task.shape.spec.topology_spread_constraints else self._default_spread.of(task)

    def raw(self, task: Task, usage: Usage) -> Scores:
        """Return the number of pods in each node's domains; ``normalise`` weighs them by constraint and must follow."""
        selector = self.key_of(task)
        key = (task.shape, task.namespace, task.labels, selector)
        constraints = self._constraints.get(key)
        if constraints is None:
            constraints = self._constraints[key] = (
                constraints_of(self._index, task, SOFT)
                if selector is None
                else defaults_of(self._index, task, selector)
            )
        self._by_default = selector is not None
        self._counted = [_CountedConstraint.of(constraint, usage) for constraint in constraints]
        total = np.zeros(len(usage), np.int64)
        for counted in self._counted:
            total += counted.pods
        return total.astype(np.float64)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        rated = feasible.copy()
        for counted in () if self._by_default else self._counted:
            rated &= counted.codes >= 0
        result = np.zeros_like(raw)
        if not rated.any():
            return result
        points = np.zeros(int(rated.sum()), np.float64)
        for counted in self._counted:
            factor = math.log(counted.domains_among(rated) + 2)
            there = counted.codes[rated] >= 0
            points += np.where(there, counted.pods[rated] * factor + (counted.skew - 1), 0)
        whole = np.floor(points)
        rounded = (whole + (points - whole >= 0.5)).astype(np.int64)
        least, most = int(rounded.min()), int(rounded.max())
        result[rated] = 100 if most == 0 else 100 * (most + least - rounded) // most
        return result


class _CountedConstraint(msgspec.Struct, frozen=True):
    """A constraint over some nodes: the matching pods in each node's domain, and the domain's number (-1: none)."""

    skew: int
    per_node: bool
    pods: Ints
    codes: npt.NDArray[np.intp]

    @classmethod
    def of(cls, constraint: Constraint, usage: Usage) -> _CountedConstraint:
        per_node = constraint.topology == HOSTNAME
        if per_node:  # kube-scheduler counts the pods of the node itself then, whatever the node policies
            pods = constraint.tally.by_node()
        else:
            pods = constraint.everywhere.by_node(constraint.tally.by_domain(constraint.counted).counts())
        return cls(constraint.skew, per_node, at_rows(pods, usage), at_rows(constraint.everywhere.codes, usage))

    def domains_among(self, rated: Mask) -> int:
        """Count the domains of the rated nodes.

        For the host name each node is a domain. Otherwise nodes without the key form one domain together.
        """
        return int(rated.sum()) if self.per_node else int(np.count_nonzero(np.bincount(self.codes[rated] + 1)))
