"""Topology spread constraints (kube-scheduler's PodTopologySpread filter)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import msgspec
import numpy as np

from vcd.model.objects import TopologySpreadConstraint
from vcd.model.reasons import MEND_NAMED, Cause, Reason, ReasonCode
from vcd.model.selectors import (
    EVERYTHING,
    IN,
    NOTHING,
    LabelSelector,
    Selector,
    SelectorError,
)
from vcd.scheduling.search.domain_counts import Domains, domains_of
from vcd.scheduling.search.parts import Mask, Reads
from vcd.scheduling.search.podindex import PodIndex, PodQuery, Scope, Tally, index_of
from vcd.scheduling.search.podterms import narrowed
from vcd.scheduling.search.predicates.compound_predicate import TestedPredicate
from vcd.scheduling.search.predicates.node_predicates import HARD_EFFECTS, selected_nodes
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NodeFacts
from vcd.state.records import Shape

SKEWED = ReasonCode("spread", Cause.SPREAD, "node(s) didn't match pod topology spread constraints", nodes_help=True)()
UNLABELLED = ReasonCode(
    "spread-unlabelled",
    Cause.SPREAD,
    "node(s) didn't match pod topology spread constraints (missing required label)",
    nodes_help=True,
)()
_UNREADABLE = ReasonCode(
    "spread-unreadable", Cause.INVALID, "{error}", mend=MEND_NAMED, field="spec.topologySpreadConstraints"
)
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
_HONOR = "Honor"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DEFAULTS = (TopologySpreadConstraint(3, HOSTNAME, SOFT), TopologySpreadConstraint(5, ZONE, SOFT))
"""kube-scheduler's default constraints, for pods of Services and controllers that declare no constraint."""


class Constraint(msgspec.Struct, frozen=True):
    """A task's constraint with the pods that it counts.

    ``tally`` counts matching, not terminating pods of the task's namespace; ``own`` is 1 if the task matches too.
    ``everywhere`` divides all nodes into domains, ``counted`` only the nodes whose pods count: they have the topology
    keys of all constraints of the kind and meet the node policies.
    """

    topology: str
    skew: int
    min_domains: int
    own: int
    tally: Tally
    everywhere: Domains
    counted: Domains


def constraints_of(index: PodIndex, task: Task, kind: str) -> tuple[Constraint, ...]:
    """Return a task's constraints of a kind (HARD or SOFT). Raises SelectorError."""
    stated = task.shape.spec.topology_spread_constraints
    raws = [raw for raw in stated if (raw.when_unsatisfiable or HARD) == kind]
    counted = _CountedNodes(index.session.nodes.facts, task.shape, sorted({raw.topology_key for raw in raws}))
    return tuple(_constraint(index, task, raw, _selector(task, raw), counted) for raw in raws)


def defaults_of(index: PodIndex, task: Task, selector: Selector) -> tuple[Constraint, ...]:
    """Return kube-scheduler's default constraints for a task without any; ``selector`` selects the counted pods."""
    counted = _CountedNodes(index.session.nodes.facts, task.shape, ())
    return tuple(_constraint(index, task, raw, selector, counted) for raw in DEFAULTS)


def _selector(task: Task, raw: TopologySpreadConstraint) -> Selector:
    labels = task.pod.metadata.labels
    return narrowed(LabelSelector.compile(raw.label_selector), IN, raw.match_label_keys, labels)


def _constraint(
    index: PodIndex, task: Task, raw: TopologySpreadConstraint, selector: Selector, counted: _CountedNodes
) -> Constraint:
    # kube-scheduler counts nothing for a selector without requirements, though the pod itself matches it
    query = PodQuery(NOTHING if selector == EVERYTHING else selector, (Scope((task.namespace,)),), terminating=False)
    return Constraint(
        topology=raw.topology_key,
        skew=raw.max_skew,
        min_domains=max(raw.min_domains or 1, 1),
        own=int(selector.matches(task.pod.metadata.labels)),
        tally=index.tally(query),
        everywhere=domains_of(index.session.nodes.facts, raw.topology_key),
        counted=counted.domains(raw),
    )


class _CountedNodes:
    """The nodes whose pods count for a task's constraints of a kind.

    These nodes have all topology ``keys`` and meet a constraint's node policies. A task may have thousands of
    constraints, so the nodes are computed once.
    """

    def __init__(self, facts: NodeFacts, shape: Shape, keys: Iterable[str]) -> None:
        self._facts, self._shape = facts, shape
        self._having = np.ones(len(facts), np.bool_)
        for key in keys:
            self._having &= domains_of(facts, key).codes >= 0
        self._known: dict[tuple[bool, bool], tuple[Mask, bytes]] = {}

    def domains(self, raw: TopologySpreadConstraint) -> Domains:
        """Return the domains of the nodes that count for a constraint."""
        policies = raw.node_affinity_policy == _HONOR, raw.node_taints_policy == _HONOR
        if policies not in self._known:
            mask = self._meeting(*policies)
            self._known[policies] = mask, mask.tobytes()
        counts, written = self._known[policies]
        everywhere = domains_of(self._facts, raw.topology_key)

        def make() -> Domains:
            return Domains(np.where(counts, everywhere.codes, -1), everywhere.size)

        found: Domains = self._facts.cached(("spread", everywhere, written), make)
        return found

    def _meeting(self, by_affinity: bool, by_taints: bool) -> Mask:
        facts, result = self._facts, self._having
        if by_affinity:
            result = result & selected_nodes(facts, self._shape)
        if by_taints:
            result = result & (facts.untolerated(self._shape.spec.tolerations, HARD_EFFECTS) == 0)
        return result


class PodTopologySpread(TestedPredicate):
    """Nodes that take a task without violating the maxSkew of a hard constraint."""

    name: ClassVar[str] = "PodTopologySpread"
    lasting: ClassVar[Reason] = UNLABELLED
    """No eviction gives a node the label that a constraint spreads over."""
    reason: ClassVar[Reason] = SKEWED
    reads = Reads.PODS
    keys = ()

    def __init__(self, session: Session) -> None:
        self._index = index_of(session)
        self._constraints: dict[tuple[Shape, str, int], tuple[Constraint, ...]] = {}

    def refusal(self, task: Task) -> Reason | None:
        """Return why no node can take a task: a selector of one of its constraints is invalid."""
        try:
            for raw in task.shape.spec.topology_spread_constraints:
                LabelSelector.compile(raw.label_selector)
        except SelectorError as error:
            return _UNREADABLE({"error": str(error)})
        return None

    def reachable(self, task: Task, coming: Mask) -> Mask | None:
        """Return nodes that have the topology keys of all hard constraints."""
        if not self.applies(task):
            return None
        result = np.full(len(self._index.session.nodes), self.refusal(task) is None)
        for raw in task.shape.spec.topology_spread_constraints:
            if (raw.when_unsatisfiable or HARD) == HARD:
                result &= domains_of(self._index.session.nodes.facts, raw.topology_key).codes >= 0
        return result

    def applies(self, task: Task) -> bool:
        found = task.shape.spec.topology_spread_constraints
        return bool(found) and any((raw.when_unsatisfiable or HARD) == HARD for raw in found)

    def tests(self, task: Task) -> Iterator[tuple[Reason, Mask]]:
        """Yield each constraint's tests in order, with the reason for nodes that fail them."""
        key = (task.shape, task.namespace, task.labels)
        constraints = self._constraints.get(key)
        if constraints is None:
            constraints = self._constraints[key] = constraints_of(self._index, task, HARD)
        for constraint in constraints:
            yield UNLABELLED, constraint.everywhere.codes >= 0
            yield SKEWED, _within_skew(constraint)

    def clause_text(self, task: Task, reason: Reason, number: int) -> str:
        constraint = self._constraints[task.shape, task.namespace, task.labels][number // 2]
        if reason == UNLABELLED:
            return f"topologySpreadConstraints: label {constraint.topology}"
        return f"topologySpreadConstraints: maxSkew {constraint.skew} by {constraint.topology}"


def _within_skew(constraint: Constraint) -> Mask:
    """Return nodes in whose domain one more pod keeps the skew within the limit."""
    counted = constraint.counted
    counts = constraint.tally.by_domain(counted).counts()
    domains = counts[:-1][counted.present]
    least = int(domains.min()) if len(domains) >= constraint.min_domains else 0
    return constraint.everywhere.by_node(counts <= constraint.skew - constraint.own + least)
