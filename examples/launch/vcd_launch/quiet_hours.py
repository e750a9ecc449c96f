"""quiet-hours: nodes that accept no new pods at certain hours of the day."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.parts import Reads, VectorPredicate, VectorScore
from vcd.scheduling.search.scalar import ScalarPredicate, ScalarScore, TaskView
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.nodeview import NodeView, all_nodes
from vcd.scheduling.session.session import Session

HOUR = 3600 * 10**9
DAY = 24

QUIET = ReasonCode("quiet-hours", Cause.NODE_POLICY, "node(s) with quiet hours", nodes_help=True)
UNKNOWN = ReasonCode("quiet-hours-unknown", Cause.INVALID, "quiet hours of {node} unknown: {error}")


class QuietHours:
    """Parses the nodes' labels: ``22-6`` means from 22:00 to 6:00 UTC. ``now`` is in ns since the epoch."""

    def __init__(self, label: str, now: int) -> None:
        self.label = label
        self._hour = now // HOUR % DAY

    def quiet(self, node: NodeView) -> bool:
        """Return whether the node is quiet now. Raises ValueError for an invalid label."""
        hours = self._hours(node)
        if hours is None:
            return False
        begin, end = hours
        return (self._hour - begin) % DAY < ((end - begin) % DAY or DAY)

    def left(self, node: NodeView) -> int:
        """Return the hours until the node is quiet; 24 if it never is. Raises ValueError for an invalid label."""
        hours = self._hours(node)
        if hours is None:
            return DAY
        return 0 if self.quiet(node) else (hours[0] - self._hour) % DAY

    def _hours(self, node: NodeView) -> tuple[int, int] | None:
        text = node.labels.get(self.label)
        if text is None:
            return None
        match = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", text)
        if match is None or int(match[1]) >= DAY or int(match[2]) >= DAY:
            raise ValueError(f"its label {self.label} is {text!r}; write BEGIN-END in hours from 0 to 23, as in 22-6")
        return int(match[1]), int(match[2])


class AwakePredicate(ScalarPredicate):
    """Rejects quiet nodes, and nodes with an invalid label."""

    name = "awake"
    reason = QUIET()
    reads = Reads.TIME

    def __init__(self, session: Session, hours: QuietHours) -> None:
        super().__init__(session)
        self._hours = hours

    def passes(self, task: TaskView, node: NodeView) -> bool | Reason:
        try:
            return not self._hours.quiet(node)
        except ValueError as error:
            return UNKNOWN({"node": node.name, "error": str(error)})


class AwakeScore(ScalarScore):
    """Scores a node by the hours until it is quiet, as percent of a day."""

    name = "awake"
    reads = Reads.TIME

    def __init__(self, session: Session, hours: QuietHours, weight: float) -> None:
        super().__init__(session, weight)
        self._hours = hours

    def points(self, task: TaskView, node: NodeView) -> float:
        try:
            return 100.0 * self._hours.left(node) / DAY
        except ValueError:
            return 0.0


class QuietHoursPlugin(Plugin):
    """Keep new pods away from nodes during their quiet hours; running pods stay. Other nodes get
    100 x hours until their quiet hours / 24 points.
    """

    name = "quiet-hours"
    arguments = (
        Argument("quiet-hours.label", "str", "example.com/quiet-hours", "Label of nodes with their quiet hours."),
        Argument("quiet-hours.weight", "float", 1.0, "Weight of the score.", minimum=0),
    )
    timed = True

    def open(self, session: Session) -> None:
        self._session = session
        self._hours = QuietHours(self.values["quiet-hours.label"], session.now)

    def predicates(self) -> Iterable[VectorPredicate]:
        return [AwakePredicate(self._session, self._hours)]

    def node_order(self) -> Iterable[VectorScore]:
        return [AwakeScore(self._session, self._hours, self.values["quiet-hours.weight"])]

    def gauges(self) -> Iterable[Gauge]:
        return [Gauge("quiet_hours_nodes", (), sum(self._is_quiet(node) for node in all_nodes(self._session)))]

    def _is_quiet(self, node: NodeView) -> bool:
        try:
            return self._hours.quiet(node)
        except ValueError:
            return True
