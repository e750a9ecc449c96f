"""Scores of nodes by how full their resources would be, with a strategy per resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.scheduling.search.parts import Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

MOST = "MostAllocated"
LEAST = "LeastAllocated"
MAXIMUM = 100.0
"""The most points that a node gets before weights (kube-scheduler's MaxNodeScore)."""


class Strategy(NamedTuple):
    """How a resource is rated: MOST, LEAST, or an unknown kind, which adds to the weights and gives no points."""

    kind: str
    weight: int


class _Part(NamedTuple):
    """A rated resource: its column, its strategy, and the nodes' allocatable."""

    column: int
    strategy: Strategy
    capacity: Scores


class Rating:
    """100 x factor x the weighted mean over the requested resources.

    MOST is (request + used) / allocatable, LEAST is 1 minus that. The result is 0 if one of them would not fit. A
    resource that the node lacks, or with weight 0, adds no points and always fits. ``used`` excludes pipelined pods.
    """

    def __init__(self, session: Session, factor: int, strategies: Mapping[str, Strategy]) -> None:
        self._factor = MAXIMUM * factor
        facts = session.nodes.facts
        whole: npt.NDArray[np.float64] = facts.cached(
            "allocatable as floats", lambda: np.ascontiguousarray(facts.allocatable.T).astype(np.float64)
        )
        self._parts = [
            _Part(column, strategies[name], whole[column])
            for name, column in session.nodes.column_of.items()
            if name in strategies
        ]

    def minds(self, task: Task) -> bool:
        """Whether the task requests any resource that gives points."""
        return any(
            part.strategy.weight and part.strategy.kind in (MOST, LEAST) and task.request[part.column]
            for part in self._parts
        )

    def points(self, task: Task, usage: Usage) -> Scores:
        """Return the points, one per row of ``usage``."""
        score = np.zeros(len(usage))
        over = np.zeros(len(usage), np.bool_)
        weights = 0
        for column, (kind, weight), whole in self._parts:
            request = task.request[column]
            if not request:
                continue
            weights += weight
            if not weight or kind not in (MOST, LEAST):
                continue
            capacity = at_rows(whole, usage)
            there = capacity != 0
            used = (usage.used[column] + request).astype(np.float64)
            over |= (used > capacity) & there
            amount = used if kind == MOST else capacity - used
            score += np.divide(amount * float(weight), capacity, out=np.zeros(len(usage)), where=there)
        if weights > 0:
            score /= float(weights)
        score *= self._factor
        score[over] = 0.0
        return score


class ScarceResourceAvoidance(Score):
    """100 x weight x (1 - weights of the scarce resources that the node has / all of them).

    0 where the node lacks a resource that the pod requests.
    """

    name = "scarce resource avoidance"
    reads = Reads.FACTS
    keys = ()

    def __init__(self, session: Session, weight: int, scarce: Mapping[str, int]) -> None:
        super().__init__(1)
        count = len(session.nodes)
        self._has = session.nodes.usage.allocatable != 0
        self._total = sum(scarce.values())
        present = np.zeros(count)
        for name, value in scarce.items():
            column = session.nodes.column_of.get(name)
            if column is not None:
                present += np.where(session.nodes.usage.allocatable[column] > 0, float(value), 0.0)
        self._points = (1.0 - present / self._total) * (MAXIMUM * weight) if self._total else np.zeros(count)

    def applies(self, task: Task) -> bool:
        return self._total > 0

    def raw(self, task: Task, usage: Usage) -> Scores:
        lacks = ~self._has[task.request > 0].all(axis=0)
        points = self._points.copy()
        points[lacks] = 0.0
        return at_rows(points, usage)


def strategy_of(name: str, strategies: Mapping[str, Strategy], patterns: Sequence[str]) -> Strategy | None:
    """Return the strategy for a resource: by its name, else by the longest matching pattern, or None.

    ``patterns`` end with ``*``.
    """
    found = strategies.get(name)
    if found is not None:
        return found
    fitting = [pattern for pattern in patterns if name.startswith(pattern[:-1])]
    return strategies[max(fitting, key=len)] if fitting else None
