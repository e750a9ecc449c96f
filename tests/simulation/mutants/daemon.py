"""Planted bugs of vcd/daemon: sessions, the log's state_writer, terms, watches, reports, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from tests.simulation.mutants import replaces
from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.reporting.late_pods import LatePods
from vcd.daemon.reporting.reason_texts import GroupTexts, ReasonTexts
from vcd.daemon.service import SchedulerService
from vcd.daemon.watching.watches import Watches
from vcd.model import events as ev
from vcd.scheduling.framework.registry import kinds_read
from vcd.scheduling.statement_verification import Reference, stale_statements
from vcd.state.snapshot import Snapshot

# --- sessions -------------------------------------------------------------------------------------------------------


@replaces(stale_statements, found_by="no program ends by itself")
def stale_statements_not_verified(
    plan: ev.Plan, head: Snapshot, base: Snapshot, doubts: Mapping[Reference, str] | None = None
) -> tuple[tuple[int, str], ...]:
    """Changes during a session are ignored: nodes and queues get more than they have."""
    return ()


@replaces(SchedulerService._policy_to_log, found_by="configurations go on")
def configuration_of_the_start(self: SchedulerService) -> list[ev.Event]:
    """A new leader decides by the configuration that it read when it began to follow. A past defect."""
    if not self.terms.writes.is_set():
        self.watches.expect(kinds_read(self.policy.policy))
    return [] if self.state_writer.state.policy == self.loaded else [self.loaded]


@replaces(SchedulerService._commit_ended, found_by="nothing is kept of what is gone")
def commits_kept(self: SchedulerService, task: asyncio.Task[None]) -> None:
    """A task of each committed session is retained: memory grows, and each shutdown waits for finished calls."""


# --- the state writer -------------------------------------------------------------------------------------------------

_is_quiet = StateWriter._is_quiet


@replaces(StateWriter._shielded, found_by="intended first")
async def put_returns_at_once(self: StateWriter, logging: Coroutine[Any, Any, int]) -> int:
    """Callers continue before their events are durable: calls are made for sessions that no log has."""
    writing = asyncio.ensure_future(logging)
    writing.add_done_callback(lambda _: None)
    await asyncio.sleep(0)
    return self.state.sequence


@replaces(StateWriter.checkpoint, found_by="sound log")
async def checkpoint_amid_a_session(self: StateWriter) -> None:
    """A checkpoint that is made while a session is folded holds half of the session."""
    self._refuse_when_broken()
    sequence, frozen = self.state.sequence, self.state.freeze()
    await self.log.checkpoint(sequence, await asyncio.to_thread(frozen.encode))
    self.checkpointed_at = sequence


# --- terms and watches ----------------------------------------------------------------------------------------------


@replaces(Watches.list_again, found_by="listed first")
async def new_leader_does_not_list(self: Watches, kinds: Iterable[str] | None = None) -> None:
    """A new leader decides on what its watches reported so far, without the last binds of the one before."""


@replaces(Watches._end, found_by="watches go on")
async def old_watch_goes_on(self: Watches, kind: str) -> None:
    """Each new list leaves the watcher before it running: twice the calls, and the slower one reports the past."""
    self._tasks.pop(kind, None)


@replaces(Terms._never_done, found_by="all that can be is done")
def intents_of_the_last_term_kept(self: Terms) -> list[ev.Event]:
    """Operations that an earlier term decided and never carried out hold resources for ever, and their pods wait."""
    return []


# --- reports and metrics --------------------------------------------------------------------------------------------

_texts_of = ReasonTexts.of


@replaces(LatePods.observe, found_by="who waits is told")
def latecomers_untold(self: LatePods, event: ev.Event) -> None:
    """Pods that join a group which waits already get no condition, and no autoscaler reacts to them."""


@replaces(ReasonTexts.of, found_by="reasons are true")
def told_what_was(self: ReasonTexts, reasons: Sequence[ev.Waiting]) -> GroupTexts:
    """A pod's condition has an outdated reason, and an autoscaler acts on it."""
    first = self._known.get_or_create(reasons[0].group, lambda: _texts_of(self, reasons)).texts
    return GroupTexts(reasons, [first[min(place, len(first) - 1)] for place in range(len(reasons))])


@replaces(Metrics._forget_gone_queues, found_by="no series of what is gone")
def series_of_gone_queues(self: Metrics) -> None:
    """Metrics of deleted queues remain, and fill Prometheus."""
