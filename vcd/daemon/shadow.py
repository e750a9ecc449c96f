"""A shadow: it decides beside the scheduler that is there, and nothing of that is done (docs/howto/shadow.md).

Each session decides on the cluster as it is: what the sessions before it decided is not in it, unless the other
scheduler did the same. So a pod that the other one leaves waiting is decided on again and again, and only what a
session says that the ones before it did not is logged.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from vcd.daemon.leadership.terms import Terms
from vcd.daemon.metrics.collector import Metrics
from vcd.daemon.reporting.dedup import FaultDedup
from vcd.kube.clock import Clock
from vcd.kube.connection import ConfigurationError
from vcd.model import events as ev
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.session.session import Session
from vcd.state.cluster import ClusterState

_log = structlog.get_logger(__name__)

EPOCH = -1
"""Under which a shadow's sessions are logged: no Lease gives them one."""


def check_log(path: Path, state: ClusterState, *, shadow: bool) -> None:
    """A log is a shadow's or a scheduler's: what its sessions decided was done in all, or in none. Raises
    ConfigurationError."""
    if state.session and state.settings.shadow != shadow:
        whose, other = ("a scheduler's", "a shadow") if shadow else ("a shadow's", "a scheduler")
        raise ConfigurationError(f"--event-log {path}: it is {whose}; {other} needs one of its own, name another file")


@dataclass(eq=False)
class ShadowTerms(Terms):
    """No terms: a shadow asks for no Lease, never leads, and decides once all lists are in."""

    def leads(self) -> bool:
        """Never: whoever writes to the API server asks this before."""
        return False

    def holds(self, epoch: int) -> bool:
        """Never, under any epoch."""
        return False

    def epoch_to_decide_under(self) -> int | None:
        """The same epoch for all sessions, once all lists are in."""
        return EPOCH if self.state_writer.log.failure is None and self.watches.synced() else None

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run as long as the shadow does."""
        return [self._begin()]

    async def release(self, *, cut_off: bool) -> None:
        """There is nothing to give back."""

    async def _begin(self) -> None:
        """Log that a shadow begins here, before anything that it sees: what a list shows then may be long past."""
        await self.state_writer.put([ev.LeadershipChanged(EPOCH, self.elector.identity, leading=False)])
        self.writes.set()
        await self.watches.wait_synced(lambda: True)
        _log.info("deciding as a shadow: nothing of it is done", identity=self.elector.identity)
        self.state_writer.changed.set()


class Shadow:
    """What becomes of a shadow's sessions: they are logged where they say something new, and shown nowhere else."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._said: frozenset[tuple[str, ...]] = frozenset()
        """What the last session said, all of which is in the log."""
        self._faults = FaultDedup(clock.monotonic)

    def is_news(self, plan: ev.Plan) -> bool:
        """Whether a session says what the one before it did not: then it is logged, with all that it says.

        The node does not tell: where a pod would have gone is where the first session put it that gave it a node.
        """
        before, self._said = self._said, frozenset(_said(plan))
        return bool(plan.waiting or plan.rounds) or not self._said <= before

    def session(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: Mapping[str, float]
    ) -> None:
        """A session was decided; ``record`` is None where it was not logged."""
        for fault in plan.faults:
            if self._faults.is_news(fault):
                error = session.errors.get(name_in(fault))
                _log.error("plugin failed; the cycle went on without it", fault=fault, exc_info=error)
        if record is not None:
            self._metrics.series.show("vcd_session", record.session)
            if record.stale:  # what did not hold any more was not said: the next one may say it
                self._said = frozenset()
        session.release()


def _said(plan: ev.Plan) -> Iterator[tuple[str, ...]]:
    """What a plan says, figures and nodes left out: on these each change of the cluster tells."""
    for statement in plan.statements:
        for operation in statement.operations:
            yield operation.verb, operation.key, operation.uid
    for status in plan.groups:
        yield "status", status.key, status.phase, *(status.condition or ())[:3]
    for fault in plan.faults:
        yield "fault", fault
