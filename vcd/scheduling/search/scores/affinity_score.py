"""Preferred pod affinity and anti-affinity (kube-scheduler's InterPodAffinity score)."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from vcd.scheduling.search.domain_counts import Domains, domains_of
from vcd.scheduling.search.parts import Mask, Reads, Score, Scores
from vcd.scheduling.search.podindex import PodQuery, Tally, index_of
from vcd.scheduling.search.podterms import PreferringTerms, has_preferred_terms, preferred_terms
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape


class InterPodAffinityScore(Score):
    """Sum of the weights of preferred terms that hold on a node: the task's, and placed pods' that select the task."""

    name: ClassVar[str] = "InterPodAffinity"
    reads = Reads.PODS
    keys = ()

    def __init__(self, session: Session, weight: float) -> None:
        super().__init__(weight)
        self._facts = session.nodes.facts
        self._index = index_of(session)
        self._own: dict[tuple[Shape, str, int], list[tuple[int, Tally, Domains]]] = {}

    def applies(self, task: Task) -> bool:
        if task.shape.spec.affinity is not None and has_preferred_terms(task.shape):
            return True
        return not self._preferring.is_empty and self._preferring.select(task)

    @cached_property
    def _preferring(self) -> PreferringTerms:
        return self._index.counts_of(PreferringTerms)

    def labels_matter_in(self, namespace: str) -> bool:
        return self._preferring.may_exist

    def raw(self, task: Task, usage: Usage) -> Scores:
        points = np.zeros(len(self._facts), np.int64)
        for weight, tally, domains in self._preferences(task):
            points += weight * domains.by_node(tally.by_domain(domains).counts())
        for term, sums in self._preferring.selecting(task):
            if sums.total:
                points += term.weight * domains_of(self._facts, term.topology).by_node(sums.counts())
        return at_rows(points, usage).astype(np.float64)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        rated = raw[feasible]
        least, most = (float(rated.min()), float(rated.max())) if rated.size else (0.0, 0.0)
        if least == most:
            return np.zeros_like(raw)
        result: Scores = np.trunc(100.0 * ((raw - least) / (most - least)))
        return result

    def _preferences(self, task: Task) -> list[tuple[int, Tally, Domains]]:
        """Return the task's own preferred terms, each with the pods that it selects. Raises SelectorError."""
        if not has_preferred_terms(task.shape):
            return []
        key = (task.shape, task.namespace, task.labels)
        found = self._own.get(key)
        if found is None:
            found = self._own[key] = [
                (
                    term.weight,
                    self._index.tally(PodQuery(term.selector, (term.scope,))),
                    domains_of(self._facts, term.topology),
                )
                for term in preferred_terms(task.pod)
            ]
        return found
