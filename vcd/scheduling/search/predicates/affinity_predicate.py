"""Required pod affinity and anti-affinity (kube-scheduler's InterPodAffinity filter)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import ClassVar

import msgspec
import numpy as np

from vcd.model.reasons import MEND_NAMED, Cause, Reason, ReasonCode
from vcd.model.selectors import Selector, SelectorError
from vcd.scheduling.search.domain_counts import Domains, domains_of
from vcd.scheduling.search.parts import Mask, Reads, Rows
from vcd.scheduling.search.podindex import PodIndex, PodQuery, Tally, index_of
from vcd.scheduling.search.podterms import (
    OpposingTerms,
    Term,
    has_required_affinity,
    has_required_anti_affinity,
    has_terms,
    preferred_terms,
    required_affinity,
    required_anti_affinity,
)
from vcd.scheduling.search.predicates.compound_predicate import TestedPredicate
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

NO_AFFINITY = ReasonCode(
    "no-affinity", Cause.POD_AFFINITY, "node(s) didn't match pod affinity rules", nodes_help=True
)()
ANTI_AFFINITY = ReasonCode(
    "anti-affinity", Cause.POD_AFFINITY, "node(s) didn't match pod anti-affinity rules", nodes_help=True
)()
OPPOSED = ReasonCode(
    "opposed", Cause.POD_AFFINITY, "node(s) didn't satisfy existing pods anti-affinity rules", nodes_help=True
)()
_UNREADABLE = ReasonCode(
    "affinity-unreadable", Cause.INVALID, "parsing pod: {error}", mend=MEND_NAMED, field="spec.affinity"
)


class _Terms(msgspec.Struct, frozen=True):
    """A task's required terms, each with the pods that it selects.

    As in kube-scheduler, only a pod that matches all affinity terms satisfies them, so one tally serves them all.
    ``matches_itself``: the task matches its own terms, and so may be the first pod of its series.
    """

    selected: Tally | None
    near: tuple[Domains, ...]
    matches_itself: bool
    far: tuple[tuple[Tally, Domains], ...]


class InterPodAffinity(TestedPredicate):
    """Nodes that satisfy the task's required (anti-)affinity and the required anti-affinity of placed pods."""

    name: ClassVar[str] = "InterPodAffinity"
    lasting: ClassVar[Reason] = NO_AFFINITY
    """Evictions never add the pods that a required affinity lacks."""
    reason: ClassVar[Reason] = ANTI_AFFINITY
    reads = Reads.PODS
    keys = ()

    def __init__(self, session: Session) -> None:
        self._facts = session.nodes.facts
        self._index: PodIndex = index_of(session)
        self._own: dict[tuple[Shape, str, int], _Terms] = {}

    def refusal(self, task: Task) -> Reason | None:
        """Return why no node can take a task: one of its terms, required or preferred, is invalid."""
        if not has_terms(task.shape):
            return None
        try:
            for terms in (required_affinity, required_anti_affinity, preferred_terms):
                terms(task.pod)
        except SelectorError as error:
            return _UNREADABLE({"error": str(error)})
        return None

    def applies(self, task: Task) -> bool:
        shape = task.shape
        if shape.spec.affinity is not None and (has_required_affinity(shape) or has_required_anti_affinity(shape)):
            return True
        return not self._opposing.is_empty and self._opposing.select(task)

    @cached_property
    def _opposing(self) -> OpposingTerms:
        return self._index.counts_of(OpposingTerms)

    def reachable(self, task: Task, coming: Mask) -> Mask | None:
        """Return nodes whose domains satisfy the required affinity; all labelled nodes if ``coming`` pods will."""
        if not (has_required_affinity(task.shape) or has_required_anti_affinity(task.shape)):
            return None
        own = self._terms(task) if self.refusal(task) is None else None
        if own is None:
            return np.zeros(len(self._facts), np.bool_)
        if own.selected is None:
            return None
        near = required_affinity(task.pod)
        passed = _satisfies_affinity(own.selected, own)
        if passed.any() or not self._index.matching(_affinity_query(near), np.flatnonzero(coming)).any():
            return passed
        labelled: Mask = np.logical_and.reduce([domains.codes >= 0 for domains in own.near])
        return labelled

    def divisions(self, task: Task, rows: Rows) -> list[Rows]:
        """Return the domains of required anti-affinity terms that match all of the pods ``rows`` themselves."""
        if not has_required_anti_affinity(task.shape) or self.refusal(task) is not None:
            return []
        return [
            domains_of(self._facts, term.topology).codes
            for term in required_anti_affinity(task.pod)
            if self._index.matching(PodQuery(term.selector, (term.scope,)), rows).all()
        ]

    def labels_matter_in(self, namespace: str) -> bool:
        return self._opposing.may_exist

    def excludes_beside(self, task: Task, others: Iterable[Task]) -> bool:
        opposing, nodes = self._opposing, self._facts.nodes
        terms = (
            term
            for other in others
            if has_required_anti_affinity(other.shape)
            for term in opposing.placed.things_of(other.pod)
            if term.topology in nodes[other.node].metadata.labels
        )
        labels = task.pod.metadata.labels
        return any(term.selector.matches(labels) and self._index.is_inside(task, (term.scope,)) for term in terms)

    def tests(self, task: Task) -> Iterator[tuple[Reason, Mask]]:
        """Yield the tests in kube-scheduler's order, each with the reason for nodes that fail it."""
        own = self._terms(task)
        if own is not None:
            if own.selected is not None:
                yield NO_AFFINITY, _satisfies_affinity(own.selected, own)
            if own.far:
                yield (
                    ANTI_AFFINITY,
                    self._outside_domains(((tally.by_domain(at).positive(), at) for tally, at in own.far)),
                )
        opposing = [(term, sums) for term, sums in self._opposing.selecting(task) if sums.total]
        if opposing:
            domains = ((sums.positive(), domains_of(self._facts, term.topology)) for term, sums in opposing)
            yield OPPOSED, self._outside_domains(domains)

    def clause_text(self, task: Task, reason: Reason, number: int) -> str:
        affinity = task.shape.spec.affinity
        if reason == OPPOSED or affinity is None:
            terms = {term: None for term, sums in self._opposing.selecting(task) if sums.total}
            return f"podAntiAffinity of other pods: {' and '.join(term.text for term in terms)}"
        near = reason == NO_AFFINITY
        own = required_affinity(task.pod) if near else required_anti_affinity(task.pod)
        return f"{'podAffinity' if near else 'podAntiAffinity'} {' and '.join(term.text for term in own)}"

    def _outside_domains(self, taken: Iterator[tuple[Mask, Domains]]) -> Mask:
        """Return nodes that are in none of the marked domains."""
        together = np.zeros(len(self._facts), np.bool_)
        for marked, domains in taken:
            together |= domains.by_node(marked)
        return ~together

    def _terms(self, task: Task) -> _Terms | None:
        """Return the task's own required terms. Raises SelectorError for tasks that ``refusal`` refuses."""
        shape = task.shape
        if shape.spec.affinity is None:
            return None
        key = (shape, task.namespace, task.labels)
        found = self._own.get(key)
        if found is None:
            found = self._own[key] = self._resolve(task)
        return found

    def _resolve(self, task: Task) -> _Terms:
        near, far = required_affinity(task.pod), required_anti_affinity(task.pod)
        tally = self._index.tally
        return _Terms(
            selected=tally(_affinity_query(near)) if near else None,
            near=tuple(domains_of(self._facts, term.topology) for term in near),
            matches_itself=all(self._selects(term, task) for term in near),
            far=tuple(
                (tally(PodQuery(term.selector, (term.scope,))), domains_of(self._facts, term.topology)) for term in far
            ),
        )

    def _selects(self, term: Term, task: Task) -> bool:
        return term.selector.matches(task.pod.metadata.labels) and self._index.is_inside(task, (term.scope,))


def _satisfies_affinity(selected: Tally, own: _Terms) -> Mask:
    """Return nodes where each term finds a matching pod in its domain, or all nodes if the first pod may be alone."""
    sums = [selected.by_domain(domains) for domains in own.near]
    if own.matches_itself and not any(found.total for found in sums):
        tests = [domains.codes >= 0 for domains in own.near]
    else:
        tests = [domains.by_node(found.positive()) for domains, found in zip(own.near, sums, strict=True)]
    passed: Mask = np.logical_and.reduce(tests)
    return passed


def _affinity_query(terms: tuple[Term, ...]) -> PodQuery:
    needs = {need for term in terms for need in term.selector.requirements}
    selector = Selector(tuple(sorted(needs)), nothing=any(term.selector.nothing for term in terms))
    return PodQuery(selector, tuple(term.scope for term in terms))
