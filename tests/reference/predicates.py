"""The predicates plugin: which nodes may take a task at all. Each filter gives reasons, and whether to look on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.reference import labels as lb
from tests.reference.config import Arguments
from tests.reference.model import Manifest, Node, Task, labels, meta, restartable
from tests.reference.session import UNRESOLVABLE, UNSCHEDULABLE, PredicateFailure, Session
from tests.reference.values import MEMORY
from tests.reference.volumes import Volumes

Reason = tuple[str, str]
Filter = Callable[[Task, Node], Reason | None]

UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def predicates(session: Session, arguments: Arguments) -> None:
    """Register the filters that are on, in kube-scheduler's order."""
    volumes = Volumes(session)
    before: list[Callable[[Task], None]] = []
    stable: list[Filter] = [_node_unschedulable]
    dynamic: list[Filter] = []
    fixed: list[Filter] = []
    """Of the latter those that look at nothing but the node and the claims."""
    reaching: list[Callable[[Task, Node, list[Task]], bool]] = []
    """Whether a node can take a task once the right pods left, and company is placed."""
    apart: list[Callable[[list[Task]], list[Callable[[Node], str | None]]]] = []
    """How alike tasks divide the nodes: no more than one goes to the nodes of one name."""
    if arguments.boolean("predicate.NodeAffinityEnable", True):
        before.append(_conflicting_names)
        stable.append(_node_affinity)
    if arguments.boolean("predicate.TaintTolerationEnable", True):
        stable.append(_taints)
    if arguments.boolean("predicate.NodePortsEnable", True):
        dynamic.append(_ports)
        apart.append(lambda alike: [lambda node: node.name] if host_ports(alike[0].pod) else [])
    if arguments.boolean("predicate.PodAffinityEnable", True):
        before.append(lambda task: _parse_terms(task))
        dynamic.append(lambda task, node: pod_affinity(session, task, node))
        reaching.append(lambda task, node, company: _may_have_company(session, task, node, company))
        apart.append(lambda alike: _domains_apart(session, alike))
    if arguments.boolean("predicate.NodeVolumeLimitsEnable", True):
        dynamic.append(volumes.limits)
    if arguments.boolean("predicate.VolumeZoneEnable", True):
        before.append(volumes.check_zones)
        dynamic.append(volumes.zone)
        fixed.append(volumes.zone)
    if arguments.boolean("predicate.PodTopologySpreadEnable", True):
        before.append(lambda task: _parse_constraints(task))
        dynamic.append(lambda task, node: topology_spread(session, task, node))
        reaching.append(lambda task, node, company: _is_labelled(task, node))
    if arguments.boolean("predicate.VolumeBindingEnable", True):
        before.append(volumes.check_claims)
        dynamic.append(volumes.binding)
        fixed.append(volumes.reaching)
        session.handlers.append((volumes.reserve, volumes.unreserve))
    proportional = _proportional(arguments)

    def pre_predicate(task: Task) -> None:
        for check in before:
            check(task)

    def predicate(task: Task, node: Node) -> list[str]:
        reasons = []
        if node.max_pods <= len(node.pods()):
            reasons.append("node(s) pod number exceeded")
        for one in [*stable, *dynamic]:
            if (found := one(task, node)) is not None:
                reasons.append(found[1])
                if found[0] != UNSCHEDULABLE:
                    break
        if not reasons and not _keeps_proportion(task, node, proportional):
            reasons.append("node(s) proportional resource check failed")
        return reasons

    def minds(task: Task) -> bool:
        """Whether it hangs on where other pods are; claims are not looked at."""
        return any(
            asks(session, task)
            for flag, asks in (("NodePorts", _has_ports), ("PodAffinity", _has_terms), ("PodTopologySpread", _spreads))
            if arguments.boolean(f"predicate.{flag}Enable", True)
        )

    session.register("minds", "predicates", minds)
    session.register("prePredicate", "predicates", pre_predicate)
    session.register("predicate", "predicates", predicate)
    admitting = [one for one in stable if one is not _node_affinity]
    session.register("suits", "predicates", lambda task, node: all(one(task, node) is None for one in stable))
    session.register("admits", "predicates", lambda task, node: all(one(task, node) is None for one in admitting))
    session.register("reaches", "predicates", lambda *asked: all(one(*asked) for one in reaching))
    session.register("divisions", "predicates", lambda alike: [parts for one in apart for parts in one(alike)])
    session.register(
        "takes", "predicates", lambda task, node: all(one(task, node) is None for one in [*stable, *fixed])
    )


# -- node ---------------------------------------------------------------------


def _node_unschedulable(task: Task, node: Node) -> Reason | None:
    if not node.spec.get("unschedulable") or lb.tolerates(task.spec.get("tolerations") or [], UNSCHEDULABLE_TAINT):
        return None
    return UNRESOLVABLE, "node(s) were unschedulable"


def required_node_affinity(task: Task, node: Node) -> bool:
    """The pod's nodeSelector and its required node affinity."""
    if any(node.labels.get(key) != value for key, value in (task.spec.get("nodeSelector") or {}).items()):
        return False
    required = _affinity(task.pod, "nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or lb.node_terms_match(required.get("nodeSelectorTerms") or [], node.name, node.labels)


def _node_affinity(task: Task, node: Node) -> Reason | None:
    if required_node_affinity(task, node):
        return None
    return UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector"


def _conflicting_names(task: Task) -> None:
    """Terms that each demand several node names at once can match no node."""
    required = _affinity(task.pod, "nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    for term in terms:
        fields = [f for f in term.get("matchFields") or [] if f.get("key") == "metadata.name"]
        sets = [set(f.get("values") or []) for f in fields if f.get("operator") == "In"]
        if not sets or set.intersection(*sets):
            return
    if terms:
        raise PredicateFailure("plugin NodeAffinity pre-predicates failed pod affinity terms conflict")


def _taints(task: Task, node: Node) -> Reason | None:
    if lb.untolerated(node.spec.get("taints") or [], task.spec.get("tolerations") or []):
        return UNRESOLVABLE, "node(s) had untolerated taint(s)"
    return None


# -- ports --------------------------------------------------------------------


def host_ports(pod: Manifest) -> list[tuple[str, str, int]]:
    """(address, protocol, port) of each host port of containers that stay."""
    spec = pod.get("spec") or {}
    containers = [c for c in spec.get("initContainers") or [] if restartable(c)] + (spec.get("containers") or [])
    ports = [port for container in containers for port in container.get("ports") or []]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for port in ports
        if (port.get("hostPort") or 0) > 0
    ]


def _has_ports(session: Session, task: Task) -> bool:
    return bool(host_ports(task.pod))


def _ports(task: Task, node: Node) -> Reason | None:
    taken = [port for other in node.pods() for port in host_ports(other.pod)]
    for address, protocol, number in host_ports(task.pod):
        for other_address, other_protocol, other_number in taken:
            overlap = "0.0.0.0" in (address, other_address) or address == other_address
            if overlap and (protocol, number) == (other_protocol, other_number):
                return UNSCHEDULABLE, "node(s) didn't have free ports for the requested pod ports"
    return None


# -- pod affinity ---------------------------------------------------------------


class Term:
    """One pod affinity term of a pod, with its selectors parsed."""

    def __init__(self, owner: Task, raw: dict[str, Any], weight: int = 0) -> None:
        self.weight, self.topology = weight, raw.get("topologyKey") or ""
        selector = lb.label_selector(raw.get("labelSelector"))
        keys = [(key, "In") for key in raw.get("matchLabelKeys") or []]
        keys += [(key, "NotIn") for key in raw.get("mismatchLabelKeys") or []]
        extra = [(key, operator, [owner.labels[key]]) for key, operator in keys if key in owner.labels]
        self.selector = selector.plus(extra)
        self.namespaces = set(raw.get("namespaces") or [])
        if not self.namespaces and raw.get("namespaceSelector") is None:
            self.namespaces = {owner.namespace}
        self.namespace_selector = lb.label_selector(raw.get("namespaceSelector"))

    def matches(self, session: Session, task: Task) -> bool:
        found = session.cluster.find("Namespace", task.namespace)
        known = {**(labels(found) if found is not None else {}), "kubernetes.io/metadata.name": task.namespace}
        inside = task.namespace in self.namespaces or self.namespace_selector.matches(known)
        return inside and self.selector.matches(task.labels)


def terms(task: Task, kind: str, hard: bool) -> list[Term]:
    """A pod's terms: kind is podAffinity or podAntiAffinity."""
    affinity = _affinity(task.pod, kind)
    if hard:
        return [Term(task, raw) for raw in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []]
    soft = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return [Term(task, raw.get("podAffinityTerm") or {}, int(raw.get("weight") or 0)) for raw in soft]


def _parse_terms(task: Task) -> None:
    try:
        for kind in ("podAffinity", "podAntiAffinity"):
            terms(task, kind, hard=True)
            terms(task, kind, hard=False)
    except lb.SelectorError as error:
        raise PredicateFailure(f"plugin InterPodAffinity pre-predicates failed parsing pod: {error}") from error


def pod_affinity(session: Session, task: Task, node: Node) -> Reason | None:
    """Required affinity, anti-affinity, and anti-affinity that others have against this pod."""
    wanted = terms(task, "podAffinity", hard=True)
    if wanted and not _has_company(session, task, node, wanted):
        return UNRESOLVABLE, "node(s) didn't match pod affinity rules"
    for term in terms(task, "podAntiAffinity", hard=True):
        if any(term.matches(session, other) for other in _in_domain(session, node, term.topology)):
            return UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules"
    for place in session.cluster.nodes.values():
        for other in place.pods():
            for term in terms(other, "podAntiAffinity", hard=True):
                if _same_domain(node, place, term.topology) and term.matches(session, task):
                    return UNSCHEDULABLE, "node(s) didn't satisfy existing pods anti-affinity rules"
    return None


def _has_terms(session: Session, task: Task) -> bool:
    """Whether it has required terms, or another pod has against it, be it one that was evicted."""
    against = [
        term
        for node in session.cluster.nodes.values()
        for other, _ in node.tasks.values()
        for term in terms(other, "podAntiAffinity", hard=True)
        if term.topology in node.labels
    ]
    own = [*terms(task, "podAffinity", hard=True), *terms(task, "podAntiAffinity", hard=True)]
    return bool(own) or any(term.matches(session, task) for term in against)


def _has_company(session: Session, task: Task, node: Node, wanted: list[Term]) -> bool:
    """Whether pods that match all terms are in the node's domains; the first of a series may be alone."""
    if any(term.topology not in node.labels for term in wanted):
        return False
    matching = [
        place
        for place in session.cluster.nodes.values()
        for other in place.pods()
        if all(term.matches(session, other) for term in wanted)
    ]
    if all(any(_same_domain(node, place, term.topology) for place in matching) for term in wanted):
        return True
    counted = any(term.topology in place.labels for place in matching for term in wanted)
    return not counted and all(term.matches(session, task) for term in wanted)


def _may_have_company(session: Session, task: Task, node: Node, company: list[Task]) -> bool:
    wanted = terms(task, "podAffinity", hard=True)
    if not wanted:
        return True
    now = any(_has_company(session, task, each, wanted) for each in session.node_order)
    if now or not any(all(term.matches(session, other) for term in wanted) for other in company):
        return _has_company(session, task, node, wanted)
    return all(term.topology in node.labels for term in wanted)


def _domains_apart(session: Session, alike: list[Task]) -> list[Callable[[Node], str | None]]:
    away = [
        term
        for term in terms(alike[0], "podAntiAffinity", hard=True)
        if all(term.matches(session, task) for task in alike)
    ]
    return [partial(_domain_of, term.topology) for term in away]


def _domain_of(topology: str, node: Node) -> str | None:
    return node.labels.get(topology)


def _is_labelled(task: Task, node: Node) -> bool:
    return all(constraint.topology in node.labels for constraint in constraints(task, "DoNotSchedule"))


def _in_domain(session: Session, node: Node, topology: str) -> list[Task]:
    places = [place for place in session.cluster.nodes.values() if _same_domain(node, place, topology)]
    return [other for place in places for other in place.pods()]


def _same_domain(left: Node, right: Node, topology: str) -> bool:
    return topology in left.labels and left.labels[topology] == right.labels.get(topology)


# -- topology spread --------------------------------------------------------------


class Constraint:
    """One spread constraint of a pod."""

    def __init__(self, task: Task, raw: dict[str, Any]) -> None:
        self.skew, self.topology = int(raw.get("maxSkew") or 1), raw.get("topologyKey") or ""
        keys = [key for key in raw.get("matchLabelKeys") or [] if key in task.labels]
        self.selector = lb.label_selector(raw.get("labelSelector")).plus([(k, "In", [task.labels[k]]) for k in keys])
        self.min_domains = int(raw.get("minDomains") or 1)
        self.honor_affinity = (raw.get("nodeAffinityPolicy") or "Honor") == "Honor"
        self.honor_taints = (raw.get("nodeTaintsPolicy") or "Ignore") == "Honor"

    def includes(self, task: Task, node: Node) -> bool:
        if self.honor_affinity and not required_node_affinity(task, node):
            return False
        tolerations = task.spec.get("tolerations") or []
        return not (self.honor_taints and lb.untolerated(node.spec.get("taints") or [], tolerations))

    def count(self, task: Task, node: Node) -> int:
        """Pods on the node that the constraint is about."""
        if self.selector.empty:
            return 0
        return sum(
            1
            for other in node.pods()
            if other.namespace == task.namespace
            and not meta(other.pod).get("deletionTimestamp")
            and self.selector.matches(other.labels)
        )


def constraints(task: Task, unsatisfiable: str) -> list[Constraint]:
    """The pod's own constraints of a kind: DoNotSchedule or ScheduleAnyway."""
    raw = task.spec.get("topologySpreadConstraints") or []
    return [Constraint(task, one) for one in raw if (one.get("whenUnsatisfiable") or "DoNotSchedule") == unsatisfiable]


def _parse_constraints(task: Task) -> None:
    try:
        constraints(task, "DoNotSchedule")
    except lb.SelectorError as error:
        raise PredicateFailure(f"plugin PodTopologySpread pre-predicates failed {error}") from error


def _spreads(session: Session, task: Task) -> bool:
    return bool(constraints(task, "DoNotSchedule"))


def topology_spread(session: Session, task: Task, node: Node) -> Reason | None:
    """No hard constraint's skew may grow beyond its limit."""
    hard = constraints(task, "DoNotSchedule")
    places = [p for p in session.cluster.nodes.values() if all(c.topology in p.labels for c in hard)]
    for constraint in hard:
        if constraint.topology not in node.labels:
            return UNRESOLVABLE, "node(s) didn't match pod topology spread constraints (missing required label)"
        counts = Counter[str]()
        for place in places:
            if constraint.includes(task, place):
                counts[place.labels[constraint.topology]] += constraint.count(task, place)
        least = min(counts.values(), default=2**31 - 1)
        if len(counts) < constraint.min_domains:
            least = 0
        own = int(constraint.selector.matches(task.labels))
        if counts[node.labels[constraint.topology]] + own - least > constraint.skew:
            return UNSCHEDULABLE, "node(s) didn't match pod topology spread constraints"
    return None


# -- proportional -------------------------------------------------------------------


def _proportional(arguments: Arguments) -> dict[str, tuple[float, float]]:
    """Per scarce resource, the cores and gigabytes that stay reserved for each unit of it."""
    if not arguments.boolean("predicate.ProportionalEnable", False):
        return {}
    found = {}
    for name in arguments.text("predicate.resources", "").split(","):
        name = name.strip()
        if name:
            key = f"predicate.resources.{name}"
            rates = [arguments.number(f"{key}.{dimension}", 1) for dimension in ("cpu", "memory")]
            found[name] = (rates[0] if rates[0] >= 0 else 1, rates[1] if rates[1] >= 0 else 1)
    return found


def _keeps_proportion(task: Task, node: Node, proportional: dict[str, tuple[float, float]]) -> bool:
    """A task that wants none of a scarce resource must leave its idle units their cores and gigabytes."""
    if any(task.request.get(name) > 0 for name in proportional):
        return True
    idle = node.idle
    for name, (cores, gigabytes) in sorted(proportional.items()):
        units = idle.get(name) / 1000
        if units <= 0:
            continue
        if idle.cpu - task.request.cpu < units * cores * 1000:
            return False
        if idle.get(MEMORY) - task.request.memory < units * gigabytes * 10**9:
            return False
    return True


def _affinity(pod: Manifest, kind: str) -> dict[str, Any]:
    return ((pod.get("spec") or {}).get("affinity") or {}).get(kind) or {}
