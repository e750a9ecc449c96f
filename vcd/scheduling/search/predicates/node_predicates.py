"""Predicates of one node alone: number of pods, cordon, labels, taints.

Node conditions (not ready, pressure) have no predicates: the node controller turns them into taints, and Volcano reads
nothing else. Source: kube-scheduler 1.36 ``nodeunschedulable``, ``nodeaffinity``, ``tainttoleration``; Volcano
``plugins/predicates``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vcd.model.objects import PodSpec
from vcd.model.reasons import MEND_NAMED, Cause, Reason, ReasonCode
from vcd.model.resource_requests import PODS
from vcd.model.selectors import (
    IN,
    NO_EXECUTE,
    NO_SCHEDULE,
    NodeSelector,
    NodeSelectorTerm,
    SelectorError,
    Taint,
    Toleration,
    check_node_terms,
    check_tolerations,
    tolerates,
)
from vcd.scheduling.search.parts import Mask, Predicate, Reads
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NodeFacts
from vcd.state.records import Shape

T = TypeVar("T", bound=np.generic)

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
"""The taint that a pod must tolerate to be placed on a cordoned node."""
_AFFINITY_UNREADABLE = ReasonCode(
    "node-affinity-unreadable",
    Cause.INVALID,
    "required node affinity cannot be read: {error}",
    mend=MEND_NAMED,
    field="spec.affinity.nodeAffinity",
)
_AFFINITY_CONFLICTS = ReasonCode(
    "node-affinity-conflict",
    Cause.INVALID,
    "pod affinity terms conflict",
    mend="name one node only",
    field="spec.affinity.nodeAffinity",
)
_TOLERATIONS_UNREADABLE = ReasonCode(
    "tolerations-unreadable",
    Cause.INVALID,
    "tolerations cannot be read: {error}",
    mend=MEND_NAMED,
    field="spec.tolerations",
)
_SELECTOR = ReasonCode("node-selector", Cause.SELECTOR, "node(s) didn't match {clause}", nodes_help=True)
_CORDONED = ReasonCode("cordoned", Cause.UNSCHEDULABLE_NODE, "node(s) were unschedulable", nodes_help=True)
_TAINT = ReasonCode("taint", Cause.TAINT, "node(s) had untolerated taint {taint}", nodes_help=True)
_NAMED = 8
"""A clause lists up to this many terms of a node affinity."""
HARD_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


def at_rows(column: npt.NDArray[T], usage: Usage) -> npt.NDArray[T]:
    """Return the entries for the rows of ``usage``, from a column over all nodes."""
    return column if usage.rows is None else column[usage.rows]


class PodCount(Predicate):
    """A node takes no more pods than its allocatable ``pods``; pipelined and terminating pods count too."""

    name = "NodePodNumber"
    reason = ReasonCode("pod-number", Cause.NODE_ROOM, "node(s) pod number exceeded", nodes_help=True)()
    reads = Reads.USAGE
    keys = ()
    kinds = ()

    def __init__(self, session: Session) -> None:
        self._column = session.nodes.column_of[PODS]

    def mask(self, task: Task, usage: Usage) -> Mask:
        result: Mask = usage.allocatable[self._column] > usage.pods
        return result


class NodeUnschedulable(Predicate):
    """A cordoned node takes only pods that tolerate the taint of cordoned nodes."""

    name = "NodeUnschedulable"
    reason = _CORDONED()
    reads = Reads.FACTS
    keys = ("spec.tolerations",)
    kinds = ()

    def __init__(self, session: Session) -> None:
        facts = session.nodes.facts
        self._open: Mask = facts.cached(
            "schedulable", lambda: np.array([not node.spec.unschedulable for node in facts.nodes], np.bool_)
        )
        self.has_effect = not self._open.all()
        """Whether any node is cordoned."""

    def applies(self, task: Task) -> bool:
        return self.has_effect and not tolerates(_tolerations(task.shape.spec), CORDON)

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(self._open, usage)

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        return [(_CORDONED({"clause": "spec.unschedulable"}), self.mask(task, usage))]


def matching(facts: NodeFacts, term: NodeSelectorTerm) -> Mask:
    """Return nodes that a term matches; an invalid term matches none, as in kube-scheduler."""
    try:
        return facts.matches_term(term)
    except SelectorError:
        return np.zeros(len(facts), np.bool_)


def selected_nodes(facts: NodeFacts, shape: Shape) -> Mask:
    """Return nodes that a shape's nodeSelector and required node affinity select."""
    labelled, required = facts.matches_labels(shape.spec.node_selector), required_nodes(shape.spec)
    return labelled if required is None else labelled & _selected_by(facts, shape, required)


def _selected_by(facts: NodeFacts, shape: Shape, required: NodeSelector) -> Mask:
    """Return nodes that one of a shape's required terms selects.

    A pod may have thousands of terms, so the result is cached until the nodes' facts change.
    """

    def select() -> Mask:
        result = np.zeros(len(facts), np.bool_)
        for term in required.node_selector_terms:
            result |= matching(facts, term)
        return result

    found: Mask = facts.cached(("selected nodes", shape), select)
    return found


class NodeAffinity(Predicate):
    """A node has all labels of the pod's nodeSelector and matches one term of its required node affinity."""

    name = "NodeAffinity"
    reason = ReasonCode(
        "node-affinity", Cause.SELECTOR, "node(s) didn't match Pod's node affinity/selector", nodes_help=True
    )()
    reads = Reads.FACTS
    keys = ("spec.nodeSelector", "spec.affinity.nodeAffinity.required")
    kinds = ()

    def __init__(self, session: Session) -> None:
        self._facts = session.nodes.facts

    def applies(self, task: Task) -> bool:
        spec = task.shape.spec
        return bool(spec.node_selector) or required_nodes(spec) is not None

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(selected_nodes(self._facts, task.shape), usage)

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        """Return each label of the nodeSelector, and each requirement of the node affinity if that has one term.

        ``label`` in the reason is the label that a clause restricts to certain values, or empty. A pod that has too
        many terms has no clauses: no node can take it.
        """
        if task.shape.unsupported:
            return []
        spec, facts = task.shape.spec, self._facts
        found = [
            (f"nodeSelector {key}={value}", key, facts.matches_labels({key: value}))
            for key, value in sorted(spec.node_selector.items())
        ]
        required = required_nodes(spec)
        if required is not None:
            terms = required.node_selector_terms
            parts = _requirements(terms[0]) if len(terms) == 1 else []
            found += [(f"nodeAffinity {_term_text(part)}", _label_of(part), matching(facts, part)) for part in parts]
            if not parts:
                words = [*map(_term_text, terms[:_NAMED]), *([f"{len(terms) - _NAMED} more"] if terms[_NAMED:] else [])]
                mask = _selected_by(facts, task.shape, required)
                found.append((f"nodeAffinity {' or '.join(words) or 'without terms'}", "", mask))
        return [(_SELECTOR({"clause": text, "label": label}), at_rows(mask, usage)) for text, label, mask in found]


def _requirements(term: NodeSelectorTerm) -> list[NodeSelectorTerm]:
    fields = [NodeSelectorTerm(match_fields=(need,)) for need in term.match_fields]
    return [NodeSelectorTerm(match_expressions=(need,)) for need in term.match_expressions] + fields


def _label_of(part: NodeSelectorTerm) -> str:
    """Return the label that a requirement restricts to certain values, or ""."""
    return next((need.key for need in part.match_expressions if need.operator == IN), "")


def _term_text(term: NodeSelectorTerm) -> str:
    needs = (*term.match_expressions, *term.match_fields)
    return " and ".join(f"{need.key} {need.operator} {'|'.join(need.values)}".rstrip() for need in needs)


def required_nodes(spec: PodSpec) -> NodeSelector | None:
    affinity = spec.affinity
    return None if affinity is None or affinity.node_affinity is None else affinity.node_affinity.required


def affinity_refusal(spec: PodSpec) -> Reason | None:
    """Return why a pod's node affinity matches no node: all terms are invalid, or each requires two names at once."""
    required = required_nodes(spec)
    if required is None or not required.node_selector_terms:
        return None
    for term in required.node_selector_terms:
        if not term.match_fields and _error_of(term) is None:
            return None
    errors = [_error_of(term) for term in required.node_selector_terms]
    if all(errors):
        return _AFFINITY_UNREADABLE({"error": str(errors[0])})
    if all(_names_conflict(term) for term in required.node_selector_terms):
        return _AFFINITY_CONFLICTS()
    return None


def _error_of(term: NodeSelectorTerm) -> str | None:
    try:
        check_node_terms((term,))
    except SelectorError as error:
        return str(error)
    return None


def _names_conflict(term: NodeSelectorTerm) -> bool:
    names = [set(need.values) for need in term.match_fields if need.key == "metadata.name" and need.operator == IN]
    return bool(names) and not set.intersection(*names)


class TaintToleration(Predicate):
    """A pod tolerates all of a node's taints with the effects NoSchedule and NoExecute."""

    name = "TaintToleration"
    reason = ReasonCode("taints", Cause.TAINT, "node(s) had untolerated taint(s)", nodes_help=True)()
    reads = Reads.FACTS
    keys = ("spec.tolerations",)
    kinds = ()

    def __init__(self, session: Session) -> None:
        self._facts = session.nodes.facts
        self.has_effect = not self._facts.taint_effects.isdisjoint(HARD_EFFECTS)
        """Whether any node has such a taint."""

    def applies(self, task: Task) -> bool:
        return self.has_effect

    def mask(self, task: Task, usage: Usage) -> Mask:
        untolerated = self._facts.untolerated(_tolerations(task.shape.spec), HARD_EFFECTS)
        result: Mask = at_rows(untolerated, usage) == 0
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Count one reason per taint; each node counts for its first untolerated taint."""
        codes, sets = self._facts.taint_sets()
        numbers = np.bincount(at_rows(codes, usage)[failed], minlength=len(sets))
        counts: Counter[Reason] = Counter()
        for taints, number in zip(sets, numbers.tolist(), strict=True):
            if number:
                first = _first_untolerated(taints, _tolerations(task.shape.spec))
                counts[self.reason if first is None else _TAINT({"taint": taint_text(first)})] += number
        return counts

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        """Return each taint that keeps the pod from some node."""
        codes, sets = self._facts.taint_sets()
        tolerations = _tolerations(task.shape.spec)
        found = []
        for taint in sorted(dict.fromkeys(taint for taints in sets for taint in taints), key=taint_clause):
            if taint.effect in HARD_EFFECTS and not tolerates(tolerations, taint):
                free = np.array([taint not in taints for taints in sets], np.bool_)[codes]
                found.append(
                    (_TAINT({"taint": taint_text(taint), "clause": taint_clause(taint)}), at_rows(free, usage))
                )
        return found


def _tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """Return a pod's tolerations, or none if one is invalid: such a pod is refused on all nodes."""
    return spec.tolerations if tolerations_refusal(spec) is None else ()


def _first_untolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> Taint | None:
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not tolerates(tolerations, taint)), None)


def taint_clause(taint: Taint) -> str:
    """Format a taint in kubectl's syntax: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def taint_text(taint: Taint) -> str:
    """Format a taint in kube-scheduler's syntax: ``{key: value}``."""
    return f"{{{taint.key}: {taint.value}}}"


def tolerations_refusal(spec: PodSpec) -> Reason | None:
    """Return why a pod's tolerations are invalid, or None."""
    try:
        check_tolerations(spec.tolerations)
    except SelectorError as error:
        return _TOLERATIONS_UNREADABLE({"error": str(error)})
    return None
