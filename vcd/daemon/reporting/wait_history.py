"""Folds sessions into the wait timeline of each group, and notes which pods were bound in which session.

The part before this process is read from the log once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog

from vcd.daemon.concurrency.threads import in_thread
from vcd.diagnosis.case import Served
from vcd.diagnosis.loggedtimeline import read_timeline, waiting_at
from vcd.diagnosis.waittimeline import WaitTimeline, WholeWait
from vcd.eventlog import LogError, LogReader
from vcd.model import events as ev
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.state.cluster import ClusterState

_log = structlog.get_logger(__name__)


class ReportedSession(NamedTuple):
    """A reported session. ``number`` is its own, or the next one's if it was not logged; ``at`` is its time (ns)."""

    record: ev.SessionDecided | None
    number: int
    at: int
    session: Session
    changes: dict[str, tuple[ev.Waiting, ...]]
    binds: list[str]


class WaitHistory:
    """The wait timelines of a state's groups, and the sessions that bound its pods. ``path`` is the event log."""

    def __init__(self, path: Path, state: ClusterState) -> None:
        self._path, self._state = path, state
        self.reset()

    def reset(self) -> None:
        """Drop everything, because another replica may have led since."""
        self._timeline = WaitTimeline(self._exists)
        self._bound_in: dict[str, int] = {}
        """The last session that bound each pod."""
        self._bound_in_by_row: Callable[[], Ints] | None = None
        """The same by row of the last session's tasks; computed when needed."""
        self._last_time = 0
        """Time of the last session (ns)."""

    async def restore(self, reported: ReportedSession) -> list[str]:
        """Read the timelines of all waiting groups from the log, up to this session. Return the waiting groups."""
        self.reset()
        groups = list(self._state.waiting)
        try:
            self._timeline, served = await in_thread(_read, self._path, groups, reported.number)
        except LogError as error:
            _log.error("the log does not say how long groups waited for what", error=str(error))
            served, self._timeline.last = {}, reported.number - 1
            self._timeline.known(reported.at, reported.session.snapshot.waiting)
        self._timeline.about = self._exists
        for group in self._timeline.groups():
            if not self._exists(group):
                self.forget(group)
        for job in self._timeline.jobs.values():
            job.forget_earlier()
        self._bound_in = self._existing(served)
        return [group for group in groups if self.waits(group)]

    def fold(self, reported: ReportedSession) -> list[str]:
        """Fold a session. Return the groups whose kinds of reasons changed."""
        changed, self._last_time = list[str](), reported.at
        if reported.record is not None and reported.record.session > self._timeline.last:
            changed = self._timeline.decided(
                reported.record.session, reported.record.head, reported.at, reported.changes
            )
            for group in changed:
                self._timeline.jobs[group].forget_earlier()
            self._bound_in |= self._existing(dict.fromkeys(reported.binds, reported.record.session))
        self._bound_in_by_row = None
        return changed

    def forget(self, group: str) -> None:
        """Drop a deleted group."""
        self._timeline.forget(group)

    def forget_pod(self, key: str) -> None:
        """Drop a deleted pod."""
        self._bound_in.pop(key, None)

    def waits(self, group: str) -> bool:
        """Return whether a group waits as of the last session."""
        job = self._timeline.jobs.get(group)
        return job is not None and bool(job.kind)

    def last(self, group: str) -> WholeWait | None:
        """Return the current or the last wait of a group; None if it never waited at the end of a session."""
        return next(reversed(self._timeline.waits(group, self._last_time)), None)

    def bound_since(self, number: int, session: Session) -> Served:
        """Return a function for the rows of pods bound since a session; ``session`` is the last one folded."""
        if self._bound_in_by_row is None:
            keys, served = session.snapshot.tasks.keys, self._bound_in
            self._bound_in_by_row = cache(lambda: np.array([served.get(key or "", 0) for key in keys], np.int64))
        served_at = self._bound_in_by_row
        return lambda _: np.flatnonzero(served_at() >= number)

    def _existing(self, served: Mapping[str, int]) -> dict[str, int]:
        """Return the entries of existing pods; no deletion event will remove the others."""
        return {key: at for key, at in served.items() if key in self._state.tasks.row_of}

    def _exists(self, group: str) -> bool:
        return group in self._state.groups


def _read(path: Path, groups: Collection[str], before: int) -> tuple[WaitTimeline, dict[str, int]]:
    """Return the timelines before a session, and the bound pods since the earliest of the current waits began."""
    with LogReader(path) as reader:
        until = next((info.sequence - 1 for info in reader.sessions(before, before)), None)
        timeline = read_timeline(reader, groups, partial(waiting_at, reader), until)
        begun = [last.first for group in groups for last in timeline.waits(group, 0)[-1:]]
        rows = reader.rows("served_at", first=min(begun), before=before) if begun else []
        return timeline, dict(rows)
