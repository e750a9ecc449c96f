"""The plugin usage: fewer pods for nodes that are busy, by samples of what they really use.

The samples come as one more object, of kind ``UsageSample``: ``at`` and ``nodes`` as vcd records them.
"""

from __future__ import annotations

import datetime
from typing import Any

from tests.reference.config import Arguments
from tests.reference.model import Node, Task, quantities
from tests.reference.session import Session
from tests.reference.values import CPU, MEMORY, Resource, quantity

KIND = "UsageSample"
FRESH = 5 * 60 * 10**9
INTERVAL = datetime.timedelta(seconds=30)
DEFAULTS = {"request_ratio": 0.7, "burst_ratio": 0.0, "risk_threshold": 0.6, "risk_factor": 1.2}


def _nanoseconds(time: datetime.datetime) -> int:
    since = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86400 + since.seconds) * 10**9


def usage(session: Session, arguments: Arguments) -> None:
    """Busy nodes take no pods; of the others the idlest is the best."""
    now = _nanoseconds(session.now)
    known: dict[str, dict[str, Any]] = {}
    for sample in session.cluster.all(KIND):
        if now - sample["at"] <= FRESH:
            known = {n: one for n, one in sample["nodes"].items() if not one.get("at") or now - one["at"] <= FRESH}

    def at_least_zero(key: str, default: int) -> int:
        value = arguments.integer(key, default)
        return value if value >= 0 else default

    weight = at_least_zero("usage.weight", 5)
    weights = {CPU: at_least_zero("cpu.weight", 1), MEMORY: at_least_zero("memory.weight", 1)}
    both = sum(weights.values())
    limits = arguments.values.get("thresholds") or {}
    most = {CPU: limits.get("cpu", 80), MEMORY: limits.get("mem", 80)}
    rates = {**DEFAULTS, **(arguments.values.get("estimator") or {})}
    nothing = Resource.of({CPU: quantity(rates.get("be_cpu", "250m")), MEMORY: quantity(rates.get("be_mem", "200Mi"))})
    added: dict[str, tuple[str, dict[str, float]]] = {}

    def part(node: Node, name: str) -> float:
        """The part of a node's cpu or memory that is used, or is estimated to be soon."""
        listed = Resource.of(quantities((node.manifest.get("status") or {}).get("capacity"))).get(name)
        if listed <= 0:
            return 0.0
        shown = known.get(node.name, {}).get(name, 0.0) / 100.0 * listed
        soon = sum(amounts[name] for where, amounts in added.values() if where == node.name)
        return min(max((shown + soon) / listed, 0.0), 1.0)

    def add(task: Task, node: Node) -> None:
        load = sum(part(node, name) * weights[name] for name in weights) / both if both else 0.0
        risk = rates["risk_factor"] if load >= rates["risk_threshold"] else 1.0
        amounts = {}
        for name in weights:
            if task.best_effort:
                amounts[name] = nothing.get(name) * risk
                continue
            asks, limit = task.request.get(name), max(_limit(task, name), task.request.get(name))
            estimate = (asks * rates["request_ratio"] + (limit - asks) * rates["burst_ratio"]) * risk
            amounts[name] = min(max(estimate, 0.0), limit)
        added[task.key] = (node.name, amounts)

    for node in session.cluster.nodes.values():
        for _, (task, _) in sorted(node.tasks.items()):
            if task.status == "Bound" or (task.status == "Running" and _is_new(task, session.now)):
                add(task, node)

    def predicate(task: Task, node: Node) -> list[str]:
        return [f"{n} load above the limit" for n in most if known.get(node.name, {}).get(n, 0.0) > most[n]][:1]

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        found = {}
        for node in nodes:
            idle = sum((1.0 - part(node, name)) * weights[name] for name in weights)
            found[node.name] = idle / both * 100.0 * weight if both and node.name in known else 0.0
        return found

    session.handlers.append(
        (lambda task: add(task, session.cluster.nodes[task.node]), lambda task: added.pop(task.key, None) and None)
    )
    session.register("predicate", "usage", predicate)
    session.register("nodeOrder", "usage", score)


def _limit(task: Task, name: str) -> float:
    containers = task.spec.get("containers") or []
    return sum(Resource.of(quantities((one.get("resources") or {}).get("limits"))).get(name) for one in containers)


def _is_new(task: Task, now: datetime.datetime) -> bool:
    """Whether a running pod began after what samples show, or does not say when."""
    start = (task.pod.get("status") or {}).get("startTime")
    return start is None or datetime.datetime.fromisoformat(start.replace("Z", "+00:00")) > now - INTERVAL
