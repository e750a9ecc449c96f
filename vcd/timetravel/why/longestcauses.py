"""The jobs that wait at the end of a session of a log, each with the cause that held for most of its wait, for lists.

The causes are those of `vcd explain job`. In a large cluster, few earlier sessions are decided again; beyond them,
the listed session has to judge the earlier reasons too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vcd.diagnosis.diagnosedwaits import NONE_SERVED, Diagnose, DiagnosedWait, diagnosed_waits
from vcd.diagnosis.dominant_cause import dominant
from vcd.diagnosis.group_wait import GroupWait
from vcd.diagnosis.loggedtimeline import read_waits
from vcd.diagnosis.waiting_job import served_since
from vcd.diagnosis.waittimeline import WaitSpan, WholeWait
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.timetravel.history import History
from vcd.timetravel.joblines import JobLine
from vcd.timetravel.log_standing import as_of
from vcd.timetravel.why.verdict import diagnosed_at

DIAGNOSED = 20
"""Jobs whose cause is searched, at most: each one examines all nodes."""
_MOST_NODES = 4000
"""Nodes of all earlier sessions that are decided again for one list, at most."""
_MOST_SESSIONS = 50


def waits_over_time(
    history: History, number: int, session: Session, waiting: Mapping[str, tuple[ev.Waiting, ...]]
) -> list[DiagnosedWait]:
    """Return the groups that wait at the end of a session; ``waiting`` gives their reasons. Raises LogError."""
    return diagnosed_waits(session, waiting, _OverTime(history, number, session, list(waiting)))


def longest_waits(history: History, number: int, jobs: Iterable[JobLine], most: int = DIAGNOSED) -> list[DiagnosedWait]:
    """Return the causes of the ``most`` jobs that wait longest at a session, the longest waits first; ``jobs`` are
    those of its overview."""
    _, session = history.rerun(number)
    oldest = sorted((job.since, job.key) for job in jobs if job.since is not None and job.waiting)[:most]
    known = ev.waits_after(session.snapshot.waiting, plan_of(session).waiting)  # older logs have reasons in words
    waiting = {key: known[key] for _, key in oldest}
    found = {one.group: one for one in waits_over_time(history, number, session, waiting)}
    return [found[key] for _, key in oldest if key in found]


class _OverTime:
    """The causes of waits until a session of a log."""

    def __init__(self, history: History, number: int, session: Session, groups: list[str]) -> None:
        self._history, self._session = history, session
        reader = history.reader
        (info,) = reader.sessions(number, number)
        is_last = number == reader.last_session()
        self._end = as_of(reader) if is_last else info.time
        self._timeline, served_at = read_waits(reader, groups, number + 1, None if is_last else info.sequence)
        self._served = served_since(session, served_at)
        self._most = min(_MOST_SESSIONS, _MOST_NODES // max(len(session.nodes), 1))
        self._decided: set[int] = set()
        """The earlier sessions that are decided again."""

    def __call__(self, wait: GroupWait, diagnose: Diagnose) -> Diagnosis:
        waits = self._timeline.waits(wait.group, self._end)
        if not waits or not waits[-1].lasting:
            return diagnose(wait, NONE_SERVED)
        whole = waits[-1]
        served = self._served(whole.first)

        def at(span: WaitSpan) -> Diagnosis:
            if span.kind == whole.spans[-1].kind:
                return diagnose(wait, served)
            return self._earlier(wait.group, whole, span) or diagnose(
                GroupWait(wait.group, self._session, span.reasons), served
            )

        return dominant(whole, at).diagnosis

    def _earlier(self, group: str, whole: WholeWait, span: WaitSpan) -> Diagnosis | None:
        """Return the diagnosis at an earlier session; None if too many sessions had to be decided again."""
        if span.last not in self._decided and len(self._decided) >= self._most:
            return None
        self._decided.add(span.last)
        return diagnosed_at(self._history, group, whole, span, traced=False)
