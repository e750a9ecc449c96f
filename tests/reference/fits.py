"""Plugins of nodes beyond the default ones: nodegroup, resource-strategy-fit."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from tests.reference.config import Arguments
from tests.reference.model import ALLOCATED, Node, Queue, Task, annotations_of, quantities, total
from tests.reference.session import PredicateFailure, Session
from tests.reference.values import CPU, MEMORY, Resource, quantity

_LABEL = "volcano.sh/nodegroup-name"
_LIMITS = "volcano.sh/nodegroup-resource-limits"
_HARD, _SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


class _Rules:
    """Which node groups a queue names, and how."""

    def __init__(self, affinity: dict[str, Any]) -> None:
        near, far = (affinity.get(f"nodeGroup{kind}") or {} for kind in ("Affinity", "AntiAffinity"))
        self.required, self.preferred = list(near.get(_HARD) or []), list(near.get(_SOFT) or [])
        self.banned, self.avoided = list(far.get(_HARD) or []), list(far.get(_SOFT) or [])

    def any(self) -> bool:
        return bool(self.required or self.preferred or self.banned or self.avoided)

    def admit(self, group: str) -> bool:
        if group in self.avoided:
            return True
        return group not in self.banned and (group in self.preferred or group in self.required)

    def points(self, group: str, by_order: bool) -> float:
        if group in self.avoided:
            return -1.0
        points = 100.0 if group in self.required else 0.0
        if group in self.preferred:
            distinct = len(set(self.preferred))
            place = max(i for i, name in enumerate(self.preferred) if name == group)
            points += 50.0 * (distinct - place) / distinct if by_order else 50.0
        return points


def nodegroup(session: Session, arguments: Arguments) -> None:
    """Queues use the node groups that their affinity names, within the limits that their annotation states."""
    strict, by_order = arguments.boolean("strict", True), arguments.boolean("enablePreferredOrder", False)
    queues = session.cluster.queues
    inherits = session.option("nodegroup").hierarchy

    def rules_of(queue: Queue) -> _Rules:
        seen = []
        above: Queue | None = queue
        while above is not None and above not in seen:
            seen.append(above)
            affinity = (above.manifest.get("spec") or {}).get("affinity")
            if affinity is not None:
                return _Rules(affinity)
            if not inherits or above.name == "root":
                break
            above = queues.get((above.manifest.get("spec") or {}).get("parent") or "root")
        return _Rules({})

    rules = {name: rules_of(queue) for name, queue in queues.items()}
    limits = {name: _limits(queue) for name, queue in queues.items()}

    def queue_of(task: Task) -> str:
        return session.cluster.jobs[task.job].queue

    def pre_predicate(task: Task) -> None:
        if limits[queue_of(task)] is None:
            raise PredicateFailure("node group resource limit annotation invalid")
        if strict and not rules[queue_of(task)].any():
            raise PredicateFailure("node group affinity not specified")

    def affinity(task: Task, node: Node) -> list[str]:
        own, group = rules[queue_of(task)], node.labels.get(_LABEL)
        if group is None:
            return [] if not own.any() and not strict else ["node group label not found"]
        if not own.any():
            return ["node group affinity not specified"]
        return [] if own.admit(group) else ["node does not satisfy the node group affinity"]

    def predicate(task: Task, node: Node) -> list[str]:
        group = node.labels.get(_LABEL)
        if (found := affinity(task, node)) or group is None:
            return found
        limit = (limits[queue_of(task)] or {}).get(group)
        if limit is None:
            return []
        jobs = [job for job in session.cluster.jobs.values() if job.queue == queue_of(task)]
        held = total(
            other.request
            for job in jobs
            for other in job.having(*ALLOCATED, "Pipelined")
            if other.node in session.cluster.nodes and session.cluster.nodes[other.node].labels.get(_LABEL) == group
        )
        held.add(task.request)
        over = any(held.get(name) > Resource.of({name: most}).get(name) for name, most in limit.items())
        return ["node group resource limit exceeded"] if over else []

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        own = rules[queue_of(task)]
        return {node.name: own.points(node.labels[_LABEL], by_order) for node in nodes if _LABEL in node.labels}

    session.register("prePredicate", "nodegroup", pre_predicate)
    session.register("predicate", "nodegroup", predicate)
    session.register("unresolvable", "nodegroup", lambda task, node: bool(predicate(task, node)))
    session.register("takes", "nodegroup", lambda task, node: not affinity(task, node))
    session.register("nodeOrder", "nodegroup", score)


def _limits(queue: Queue) -> dict[str, dict[str, Fraction]] | None:
    """What a queue may hold of each node group; None where the annotation cannot be read."""
    text = annotations_of(queue.manifest).get(_LIMITS)
    if not text:
        return {}
    try:
        return {group: quantities(amounts) for group, amounts in json.loads(text).items()}
    except (ValueError, AttributeError):
        return None


# -- resource-strategy-fit --------------------------------------------------------

_TYPE, _WEIGHTS = "volcano.sh/resource-strategy-scoring-type", "volcano.sh/resource-strategy-weight"
_MOST, _LEAST = "MostAllocated", "LeastAllocated"


def resource_strategy_fit(session: Session, arguments: Arguments) -> None:
    """Packs by some resources and spreads by others; keeps pods away from what they do not need."""
    weight = arguments.integer("resourceStrategyFitWeight", 10)
    weight = 10 if weight < 0 else weight
    given = arguments.values.get("resources") or {CPU: {}, MEMORY: {}}
    strategies = {
        name: (_MOST if (value or {}).get("type") == _MOST else _LEAST, max(1, int((value or {}).get("weight", 1))))
        for name, value in given.items()
        if "*" not in name or (len(name) > 1 and name.index("*") == len(name) - 1)
    }
    sra, kept = arguments.values.get("sra") or {}, arguments.values.get("proportional") or {}

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        own = _own_strategies(task)
        found = {}
        for node in nodes:
            parts = [_fit(task, node, strategies if own is None else own) * weight] if weight else []
            if sra.get("enable") and int(sra.get("weight", 1)) > 0:
                parts.append(_scarcity(task, node, sra))
            found[node.name] = sum(round(part * 10**6) for part in parts) / 10**6
        return found

    def predicate(task: Task, node: Node) -> list[str]:
        names = [name.strip() for name in str(kept.get("resources") or "").split(",") if name.strip()]
        names = [name for name in names if name not in (CPU, MEMORY)]
        if any(task.request.get(name) > 0 for name in names):
            return []
        left = node.idle.sub(task.request)
        for name in sorted(names):
            units = Fraction(node.idle.get(name)) / 1000
            cores, gigabytes = (_rate(kept, f"{name}.{of}") for of in (CPU, MEMORY))
            if units > 0 and (left.cpu < units * cores * 1000 or left.memory < units * gigabytes * 10**9):
                return [f"proportional of resource {name} check failed"]
        return []

    session.register("nodeOrder", "resource-strategy-fit", score)
    if kept.get("enable"):
        session.register("predicate", "resource-strategy-fit", predicate)


def _own_strategies(task: Task) -> dict[str, tuple[str, int]] | None:
    """What the pod's own annotations say; None where it names no type, nothing where it cannot be read."""
    marks = annotations_of(task.pod)
    if not marks.get(_TYPE):
        return None
    try:
        weights = json.loads(marks.get(_WEIGHTS) or "")
    except ValueError:
        return {}
    return {name: (marks[_TYPE], value) for name, value in weights.items()} if marks[_TYPE] in (_MOST, _LEAST) else {}


def _fit(task: Task, node: Node, strategies: dict[str, tuple[str, int]]) -> float:
    score, weights = 0.0, 0
    for name in task.request.names():
        patterns = [p for p in strategies if p.endswith("*") and name.startswith(p[:-1])]
        chosen = name if name in strategies else max(patterns, key=len, default=None)
        if chosen is None:
            continue
        kind, weight = strategies[chosen]
        weights += weight
        capacity, used = node.allocatable.get(name), task.request.get(name) + node.used.get(name)
        if capacity == 0 or weight == 0:
            continue
        if used > capacity:
            return 0.0
        score += (used if kind == _MOST else capacity - used) * weight / capacity
    return (score / weights if weights > 0 else score) * 100


def _scarcity(task: Task, node: Node, sra: dict[str, Any]) -> float:
    names = [name.strip() for name in str(sra.get("resources") or "").split(",") if name.strip()]
    weights = {name: int((sra.get("resourceWeight") or {}).get(name, 1)) for name in names}
    weights = {name: 1 if value < 0 else value for name, value in weights.items()}
    everything = sum(weights.values())
    if not everything or any(node.allocatable.get(name) == 0 for name in task.request.names()):
        return 0.0
    present = sum(float(value) for name, value in weights.items() if node.allocatable.get(name) > 0)
    return (1.0 - present / everything) * (100.0 * int(sra.get("weight", 1)))


def _rate(kept: dict[str, Any], key: str) -> Fraction:
    value = quantity((kept.get("resourceProportion") or {}).get(key, 1))
    return Fraction(1) if value < 0 else value
