"""The filter of hard limits, and the scores of nodes by their domains."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.plugins.network_topology_aware.tier_limits import Unit
from vcd.scheduling.search.parts import ANY_LABEL, Mask, PointsInTurn, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.views import Task

if TYPE_CHECKING:
    from vcd.scheduling.plugins.network_topology_aware import NetworkTopologyAwarePlugin

HIGHEST = 100.0
"""The highest score before the weight (kube-scheduler's MaxNodeScore)."""

_OUTSIDE = ReasonCode(
    "topology-outside", Cause.NODE_POLICY, "node(s) were outside the HyperNode of the group", nodes_help=True
)
_IN_NONE = ReasonCode(
    "topology-no-hypernode",
    Cause.NODE_POLICY,
    "node(s) were in no HyperNode of tier {tier} or below",
    nodes_help=True,
)
_CLAUSES = {_OUTSIDE.name: "the group's HyperNode", _IN_NONE.name: "a HyperNode of tier {tier} or below"}
"""What nodes that pass have, by the reason of the others."""


class WithinDomain(Predicate):
    """Accepts nodes with which the pods of a job, or sub-job, stay within one domain of the allowed tier.

    While actions try the job in one domain, only its nodes pass.
    """

    name: ClassVar[str] = "NetworkTopology"
    reason: ClassVar[Reason] = _OUTSIDE()
    reads = Reads.JOB
    keys = (ANY_LABEL,)

    def __init__(self, plugin: NetworkTopologyAwarePlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return self._plugin.is_limited(task.job)

    def key_of(self, task: Task) -> Hashable:
        return _key_of_sub_job(task)

    def labels_matter_in(self, namespace: str) -> bool:
        return False  # labels only determine the sub-job, which is part of ``key_of``

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(self._plugin.allowed(task), usage)

    def stable_for(self, task: Task, count: int) -> bool:
        return self._plugin.keeps_allowed(task)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        return {self._reason(task): int(failed.sum())}

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        reason = self._reason(task)
        clause = _CLAUSES.get(reason.code, "").format_map(reason.facts())
        return [(reason.declared({"clause": clause}, reason.amounts) if clause else reason, self.mask(task, usage))]

    def _reason(self, task: Task) -> Reason:
        tier = self._plugin.unplaced_limit(task)
        reason = self.reason if tier is None else _IN_NONE(amounts=[("tier", "", tier)])
        return self._plugin.pre_predicate(task) or reason


class Closeness(Score):
    """Rates nodes by the tier of the lowest domain that holds the node and the placed tasks of the job or sub-job.

    Of several nodes with the highest rating, those whose own domain holds more of the tasks come first.
    """

    name: ClassVar[str] = "network topology"
    reads = Reads.JOB
    keys = (ANY_LABEL,)

    def __init__(self, plugin: NetworkTopologyAwarePlugin, weight: int) -> None:
        super().__init__(weight)
        self._plugin = plugin
        self._share: Scores = np.zeros(0)
        """Of the last ``raw``: the share of the unit's tasks that are in each node's own domain."""

    def applies(self, task: Task) -> bool:
        return self._plugin.limit_of(task) is not None

    def key_of(self, task: Task) -> Hashable:
        return _key_of_sub_job(task)

    def labels_matter_in(self, namespace: str) -> bool:
        return False  # labels only determine the sub-job, which is part of ``key_of``

    def raw(self, task: Task, usage: Usage) -> Scores:
        turn = _ClosenessInTurn(self._plugin, task)
        self._share = at_rows(turn.share()[turn.of], usage)
        return at_rows(turn.closeness()[turn.of], usage)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return _with_share(raw, self._share, feasible)

    def in_turn(self, task: Task) -> PointsInTurn:
        return _ClosenessInTurn(self._plugin, task)


class _ClosenessInTurn(PointsInTurn):
    """The points of ``Closeness`` by chains of domains."""

    def __init__(self, plugin: NetworkTopologyAwarePlugin, task: Task) -> None:
        self._plugin = plugin
        self._tree = plugin.tree
        self.of, self.count = self._tree.chain_of, len(self._tree.chains)
        positions, self._tasks = plugin.positions_of(task)
        self._positions = positions.copy()

    def closeness(self) -> Scores:
        """Return how close each chain is to the placed tasks."""
        return self._plugin.closeness(self._positions.domain)

    def share(self) -> Scores:
        """Return the share of the tasks in each chain's lowest domain, unless that is the whole cluster."""
        shares = self._positions.counts() / self._tasks
        shares[self._tree.top] = 0
        found: Scores = shares[self._tree.leaves]
        return found

    def points(self, rated: Ints) -> Scores:
        return _with_share(self.closeness(), self.share(), rated)

    def place(self, group: int) -> None:
        self._positions.add(self._tree.chains[group], 1)


def _with_share(closeness: Scores, share: Scores, rated: Mask | Ints) -> Scores:
    """Return the points of nodes or chains; ``rated`` is how many nodes of each are feasible."""
    result = closeness.copy()
    feasible = rated > 0
    highest = feasible & (closeness == closeness[feasible].max(initial=-1.0))
    if rated[highest].sum() > 1:
        result[highest] += share[highest]
    return result * HIGHEST


class FillOfDomains(Score):
    """Rates nodes for pods without topology by how full the node's domains are, so that whole domains stay free."""

    name: ClassVar[str] = "network topology binpack"
    reads = Reads.PODS
    keys = ()

    def __init__(self, plugin: NetworkTopologyAwarePlugin, weight: int) -> None:
        super().__init__(weight)
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        return self._plugin.limit_of(task) is None

    def raw(self, task: Task, usage: Usage) -> Scores:
        filled = self._plugin.fill.with_request(task.request)
        return at_rows(self._plugin.fill_by_tier(filled)[self._plugin.tree.chain_of], usage) * HIGHEST

    def in_turn(self, task: Task) -> PointsInTurn:
        return _FillInTurn(self._plugin, task)


class _FillInTurn(PointsInTurn):
    """The points of ``FillOfDomains`` by chains of domains."""

    def __init__(self, plugin: NetworkTopologyAwarePlugin, task: Task) -> None:
        self._plugin = plugin
        self._chains = plugin.tree.chains
        self.of, self.count = plugin.tree.chain_of, len(plugin.tree.chains)
        self._request = task.request
        self._used = plugin.fill.used.copy()
        self._filled = plugin.fill.with_request(task.request).copy()

    def points(self, rated: Ints) -> Scores:
        return self._plugin.fill_by_tier(self._filled) * HIGHEST

    def place(self, group: int) -> None:
        domains, fill = list(self._chains[group]), self._plugin.fill
        self._used[domains] += self._request
        self._filled[domains] = fill.share(self._request, self._used[domains], fill.allocatable[domains])


def _key_of_sub_job(task: Task) -> Hashable:
    """Return what distinguishes a task's sub-job from others of its job; None without sub-jobs."""
    if task.job.partition is None:
        return None
    sub_job = task.job.partition.of(task)
    return sub_job.groups.index, sub_job.values


def unit_of(task: Task) -> Unit:
    """Return the sub-job of a task, or its job if it has no sub-jobs."""
    partition = task.job.partition
    return task.job if partition is None else partition.of(task)
