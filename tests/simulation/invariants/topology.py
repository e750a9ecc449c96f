"""Groups with a network topology by plain objects: each in one HyperNode of an allowed tier.

The tree is read from HyperNodes and nodes by the rules of docs/plugins/network-topology-aware.md, name by name; none
of the plugin's masks are used. Of a state that changed since a session began, nothing is checked that the change is
about: its replica could not know.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.laws.accounts import Accounts, asked_by
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.replacements import EXEMPT
from tests.simulation.invariants.truth import group_of, key_of
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from tests.simulation.workload import GATE
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.objects import HyperNode, HyperNodeMember, NetworkTopology, Pod, PodGroup, SubGroupPolicy
from vcd.model.selectors import LabelSelector
from vcd.state.cluster_state import ClusterState

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
Labels = Mapping[str, str]
PLUGIN = "network-topology-aware"
ENTRY = f"\n  - name: {PLUGIN}"
"""The plugin's line in a configuration file, after that of another plugin of its tier."""
_HOLD_QUEUES = {"proportion", "capacity", "capacity-card"}
_NEVER = -1
"""The limit of what may be placed nowhere: the limit cannot be read."""


class Tree(NamedTuple):
    """Tiers and nodes of each HyperNode, by name; and the lowest tier of each tier name."""

    tiers: dict[str, int]
    nodes: dict[str, frozenset[str]]
    named: dict[str, int]

    @classmethod
    def of(cls, hyper_nodes: Mapping[str, HyperNode], labels: Mapping[str, Labels]) -> Tree:
        """Read HyperNodes over nodes with labels; what is wrong is left out, and all else counts."""
        valid = {name: each.spec for name, each in hyper_nodes.items() if each.spec.tier >= 0}
        parents: dict[str, tuple[int, str]] = {}
        for name, spec in valid.items():
            for member in spec.members:
                child = member.selector.exact_match.name if member.selector.exact_match else ""
                if member.type == "HyperNode" and child in valid and valid[child].tier < spec.tier:
                    parents[child] = min(parents.get(child, (spec.tier, name)), (spec.tier, name))
        nodes = {
            name: {node for node in labels for member in spec.members if _selects(member, node, labels[node])}
            for name, spec in valid.items()
        }
        tiers = {name: spec.tier for name, spec in valid.items()}
        for child in sorted(parents, key=lambda name: tiers[name]):  # a child is complete before its parent
            nodes[parents[child][1]] |= nodes[child]
        named: dict[str, int] = {}
        for spec in valid.values():
            if spec.tier_name:
                named[spec.tier_name] = min(named.get(spec.tier_name, spec.tier), spec.tier)
        if tiers:
            name, highest = "the whole cluster", max(0, *tiers.values()) + 1
            tiers[name], nodes[name] = highest, set(labels)
        return cls(tiers, {name: frozenset(found) for name, found in nodes.items()}, named)

    def allowed(self, limit: int) -> list[frozenset[str]]:
        """The nodes of each HyperNode up to a tier; above all of them the whole cluster is one."""
        return [self.nodes[name] for name, tier in self.tiers.items() if tier <= limit]

    def limit_of(self, topology: NetworkTopology | None) -> int | None:
        """The highest tier that a hard topology allows; None where there is no hard one."""
        if topology is None or topology.mode.lower() == "soft":
            return None
        if topology.highest_tier_allowed is not None:
            return topology.highest_tier_allowed
        return self.named.get(topology.highest_tier_name, _NEVER)


def _selects(member: HyperNodeMember, node: str, labels: Labels) -> bool:
    selector = member.selector
    if member.type != "Node":
        return False
    if selector.exact_match is not None:
        return selector.exact_match.name == node
    if selector.regex_match is not None:
        try:
            return re.search(selector.regex_match.pattern, node) is not None
        except re.error:
            return False
    compiled = LabelSelector.compile(selector.label_match)
    return bool(compiled.requirements) and compiled.matches(labels)


class _Unit(NamedTuple):
    """Pods of one group that a limit holds for together, and the fewest of them that are of use."""

    what: str
    limit: int
    pods: list[str]
    minimum: int


class Topology:
    """Looks at what sessions bind and evict for groups with a hard topology, and at rest at what waits."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions) -> None:
        self._sim = sim
        self._changed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        """By machine the last event about each pod and group, and about any HyperNode or node (under "")."""
        witness.services.append(self._watch)
        decisions.looks.append(self._decided)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.ObjectPut | ev.ObjectGone):
                key = "" if event.kind in ("HyperNode", "Node") else f"{event.kind} {event.key}"
                self._changed[machine.name][key] = service.state_writer.state.sequence

        service.state_writer.observers.append(folded)

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        state, changed = service.state_writer.state, self._changed[machine.name]
        if not any(_is_limited(record.group) for record in state.groups.values()) or changed[""] > event.head:
            return
        plugins = {option.name for tier in service.policy.named(event.policy).tiers for option in tier}
        session = _Session(state, PLUGIN in plugins)
        late = {key.partition(" ")[2] for key, sequence in changed.items() if sequence > event.head}
        for statement in event.accepted().statements:
            if statement.action not in EXEMPT:
                for invariant, what in session.problems(statement, late):
                    self._sim.violated(invariant, f"{machine.name}, session {event.session}: {what}")

    def at_rest(self) -> None:
        """No group waits that an allowed HyperNode could take, where no queue holds it back."""
        leaders = [each.service for each in self._sim.replicas if each.service is not None and each.leads]
        for service in leaders if len(leaders) == 1 else ():
            plugins = {option.name for tier in service._policy_in_force().tiers for option in tier}
            if PLUGIN in plugins and not plugins & _HOLD_QUEUES:
                for what in _Session(service.state_writer.state, True).left_undone():
                    self._sim.violated("all that can be is done", what)


class _Session:
    """What a session decides for limited groups, statement by statement."""

    def __init__(self, state: ClusterState, has_plugin: bool) -> None:
        self._state, self._accounts = state, Accounts(state)
        self._evicted = {key for key, intent in state.intents.items() if intent.verb == "evict"}
        labels = {name: record.node.metadata.labels for name, record in state.nodes.items()}
        found: Any = state.others.get("HyperNode", {}) if has_plugin else {}
        self._tree = Tree.of(found, labels)

    def problems(self, statement: ev.Statement, late: set[str]) -> Iterator[tuple[str, str]]:
        """What is wrong with a statement; ``late`` are keys of pods and groups that changed since the session began."""
        self._accounts.bind(statement.operations)
        victims = [each.key for each in statement.operations if each.verb == "evict"]
        self._evicted.update(victims)
        record = self._state.groups.get(statement.group)
        if record is None or statement.group in late or not _is_limited(record.group):
            return
        bound = {each.key for each in statement.operations if each.verb == "bind"}
        for unit in self._units(record.group):
            if not late.isdisjoint(unit.pods):
                continue
            nodes = self._nodes_of(unit.pods)
            if not bound.isdisjoint(unit.pods) and not self._is_in_one(nodes, unit.limit):
                what = f"{unit.what} may be in tier {unit.limit}, and has {sorted(bound)} bound, now on {sorted(nodes)}"
                yield "no group beyond its tier", what
            if victims and not self._may_hold(unit):
                yield (
                    "no eviction in vain",
                    f"{unit.what} fits no HyperNode up to {unit.limit}, and {victims} go for it",
                )

    def _is_in_one(self, nodes: set[str], limit: int) -> bool:
        return any(nodes <= domain for domain in self._tree.allowed(limit))

    def _nodes_of(self, pods: Iterable[str]) -> set[str]:
        return {self._accounts.node_of[key] for key in pods if self._is_placed(key)}

    def _is_placed(self, key: str) -> bool:
        stays = _is_alive(self._accounts.pods[key]) and key not in self._evicted
        return stays and self._accounts.node_of[key] in self._accounts.nodes

    def _units(self, group: PodGroup) -> Iterator[_Unit]:
        """A group, and each of its sub-groups, if it has a limit."""
        members = [key for key in self._accounts.pods if self._accounts.group_of(key) == group.key]
        policies = group.spec.sub_group_policy
        own = self._tree.limit_of(group.spec.network_topology)
        if own is not None:
            yield _Unit(group.key, own, members, 1 if policies else group.spec.min_member)
        parts: dict[tuple[int, tuple[str, ...]], list[str]] = defaultdict(list)
        for key in members:
            part = _part_of(self._accounts.pods[key], policies)
            if part is not None:
                parts[part].append(key)
        for (index, values), pods in parts.items():
            limit = self._tree.limit_of(policies[index].network_topology)
            if limit is not None:
                yield _Unit(f"{group.key} {'-'.join(values)}", limit, pods, 1)

    def _may_hold(self, unit: _Unit) -> bool:
        """Whether some allowed HyperNode, were it empty, could hold the pods that the unit has and has to have."""
        return any(
            self._nodes_of(unit.pods) <= domain and (most is None or most >= needed)
            for needed, domain, most in self._fitting(unit, free=False)
        )

    def left_undone(self) -> Iterator[str]:
        """Groups without sub-groups that would fit an allowed HyperNode as it is."""
        for key, record in self._state.groups.items():
            group = record.group
            waits = group.status.phase in ("Inqueue", "Running") and not group.spec.sub_group_policy
            for unit in self._units(group) if waits and not group.spec.min_task_member else ():
                pending = [each for each in unit.pods if self._is_pending(each)]
                done = sum(self._accounts.pods[each].status.phase == "Succeeded" for each in unit.pods)
                placed = sum(map(self._is_placed, unit.pods))
                least = max(1, unit.minimum - placed - done)
                for _, domain, most in self._fitting(unit, free=True):
                    if most is not None and self._nodes_of(unit.pods) <= domain and min(most, len(pending)) >= least:
                        yield f"{key} waits, and {sorted(domain)} have room for {most} of its pods"
                        break

    def _is_pending(self, key: str) -> bool:
        pod, waits = self._accounts.pods[key], key not in self._state.intents and key not in self._state.backoffs
        return waits and _is_alive(pod) and not self._accounts.node_of[key] and not pod.spec.scheduling_gates

    def _fitting(self, unit: _Unit, *, free: bool) -> Iterator[tuple[int, frozenset[str], int | None]]:
        """For each allowed HyperNode how many pods have to be in it, and how many it takes, beside what is there
        (``free``) or empty; None for pods of several sizes, or of none."""
        pods = [self._accounts.pods[key] for key in unit.pods if _is_alive(self._accounts.pods[key])]
        placed = sum(map(self._is_placed, unit.pods))
        needed = max(placed + 1, min(unit.minimum, len(pods)))
        sizes = [asked_by(pod) for pod in pods]
        plain = sizes and all(size == sizes[0] for size in sizes) and sizes[0].get("cpu", 0) > 0
        for domain in self._tree.allowed(unit.limit):
            most = sum(self._takes(node, sizes[0], free=free) for node in domain) if plain else None
            yield needed, domain, most

    def _takes(self, name: str, size: Mapping[str, int], *, free: bool) -> int:
        """How many pods of a size a node takes."""
        record = self._accounts.nodes[name]
        left = dict(record.allocatable)
        if free:
            if record.node.spec.unschedulable or record.node.spec.taints or not _is_ready(record.node):
                return 0
            for key, place in self._accounts.node_of.items():
                pod = self._accounts.pods[key]
                if place == name and pod.status.phase not in ("Succeeded", "Failed"):
                    for resource, amount in asked_by(pod).items():
                        left[resource] = left.get(resource, 0) - amount
        return max(0, min(left.get(resource, 0) // amount for resource, amount in size.items() if amount))


def _is_ready(node: Any) -> bool:
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def _is_alive(pod: Pod) -> bool:
    return pod.status.phase in ("", "Pending", "Running") and not pod.metadata.deletion_timestamp


def _part_of(pod: Pod, policies: tuple[SubGroupPolicy, ...]) -> tuple[int, tuple[str, ...]] | None:
    """The sub-group of a pod: the number of its policy and the values of that one's keys."""
    for index, policy in enumerate(policies):
        values = tuple(pod.metadata.labels.get(key, "") for key in policy.match_label_keys)
        selector = policy.label_selector
        chosen = selector is None or LabelSelector.compile(selector).matches(pod.metadata.labels)
        if chosen and all(values):
            return index, values
    return None


def _is_limited(group: PodGroup) -> bool:
    topologies = [group.spec.network_topology, *(policy.network_topology for policy in group.spec.sub_group_policy)]
    return any(each is not None and each.mode.lower() != "soft" for each in topologies)


# --- for the slow reference, which does not have the plugin -----------------------------------------------------------


def limited_groups(groups: Iterable[Obj]) -> set[str]:
    """The keys of PodGroups with a hard topology, of their own or of a sub-group."""
    found = set()
    for group in groups:
        spec = group["spec"]
        stated = [spec, *(spec.get("subGroupPolicy") or ())]
        topologies = [each["networkTopology"] for each in stated if each.get("networkTopology")]
        if any(str(each.get("mode") or "").lower() != "soft" for each in topologies):
            found.add(key_of(group))
    return found


def held_back(objects: Iterable[Obj], limited: set[str]) -> Iterator[Obj]:
    """Objects, with a gate on each pod of limited groups that waits."""
    for obj in objects:
        if obj.get("kind") == "Pod" and group_of(obj) in limited and not obj["spec"].get("nodeName"):
            yield {**obj, "spec": {**obj["spec"], "schedulingGates": [{"name": GATE}]}}
        else:
            yield obj
