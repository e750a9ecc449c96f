"""network-topology-aware: place pods of a group within one HyperNode, or near to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vcd.model.events import Waiting
from vcd.model.objects import HyperNode
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import CPU, MEMORY
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.domainsearch import NO_DOMAIN, Capacity
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.network_topology_aware.domain_fill import DomainFill
from vcd.scheduling.plugins.network_topology_aware.domain_rules import (
    HIGHEST,
    Closeness,
    FillOfDomains,
    WithinDomain,
    unit_of,
)
from vcd.scheduling.plugins.network_topology_aware.pod_domains import Positions, UnitPositions
from vcd.scheduling.plugins.network_topology_aware.tier_limits import NO_LIMITS, Limits, Unit, limits_of
from vcd.scheduling.search.parts import Mask, Predicate, Score, Scores
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.scheduling.topology.domain_scope import scope_of
from vcd.scheduling.topology.tree import Domain, Tree, declared_by_labels, declared_by_objects

_RESOURCE = "hypernode.binpack.resources.<resource>"
_FADING = 0.8
_HIGHER_TIER = ReasonCode(
    "topology-higher-tier",
    Cause.FRAGMENTATION,
    "with highestTierAllowed {tier}, {domain} would have enough free resources",
    remark=True,
)
_SPREAD = ReasonCode(
    "topology-already-spread",
    Cause.NODE_POLICY,
    "placed pods of the group lie in no HyperNode of tier {tier} or below",
    mend="raise highestTierAllowed, or delete pods of the group until the others are in one HyperNode",
)


class NetworkTopologyAwarePlugin(KeepsAccounts):
    """Place the pods of a group, or of a sub-group, within one HyperNode, or near to each other.

    A HyperNode is a part of the network: nodes by name, regular expression or label, and other
    HyperNodes. The lower its tier, the closer its nodes. A member that is wrong is ignored and reported: a HyperNode
    that does not exist, that has no lower tier than its parent, or that has another parent already. If no HyperNode
    exists, `labels` lists node labels, the widest first (for example `topology.kubernetes.io/zone, rack`), and nodes
    with equal values of a label and of all labels before it form a domain. The narrowest label has tier 1;
    `kubernetes.io/hostname` as the last one has tier 0.

    With `networkTopology.mode: hard`, all pods of the group are in one HyperNode whose tier is at most
    `highestTierAllowed`, or the tier named by `highestTierName`. Best-effort pods, replacements of failed pods and
    evictions obey it, too. If the limit cannot be read, or placed pods exceed it already, the group waits. With `soft`,
    the group gets the lowest HyperNode that works, at worst the whole cluster. allocate tries HyperNodes tier by tier.
    Of those of the first tier that works, it takes the one with most of the nodes that the group's pods are nominated
    to, then the one that takes most of the pods, then the one with the best score, then the first by name.

    If a HyperNode takes the group, but none of the HyperNodes within it does, the fewest of these get even shares of
    the pods. A share has pods of consecutive indexes, in the order in which allocate places them. If the shares do not
    fit, because pods exclude each other for example, any nodes of the HyperNode are used.

    More pods of a placed group, as replacements of failed ones, go to the lowest HyperNode that holds its pods and has
    enough free resources. They leave it only if it is too small and the limit allows more.

    - Score of a HyperNode: 100 x weight x the weighted mean of (used + requested by all of the group's pods) /
      allocatable; 0 if a resource does not suffice. If several candidates of a sub-group have the highest mean, each
      gets a bonus: the fraction of the sub-group's pods that it holds.
    - Score of a node for a group with topology: 100 x weight x (highest tier - tier of the lowest HyperNode that holds
      the node and the group's placed pods) / (highest tier - lowest tier), 1 if that is the node's own. If several
      nodes have the highest score, each gets a bonus: the fraction of the group's pods in its own HyperNode.
    - Score of a node for other pods: 100 x weight x the mean over the tiers of how full the node's HyperNode is with
      the pod, weighted by fading^(tier - 1), so that whole HyperNodes stay free.

    Source: Volcano ``plugins/network-topology-aware``.
    """

    name = "network-topology-aware"
    keys = ()
    kinds = ("HyperNode",)
    supports = ("spec.networkTopology", "spec.subGroupPolicy[].networkTopology")
    arguments = (
        Argument("weight", "int", 1, "Weight of the plugin's scores among all plugins; below 0 it means 1."),
        Argument("hypernode.binpack.cpu", "int", 1, "Weight of cpu; below 0 it means 1."),
        Argument("hypernode.binpack.memory", "int", 1, "Weight of memory; below 0 it means 1."),
        Argument("hypernode.binpack.resources", "strings", (), "Further resources that have a weight."),
        Argument(_RESOURCE, "int", 1, "Weight of a resource listed there; below 0 it means 1."),
        Argument("hypernode.binpack.normal-pod.enable", "bool", True, "Whether pods without topology are scored, too."),
        Argument(
            "hypernode.binpack.normal-pod.fading",
            "float",
            _FADING,
            "How much less each higher tier counts for pods without topology; below 0 it means 0.8.",
        ),
        Argument(
            "hypernode.gradient.evict.max-hypernodes",
            "int",
            8,
            "The most HyperNodes in which evictions are tried.",
            without_effect="every HyperNode that could hold the group is tried",
        ),
        Argument(
            "labels",
            "strings",
            (),
            "Node labels that form domains if no HyperNode exists, the widest first. Not in Volcano.",
        ),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        stated = arguments.matching(_RESOURCE)
        weights = {name: stated.get(name, 1) for name in arguments["hypernode.binpack.resources"]}
        weights |= {CPU: arguments["hypernode.binpack.cpu"], MEMORY: arguments["hypernode.binpack.memory"]}
        self._weights: dict[str, int] = {name: 1 if weight < 0 else weight for name, weight in weights.items()}
        self._weight: int = 1 if arguments["weight"] < 0 else arguments["weight"]
        fading: float = arguments["hypernode.binpack.normal-pod.fading"]
        self._fading = _FADING if fading < 0 else fading

    def open(self, session: Session) -> None:
        """Build the tree of domains, if the HyperNodes or nodes changed."""
        self._session = session
        self._scope = scope_of(session)
        self._tree, self._object_problems = self._read_tree(session)
        self._positions = UnitPositions(self._tree)
        self._amounts: DomainFill | None = None
        self._limits: dict[int, Limits] = {}
        self._refusals: dict[int, Reason | None] = {}
        self._requests: dict[tuple[int, int], Ints] = {}
        self._closeness: dict[int, Scores] = {}
        self._within: dict[int, Mask] = {}

    def close(self, session: Session) -> None:
        """Note the lowest tier that would take a job for which no allowed HyperNode had enough free resources."""
        for job in session.views.jobs():
            if job.partition is None and any(_is_of(NO_DOMAIN, why) for why in job.why):
                self._note_tier_that_works(job)

    def _note_tier_that_works(self, job: Job) -> None:
        tree, limit = self._tree, self._limits_of(job).job
        if limit is None:
            return
        tasks = [task for task in job.pending() if task.status == TaskStatus.PENDING and not task.best_effort]
        capacity = Capacity(framework_of(self._session), job, tasks, self._session.nodes.usage.future_idle)
        for row in tree.rows_below(tree.top, tree.tiers[tree.top]):
            for domain, count in zip(row, capacity.fitting(row), strict=True):
                if domain.tier > limit and count >= capacity.needed:
                    job.note("predicate", self.name, _HIGHER_TIER({"domain": domain.name}, [("tier", "", domain.tier)]))
                    return

    def _read_tree(self, session: Session) -> tuple[Tree, list[Problem]]:
        facts, keys = session.nodes.facts, tuple(self.values["labels"])
        objects = session.objects("HyperNode", HyperNode)
        version = session.snapshot.others_version.get("HyperNode", 0), keys
        known: dict[tuple[int, tuple[str, ...]], tuple[Tree, list[Problem]]] = facts.cached("domains", dict)
        if version not in known:
            known.clear()  # trees of earlier HyperNodes would not be used again
            declared, problems = declared_by_objects(objects, facts)
            known[version] = Tree(declared if objects else declared_by_labels(keys, facts), len(facts)), problems
        return known[version]

    # --- limits -------------------------------------------------------------------------------------------------------

    def _limits_of(self, job: Job) -> Limits:
        found = self._limits.get(job.index)
        if found is None:
            found = self._limits[job.index] = limits_of(job, self._tree)
        return found

    def is_limited(self, job: Job) -> bool:
        """Whether the job or some sub-job has a limit, or one that cannot be read."""
        return self._limits_of(job) is not NO_LIMITS

    def limit_of(self, task: Task) -> int | None:
        """Return the limit of the task's sub-job, or of its job without sub-jobs."""
        limits = self._limits_of(task.job)
        return limits.job if not limits.policies else limits.of(unit_of(task))

    def pre_predicate(self, task: Task) -> Reason | None:
        """Return a reason if the limit cannot be read, or the group's placed pods exceed it already."""
        if task.row not in self._refusals:
            self._refusals[task.row] = self._limits_of(task.job).refusal or self._why_spread(task)
        return self._refusals[task.row]

    def _why_spread(self, task: Task) -> Reason | None:
        for unit, tier in self._limited_units(task):
            positions = self._positions.of(unit)
            if positions.total and not positions.domains_within(tier):
                return _SPREAD(amounts=[("tier", "", tier)])
        return None

    def _limited_units(self, task: Task) -> list[tuple[Unit, int]]:
        limits, units = self._limits_of(task.job), dict.fromkeys((task.job, unit_of(task)))
        return [(unit, tier) for unit in units if (tier := limits.of(unit)) is not None]

    def allowed(self, task: Task) -> Mask:
        """Return the nodes on which a task stays within its limits, and within the domain in which its job is tried."""
        if self._limits_of(task.job).refusal is not None:
            return np.zeros(len(self._session.nodes), np.bool_)
        tried = self._scope.domain_for(task.job)
        masks = [] if tried is None else [tried.mask]
        for unit, tier in self._limited_units(task):
            positions = self._positions.of(unit)
            if positions.total:
                around: Mask = np.any(self._tree.masks[positions.domains_within(tier)], axis=0)
                masks.append(around)
            else:
                masks.append(self._in_any(tier))
        return np.logical_and.reduce(masks) if masks else np.ones(len(self._session.nodes), np.bool_)

    def keeps_allowed(self, task: Task) -> bool:
        """Whether no placement on ``allowed`` nodes changes them: domains contain each other, and each limited unit has
        placed tasks, or is tried in a domain within its limit."""
        tried = self._scope.domain_for(task.job)
        return self._tree.is_nested and all(
            self._positions.of(unit).total or (tried is not None and tried.tier <= tier)
            for unit, tier in self._limited_units(task)
        )

    def _in_any(self, tier: int) -> Mask:
        """Return the nodes in some domain that is not above a tier."""
        if tier not in self._within:
            count = sum(each <= tier for each in self._tree.tiers)
            within: Mask = np.any(self._tree.masks[:count], axis=0)
            self._within[tier] = within
        return self._within[tier]

    def unplaced_limit(self, task: Task) -> int | None:
        """Return the limit of a task's unit if none of its tasks is placed and it is tried in no domain."""
        if self._scope.domain_for(task.job) is not None:
            return None
        tiers = [tier for unit, tier in self._limited_units(task) if not self._positions.of(unit).total]
        return min(tiers, default=None)

    # --- points -------------------------------------------------------------------------------------------------------

    def hyper_node_gradient(self, unit: Unit, root: Domain | None) -> Sequence[Sequence[Domain]] | None:
        """Return the domains to try, tier by tier: those that the limit allows, and that hold the placed pods."""
        tree = self._tree
        tier = self._limits_of(unit if isinstance(unit, Job) else unit.job).of(unit)
        start = tree.top if root is None else root.number
        if tier is None:
            return None
        rows, positions = tree.rows_below(start, tier), self._positions.of(unit)
        if not positions.total:
            return rows
        around = positions.domains_within(tier)
        inside = [[domain for domain in row if domain.number in around] for row in rows]
        return [row for row in inside if row] or ([[tree.domain(start)]] if start in tree.below(*around) else [])

    def hyper_node_order(self, unit: Unit, domains: Sequence[Domain]) -> Sequence[float]:
        """Rate domains in which a job or sub-job can be placed by how full they would be."""
        filled = self.fill.with_request(self._request_of(unit))
        fills: list[float] = filled[[domain.number for domain in domains]].tolist()
        if not isinstance(unit, Job) and fills.count(max(fills)) > 1:
            positions = self._positions.of(unit)
            shares = [positions.count_in(domain.number) / len(unit.tasks) for domain in domains]
            fills = [fill + share * (fill == max(fills)) for fill, share in zip(fills, shares, strict=True)]
        return [fill * HIGHEST * self._weight for fill in fills]

    def _request_of(self, unit: Unit) -> Ints:
        """Return the sum of the requests of all tasks of a job or sub-job."""
        key = (unit.index, -1) if isinstance(unit, Job) else (unit.job.index, unit.index)
        if key not in self._requests:
            tasks = unit.tasks() if isinstance(unit, Job) else unit.tasks
            self._requests[key] = np.sum([task.request for task in tasks], axis=0)
        return self._requests[key]

    def hyper_node_limits(self) -> Iterable[Predicate]:
        """Return the filter of the limits, which no flag turns off."""
        yield WithinDomain(self)

    def batch_node_order(self) -> Iterable[Score]:
        """Return the scores, unless the weight is 0."""
        if not self._weight:
            return
        yield Closeness(self, self._weight)
        if self._tree.top and self.values["hypernode.binpack.normal-pod.enable"]:
            yield FillOfDomains(self, self._weight)

    def charge(self, tasks: list[Task], rows: list[int], sign: int) -> None:
        """Update the positions of jobs, and what is used in domains."""
        self._positions.add(tasks, rows, sign)
        if self._amounts is not None:
            self._amounts.add(tasks, rows, sign)

    def problems(self) -> Iterable[Problem]:
        """Return HyperNodes with wrong members, and tier names that two tiers have."""
        return [*self._object_problems, *self._tree.problems]

    # --- scores -------------------------------------------------------------------------------------------------------

    @property
    def tree(self) -> Tree:
        """The domains."""
        return self._tree

    @property
    def fill(self) -> DomainFill:
        """What is allocatable and used in each domain."""
        if self._amounts is None:
            self._amounts = DomainFill(self._tree, self._session.nodes, self._weights)
        return self._amounts

    def positions_of(self, task: Task) -> tuple[Positions, int]:
        """Return the positions of a task's unit, and the number of the unit's tasks."""
        unit = unit_of(task)
        return self._positions.of(unit), len(unit.tasks() if isinstance(unit, Job) else unit.tasks)

    def closeness(self, placed: int | None) -> Scores:
        """Return how close each chain is to a domain, from 0 to 1; 0 without a domain."""
        if placed is None:
            return np.zeros(len(self._tree.chains))
        if placed not in self._closeness:
            self._closeness[placed] = self._closeness_to(placed)[self._tree.leaves]
        return self._closeness[placed]

    def _closeness_to(self, placed: int) -> Scores:
        """Return how close each domain is to one of them."""
        tree = self._tree
        lowest, highest = min(tree.tiers), max(tree.tiers)
        tiers = np.array(tree.tiers)[tree.common_with_each(placed)]
        found: Scores = (highest - tiers) / (highest - lowest) if highest > lowest else np.ones(len(tree))
        found[placed] = 1
        found[tree.top] = 0
        return found

    def fill_by_tier(self, filled: Scores) -> Scores:
        """Return for each chain how full its domains are, the lower tiers weighing more."""
        total, weights = np.zeros(len(self._tree.chains)), 0.0
        for tier, domains in self._tree.by_tier:
            weight = self._fading ** max(tier - 1, 0)
            total += weight * np.where(domains < 0, 1.0, filled[domains])
            weights += weight
        return total / weights if weights else total


def _is_of(code: ReasonCode, why: Waiting) -> bool:
    return isinstance(why.reason, Reason) and why.reason.code == code.name
