"""Pod affinity and anti-affinity terms, of tasks and of placed pods.

Filters and scores count pods by these terms (`predicates/affinity_predicate.py`, `scores/`). `TermFiles` finds the
terms that can select a pod without testing all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from vcd.model.objects import Affinity, Pod, PodAffinityTerm
from vcd.model.selectors import IN, NOT_IN, LabelSelector, Requirement, Selector, SelectorError
from vcd.scheduling.search.domain_counts import Domains, Sums, domains_of
from vcd.scheduling.search.placed_counts import PlacedCounts
from vcd.scheduling.search.podindex import PodIndex, Scope, SessionCounts
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape
from vcd.state.snapshot import Snapshot

_FEW = 64
"""Terms that no pod has are removed once they outnumber the others by more than this."""


class Term(msgspec.Struct, frozen=True, gc=False):
    """A term of one pod, resolved with the pod's labels and namespace. Weights of anti-affinity are negative."""

    topology: str
    selector: Selector
    scope: Scope
    weight: int = 0

    @property
    def text(self) -> str:
        """Format the selector and the topology key."""
        return f"{self.selector.text} by {self.topology}"


def term_of(raw: PodAffinityTerm, pod: Pod, weight: int = 0) -> Term:
    """Resolve a pod's term: matchLabelKeys, mismatchLabelKeys, default namespace. Raises SelectorError."""
    selector = LabelSelector.compile(raw.label_selector)
    if raw.match_label_keys or raw.mismatch_label_keys:
        labels = pod.metadata.labels
        selector = narrowed(selector, IN, raw.match_label_keys, labels)
        selector = narrowed(selector, NOT_IN, raw.mismatch_label_keys, labels)
    others = None if raw.namespace_selector is None else LabelSelector.compile(raw.namespace_selector)
    names = tuple(sorted(set(raw.namespaces)))
    if not names and others is None:
        return Term(raw.topology_key, selector, _own_namespace(pod.metadata.namespace), weight)
    return Term(raw.topology_key, selector, Scope(names, others), weight)


@lru_cache(maxsize=1024)  # most terms are about the namespace of their pod
def _own_namespace(namespace: str) -> Scope:
    return Scope((namespace,))


def narrowed(selector: Selector, operator: str, keys: Sequence[str], labels: Mapping[str, str]) -> Selector:
    """Return the selector, which also requires (In) or excludes (NotIn) the values of ``labels`` for the keys."""
    needs = [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]
    if not needs or selector.nothing:
        return selector
    return Selector(tuple(sorted({*selector.requirements, *needs})))


def required_affinity(pod: Pod) -> tuple[Term, ...]:
    """Return the terms that must find a pod near. Raises SelectorError."""
    source = pod.spec.affinity and pod.spec.affinity.pod_affinity
    return tuple(term_of(raw, pod) for raw in source.required) if source else ()


def required_anti_affinity(pod: Pod) -> tuple[Term, ...]:
    """Return the terms that must find no pod near. Raises SelectorError."""
    source = pod.spec.affinity and pod.spec.affinity.pod_anti_affinity
    return tuple([term_of(raw, pod) for raw in source.required]) if source else ()


def preferred_terms(pod: Pod) -> tuple[Term, ...]:
    """Return preferred terms of both kinds; anti-affinity has negative weights. Raises SelectorError."""
    affinity = pod.spec.affinity or Affinity()
    return tuple(
        [
            term_of(entry.pod_affinity_term, pod, sign * entry.weight)
            for source, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1))
            if source is not None
            for entry in source.preferred
        ]
    )


def has_terms(shape: Shape) -> bool:
    """Whether pods of a shape have affinity or anti-affinity terms of any kind."""
    affinity = shape.spec.affinity
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def has_required_affinity(shape: Shape) -> bool:
    """Whether pods of a shape have required affinity."""
    affinity = shape.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None and bool(affinity.pod_affinity.required)


def has_required_anti_affinity(shape: Shape) -> bool:
    """Whether pods of a shape have required anti-affinity."""
    affinity = shape.spec.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None and bool(affinity.pod_anti_affinity.required)


def has_preferred_terms(shape: Shape) -> bool:
    """Whether pods of a shape have preferred affinity or anti-affinity."""
    affinity = shape.spec.affinity
    if affinity is None:
        return False
    near, away = affinity.pod_affinity, affinity.pod_anti_affinity
    return bool((near is not None and near.preferred) or (away is not None and away.preferred))


def has_label_keys(shape: Shape) -> bool:
    """Whether terms of a shape use matchLabelKeys or mismatchLabelKeys."""
    affinity = shape.spec.affinity or Affinity()
    return any(
        term.match_label_keys or term.mismatch_label_keys
        for source in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if source is not None
        for term in (*source.required, *(entry.pod_affinity_term for entry in source.preferred))
    )


class TermFiles:
    """Terms, indexed by the namespaces in which they select pods and by the label values of one requirement each.

    Snapshots share it. Terms that no pod has any more stay until there are too many.
    """

    def __init__(self, terms: Iterable[Term]) -> None:
        self._files: dict[str, dict[str, dict[str, list[Term]]]] = {}
        """By namespace, key and value of a label."""
        self._filed: set[Term] = set()
        for term in terms:
            self.add(term)

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, term: Term) -> None:
        """Add a term once."""
        if term in self._filed:
            return
        self._filed.add(term)
        need = next((need for need in term.selector.requirements if need.operator == IN), _NO_LABEL)
        for namespace in term.scope.names if term.scope.selector is None else _ANY_NAMESPACE:
            by_value = self._files.setdefault(namespace, {}).setdefault(need.key, {})
            for value in need.values:
                if value in by_value:
                    by_value[value].append(term)
                else:
                    by_value[value] = [term]

    def matching(self, labels: Mapping[str, str], namespace: str) -> list[Term]:
        """Return the terms that select pods with these labels in a namespace, ordered by text.

        Namespace selectors are not evaluated: such terms are returned for every namespace.
        """
        filed: list[Term] = []
        for by_label in (self._files.get(name, {}) for name in (namespace, *_ANY_NAMESPACE)):
            for key in (*labels, _NO_LABEL.key):
                filed += by_label.get(key, {}).get(labels.get(key, ""), ())
        # without duplicates: another thread that decides a session again may file a term, too
        distinct = dict.fromkeys(filed)
        return sorted([term for term in distinct if term.selector.matches(labels)], key=_order)


_NO_LABEL, _ANY_NAMESPACE = Requirement("", IN, ("",)), ("",)
"""Keys of terms without an In requirement, and of terms that select namespaces by labels."""


def _order(term: Term) -> tuple[str, str, int]:
    return term.text, repr(term.scope), term.weight


class PlacedTerms(PlacedCounts[Term]):
    """Terms of placed pods."""

    uses_labels = staticmethod(has_label_keys)

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.files = TermFiles(self.sums)

    def on_appeared(self, things: Iterable[Term]) -> None:
        if len(self.files) > 2 * len(self.sums) + _FEW:
            self.files = TermFiles(self.sums)
        for term in things:
            self.files.add(term)

    def terms_of(self, pod: Pod) -> Sequence[Term]:
        """Return a pod's terms. Raises SelectorError."""
        raise NotImplementedError

    def things_of(self, pod: Pod) -> Sequence[Term]:
        """Return a placed pod's terms, or none if one is invalid, as in kube-scheduler."""
        try:
            return self.terms_of(pod)
        except SelectorError:
            return ()

    def domains(self, thing: Term) -> Domains:
        return domains_of(self.facts, thing.topology)


class PlacedOpposing(PlacedTerms):
    """Required anti-affinity terms of placed pods, which keep other pods away."""

    has = staticmethod(has_required_anti_affinity)

    def terms_of(self, pod: Pod) -> Sequence[Term]:
        return required_anti_affinity(pod)


class PlacedPreferring(PlacedTerms):
    """Preferred terms of placed pods."""

    has = staticmethod(has_preferred_terms)

    def terms_of(self, pod: Pod) -> Sequence[Term]:
        return preferred_terms(pod)


class SessionTerms(SessionCounts[Term]):
    """Terms of placed pods, found by the pods that they select."""

    placed: PlacedTerms

    def __init__(self, index: PodIndex) -> None:
        self._found: dict[tuple[int, str], tuple[int, list[tuple[Term, Sums]]]] = {}
        super().__init__(index)

    def on_appeared(self, thing: Term) -> None:
        self.placed.files.add(thing)

    def selecting(self, task: Task) -> list[tuple[Term, Sums]]:
        """Return the terms that select a task, with the number of pods per domain that have them (which may be 0)."""
        if self.is_empty:
            return []
        key, changed = (task.labels, task.namespace), len(self._own)
        known = self._found.get(key)
        if known is None or known[0] != changed:
            known = self._found[key] = (changed, self._find(task))
        return known[1]

    def select(self, task: Task) -> bool:
        """Whether a term of a currently placed pod selects a task."""
        return any(sums.total for _, sums in self.selecting(task))

    def _find(self, task: Task) -> list[tuple[Term, Sums]]:
        terms = self.placed.files.matching(task.pod.metadata.labels, task.pod.metadata.namespace)
        found = [(term, self.sums(term)) for term in terms if self._index.is_inside(task, (term.scope,))]
        return [(term, sums) for term, sums in found if sums is not None]


class OpposingTerms(SessionTerms):
    """Required anti-affinity terms of placed pods, which keep other pods away."""

    kind = PlacedOpposing


class PreferringTerms(SessionTerms):
    """Preferred terms of placed pods."""

    kind = PlacedPreferring
