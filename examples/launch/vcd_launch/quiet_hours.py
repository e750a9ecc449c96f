"""quiet-hours: nodes that take no new pods at certain hours of the day."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.parts import Depends, Predicate, Score
from vcd.scheduling.search.scalar import ScalarPredicate, ScalarScore, TaskView
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.nodeview import NodeView, all_nodes
from vcd.scheduling.session.session import Session

HOUR = 3600 * 10**9
DAY = 24

QUIET = ReasonCode("quiet-hours", Cause.NODE_POLICY, "node(s) with quiet hours", nodes_help=True)
UNKNOWN = ReasonCode("quiet-hours-unknown", Cause.INVALID, "quiet hours of {node} unknown: {error}")


class QuietHours:
    """What the nodes' labels say: ``22-6`` is from ten in the evening to six in the morning, UTC."""

    def __init__(self, label: str, now: int) -> None:
        self.label = label
        self._hour = now // HOUR % DAY

    def quiet(self, node: NodeView) -> bool:
        """Whether the node is quiet now. Raises ValueError for a label that names no hours."""
        hours = self._hours(node)
        if hours is None:
            return False
        begin, end = hours
        return (self._hour - begin) % DAY < ((end - begin) % DAY or DAY)

    def left(self, node: NodeView) -> int:
        """Hours until the node is quiet, a day where it never is. Raises ValueError as ``quiet``."""
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
    """A node that is quiet takes nothing; neither does one whose label cannot be read."""

    name = "awake"
    reason = QUIET()
    depends = Depends.TIME

    def __init__(self, session: Session, hours: QuietHours) -> None:
        super().__init__(session)
        self._hours = hours

    def passes(self, task: TaskView, node: NodeView) -> bool | Reason:
        try:
            return not self._hours.quiet(node)
        except ValueError as error:
            return UNKNOWN({"node": node.name, "error": str(error)})


class AwakeScore(ScalarScore):
    """The hours that are left before a node is quiet, as percent of a day."""

    name = "awake"
    depends = Depends.TIME

    def __init__(self, session: Session, hours: QuietHours, weight: float) -> None:
        super().__init__(session, weight)
        self._hours = hours

    def points(self, task: TaskView, node: NodeView) -> float:
        try:
            return 100.0 * self._hours.left(node) / DAY
        except ValueError:
            return 0.0


class QuietHoursPlugin(Plugin):
    """At its quiet hours a node takes no new pods; what runs there goes on. Of the others, those come first whose
    quiet hours are farthest away: 100 x hours left / 24 points.
    """

    name = "quiet-hours"
    arguments = (
        Argument("quiet-hours.label", "str", "example.com/quiet-hours", "The nodes' label with their quiet hours."),
        Argument("quiet-hours.weight", "float", 1.0, "Weight of the hours left in the order of nodes.", minimum=0),
    )
    timed = True

    def open(self, session: Session) -> None:
        self._session = session
        self._hours = QuietHours(self.values["quiet-hours.label"], session.now)

    def predicates(self) -> Iterable[Predicate]:
        return [AwakePredicate(self._session, self._hours)]

    def node_order(self) -> Iterable[Score]:
        return [AwakeScore(self._session, self._hours, self.values["quiet-hours.weight"])]

    def gauges(self) -> Iterable[Gauge]:
        return [Gauge("quiet_hours_nodes", (), sum(self._is_quiet(node) for node in all_nodes(self._session)))]

    def _is_quiet(self, node: NodeView) -> bool:
        try:
            return self._hours.quiet(node)
        except ValueError:
            return True
