"""rescheduling: running pods leave busy nodes, by what the nodes really use (Volcano ``plugins/rescheduling``)."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument, ArgumentValues, parse_arguments
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.usage_samples import USAGE, known_usage
from vcd.scheduling.plugins.rescheduling.rebalance import (
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

_SECOND = 10**9
_MINUTE = 60 * _SECOND
_LONGEST_WINDOW = 30 * _SECOND
_PLACED = (TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING)


class ReschedulingPlugin(Plugin):
    """Names the pods that the action shuffle evicts to even out what the nodes really use.

    lowNodeUtilization: a node that takes pods and uses less than `thresholds` of cpu and of memory is idle, one that
    uses more than `targetThresholds` of either is busy. From the busiest node (cpu + memory) down pods go, lower
    priority first, then best-effort before burstable before guaranteed, while the node uses at least its target and
    what the idle nodes may still take up to theirs is not used up by the requests of those that went. A pod stays that
    is not preemptable, has the priority of `thresholdPriorityClassName` or more, would leave its group below
    minMember, or that no idle node takes beside those that go (`nodeFit`). offlineOnly leaves only pods that say
    ``volcano.sh/preemptable: "true"``; lowPriorityFirst, shortLifeTimeFirst, bigObjectFirst (largest part of a node)
    and moreReplicasFirst put others in front, in the order of the list. Without lowNodeUtilization nobody goes.

    Usage is the last sample's (percent of capacity) less what is releasing. Nodes without one that is at most five
    minutes old are unknown: neither idle nor busy. Rounds follow recorded time alone: one is due in the first
    twentieth (1 s to 30 s) of each interval counted from the epoch, and is over once it evicted something: in the same
    interval none follows. Source: Volcano ``plugins/rescheduling``, design/rescheduling.md.
    """

    name = "rescheduling"
    treats_alike = True
    timed = True
    questions = (USAGE,)
    series = (
        ("vcd_rescheduling_known_nodes", "Nodes of which a fresh sample of usage is known."),
        ("vcd_rescheduling_victims", "Pods that the plugin named in the last session."),
    )
    annotations = (PREEMPTABLE,)
    arguments = (
        Argument("interval", "duration", 5 * _MINUTE, "The time between two rounds.", minimum=_SECOND),
        Argument(
            "metricsPeriod",
            "duration",
            5 * _MINUTE,
            "Over which usage is averaged.",
            without_effect="samples are averages over what their source says",
        ),
        Argument(
            "strategies",
            "list",
            ({"name": LOW_NODE_UTILIZATION},),
            "Who goes, and in which order.",
            fields=(
                Argument("name", "str", "", "The strategy.", choices=STRATEGIES, required=True),
                Argument("params", "mapping", {}, f"For {LOW_NODE_UTILIZATION}.", fields=PARAMS),
            ),
        ),
        Argument("queueSelector", "strings", (), "Only pods of these queues go; of all where none is given."),
        Argument(
            "labelSelector",
            "mapping",
            {},
            "Only pods with all of these labels go.",
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
        window = min(max(interval // 20, _SECOND), _LONGEST_WINDOW)
        self._in_window = session.now < self._began + window
        self._victims: frozenset[str] = frozenset()

    def victim_tasks(self, tasks: list[Task]) -> list[Task]:
        """Whom the strategies want elsewhere, when a round is due."""
        if self._low_node is None or not self._known.nodes or not self.is_due():
            return []
        session = self._session
        balance = Rebalance(session, self._low_node, self._known.nodes)
        chosen = balance.victims([task for task in tasks if self._may_go(task)], self._orders)
        rows = {task.row for task in chosen}
        self._victims = frozenset(task.key for task in chosen)
        return [task for task in tasks if task.row in rows]

    def _may_go(self, task: Task) -> bool:
        """Whether a task is one of those that the arguments select."""
        meta = task.pod.metadata
        if task.status != TaskStatus.RUNNING or task.node < 0 or not task.preemptable:
            return False
        if self._offline_only and PREEMPTABLE not in meta.annotations and PREEMPTABLE not in meta.labels:
            return False
        if self._queues and task.job.queue.name not in self._queues:
            return False
        return all(meta.labels.get(key) == value for key, value in self._labels.items())

    def is_due(self) -> bool:
        """Whether a round may be held in this session."""
        return self._in_window and self._session.snapshot.rounds.get(self.name, -1) < self._began

    def close(self, session: Session) -> None:
        """What left of those that it named was a round."""
        if self._victims and any(
            operation.verb == "evict" and operation.key in self._victims
            for statement in session.trial.statements
            for operation in statement.operations()
        ):
            session.rounds[self.name] = None

    def gauges(self) -> Iterator[Gauge]:
        """How many pods the last session wanted elsewhere, and how many nodes' usage it knew."""
        yield Gauge("vcd_rescheduling_victims", (), len(self._victims))
        yield Gauge("vcd_rescheduling_known_nodes", (), len(self._known.nodes))
