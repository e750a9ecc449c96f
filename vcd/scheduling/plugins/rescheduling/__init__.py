"""rescheduling: move running pods off busy nodes, by measured usage (Volcano ``plugins/rescheduling``)."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.status import TaskStatus
from vcd.model.wording import SECOND
from vcd.scheduling.framework.arguments import Argument, ArgumentValues, parse_arguments
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.usage_samples import USAGE, known_usage
from vcd.scheduling.plugins.rescheduling.low_node_utilization import (
    LOW_NODE_UTILIZATION,
    OFFLINE_ONLY,
    ORDERS,
    PARAMS,
    STRATEGIES,
    LowNodeUtilization,
    Rebalance,
)
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import PREEMPTABLE

_MINUTE = 60 * SECOND
_LONGEST_WINDOW = 30 * SECOND
_PLACED = (TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING)


class ReschedulingPlugin(Plugin):
    """Name the pods that the action shuffle evicts to balance the measured usage of nodes.

    lowNodeUtilization: a schedulable node is idle if it uses less than `thresholds` of cpu and of memory. A node that
    uses more than `targetThresholds` of either is busy. Pods are evicted from the busiest node (cpu + memory) down,
    lower priority first, then best-effort before burstable before guaranteed. This continues while the node uses at
    least its target, and until the requests of the victims exhaust what idle nodes can take up to their targets. A pod
    is not evicted if it is not preemptable, if it has the priority of `thresholdPriorityClassName` or more, if its
    group would fall below minMember, or if no idle node takes it in addition to earlier victims (`nodeFit`).
    offlineOnly restricts victims to pods with ``volcano.sh/preemptable: "true"``. lowPriorityFirst, shortLifeTimeFirst,
    bigObjectFirst (largest part of a node) and moreReplicasFirst change the order of victims, in the order of the list.
    Without lowNodeUtilization no pod is evicted.

    Usage is the last sample (percent of capacity) less releasing resources. Nodes without a sample of at most five
    minutes are unknown: neither idle nor busy. Rounds depend only on recorded time. A round is due in the first
    twentieth (1 s to 30 s) of each interval, counted from the epoch. After a round with an eviction, no other follows
    in the same interval. Source: Volcano ``plugins/rescheduling``, design/rescheduling.md.
    """

    name = "rescheduling"
    timed = True
    outside = (USAGE,)
    series = (
        ("vcd_rescheduling_known_nodes", "Nodes of which a fresh sample of usage is known."),
        ("vcd_rescheduling_victims", "Pods that the plugin named in the last session."),
    )
    keys = (PREEMPTABLE,)
    arguments = (
        Argument("interval", "duration", 5 * _MINUTE, "The time between two rounds.", minimum=SECOND),
        Argument(
            "metricsPeriod",
            "duration",
            5 * _MINUTE,
            "The period of average usage.",
            without_effect="the source of samples determines the period",
        ),
        Argument(
            "strategies",
            "list",
            ({"name": LOW_NODE_UTILIZATION},),
            "The strategies: which pods are evicted, and in which order.",
            fields=(
                Argument("name", "str", "", "The strategy.", choices=STRATEGIES, required=True),
                Argument("params", "mapping", {}, f"For {LOW_NODE_UTILIZATION}.", fields=PARAMS),
            ),
        ),
        Argument("queueSelector", "strings", (), "Only pods of these queues are evicted; empty: of all queues."),
        Argument(
            "labelSelector",
            "mapping",
            {},
            "Only pods with all of these labels are evicted.",
            fields=(Argument("<label>", "scalar", "", "The label's value."),),
        ),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        self._low_node: LowNodeUtilization | None = None
        self._offline_only = False
        self._orders = []
        for entry in arguments["strategies"] or parse_arguments(self.arguments, {})["strategies"]:
            if entry["name"] == LOW_NODE_UTILIZATION:
                self._low_node = LowNodeUtilization.of(entry["params"])
            elif entry["name"] == OFFLINE_ONLY:
                self._offline_only = True
            elif entry["name"]:
                self._orders.append(ORDERS[entry["name"]])
        self._labels: dict[str, str] = arguments["labelSelector"].matching("<label>")
        self._queues: tuple[str, ...] = arguments["queueSelector"]

    def open(self, session: Session) -> None:
        """Read the last sample."""
        self._session = session
        self._known = known_usage(session.snapshot.answers, session.now)
        interval: int = self.values["interval"]
        self._began = session.now // interval * interval
        window = min(max(interval // 20, SECOND), _LONGEST_WINDOW)
        self._in_window = session.now < self._began + window
        self._victims: frozenset[str] = frozenset()

    def victim_tasks(self, tasks: list[Task]) -> list[Task]:
        """Return the victims of the strategies, if a round is due."""
        if self._low_node is None or not self._known.nodes or not self.is_due():
            return []
        session = self._session
        balance = Rebalance(session, self._low_node, self._known.nodes)
        chosen = balance.victims([task for task in tasks if self._is_selected(task)], self._orders)
        rows = {task.row for task in chosen}
        self._victims = frozenset(task.key for task in chosen)
        return [task for task in tasks if task.row in rows]

    def _is_selected(self, task: Task) -> bool:
        """Return whether the arguments select a task."""
        meta = task.pod.metadata
        if task.status != TaskStatus.RUNNING or task.node < 0 or not task.preemptable:
            return False
        if self._offline_only and PREEMPTABLE not in meta.annotations and PREEMPTABLE not in meta.labels:
            return False
        if self._queues and task.job.queue.name not in self._queues:
            return False
        return all(meta.labels.get(key) == value for key, value in self._labels.items())

    def is_due(self) -> bool:
        """Return whether a round is due in this session."""
        return self._in_window and self._session.snapshot.rounds.get(self.name, -1) < self._began

    def close(self, session: Session) -> None:
        """Record a round if any of the named victims was evicted."""
        if self._victims and any(
            operation.verb == "evict" and operation.key in self._victims
            for statement in session.trial.statements
            for operation in statement.operations()
        ):
            session.rounds[self.name] = None

    def gauges(self) -> Iterator[Gauge]:
        """Return the number of victims in the last session, and of nodes with known usage."""
        yield Gauge("vcd_rescheduling_victims", (), len(self._victims))
        yield Gauge("vcd_rescheduling_known_nodes", (), len(self._known.nodes))
