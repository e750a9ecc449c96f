"""Why the jobs of a simulated run wait."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from vcd.diagnosis.diagnosedwaits import DiagnosedWait, diagnosed_waits
from vcd.diagnosis.waittimeline import Kind, Reasons, WaitTimeline, summed
from vcd.scheduling.session.session import Session


class Delays:
    """Folds the sessions of a run into a wait timeline, and diagnoses the jobs that wait once time has passed.

    A job is diagnosed once for each kind of its reasons. A job that never waits costs nothing.
    """

    def __init__(self) -> None:
        self._timeline = WaitTimeline()
        self._diagnoses: dict[str, dict[Kind, DiagnosedWait]] = {}
        self._waiting: dict[str, Reasons] = {}
        self._last: tuple[int, Session] | None = None
        self._end = 0

    def decided(self, now: int, session: Session, waiting: Mapping[str, Reasons]) -> None:
        """Fold the groups that wait at the end of a session, at a time (ns since the epoch)."""
        before, self._waiting = self._waiting, dict(waiting)
        changes: dict[str, Reasons] = {group: () for group in before if group not in waiting}
        changes |= {group: reasons for group, reasons in waiting.items() if before.get(group) != reasons}
        self._timeline.decided(self._timeline.last + 1, 0, now, changes)
        self._last = now, session

    def until(self, now: int | None) -> None:
        """Diagnose the groups that wait since the last session; ``now`` (ns since the epoch) is None after the last
        one: these waits never end."""
        if self._last is None:
            return
        (before, session), self._last = self._last, None
        self._end = before + _ENDLESS if now is None else now
        if now == before:
            return
        jobs = self._timeline.jobs
        kinds = {group: jobs[group].kind for group in self._waiting if group in jobs and jobs[group].kind}
        new = {group: self._waiting[group] for group, kind in kinds.items() if kind not in self._known(group)}
        for wait in diagnosed_waits(session, new):
            self._diagnoses.setdefault(wait.group, {})[kinds[wait.group]] = wait

    def found(self) -> dict[str, DiagnosedWait]:
        """Return the diagnosis that held longest for each group that waited, by key."""
        found = {}
        for group in self._timeline.groups():
            spans = chain.from_iterable(wait.spans for wait in self._timeline.every_wait(group, self._end))
            longest = max(summed(spans), key=lambda span: span.held, default=None)
            if longest is not None and longest.kind in self._known(group):
                found[group] = self._known(group)[longest.kind]
        return found

    def _known(self, group: str) -> Mapping[Kind, DiagnosedWait]:
        return self._diagnoses.get(group, {})


_ENDLESS = 1 << 63
"""Longer (ns) than any wait that ends."""
