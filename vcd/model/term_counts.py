"""Count the terms with which a pod's spec restricts its nodes, and those by which a group divides its pods."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import force_setattr

from vcd.model.objects import Affinity, PodAffinityTerm, PodGroupSpec, PodSpec
from vcd.model.selectors import LabelSelector, NodeSelectorTerm

MOST = 500
"""Pods with more in one field have to wait: they would take the session's time of all other pods. A PodGroup with more
is set aside."""

_NO_LABELS: dict[str, str] = {}


def terms_in_affinity(spec: PodSpec) -> int:
    """Return the number of terms in all affinities, plus the requirements of their selectors."""
    affinity = spec.affinity
    if affinity is None:
        return 0
    pods = sum(map(_of_pod_term, _pod_terms(affinity)))
    return pods + sum(map(_of_node_term, _node_terms(affinity)))


def share_equal_parts(spec: PodSpec) -> None:
    """Share equal parts between terms about other pods: a pod may have hundreds of terms that differ in one value."""
    known: dict[str, str] = {}
    for term in [] if spec.affinity is None else _pod_terms(spec.affinity):
        needs = () if term.label_selector is None else term.label_selector.match_expressions
        for part, field in [(term, "topology_key"), *[(need, name) for need in needs for name in ("key", "operator")]]:
            text = getattr(part, field)
            force_setattr(part, field, known.setdefault(text, text))
        if term.label_selector is not None and not term.label_selector.match_labels:
            force_setattr(term.label_selector, "match_labels", _NO_LABELS)


def terms_in_spread(spec: PodSpec) -> int:
    """Return the number of topology spread constraints, plus the requirements of their selectors."""
    return sum(1 + _of_selector(each.label_selector) for each in spec.topology_spread_constraints)


def terms_in_sub_groups(spec: PodGroupSpec) -> int:
    """Return the number of a group's sub-group policies, plus their keys and the requirements of their selectors."""
    return sum(1 + len(each.match_label_keys) + _of_selector(each.label_selector) for each in spec.sub_group_policy)


def _node_terms(affinity: Affinity) -> Iterable[NodeSelectorTerm]:
    nodes = affinity.node_affinity
    if nodes is not None:
        yield from () if nodes.required is None else nodes.required.node_selector_terms
        yield from (each.preference for each in nodes.preferred)


def _of_node_term(term: NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions) + len(term.match_fields)


def _pod_terms(affinity: Affinity) -> list[PodAffinityTerm]:
    sources = [source for source in (affinity.pod_affinity, affinity.pod_anti_affinity) if source is not None]
    preferred = [each.pod_affinity_term for source in sources for each in source.preferred]
    return [*[term for source in sources for term in source.required], *preferred]


def _of_pod_term(term: PodAffinityTerm) -> int:
    return 1 + _of_selector(term.label_selector) + _of_selector(term.namespace_selector)


def _of_selector(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + len(selector.match_expressions)
