"""lowNodeUtilization: choose running pods to move from busy to idle nodes, by measured usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from vcd.model.objects import Node, PodSpec, PriorityClass, Quantities
from vcd.model.qos import is_guaranteed
from vcd.model.quantity import QuantityError, parse_milli, resource_value
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.usage_samples import NodeUsage
from vcd.scheduling.session.nodes import Ints, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

RESOURCES = (CPU, MEMORY)
LOW_NODE_UTILIZATION = "lowNodeUtilization"
SYSTEM_CLUSTER_CRITICAL = "system-cluster-critical"
_SYSTEM = {SYSTEM_CLUSTER_CRITICAL: 2_000_000_000, "system-node-critical": 2_000_001_000}
_UNLIMITED = 2**63

Order = Callable[[Session, Task], Any]


def _largest_part(session: Session, task: Task) -> float:
    """Return the largest fraction of its node that a task requests, negated to sort larger ones first."""
    size = session.nodes.usage.allocatable[:, task.node].tolist()
    return -max((requested / has for requested, has in zip(task.amounts, size, strict=True) if has), default=0.0)


ORDERS: dict[str, Order] = {
    "lowPriorityFirst": lambda session, task: (task.shape.spec.priority is not None, task.shape.spec.priority or 0),
    "shortLifeTimeFirst": lambda session, task: -task.created,
    "bigObjectFirst": _largest_part,
    "moreReplicasFirst": lambda session, task: -task.job.task_count,
}
"""Strategies that order victims; the smallest key first."""
OFFLINE_ONLY = "offlineOnly"
STRATEGIES = (LOW_NODE_UTILIZATION, OFFLINE_ONLY, *ORDERS)


_NOT_MEASURED = "pods are not measured"
_PERCENTAGES = (
    *(Argument(name, "float", 100.0, f"Percent of {name}.", minimum=0, maximum=100) for name in RESOURCES),
    *(
        Argument(name, "float", 100.0, "Percent of pods.", minimum=0, maximum=100, without_effect=_NOT_MEASURED)
        for name in ("pod", "pods")
    ),
)
PARAMS = (
    Argument("thresholds", "mapping", {}, "A node below all of these is idle.", fields=_PERCENTAGES),
    Argument("targetThresholds", "mapping", {}, "A node above one of these is busy.", fields=_PERCENTAGES),
    Argument("thresholdPriorityClassName", "str", SYSTEM_CLUSTER_CRITICAL, "Pods of this priority or more are exempt."),
    Argument("nodeFit", "bool", True, "Whether only pods that fit on an idle node are evicted."),
    Argument(
        "numberOfNodes",
        "int",
        0,
        "The minimum number of idle nodes.",
        without_effect="Volcano does not use it either",
    ),
)


class LowNodeUtilization(msgspec.Struct, frozen=True):
    """Parameters of the strategy: percent below which a node is idle, and above which it is busy, by resource."""

    low: Mapping[str, float]
    high: Mapping[str, float]
    priority_class: str = SYSTEM_CLUSTER_CRITICAL
    node_fit: bool = True

    @classmethod
    def of(cls, params: ArgumentValues) -> LowNodeUtilization:
        """Build the parameters from the configuration."""
        low, high = ({name: params[key][name] for name in RESOURCES} for key in ("thresholds", "targetThresholds"))
        return cls(low, high, params["thresholdPriorityClassName"], params["nodeFit"])


class Rebalance:
    """One choice of victims, from samples of usage (percent of capacity, by node)."""

    def __init__(self, session: Session, params: LowNodeUtilization, samples: Mapping[str, NodeUsage]) -> None:
        self._session = session
        self._params = params
        self._columns = [session.nodes.column_of[name] for name in RESOURCES]
        self._capacity: dict[int, tuple[int, ...]] = {}
        self._used: dict[int, list[float]] = {}
        releasing = session.nodes.usage.releasing
        for row, name in enumerate(session.nodes.facts.names):
            sample = samples.get(name)
            capacity = _capacity(session.nodes.facts.nodes[row])
            if sample is None or not all(capacity):
                continue
            self._capacity[row] = capacity
            freed = [int(releasing[column, row]) for column in self._columns]
            parts = zip((sample.cpu, sample.memory), freed, capacity, strict=True)
            self._used[row] = [percent - 100 * released / has for percent, released, has in parts]
        self.low = [row for row in self._used if self._is_low(row)]
        self.high = [row for row in self._used if self._is_high(row)]
        self._free_on_low: Ints = session.nodes.usage.future_idle[:, self.low]
        """What idle nodes have left in addition to earlier victims, by resource and position in ``low``."""

    def _is_low(self, row: int) -> bool:
        """Return whether a node is schedulable, and idle in every resource."""
        if self._session.nodes.facts.nodes[row].spec.unschedulable:
            return False
        return all(used < self._params.low[name] for name, used in zip(RESOURCES, self._used[row], strict=True))

    def _is_high(self, row: int) -> bool:
        """Return whether a node is busy in some resource, and not idle."""
        over = any(used > self._params.high[name] for name, used in zip(RESOURCES, self._used[row], strict=True))
        return over and row not in self.low

    def victims(self, tasks: Sequence[Task], orders: Sequence[Order]) -> list[Task]:
        """Return the running tasks to evict, from the busiest node down, the least important first.

        This continues until each node is below its target or the idle nodes would reach theirs.
        """
        if not self.low or not self.high:
            return []
        on_node: dict[int, list[Task]] = {}
        for task in tasks:
            on_node.setdefault(task.node, []).append(task)
        left = self._capacity_of_low()
        bound = self._priority_bound()
        spare: dict[int, int] = {}
        chosen: list[Task] = []
        names = self._session.nodes.facts.names
        for row in sorted(self.high, key=lambda row: (-sum(self._used[row]), names[row])):
            for task in sorted(
                on_node.get(row, []),
                key=lambda task: (*[key(self._session, task) for key in orders], *_importance(task)),
            ):
                if not self._is_over(row) or min(left) <= 0:
                    break
                job = task.job
                above = spare.setdefault(job.index, job.ready_count - job.min_available)
                if above <= 0 or (task.shape.spec.priority or 0) >= bound or not self._fits_on_low(task):
                    continue
                spare[job.index] = above - 1
                self._take(row, task, left)
                chosen.append(task)
        return chosen

    def _capacity_of_low(self) -> list[int]:
        """Return what idle nodes can take until they reach their targets, cpu in milli and memory in bytes."""
        allocatable, total = self._session.nodes.usage.allocatable, [0, 0]
        for row in self.low:
            for part, name in enumerate(RESOURCES):
                size = float(allocatable[self._columns[part], row])
                total[part] += int(self._params.high[name] * size * 0.01) - int(self._used[row][part] * size * 0.01)
        return total

    def _is_over(self, row: int) -> bool:
        return any(used >= self._params.high[name] for name, used in zip(RESOURCES, self._used[row], strict=True))

    def _take(self, row: int, task: Task, left: list[int]) -> None:
        """Count a victim as moved."""
        for part, column in enumerate(self._columns):
            amount = task.amounts[column]
            left[part] -= amount
            self._used[row][part] -= 100 * amount / self._capacity[row][part]

    def _priority_bound(self) -> int:
        """Return the priority from which pods are not evicted."""
        name = self._params.priority_class
        found = self._session.snapshot.others.get("PriorityClass", {}).get(name)
        return found.value if isinstance(found, PriorityClass) else _SYSTEM.get(name, _UNLIMITED)

    def _fits_on_low(self, task: Task) -> bool:
        """Return whether an idle node takes a task in addition to earlier victims; reserve its resources there."""
        if not self._params.node_fit:
            return True
        if framework_of(self._session).pre_predicate(task) is not None:
            return False
        passing = framework_of(self._session).candidates(task).passing()
        places = np.flatnonzero(passing[self.low] & fits(task.floor, self._free_on_low))
        if not places.size:
            return False
        self._free_on_low[:, places[0]] -= task.request
        return True


def _importance(task: Task) -> tuple[Any, ...]:
    """Return a sort key, least important first: by priority (none first), quality of service, and name."""
    priority = task.shape.spec.priority
    try:
        service = _service(task.shape.spec)
    except QuantityError:
        service = 1
    return (priority is not None, priority or 0, service, task.key)


def _service(spec: PodSpec) -> int:
    """Return a pod's QoS by cpu and memory: 0 best-effort, 1 burstable, 2 guaranteed. Raises QuantityError."""
    if is_guaranteed(spec):
        return 2
    parts = [spec.resources or c.resources for c in (*spec.init_containers, *spec.containers)]
    requested = [each.get(name, 0) for part in parts for each in (part.requests, part.limits) for name in RESOURCES]
    return int(any(parse_milli(amount) for amount in requested))


def _capacity(node: Node) -> tuple[int, ...]:
    """Return a node's cpu (milli) and memory (bytes), 0 for unreadable quantities."""

    def amount(stated: Quantities, name: str) -> int:
        try:
            return resource_value(name, stated.get(name, 0))
        except QuantityError:
            return 0

    return tuple(amount(node.status.capacity or node.status.allocatable, name) for name in RESOURCES)
