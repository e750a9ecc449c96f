"""Detects that a replica has nothing left to do, for clusters on simulated time (``vcd sim``, the simulation tests).

Simulated time advances only when the scheduler is quiescent. A component that works outside the cycle must take part
in ``_at_rest``; otherwise simulated time passes while it still works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.reporting.status_reporter import StatusReporter
from vcd.daemon.reporting.verdicts import Verdicts
from vcd.daemon.watching.watches import Watches
from vcd.model import events as ev

_LOOK = 0.001
"""Seconds between checks whether a replica that is about to lead does so."""


@dataclass(eq=False)
class Quiescence:
    """Waits for the work of one replica; ``commits`` are the tasks that carry out sessions."""

    state_writer: StateWriter
    watches: Watches
    terms: Terms
    cycle: Cycle
    status_reporter: StatusReporter
    verdicts: Verdicts
    commits: Collection[asyncio.Task[Any]]

    def __post_init__(self) -> None:
        self._versions: dict[str, str] = {}
        self._folded = asyncio.Event()

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state."""
        self._folded.set()
        if isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.ObjectBad, ev.KindListed)):
            self._versions[event.kind] = event.resource_version

    async def caught_up(self, versions: Mapping[str, int]) -> None:
        """Return once the state has the given resource versions (by kind), and all decisions are carried out.

        ``versions`` may grow concurrently. Waits for statuses, not for Events.
        """
        status_reporter, commits = self.status_reporter, self.commits
        while True:
            await status_reporter.followup.idle.wait()
            await self.verdicts.idle.wait()
            await status_reporter.statuses.wait_until_idle()
            if commits:
                await asyncio.wait(set(commits))
            elif self._behind(versions):
                self._folded.clear()
                await self._folded.wait()
            else:
                return

    async def rest(self, versions: Mapping[str, int]) -> None:
        """Return once this replica leads, has caught up, has nothing to decide, and has written all Events."""
        while True:
            await self.caught_up(versions)
            await self.status_reporter.recorder.wait_until_idle()
            await self.cycle.idle.wait()
            if self._at_rest(versions):
                return
            await asyncio.sleep(0 if self.state_writer.changed.is_set() else _LOOK)

    def _at_rest(self, versions: Mapping[str, int]) -> bool:
        """Whether ``rest`` would return at once."""
        status_reporter = self.status_reporter
        return (
            self.terms.leads()
            and self.cycle.idle.is_set()
            and not self.state_writer.changed.is_set()
            and status_reporter.followup.idle.is_set()
            and self.verdicts.idle.is_set()
            and not self.commits
            and not status_reporter.statuses.pending_count
            and not status_reporter.recorder.pending_count
            and not self._behind(versions)
        )

    def _behind(self, versions: Mapping[str, int]) -> bool:
        """Return whether the state lacks changes up to these versions.

        Kinds that are watched in part are ignored, because the last change may concern an object that is not watched.
        """
        watches = self.watches
        whole = watches.statuses().keys() - watches.narrow
        return any(int(self._versions.get(kind) or 0) < versions.get(kind, 0) for kind in whole)
