"""Scores by a node's labels and taints.

Source: kube-scheduler 1.36 ``nodeaffinity`` and ``tainttoleration``, ``helper.DefaultNormalizeScore``.
"""

from __future__ import annotations

import math

import numpy as np

from vcd.model.objects import PodSpec
from vcd.model.selectors import (
    PREFER_NO_SCHEDULE,
    NodeSelectorTerm,
    SelectorError,
    Toleration,
    check_node_terms,
)
from vcd.scheduling.search.parts import Mask, Score, Scores
from vcd.scheduling.search.predicates.node import at_rows, tolerations_refusal
from vcd.scheduling.search.static import highest_of
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape


class _PercentOfHighest(Score):
    """Base of the scores that are percentages of the highest rating among the feasible nodes."""

    normalised = True
    by_highest = True
    whole = True

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        self._facts = session.nodes.facts

    def percent(self, raw: Scores, feasible: Mask, none: Scores) -> Scores:
        """Return raw x 100 / the highest feasible value, rounded down; ``none`` if that is 0."""
        highest = highest_of(raw, feasible)
        return np.floor(raw * 100.0 / highest) if highest else none


_Terms = tuple[tuple[NodeSelectorTerm, float], ...]
"""Preferred terms with weights, divided by their common factor: percentages only depend on the ratios."""


class NodeAffinityScore(_PercentOfHighest):
    """The sum of the weights of the preferred node affinity terms that a node matches, as percent of the highest."""

    name = "nodeaffinity"

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(session, weight)
        self._terms: dict[Shape, _Terms] = {}

    def applies(self, task: Task) -> bool:
        affinity = task.shape.spec.affinity
        return affinity is not None and affinity.node_affinity is not None and bool(self._preferred(task.shape))

    def raw(self, task: Task, usage: Usage) -> Scores:
        result = np.zeros(len(self._facts))
        for term, weight in self._preferred(task.shape):
            result += self._facts.matches_term(term) * weight
        return at_rows(result, usage)

    def _preferred(self, shape: Shape) -> _Terms:
        found = self._terms.get(shape)
        if found is None:
            found = self._terms[shape] = _preferred(shape.spec)
        return found

    def reads_of(self, task: Task) -> _Terms:
        return self._preferred(task.shape)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return self.percent(raw, feasible, raw)


def _preferred(spec: PodSpec) -> _Terms:
    """Return the preferred terms with a weight, or none if one is invalid, which the API server does not admit."""
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return ()
    preferred = [term for term in affinity.node_affinity.preferred if term.weight]
    try:
        check_node_terms([term.preference for term in preferred])
    except SelectorError:
        return ()
    weights = [term.weight for term in preferred]
    common = math.gcd(*weights) if min(weights, default=0) > 0 else 1
    return tuple([(term.preference, float(term.weight // common)) for term in preferred])


class TaintTolerationScore(_PercentOfHighest):
    """The fewer untolerated PreferNoSchedule taints, the better: 100 less the percentage of the highest number."""

    name = "tainttoleration"

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(session, weight)
        self.idle = PREFER_NO_SCHEDULE not in self._facts.taint_effects

    def applies(self, task: Task) -> bool:
        return not self.idle and tolerations_refusal(task.shape.spec) is None

    def raw(self, task: Task, usage: Usage) -> Scores:
        tolerations = _soft(task.shape.spec.tolerations)
        return at_rows(self._facts.untolerated(tolerations, (PREFER_NO_SCHEDULE,)), usage).astype(np.float64)

    def reads_of(self, task: Task) -> tuple[Toleration, ...]:
        return _soft(task.shape.spec.tolerations)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return 100.0 - self.percent(raw, feasible, np.zeros_like(raw))


def _soft(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tuple(toleration for toleration in tolerations if toleration.effect in ("", PREFER_NO_SCHEDULE))
