"""The plugins nodeorder and binpack: how good a node is for a task, by kube-scheduler 1.36's formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tests.reference import labels as lb
from tests.reference.config import Arguments
from tests.reference.model import Node, Task, pod_requests
from tests.reference.predicates import Constraint, Term, constraints, terms
from tests.reference.session import Session
from tests.reference.values import CPU, MEMORY, milli, whole

Scores = dict[str, int]
Scorer = Callable[[Session, Task, list[Node]], Scores]

GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
DEFAULTS = {CPU: Fraction(1, 10), MEMORY: Fraction(200 * 1024 * 1024)}
IMAGE_LEAST, IMAGE_MOST = 23 * 1024 * 1024, 1000 * 1024 * 1024


def nodeorder(session: Session, arguments: Arguments) -> None:
    """The weighted sum of kube-scheduler's scores, each from 0 to 100."""
    parts: list[tuple[str, int, Scorer]] = [
        ("leastrequested.weight", 1, least_requested),
        ("mostrequested.weight", 0, most_requested),
        ("balancedresource.weight", 1, balanced),
        ("nodeaffinity.weight", 2, node_affinity),
        ("imagelocality.weight", 1, image_locality),
        ("podaffinity.weight", 2, pod_affinity),
        ("tainttoleration.weight", 3, taints),
        ("podtopologyspread.weight", 2, topology_spread),
    ]
    weighted = [(arguments.integer(key, default), scorer) for key, default, scorer in parts]

    def score(task: Task, nodes: list[Node]) -> Scores:
        totals = {node.name: 0 for node in nodes}
        for weight, scorer in weighted:
            if weight:
                for name, value in scorer(session, task, nodes).items():
                    totals[name] += weight * value
        return totals

    session.register("nodeOrder", "nodeorder", score)


def binpack(session: Session, arguments: Arguments) -> None:
    """Fuller nodes first, by the weights of resources."""
    weight = arguments.integer("binpack.weight", 1)
    weights = {}
    for name in arguments.text("binpack.resources", "").split(","):
        name = name.strip()
        if name:
            given = arguments.integer(f"binpack.resources.{name}", 1)
            weights[name] = given if given >= 0 else 1
    for name in (CPU, MEMORY):
        given = arguments.integer(f"binpack.{name}", 1)
        weights[name] = given if given >= 0 else 1

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        return {node.name: _packed(task, node, weights) * (100 * weight) for node in nodes}

    if weight:
        session.register("nodeOrder", "binpack", score)


def _packed(task: Task, node: Node, weights: dict[str, int]) -> float:
    """How full the node would be, from 0 to 1; 0 when a weighed resource would not fit."""
    score, weight_sum = 0.0, 0
    for name in task.request.names():
        if name not in weights:
            continue
        capacity, used = node.allocatable.get(name), task.request.get(name) + node.used.get(name)
        if capacity != 0 and weights[name] != 0:
            if used > capacity:
                return 0.0
            score += used * weights[name] / capacity
        weight_sum += weights[name]
    return score / weight_sum if weight_sum > 0 else score


# -- resources --------------------------------------------------------------------


def _in_units(name: str, amount: Fraction) -> int:
    return milli(amount) if name == CPU else whole(amount)


def _requested(node: Node, name: str, at_least: bool) -> int:
    """What the pods on a node ask for; with at_least, each container asks for a little cpu and memory.

    Without it those count too that this session evicted: they hold it until they are gone.
    """
    pods = node.pods() if at_least else [task for _, (task, _) in sorted(node.tasks.items())]
    return sum(_placed(task, name, at_least) for task in pods)


def _placed(task: Task, name: str, at_least: bool) -> int:
    missing = DEFAULTS if at_least else None
    if at_least and _has_pod_level(task):
        own = pod_requests(task.pod, use_status=True)
        missing = {n: v for n, v in DEFAULTS.items() if n not in own}
    return _in_units(name, pod_requests(task.pod, True, missing).get(name, Fraction(0)))


def _asked(task: Task, name: str, at_least: bool) -> int:
    """What the task to place asks for; where containers ask for at least a little, the pod's own level is ignored."""
    requests = pod_requests(task.pod, False, DEFAULTS if at_least else None, pod_level=not at_least)
    return _in_units(name, requests.get(name, Fraction(0)))


def _has_pod_level(task: Task) -> bool:
    names = (task.spec.get("resources") or {}).get("requests") or {}
    return any(name in (CPU, MEMORY) or name.startswith("hugepages-") for name in names)


def _allocatable(node: Node, name: str) -> int:
    return _in_units(name, node.listed.get(name, Fraction(0)))


def least_requested(session: Session, task: Task, nodes: list[Node]) -> Scores:
    def score(requested: int, capacity: int) -> int:
        return 0 if requested > capacity else (capacity - requested) * 100 // capacity

    return {node.name: _mean(task, node, 50, score) for node in nodes}


def most_requested(session: Session, task: Task, nodes: list[Node]) -> Scores:
    def score(requested: int, capacity: int) -> int:
        return min(requested, capacity) * 100 // capacity

    return {node.name: _mean(task, node, 1, score) for node in nodes}


def _mean(task: Task, node: Node, weight: int, score: Callable[[int, int], int]) -> int:
    """The mean over cpu and memory, rounded down; a resource that the node lacks is left out."""
    totals, weights = 0, 0
    for name in (CPU, MEMORY):
        capacity = _allocatable(node, name)
        if capacity:
            asked = _asked(task, name, at_least=True) + _requested(node, name, at_least=True)
            totals += score(asked, capacity) * weight
            weights += weight
    return totals // weights if weights else 0


def balanced(session: Session, task: Task, nodes: list[Node]) -> Scores:
    """How much the task evens out the use of cpu, memory and GPUs; a task that asks for none is not scored."""
    wanted = {name: _asked(task, name, at_least=False) for name in (CPU, MEMORY, GPU)}
    if not any(wanted.values()):
        return {}
    scores = {}
    for node in nodes:
        names = [n for n in wanted if _allocatable(node, n) and (n != GPU or wanted[n])]
        has = {name: _requested(node, name, at_least=False) for name in names}
        after = _evenness([(has[n] + wanted[n]) / _allocatable(node, n) for n in names])
        before = _evenness([has[n] / _allocatable(node, n) for n in names])
        scores[node.name] = 50 + int((50 + after - before) / 2)
    return scores


def _evenness(fractions: list[float]) -> int:
    fractions = [min(fraction, 1.0) for fraction in fractions]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean_sum = 0.0
        for fraction in fractions:
            mean_sum += fraction
        mean, squares = mean_sum / len(fractions), 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * 100.0)


# -- labels, taints, images ---------------------------------------------------------


def node_affinity(session: Session, task: Task, nodes: list[Node]) -> Scores:
    affinity = (task.spec.get("affinity") or {}).get("nodeAffinity") or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    raw = {
        node.name: sum(
            int(term.get("weight") or 0)
            for term in preferred
            if lb.node_term_matches(term.get("preference") or {}, node.name, node.labels)
        )
        for node in nodes
    }
    return _normalized(raw)


def taints(session: Session, task: Task, nodes: list[Node]) -> Scores:
    tolerations = [
        t for t in task.spec.get("tolerations") or [] if (t.get("effect") or "PreferNoSchedule") == "PreferNoSchedule"
    ]
    raw = {
        node.name: sum(
            taint.get("effect") == "PreferNoSchedule" and not lb.tolerates(tolerations, taint)
            for taint in node.spec.get("taints") or []
        )
        for node in nodes
    }
    return {name: 100 - value for name, value in _normalized(raw).items()}


def _normalized(raw: Scores) -> Scores:
    most = max(raw.values(), default=0)
    return {name: 100 * value // most if most else 0 for name, value in raw.items()}


def image_locality(session: Session, task: Task, nodes: list[Node]) -> Scores:
    everywhere = session.cluster.nodes.values()
    images = {node.name: _images(node) for node in everywhere}
    containers = (task.spec.get("initContainers") or []) + (task.spec.get("containers") or [])
    wanted = [container.get("image") or "" for container in containers]
    mounted = [v["image"].get("reference") or "" for v in task.spec.get("volumes") or [] if v.get("image")]
    most = IMAGE_MOST * len(containers)
    scores = {}
    for node in nodes:
        size = 0
        for name in map(_tagged, wanted + mounted):
            if name in images[node.name]:
                spread = sum(name in held for held in images.values()) / len(images)
                size += int(images[node.name][name] * spread)
        size = min(max(size, IMAGE_LEAST), max(most, IMAGE_LEAST))
        scores[node.name] = 100 * (size - IMAGE_LEAST) // (most - IMAGE_LEAST) if containers else 0
    return scores


def _images(node: Node) -> dict[str, int]:
    held = (node.manifest.get("status") or {}).get("images") or []
    return {name: int(image.get("sizeBytes") or 0) for image in held for name in image.get("names") or []}


def _tagged(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else name + ":latest"


# -- other pods -----------------------------------------------------------------------


def pod_affinity(session: Session, task: Task, nodes: list[Node]) -> Scores:
    """Preferences of the task for others, and of others for it, by topology domain."""
    weights: dict[tuple[str, str], int] = {}

    def count(term: Term, subject: Task, place: Node, sign: int) -> None:
        if term.topology in place.labels and term.matches(session, subject):
            domain = (term.topology, place.labels[term.topology])
            weights[domain] = weights.get(domain, 0) + sign * term.weight

    own = [(term, sign) for kind, sign in _KINDS for term in terms(task, kind, hard=False)]
    for place in session.cluster.nodes.values():
        for other in place.pods():
            for term, sign in own:
                count(term, other, place, sign)
            for kind, sign in _KINDS:
                for term in terms(other, kind, hard=False):
                    count(term, task, place, sign)
    if not weights:
        return {}
    raw = {n.name: sum(w for (key, value), w in weights.items() if n.labels.get(key) == value) for n in nodes}
    least, most = min(raw.values()), max(raw.values())
    spread = most - least
    return {name: int(100.0 * ((value - least) / spread)) if spread else 0 for name, value in raw.items()}


_KINDS = (("podAffinity", 1), ("podAntiAffinity", -1))


def topology_spread(session: Session, task: Task, nodes: list[Node]) -> Scores:
    """Fewer matching pods in the node's domains is better."""
    soft = constraints(task, "ScheduleAnyway")
    if not soft:
        return {}
    scored = [node for node in nodes if all(c.topology in node.labels for c in soft)]
    raw = {node.name: 0.0 for node in scored}
    for constraint in soft:
        counts, domains = _domain_counts(session, task, constraint, soft, scored)
        factor = math.log(domains + 2)
        for node in scored:
            raw[node.name] += counts[node.name] * factor + (constraint.skew - 1)
    rounded = {name: math.floor(value + 0.5) for name, value in raw.items()}
    least, most = min(rounded.values(), default=0), max(rounded.values(), default=0)
    scores = {name: 100 if most == 0 else 100 * (most + least - value) // most for name, value in rounded.items()}
    return {node.name: scores.get(node.name, 0) for node in nodes}


def _domain_counts(
    session: Session, task: Task, constraint: Constraint, soft: list[Constraint], scored: list[Node]
) -> tuple[dict[str, int], int]:
    """Per scored node the matching pods of its domain, and how many domains the scored nodes have."""
    if constraint.topology == HOSTNAME:
        return {node.name: constraint.count(task, node) for node in scored}, len(scored)
    found = {node.labels[constraint.topology]: 0 for node in scored}
    for place in session.cluster.nodes.values():
        if any(c.topology not in place.labels for c in soft) or not constraint.includes(task, place):
            continue
        if place.labels[constraint.topology] in found:
            found[place.labels[constraint.topology]] += constraint.count(task, place)
    return {node.name: found[node.labels[constraint.topology]] for node in scored}, len(found)
