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
from vcd.scheduling.search.factscores import PercentOfHighest
from vcd.scheduling.search.parts import Mask, Reads, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows, tolerations_refusal
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

_Terms = tuple[tuple[NodeSelectorTerm, float], ...]
"""Preferred terms with weights, divided by their common factor: percentages only depend on the ratios."""


class NodeAffinityScore(PercentOfHighest):
    """The sum of the weights of the preferred node affinity terms that a node matches, as percent of the highest."""

    name = "nodeaffinity"
    reads = Reads.FACTS
    keys = ("spec.affinity.nodeAffinity.preferred",)
    kinds = ()

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        self._facts = session.nodes.facts
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

    def key_of(self, task: Task) -> _Terms:
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


class TaintTolerationScore(PercentOfHighest):
    """The fewer untolerated PreferNoSchedule taints, the better: 100 less the percentage of the highest number."""

    name = "tainttoleration"
    reads = Reads.FACTS
    keys = ("spec.tolerations",)
    kinds = ()

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        self._facts = session.nodes.facts
        self.has_effect = PREFER_NO_SCHEDULE in self._facts.taint_effects
        """Whether any node has such a taint."""

    def applies(self, task: Task) -> bool:
        return self.has_effect and tolerations_refusal(task.shape.spec) is None

    def raw(self, task: Task, usage: Usage) -> Scores:
        tolerations = _soft(task.shape.spec.tolerations)
        return at_rows(self._facts.untolerated(tolerations, (PREFER_NO_SCHEDULE,)), usage).astype(np.float64)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return 100.0 - self.percent(raw, feasible, np.zeros_like(raw))


def _soft(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tuple(toleration for toleration in tolerations if toleration.effect in ("", PREFER_NO_SCHEDULE))
