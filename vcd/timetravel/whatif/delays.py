"""Why the jobs of a simulated run wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from vcd.diagnosis.diagnosedwaits import DiagnosedWait, diagnosed_waits
from vcd.diagnosis.waittimeline import Kind, Reasons, kind_of
from vcd.scheduling.session.session import Session


class Delays:
    """Diagnoses the jobs that wait at the end of a session, once time has passed.

    A job is diagnosed once for each kind of its reasons. A job that never waits costs nothing.
    """

    def __init__(self) -> None:
        self._last: tuple[int, Session, dict[str, Reasons]] | None = None
        self._waits: dict[str, dict[Kind, DiagnosedWait]] = {}
        self._held: dict[str, Counter[Kind]] = {}

    def decided(self, now: int, session: Session, waiting: Mapping[str, Reasons]) -> None:
        """Note the groups that wait at the end of a session."""
        self._last = now, session, dict(waiting)

    def until(self, now: int | None) -> None:
        """Count the time since the last session (ns since the epoch) for each group that waits; None: the wait never
        ends."""
        if self._last is None:
            return
        before, session, waiting = self._last
        self._last = None
        if now == before:
            return
        kinds = {key: kind for key, reasons in waiting.items() if (kind := kind_of(reasons))}
        new = {key: waiting[key] for key, kind in kinds.items() if kind not in self._waits.get(key, {})}
        for wait in diagnosed_waits(session, new):
            self._waits.setdefault(wait.group, {})[kinds[wait.group]] = wait
        for key, kind in kinds.items():
            self._held.setdefault(key, Counter())[kind] += _ENDLESS if now is None else now - before

    def found(self) -> dict[str, DiagnosedWait]:
        """Return the diagnosis that held longest for each group that waited, by key."""
        longest = {key: held.most_common(1)[0][0] for key, held in sorted(self._held.items())}
        waits = {key: self._waits.get(key, {}).get(kind) for key, kind in longest.items()}
        return {key: wait for key, wait in waits.items() if wait is not None}


_ENDLESS = 1 << 63
"""Longer (ns) than any wait that ends."""
