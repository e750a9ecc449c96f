"""The plugin rescheduling: running pods leave nodes that are really busy for nodes that are really idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.reference.config import Arguments
from tests.reference.evictions import TRUE, _preemptable
from tests.reference.jobs import duration
from tests.reference.model import Manifest, Node, Task, annotations_of, created, labels, quantities
from tests.reference.session import PredicateFailure, Session
from tests.reference.usage import FRESH, KIND, _nanoseconds
from tests.reference.values import CPU, MEMORY, Resource

SECOND = 10**9
RESOURCES = (CPU, MEMORY)
STRATEGY, OFFLINE = "lowNodeUtilization", "offlineOnly"
SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
PREEMPTABLE = "volcano.sh/preemptable"


def rescheduling(session: Session, arguments: Arguments) -> None:
    """Names, when a round is due, who is to leave the busy nodes."""
    strategies = arguments.values.get("strategies") or [{"name": STRATEGY}]
    stated = [one.get("params") or {} for one in strategies if one["name"] == STRATEGY]
    orders = [ORDERS[one["name"]] for one in strategies if one["name"] in ORDERS]
    offline = any(one["name"] == OFFLINE for one in strategies)

    def may_go(task: Task) -> bool:
        names = arguments.values.get("queueSelector") or [session.cluster.jobs[task.job].queue]
        wanted = arguments.values.get("labelSelector") or {}
        marks = annotations_of(task.pod).get(PREEMPTABLE, labels(task.pod).get(PREEMPTABLE))
        return (
            _preemptable(task)
            and (marks in TRUE or not offline)
            and session.cluster.jobs[task.job].queue in names
            and all(task.labels.get(key) == str(value) for key, value in wanted.items())
        )

    def victims(tasks: list[Task]) -> list[Task]:
        used = _used(session)
        if not stated or not used or not _is_due(session, arguments):
            return []
        return _choose(session, stated[-1], used, [task for task in tasks if may_go(task)], orders)

    session.register("victimTasks", "rescheduling", victims)


def _is_due(session: Session, arguments: Arguments) -> bool:
    """Whether this is in the first twentieth (1 s to 30 s) of an interval counted from the epoch."""
    interval = duration(arguments.values.get("interval", "5m")) or 0
    window = min(max(interval // 20, SECOND), 30 * SECOND)
    return _nanoseconds(session.now) % interval < window


# -- what nodes use -------------------------------------------------------------------


def _capacity(node: Node) -> Resource:
    status = node.manifest.get("status") or {}
    return Resource.of(quantities(status.get("capacity") or status.get("allocatable")))


def _used(session: Session) -> dict[str, dict[str, float]]:
    """By node, percent of cpu and of memory that the last sample shows, less what is leaving."""
    now = _nanoseconds(session.now)
    found: dict[str, dict[str, float]] = {}
    for sample in session.cluster.all(KIND):
        for name, one in sample["nodes"].items():
            fresh = now - sample["at"] <= FRESH and (not one.get("at") or now - one["at"] <= FRESH)
            node = session.cluster.nodes.get(name)
            if node is None or not fresh or not all(_capacity(node).get(part) for part in RESOURCES):
                continue
            gone = {part: 100 * node.releasing.get(part) / _capacity(node).get(part) for part in RESOURCES}
            found[name] = {part: one[part] - gone[part] for part in RESOURCES}
    return found


def _choose(
    session: Session,
    params: dict[str, Any],
    used: dict[str, dict[str, float]],
    tasks: list[Task],
    orders: list[Callable[[Session, Task], Any]],
) -> list[Task]:
    """From the busiest node down, on each the least important first, until it is not busy or the idle ones would be."""
    least, most = (_percentages(params, key) for key in ("thresholds", "targetThresholds"))
    nodes = session.cluster.nodes
    low = [
        nodes[name]
        for name, parts in sorted(used.items())
        if not nodes[name].spec.get("unschedulable") and all(parts[part] < least[part] for part in RESOURCES)
    ]
    high = [
        name
        for name, parts in sorted(used.items())
        if nodes[name] not in low and any(parts[part] > most[part] for part in RESOURCES)
    ]
    left = {part: sum(_room(node, part, used[node.name], most) for node in low) for part in RESOURCES}
    keeps = _Keeps(session, params, low)
    chosen: list[Task] = []
    for name in sorted(high, key=lambda name: (-used[name][CPU] - used[name][MEMORY], name)) if low else []:
        here = [task for task in tasks if task.node == name]
        for task in sorted(here, key=lambda task: (*[key(session, task) for key in orders], *_importance(task))):
            is_busy = any(used[name][part] >= most[part] for part in RESOURCES)
            if not is_busy or any(left[part] <= 0 for part in RESOURCES):
                break
            if keeps.keeps(task):
                continue
            keeps.let_go(task)
            chosen.append(task)
            for part in RESOURCES:
                left[part] -= task.request.get(part)
                used[name][part] -= 100 * task.request.get(part) / _capacity(nodes[name]).get(part)
    return chosen


def _percentages(params: dict[str, Any], key: str) -> dict[str, float]:
    stated = params.get(key) or {}
    return {part: float(stated.get(part, 100)) for part in RESOURCES}


def _room(node: Node, part: str, used: dict[str, float], most: dict[str, float]) -> int:
    """What an idle node may take until it reaches the target."""
    whole = float(node.allocatable.get(part))
    return int(most[part] * whole * 0.01) - int(used[part] * whole * 0.01)


class _Keeps:
    """Who stays although his node is busy."""

    def __init__(self, session: Session, params: dict[str, Any], low: list[Node]) -> None:
        self._session, self._low = session, low
        self._fits_somewhere = params.get("nodeFit", True)
        name = params.get("thresholdPriorityClassName", "system-cluster-critical")
        found = session.cluster.find("PriorityClass", name)
        self._bound = found["value"] if found is not None else SYSTEM.get(name)
        self._gone: dict[str, int] = {}
        self._given: dict[str, Resource] = {}

    def keeps(self, task: Task) -> bool:
        job = self._session.cluster.jobs[task.job]
        if job.ready_count - self._gone.get(job.key, 0) <= job.min_available:
            return True
        if self._bound is not None and (task.spec.get("priority") or 0) >= self._bound:
            return True
        return bool(self._fits_somewhere) and not self._finds_place(task)

    def _finds_place(self, task: Task) -> bool:
        """Whether an idle node takes it beside those that go already; then that room is given to it."""
        try:
            self._session.pre_predicate(task)
        except PredicateFailure:
            return False
        for node in self._session.feasible(task, self._low)[0]:
            given = self._given.setdefault(node.name, Resource())
            if task.request.fits(node.future_idle.clone().sub(given)):
                given.add(task.request)
                return True
        return False

    def let_go(self, task: Task) -> None:
        self._gone[task.job] = self._gone.get(task.job, 0) + 1


# -- in which order -------------------------------------------------------------------


def _importance(task: Task) -> tuple[Any, ...]:
    """The least important first: by priority, without one first; then by quality of service; then by name."""
    return *_priority(task), ("BestEffort", "Burstable", "Guaranteed").index(_service(task.pod)), task.key


def _priority(task: Task) -> tuple[bool, int]:
    priority = task.spec.get("priority")
    return priority is not None, priority or 0


def _service(pod: Manifest) -> str:
    """A pod's quality of service, as Kubernetes has it: of cpu and memory alone."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    parts = [spec["resources"]] if spec.get("resources") else [one.get("resources") or {} for one in containers]
    asked = [{n: v for n, v in quantities(one.get("requests")).items() if n in RESOURCES and v > 0} for one in parts]
    limits = [{n: v for n, v in quantities(one.get("limits")).items() if n in RESOURCES and v > 0} for one in parts]
    if not any(asked) and not any(limits):
        return "BestEffort"
    same = all(len(limit) == 2 and {**limit, **ask} == limit for ask, limit in zip(asked, limits, strict=True))
    return "Guaranteed" if same else "Burstable"


def _largest_part(session: Session, task: Task) -> float:
    """The largest part of its node that a task asks for of anything; the larger the smaller."""
    has = session.cluster.nodes[task.node].allocatable
    names = {*task.request.names(), CPU, MEMORY}
    return -max((task.request.get(name) / has.get(name) for name in sorted(names) if has.get(name)), default=0.0)


ORDERS: dict[str, Callable[[Session, Task], Any]] = {
    "lowPriorityFirst": lambda session, task: _priority(task),
    "shortLifeTimeFirst": lambda session, task: -created(task.pod).timestamp(),
    "bigObjectFirst": _largest_part,
    "moreReplicasFirst": lambda session, task: -len(session.cluster.jobs[task.job].tasks),
}
