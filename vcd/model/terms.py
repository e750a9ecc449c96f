"""How much a pod's spec states about where it may be."""

from __future__ import annotations

from collections.abc import Iterable

from vcd.model.objects import Affinity, PodAffinity, PodAffinityTerm, PodSpec
from vcd.model.selectors import LabelSelector, NodeSelectorTerm

MOST = 500
"""Pods that state more in one field have to wait: who creates them would take the time of all others."""


def terms_in_affinity(spec: PodSpec) -> int:
    """The terms of all affinities, and what their selectors require."""
    affinity = spec.affinity
    if affinity is None:
        return 0
    pods = _of_pods(affinity.pod_affinity) + _of_pods(affinity.pod_anti_affinity)
    return pods + sum(map(_of_node_term, _node_terms(affinity)))


def terms_in_spread(spec: PodSpec) -> int:
    """The topology spread constraints, and what their selectors require."""
    return sum(1 + _of_selector(each.label_selector) for each in spec.topology_spread_constraints)


def _node_terms(affinity: Affinity) -> Iterable[NodeSelectorTerm]:
    nodes = affinity.node_affinity
    if nodes is not None:
        yield from () if nodes.required is None else nodes.required.node_selector_terms
        yield from (each.preference for each in nodes.preferred)


def _of_node_term(term: NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions) + len(term.match_fields)


def _of_pods(affinity: PodAffinity | None) -> int:
    if affinity is None:
        return 0
    return sum(map(_of_pod_term, (*affinity.required, *(each.pod_affinity_term for each in affinity.preferred))))


def _of_pod_term(term: PodAffinityTerm) -> int:
    return 1 + _of_selector(term.label_selector) + _of_selector(term.namespace_selector)


def _of_selector(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + len(selector.match_expressions)
