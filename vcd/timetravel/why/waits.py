"""A job that waits at a session of a log, which is decided again."""

from __future__ import annotations

from vcd.diagnosis.waiting import GroupWait
from vcd.model import events as ev
from vcd.scheduling.closing import plan_of
from vcd.timetravel.errors import NotFound
from vcd.timetravel.history import History
from vcd.timetravel.why.explain import named
from vcd.timetravel.why.jobtimeline import waits_of


class Wait(GroupWait, frozen=True):
    """A job that waits at a session of a log: the session's record, and the plan of deciding it again."""

    record: ev.SessionDecided
    plan: ev.Plan


def wait_of(history: History, name: str, number: int | None) -> Wait:
    """Return a job's wait, named as for ``explain``, at a session in which it waits, with a trace about it; ``number``
    None is its last one. Raises NotFound if no job has that name, or it does not wait there; LogError for a session
    that is not in the file."""
    _, group, _ = named(history, "job", name)
    return wait_at(history, group, _last_wait(history, group) if number is None else number, traced=True)


def wait_at(history: History, group: str, number: int, *, traced: bool = False) -> Wait:
    """Return the wait of a group, by key, at a session, with a trace only if ``traced``."""
    record, session = history.rerun(number, about=(group,) if traced else None)
    plan, there = plan_of(session), group in session.snapshot.groups
    reasons = ev.waits_after(session.snapshot.waiting, plan.waiting).get(group, ()) if there else ()
    if not reasons:
        what = "waits for nothing there" if there else "is not there yet, or not any more"
        raise NotFound(f"event log {history.reader.path}: session {number}: job {group} {what}")
    return Wait(group, session, reasons, record, plan)


def _last_wait(history: History, group: str) -> int:
    """Return the last session after which a group waits."""
    waits = waits_of(history, group)
    if not waits:
        sessions = sum(1 for _ in history.reader.find(type="session"))
        what = f"waits in none of its {sessions} sessions" if sessions else "waits nowhere: it has no sessions"
        raise NotFound(f"event log {history.reader.path}: job {group} {what}")
    return waits[-1].last
