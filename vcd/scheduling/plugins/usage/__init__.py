"""usage: nodes by what they really use, as a monitoring system measures it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from vcd.model.quantity import QuantityError
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.requests import CPU, MEMORY, resource_values
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument, ArgumentValues, read_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import METRICS
from vcd.scheduling.framework.usage_samples import USAGE, known_usage
from vcd.scheduling.plugins.usage.estimates import ESTIMATOR, Estimate, Estimator, Floats, Load, Rows
from vcd.scheduling.search.parts import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.search.predicates.node import at_rows
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_ABOVE = ReasonCode("usage-above", Cause.NODE_POLICY, "{what} usage of the node is above {threshold}%", nodes_help=True)

MOST_POINTS = 100.0
_JUST_PLACED = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND)


class UsageThresholds(Predicate):
    """Nodes whose cpu or memory is used more than a threshold take nothing; one whose usage is unknown passes."""

    name = "usage"
    reason = ReasonCode("usage", Cause.NODE_POLICY, "the node uses more than a threshold allows", nodes_help=True)()
    depends = Depends.TIME
    unresolvable = True

    def __init__(self, percent: Floats, cpu: int, memory: int) -> None:
        self._above_cpu: Mask = percent[0] > cpu  # NaN, unknown, is above nothing
        self._above_memory: Mask = percent[1] > memory
        self._passed: Mask = ~(self._above_cpu | self._above_memory)
        self._all = bool(self._passed.all())
        self._above = tuple(
            _ABOVE({"what": what}, [("threshold", "", most)]) for what, most in (("cpu", cpu), ("memory", memory))
        )

    def applies(self, task: Task) -> bool:
        return not self._all

    def mask(self, task: Task, usage: Usage) -> Mask:
        result: Mask = at_rows(self._passed, usage)
        return result

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        by_cpu = int((failed & at_rows(self._above_cpu, usage)).sum())
        counts = zip(self._above, (by_cpu, int(failed.sum()) - by_cpu), strict=True)
        return {reason: count for reason, count in counts if count}


class LeastUsed(Score):
    """100 x the weighed mean of what is unused of cpu and memory, estimates included; 0 where usage is unknown."""

    name = "usage"
    depends = Depends.TIME  # computed anew at each change, so it follows the estimates, too

    def __init__(self, load: Load, known: Mask, weights: tuple[int, int], weight: int) -> None:
        super().__init__(1)
        self._load = load
        self._known = known
        self._weights = weights
        self._factor = MOST_POINTS * weight
        self._position = len(load.log)
        self._points = self._rate(np.arange(len(known)))

    def raw(self, task: Task, usage: Usage) -> Scores:
        """The same for all pods; only nodes whose estimates moved are rated anew."""
        moved = self._load.log[self._position :]
        if moved:
            self._position += len(moved)
            rows = np.array(moved)
            self._points = self._points.copy()  # others may hold what they were given
            self._points[rows] = self._rate(rows)
        result: Scores = at_rows(self._points, usage)
        return result

    def _rate(self, rows: Rows) -> Scores:
        parts = self._load.composite(rows)
        cpu, memory = self._weights
        points = ((1.0 - parts[0]) * cpu + (1.0 - parts[1]) * memory) / (cpu + memory) * self._factor
        points[~self._known[rows]] = 0.0
        result: Scores = points
        return result


class UsagePlugin(Plugin):
    """Fewer pods for nodes that are busy, whatever was requested of them.

    The section `metrics` of the configuration names where samples of the nodes' usage come from (percent of capacity,
    averaged over ten minutes). A node above `thresholds` in cpu or memory takes no pod (flag enablePredicate), and
    evicting pods does not help. Each node gets

        score = ((1 - cpu) x cpu.weight + (1 - memory) x memory.weight) / (cpu.weight + memory.weight)
                x 100 x usage.weight

    where cpu and memory are the parts that are used, plus what pods that were placed since, or began running less than
    a sampling interval ago, are estimated to use: (request x request_ratio + (limit - request) x burst_ratio), 20%
    more on nodes above risk_threshold, at most the limit; `estimator` holds these numbers.

    A sample holds for five minutes, from when its source says it was measured (metrics_server, prometheus_adaptor),
    else from when it was taken. A node without one is unknown: it passes, gets 0 points and is counted in
    `vcd_usage_unknown_nodes` with the cause; a monitoring system that fails makes no node look idle. Source: Volcano
    ``plugins/usage``.
    """

    name = "usage"
    treats_alike = True
    timed = True
    questions = (USAGE,)
    series = (
        ("vcd_usage_known_nodes", "Nodes whose usage is known."),
        ("vcd_usage_unknown_nodes", "Nodes whose usage is not known, by why: they pass and get no points."),
    )
    arguments = (
        Argument(
            "usage.weight", "int", 5, "How much the score counts beside other plugins' scores; below 0 it means 5."
        ),
        Argument("cpu.weight", "int", 1, "Weight of cpu in the score; below 0 it means 1."),
        Argument("memory.weight", "int", 1, "Weight of memory in the score; below 0 it means 1."),
        Argument(
            "thresholds",
            "mapping",
            {},
            "Above which a node takes no pods.",
            fields=(
                Argument("cpu", "int", 80, "Percent of cpu.", minimum=0, maximum=100),
                Argument("mem", "int", 80, "Percent of memory.", minimum=0, maximum=100),
            ),
        ),
        Argument(
            "estimator",
            "mapping",
            {},
            "What pods are estimated to use that no sample shows yet.",
            fields=ESTIMATOR,
        ),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        self.weight = _at_least_zero(arguments["usage.weight"], 5)
        self.weights = (_at_least_zero(arguments["cpu.weight"], 1), _at_least_zero(arguments["memory.weight"], 1))
        thresholds: ArgumentValues = arguments["thresholds"]
        self.thresholds: tuple[int, int] = (thresholds["cpu"], thresholds["mem"])
        self.estimator = Estimator(**{key: float(value) for key, value in arguments["estimator"].items()})

    def open(self, session: Session) -> None:
        """Put the last sample into columns, and estimate what it does not show yet."""
        nodes = session.nodes.facts
        known = known_usage(session.snapshot.answers, session.now)
        self._why = known.why or "no sample of the node"
        unknown = float("nan")
        samples = [known.nodes.get(name) for name in nodes.names]
        self._percent: Floats = np.array(
            [
                [unknown if sample is None else sample.cpu for sample in samples],
                [unknown if sample is None else sample.memory for sample in samples],
            ],
            np.float64,
        ).reshape(2, len(nodes))
        self._known: Mask = ~np.isnan(self._percent[0])
        shown = np.where(self._known, self._percent, 0.0)
        self._load = Load(self.estimator, shown, _capacity(session), self.weights)
        self._any = bool(self._known.any())
        self._evicted: dict[int, Estimate | None] = {}
        """What of pods that were evicted was estimated beside what samples show, None where they show them."""
        if self._any:
            self._count_unseen(session)

    def _count_unseen(self, session: Session) -> None:
        """Pods that were placed, or began running, after what the last sample shows."""
        tasks, shapes = session.snapshot.tasks, session.snapshot.shapes
        placed = tasks.node >= 0
        fresh = np.flatnonzero(placed & np.isin(tasks.status, _JUST_PLACED)).tolist()
        moment = _text_of(session.now - _interval(framework_of(session).policy.metrics))
        for row in np.flatnonzero(placed & (tasks.status == TaskStatus.RUNNING)).tolist():
            pod = tasks.pods[row]
            start = None if pod is None else pod.status.start_time
            if start is None or start > moment:
                fresh.append(row)
        fresh.sort(key=lambda row: (int(tasks.node[row]), tasks.keys[row] or ""))
        for row in fresh:
            shape = shapes[int(tasks.shape[row])]
            if shape is not None:
                self._load.add(row, shape, int(tasks.node[row]))

    def predicates(self) -> Iterable[Predicate]:
        """The thresholds."""
        yield UsageThresholds(self._percent, *self.thresholds)

    def node_order(self) -> Iterable[Score]:
        """The score, unless it is the same for all nodes."""
        if self._any and self.weight and sum(self.weights):
            yield LeastUsed(self._load, self._known, self.weights, self.weight)

    def on_allocate(self, task: Task, row: int) -> None:
        """A pod more that no sample shows."""
        if not self._any:
            return
        if task.row not in self._evicted:
            self._load.add(task.row, task.shape, row)
            return
        estimate = self._evicted.pop(task.row)  # it stays after all, as it was
        if estimate is not None:
            self._load.put_back(task.row, estimate)

    def on_allocate_together(self, tasks: list[Task], rows: list[int]) -> None:
        """Pods more that no sample shows."""
        for task, row in zip(tasks, rows, strict=True):
            self.on_allocate(task, row)

    def on_deallocate(self, task: Task, row: int) -> None:
        """A pod less that no sample shows."""
        if not self._any:
            return
        estimate = self._load.remove(task.row)
        if task.status == TaskStatus.RELEASING:
            self._evicted[task.row] = estimate

    def gauges(self) -> Iterator[Gauge]:
        """How many nodes' usage is known, and how many's is not for which cause."""
        known = int(self._known.sum())
        yield Gauge("vcd_usage_known_nodes", (), known)
        if known < len(self._known):
            yield Gauge("vcd_usage_unknown_nodes", (("why", self._why),), len(self._known) - known)


def _at_least_zero(value: int, otherwise: int) -> int:
    return value if value >= 0 else otherwise


def _interval(metrics: Mapping[str, str]) -> int:
    """Nanoseconds between samples."""
    values, _ = read_arguments(METRICS, metrics)
    interval: int = values["interval"]
    return interval


def _text_of(moment: int) -> str:
    """A time as a pod's status has it, so that texts compare as times do."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment // 1000)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _capacity(session: Session) -> Floats:
    """Cpu in thousandths and memory in bytes of each node, shape (2, nodes): its capacity, else its allocatable."""
    facts, columns = session.nodes.facts, session.nodes.column_of

    def read() -> Floats:
        result = facts.allocatable[:, [columns[CPU], columns[MEMORY]]].T.astype(np.float64)
        for row, node in enumerate(facts.nodes):
            capacity = node.status.capacity
            try:
                values = resource_values({name: capacity[name] for name in (CPU, MEMORY) if name in capacity})
            except QuantityError:
                continue
            for part, name in enumerate((CPU, MEMORY)):
                if name in values:
                    result[part, row] = values[name]
        return result

    found: Floats = facts.cached("usage capacity", read)
    return found
