"""Pod affinity and anti-affinity terms: of a task, and of the pods that are placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from vcd.model.objects import Affinity, Pod, PodAffinityTerm
from vcd.model.selectors import IN, NOT_IN, LabelSelector, Requirement, Selector, SelectorError
from vcd.scheduling.search.domains import Domains, Sums, domains_of
from vcd.scheduling.search.placed import PlacedCounts
from vcd.scheduling.search.podindex import Held, PodIndex, Scope
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape
from vcd.state.snapshot import Snapshot

_FEW = 64
"""Terms without a pod are removed once they outnumber the others by more than this."""


class Term(msgspec.Struct, frozen=True, gc=False):
    """A term of one pod, its own labels and namespace worked in. ``weight`` is that of a preferred term, negative for
    anti-affinity."""

    topology: str
    selector: Selector
    scope: Scope
    weight: int = 0

    @property
    def text(self) -> str:
        """What it selects, and by which label of nodes."""
        return f"{self.selector.text} by {self.topology}"


def term_of(raw: PodAffinityTerm, pod: Pod, weight: int = 0) -> Term:
    """A pod's term with matchLabelKeys, mismatchLabelKeys and the default namespace worked in. Raises SelectorError."""
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
    """A selector that also asks for (In) or excludes (NotIn) the values that ``labels`` has for the keys."""
    needs = [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]
    if not needs or selector.nothing:
        return selector
    return Selector(tuple(sorted({*selector.requirements, *needs})))


def required_affinity(pod: Pod) -> tuple[Term, ...]:
    """The terms that must find a pod near. Raises SelectorError."""
    source = pod.spec.affinity and pod.spec.affinity.pod_affinity
    return tuple(term_of(raw, pod) for raw in source.required) if source else ()


def required_anti_affinity(pod: Pod) -> tuple[Term, ...]:
    """The terms that must find no pod near. Raises SelectorError."""
    source = pod.spec.affinity and pod.spec.affinity.pod_anti_affinity
    return tuple([term_of(raw, pod) for raw in source.required]) if source else ()


def preferred_terms(pod: Pod) -> tuple[Term, ...]:
    """Preferred terms of both kinds; those of anti-affinity weigh negatively. Raises SelectorError."""
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
    """Whether pods of a shape have terms about other pods, of whatever sort."""
    affinity = shape.spec.affinity
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def has_required_affinity(shape: Shape) -> bool:
    """Whether pods of a shape must have others near."""
    affinity = shape.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None and bool(affinity.pod_affinity.required)


def has_required_anti_affinity(shape: Shape) -> bool:
    """Whether pods of a shape must not have others near."""
    affinity = shape.spec.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None and bool(affinity.pod_anti_affinity.required)


def has_preferred_terms(shape: Shape) -> bool:
    """Whether pods of a shape prefer to be near others, or away from them."""
    affinity = shape.spec.affinity
    if affinity is None:
        return False
    near, away = affinity.pod_affinity, affinity.pod_anti_affinity
    return bool((near is not None and near.preferred) or (away is not None and away.preferred))


def has_label_keys(shape: Shape) -> bool:
    """Whether terms of a shape take over values of the pod's own labels."""
    affinity = shape.spec.affinity or Affinity()
    return any(
        term.match_label_keys or term.mismatch_label_keys
        for source in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if source is not None
        for term in (*source.required, *(entry.pod_affinity_term for entry in source.preferred))
    )


class TermFiles:
    """Terms by the namespaces in which they select pods and by the label values that one requirement of each asks for.

    Snapshots share it: terms that no pod has any more stay until they are too many.
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
        """File a term once."""
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
        """The terms that select pods with some labels in a namespace, as far as names of namespaces decide, in order of
        their text."""
        filed: list[Term] = []
        for by_label in (self._files.get(name, {}) for name in (namespace, *_ANY_NAMESPACE)):
            for key in (*labels, _NO_LABEL.key):
                filed += by_label.get(key, {}).get(labels.get(key, ""), ())
        distinct = dict.fromkeys(filed)  # a session that is decided again in another thread may file a term, too
        return sorted([term for term in distinct if term.selector.matches(labels)], key=_order)


_NO_LABEL, _ANY_NAMESPACE = Requirement("", IN, ("",)), ("",)
"""Where terms are filed that ask for no value of a label, and that select namespaces by their labels."""


def _order(term: Term) -> tuple[str, str, int]:
    return term.text, repr(term.scope), term.weight


class PlacedTerms(PlacedCounts[Term]):
    """Terms of placed pods."""

    minds_labels = staticmethod(has_label_keys)

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.files = TermFiles(self.sums)

    def appeared(self, things: Iterable[Term]) -> None:
        if len(self.files) > 2 * len(self.sums) + _FEW:
            self.files = TermFiles(self.sums)
        for term in things:
            self.files.add(term)

    def terms_of(self, pod: Pod) -> Sequence[Term]:
        """A pod's terms. Raises SelectorError."""
        raise NotImplementedError

    def things_of(self, pod: Pod) -> Sequence[Term]:
        """A placed pod's terms; as in kube-scheduler, one that the API should not have admitted voids the list."""
        try:
            return self.terms_of(pod)
        except SelectorError:
            return ()

    def domains(self, thing: Term) -> Domains:
        return domains_of(self.facts, thing.topology)


class PlacedOpposing(PlacedTerms):
    """Required anti-affinity terms of placed pods: they keep others away."""

    has = staticmethod(has_required_anti_affinity)

    def terms_of(self, pod: Pod) -> Sequence[Term]:
        return required_anti_affinity(pod)


class PlacedPreferring(PlacedTerms):
    """Preferred terms of placed pods."""

    has = staticmethod(has_preferred_terms)

    def terms_of(self, pod: Pod) -> Sequence[Term]:
        return preferred_terms(pod)


class HeldTerms(Held[Term]):
    """Terms of placed pods, found by the pods that they select."""

    placed: PlacedTerms

    def __init__(self, index: PodIndex) -> None:
        self._found: dict[tuple[int, str], tuple[int, list[tuple[Term, Sums]]]] = {}
        super().__init__(index)

    def appeared(self, thing: Term) -> None:
        self.placed.files.add(thing)

    def selecting(self, task: Task) -> list[tuple[Term, Sums]]:
        """The terms that select a task, with the number of pods per domain that have them (which may be 0)."""
        if self.is_empty:
            return []
        key, changed = (task.labels, task.namespace), len(self._own)
        known = self._found.get(key)
        if known is None or known[0] != changed:
            known = self._found[key] = (changed, self._find(task))
        return known[1]

    def select(self, task: Task) -> bool:
        """Whether a term of a pod that is placed now selects a task."""
        return any(sums.total for _, sums in self.selecting(task))

    def _find(self, task: Task) -> list[tuple[Term, Sums]]:
        terms = self.placed.files.matching(task.pod.metadata.labels, task.pod.metadata.namespace)
        found = [(term, self.sums(term)) for term in terms if self._index.is_inside(task, (term.scope,))]
        return [(term, sums) for term, sums in found if sums is not None]


class OpposingTerms(HeldTerms):
    """Required anti-affinity terms of placed pods: they keep others away."""

    kind = PlacedOpposing


class PreferringTerms(HeldTerms):
    """Preferred terms of placed pods."""

    kind = PlacedPreferring
