"""Shadow mode: decides next to the scheduler in charge, and carries nothing out (docs/howto/shadow.md).

Each session decides on the cluster as it is, without the decisions of earlier shadow sessions. A pod that the scheduler
in charge leaves pending is therefore decided again in each session, and only sessions with new content are logged.

Before changing it: `ShadowTerms` never leads, which fences every write. The client refuses writes in addition.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.reporting.report_dedup import FaultDedup
from vcd.kube.clock import Clock
from vcd.kube.kube_connection import ConfigurationError
from vcd.model import events as ev
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)

EPOCH = -1
"""The epoch of a shadow's sessions, because it has none from a Lease."""


def check_log(path: Path, state: ClusterState, *, shadow: bool) -> None:
    """Refuse a scheduler's log in a shadow and a shadow's log in a scheduler. Raises ConfigurationError."""
    if state.session and state.settings.shadow != shadow:
        whose, other = ("a scheduler's", "a shadow") if shadow else ("a shadow's", "a scheduler")
        raise ConfigurationError(f"--event-log {path}: it is {whose}; {other} needs one of its own, name another file")


@dataclass(eq=False)
class ShadowTerms(Terms):
    """The terms of a shadow: it takes no Lease, never leads, and decides once all lists are complete."""

    def leads(self) -> bool:
        """Return False, which fences all writes."""
        return False

    def holds(self, epoch: int) -> bool:
        """Return False for any epoch."""
        return False

    def epoch_to_decide_under(self) -> int | None:
        """Return `EPOCH` once all lists are complete."""
        return EPOCH if self.state_writer.log.failure is None and self.watches.synced() else None

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run."""
        return [self._begin()]

    async def release(self, *, cut_off: bool) -> None:
        """Do nothing: there is no Lease."""

    async def _begin(self) -> None:
        """Log the start of a shadow before any observation, because the first list may show old changes."""
        await self.state_writer.put([ev.LeadershipChanged(EPOCH, self.elector.identity, leading=False)])
        self.writes.set()
        await self.watches.wait_synced(lambda: True)
        _log.info("deciding as a shadow: no decision is carried out", identity=self.elector.identity)
        self.state_writer.changed.set()


class Shadow:
    """Handles a shadow's sessions: logs those with new content, and reports nothing to the cluster."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._content: frozenset[tuple[str, ...]] = frozenset()
        """The content of the last session; it is in the log."""
        self._faults = FaultDedup(clock.monotonic)

    def is_news(self, plan: ev.Plan) -> bool:
        """Return whether a session has content that the last one had not; then it is logged in full.

        Nodes are ignored: the first session that places a pod states its node.
        """
        before, self._content = self._content, frozenset(_content(plan))
        return bool(plan.waiting or plan.rounds) or not self._content <= before

    def session(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: Mapping[str, float]
    ) -> None:
        """Handle a session; ``record`` is None if it was not logged."""
        for fault in plan.faults:
            if self._faults.is_news(fault):
                error = session.errors.get(name_in(fault))
                _log.error("plugin failed; the cycle went on without it", fault=fault, exc_info=error)
        if record is not None:
            self._metrics.series.show("vcd_session", record.session)
            if record.stale:  # stale statements were not logged, so the next session may repeat them
                self._content = frozenset()
        session.release()


def _content(plan: ev.Plan) -> Iterator[tuple[str, ...]]:
    """Yield the content of a plan without quantities and nodes, which differ after each change of the cluster."""
    for statement in plan.statements:
        for operation in statement.operations:
            yield operation.verb, operation.key, operation.uid
    for status in plan.groups:
        yield "status", status.key, status.phase, *(status.condition or ())[:3]
    for fault in plan.faults:
        yield "fault", fault
