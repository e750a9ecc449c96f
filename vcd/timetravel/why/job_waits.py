"""The waits of one job: over time, from the wait timeline of a log, and at one session, which is decided again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

from vcd.diagnosis.group_wait import GroupWait
from vcd.diagnosis.loggedtimeline import read_timeline
from vcd.diagnosis.waittimeline import Reasons, WholeWait, clipped
from vcd.model import events as ev
from vcd.scheduling.session_close import plan_of
from vcd.timetravel.history import WHOLE, History, LogWindow
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.name_lookup import named


def waits_of(history: History, group: str, window: LogWindow = WHOLE) -> list[WholeWait]:
    """Return the waits of a group, the oldest first, without those of a deleted group of the same name. Raises
    LogError."""
    timeline = read_timeline(history.reader, (group,), partial(_waiting_at, history), window.until)
    return clipped(timeline.waits(group, window.end(history.reader)), window.since)


def first_placement(history: History, group: str, first: int = 0) -> int | None:
    """Return the first session, from one on, that gave nodes to pods of a group; None if none did."""
    ((number,),) = history.reader.rows("served_in", group=group, first=first)
    return None if number is None else int(number)


def every_wait(history: History, group: str, pod: str | None, until: int, time: int) -> list[WholeWait]:
    """Return the waits of a group, or of one of its pods, up to an event and as of a time (ns), with all their spans.
    Raises LogError."""
    timeline = read_timeline(
        history.reader, (group,), partial(_waiting_at, history), until,
        concerning=partial(_concerning, pod), most_spans=sys.maxsize,
    )  # fmt: skip
    return timeline.every_wait(group, time)


def _concerning(pod: str | None, reasons: Reasons) -> Reasons:
    """Return the reasons that may concern a pod (None: all). A pod that waits for the rest of its gang has the reasons
    of the rest."""
    matching = () if pod is None else tuple(one for one in reasons if one.may_concern(pod))
    return reasons if all(one.gate == "gang" for one in matching) else matching


def _waiting_at(history: History, sequence: int) -> Mapping[str, Reasons]:
    return history.state(sequence, jump=True).waiting


# --- one session ------------------------------------------------------------------------------------------------------


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
