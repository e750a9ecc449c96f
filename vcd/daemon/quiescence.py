"""Rest, for a cluster whose time stands still until its scheduler has done what is to be done."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vcd.daemon.cycle.loop import Cycle
from vcd.daemon.leadership.terms import Terms
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.reporting.status_reporter import Telling
from vcd.daemon.reporting.verdicts import Verdicts
from vcd.daemon.watching.watches import Watches
from vcd.model import events as ev

_LOOK = 0.001
"""Seconds between looks at whether a replica that is about to lead does."""


@dataclass(eq=False)
class Quiescence:
    """What a replica has still to do; ``commits`` are the tasks that commit what was decided."""

    state_writer: StateWriter
    watches: Watches
    terms: Terms
    cycle: Cycle
    telling: Telling
    verdicts: Verdicts
    commits: Collection[asyncio.Task[Any]]

    def __post_init__(self) -> None:
        self._versions: dict[str, str] = {}
        self._folded = asyncio.Event()

    def observe(self, event: ev.Event) -> None:
        """An event was folded."""
        self._folded.set()
        if isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.ObjectBad, ev.KindListed)):
            self._versions[event.kind] = event.resource_version

    async def caught_up(self, versions: Mapping[str, int]) -> None:
        """Return once all up to the given resource versions (by kind) is in the state, and all decided is done.

        ``versions`` may grow meanwhile. Statuses count as decided, Events do not.
        """
        telling, commits = self.telling, self.commits
        while True:
            await telling.followup.idle.wait()
            await self.verdicts.idle.wait()
            await telling.statuses.idle()
            if commits:
                await asyncio.wait(set(commits))
            elif self._behind(versions):
                self._folded.clear()
                await self._folded.wait()
            else:
                return

    async def rest(self, versions: Mapping[str, int]) -> None:
        """Return once this replica leads, has caught up, decided on all there is, and written all Events."""
        while True:
            await self.caught_up(versions)
            await self.telling.recorder.idle()
            await self.cycle.idle.wait()
            if self._at_rest(versions):
                return
            await asyncio.sleep(0 if self.state_writer.changed.is_set() else _LOOK)

    def _at_rest(self, versions: Mapping[str, int]) -> bool:
        """Whether ``rest`` would return at once."""
        telling = self.telling
        return (
            self.terms.leads()
            and self.cycle.idle.is_set()
            and not self.state_writer.changed.is_set()
            and telling.followup.idle.is_set()
            and self.verdicts.idle.is_set()
            and not self.commits
            and not telling.statuses.waiting
            and not telling.recorder.waiting
            and not self._behind(versions)
        )

    def _behind(self, versions: Mapping[str, int]) -> bool:
        """Whether something happened at the API server, up to these versions, that the state does not show yet.

        Of a kind of which only some objects are watched nobody knows: the last change may be of another one.
        """
        watches = self.watches
        whole = watches.statuses().keys() - watches.narrow
        return any(int(self._versions.get(kind) or 0) < versions.get(kind, 0) for kind in whole)
