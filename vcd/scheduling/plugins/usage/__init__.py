"""usage: filter and score nodes by measured usage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from vcd.model.quantity import QuantityError
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import CPU, MEMORY, resource_values
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument, ArgumentValues, read_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import METRICS
from vcd.scheduling.framework.usage_samples import USAGE, known_usage
from vcd.scheduling.plugins.usage.estimates import ESTIMATOR, Estimate, Estimator, Floats, Load, Rows
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_ABOVE = ReasonCode("usage-above", Cause.NODE_POLICY, "{what} usage of the node is above {threshold}%", nodes_help=True)

MOST_POINTS = 100.0
_JUST_PLACED = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND)


class UsageThresholds(Predicate):
    """Rejects nodes whose cpu or memory usage is above a threshold; nodes with unknown usage pass."""

    name = "usage"
    reason = ReasonCode("usage", Cause.NODE_POLICY, "the node uses more than a threshold allows", nodes_help=True)()
    reads = Reads.TIME
    keys = ()

    def __init__(self, percent: Floats, cpu: int, memory: int) -> None:
        self._above_cpu: Mask = percent[0] > cpu  # comparisons with NaN (unknown) are false
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
    """100 x the weighted mean of the unused fractions of cpu and memory, including estimates; 0 if usage is unknown."""

    name = "usage"
    reads = Reads.TIME  # recomputed after each change, so it includes new estimates
    keys = ()

    def __init__(self, load: Load, known: Mask, weights: tuple[int, int], weight: int) -> None:
        super().__init__(1)
        self._load = load
        self._known = known
        self._weights = weights
        self._factor = MOST_POINTS * weight
        self._position = len(load.log)
        self._points = self._rate(np.arange(len(known)))

    def raw(self, task: Task, usage: Usage) -> Scores:
        """Return scores that are the same for all pods; only nodes with changed estimates are rescored."""
        moved = self._load.log[self._position :]
        if moved:
            self._position += len(moved)
            rows = np.array(moved)
            self._points = self._points.copy()  # earlier results are shared
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
    """Prefer nodes with low measured usage, whatever their pods request.

    The section `metrics` of the configuration states the source of samples (percent of capacity, averaged over ten
    minutes). A node above `thresholds` in cpu or memory accepts no pod (flag enablePredicate), and evictions are not
    tried there. The score of a node is

        score = ((1 - cpu) x cpu.weight + (1 - memory) x memory.weight) / (cpu.weight + memory.weight)
                x 100 x usage.weight

    where cpu and memory are the used fractions, including estimates of pods that were placed since the sample or that
    began running less than a sampling interval ago. The estimate of a pod is
    request x request_ratio + (limit - request) x burst_ratio, times risk_factor on nodes above risk_threshold, at most
    the limit. These are fields of `estimator`.

    A sample is valid for five minutes, from the time of measurement if the source states it (metrics_server,
    prometheus_adaptor), else from the time of the query. A node without a valid sample is unknown: it passes, scores 0
    and is counted in `vcd_usage_unknown_nodes` with the cause. So a failed monitoring system makes no node look idle.
    Source: Volcano ``plugins/usage``.
    """

    name = "usage"
    keys = ()
    timed = True
    outside = (USAGE,)
    series = (
        ("vcd_usage_known_nodes", "Nodes whose usage is known."),
        (
            "vcd_usage_unknown_nodes",
            "Nodes whose usage is not known, by reason. They pass the filter and get no points.",
        ),
    )
    arguments = (
        Argument(
            "usage.weight",
            "int",
            5,
            "Weight of the score relative to the scores of other plugins; below 0 it means 5.",
            default_below=0,
        ),
        Argument("cpu.weight", "int", 1, "Weight of cpu in the score; below 0 it means 1.", default_below=0),
        Argument("memory.weight", "int", 1, "Weight of memory in the score; below 0 it means 1.", default_below=0),
        Argument(
            "thresholds",
            "mapping",
            {},
            "The usage above which a node accepts no pods.",
            fields=(
                Argument("cpu", "int", 80, "Percent of cpu.", minimum=0, maximum=100),
                Argument("mem", "int", 80, "Percent of memory.", minimum=0, maximum=100),
            ),
        ),
        Argument(
            "estimator",
            "mapping",
            {},
            "How to estimate the usage of pods that the samples do not include yet.",
            fields=ESTIMATOR,
        ),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        self.weight: int = arguments["usage.weight"]
        self.weights: tuple[int, int] = (arguments["cpu.weight"], arguments["memory.weight"])
        thresholds: ArgumentValues = arguments["thresholds"]
        self.thresholds: tuple[int, int] = (thresholds["cpu"], thresholds["mem"])
        self.estimator = Estimator(**{key: float(value) for key, value in arguments["estimator"].items()})

    def open(self, session: Session) -> None:
        """Read the last sample, and estimate what it does not include."""
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
        measured = np.where(self._known, self._percent, 0.0)
        self._load = Load(self.estimator, measured, _capacity(session), self.weights)
        self._any = bool(self._known.any())
        self._evicted: dict[int, Estimate | None] = {}
        """Estimates of evicted pods, for a rollback; None for pods that samples include."""
        if self._any:
            self._count_unseen(session)

    def _count_unseen(self, session: Session) -> None:
        """Add pods that were placed, or began running, after the last sample."""
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
        """Return the filter of the thresholds."""
        yield UsageThresholds(self._percent, *self.thresholds)

    def node_order(self) -> Iterable[Score]:
        """Return the score, unless it is the same for all nodes."""
        if self._any and self.weight and sum(self.weights):
            yield LeastUsed(self._load, self._known, self.weights, self.weight)

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Add the estimates of placed pods."""
        for task, row in zip(tasks, rows, strict=True) if self._any else ():
            if task.row not in self._evicted:
                self._load.add(task.row, task.shape, row)
                continue
            estimate = self._evicted.pop(task.row)  # its eviction is rolled back
            if estimate is not None:
                self._load.put_back(task.row, estimate)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Subtract the estimates of removed pods."""
        for task in tasks if self._any else ():
            estimate = self._load.remove(task.row)
            if task.status == TaskStatus.RELEASING:
                self._evicted[task.row] = estimate

    def gauges(self) -> Iterator[Gauge]:
        """Return how many nodes have known usage, and how many do not, by cause."""
        known = int(self._known.sum())
        yield Gauge("vcd_usage_known_nodes", (), known)
        if known < len(self._known):
            yield Gauge("vcd_usage_unknown_nodes", (("why", self._why),), len(self._known) - known)


def _interval(metrics: Mapping[str, str]) -> int:
    """Return the nanoseconds between samples."""
    values, _ = read_arguments(METRICS, metrics)
    interval: int = values["interval"]
    return interval


def _text_of(moment: int) -> str:
    """Format a time like a pod's status, so that texts compare like times."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment // 1000)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _capacity(session: Session) -> Floats:
    """Return the cpu (thousandths) and memory (bytes) of each node, shape (2, nodes): capacity, else allocatable."""
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
