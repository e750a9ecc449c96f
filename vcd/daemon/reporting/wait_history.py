"""Folds sessions into the wait timeline of each group, and notes which pods were bound in which session.

The part before this process is read from the log once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from vcd.daemon.concurrency.threads import in_thread
from vcd.diagnosis.loggedtimeline import read_waits
from vcd.diagnosis.waiting_job import Served, served_since
from vcd.diagnosis.waittimeline import WaitTimeline, WholeWait
from vcd.eventlog import LogError, LogReader
from vcd.model import events as ev
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState

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
        self._served_since: Callable[[int], Served] | None = None
        """The same by row of the last session's tasks."""

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
        changed = list[str]()
        if reported.record is not None and reported.record.session > self._timeline.last:
            changed = self._timeline.decided(
                reported.record.session, reported.record.head, reported.at, reported.changes
            )
            for group in changed:
                self._timeline.jobs[group].forget_earlier()
            self._bound_in |= self._existing(dict.fromkeys(reported.binds, reported.record.session))
        self._served_since = None
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

    def last(self, group: str, time: int) -> WholeWait | None:
        """Return the current wait of a group as of a time (ns), or its last one; None if it never waited at the end of
        a session."""
        return next(reversed(self._timeline.waits(group, time)), None)

    def bound_since(self, number: int, session: Session) -> Served:
        """Return a function for the rows of pods bound since a session; ``session`` is the last one folded."""
        if self._served_since is None:
            self._served_since = served_since(session, self._bound_in)
        return self._served_since(number)

    def _existing(self, served: Mapping[str, int]) -> dict[str, int]:
        """Return the entries of existing pods; no deletion event will remove the others."""
        return {key: at for key, at in served.items() if key in self._state.tasks.row_of}

    def _exists(self, group: str) -> bool:
        return group in self._state.groups


def _read(path: Path, groups: Collection[str], before: int) -> tuple[WaitTimeline, dict[str, int]]:
    with LogReader(path) as reader:
        until = next((info.sequence - 1 for info in reader.sessions(before, before)), None)
        return read_waits(reader, groups, before, until)
