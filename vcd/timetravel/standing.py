"""The standing of a log among those of replicas, in words: the leader's, or how far it lags, and behind which one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from vcd.eventlog import LogReader
from vcd.eventlog.errors import SessionNotFound
from vcd.eventlog.writer_status import WriterStatus, read_status
from vcd.model.words import counted, span_in_words
from vcd.timetravel.errors import NotFound

FRESH = 3.0
"""A log that was complete this many seconds ago counts as complete: a follower confirms that each second."""
SILENT = 10.0
"""Seconds without a status from a log's writer, after which the last status is reported as a past one."""


class LogStanding(msgspec.Struct, frozen=True):
    """Which replica wrote a log: its ``role`` (leader; follower; apart: a replica that logs by itself; reader: a copy
    by a reading command) and name, and the holder of the ``lease`` when that was last observed.

    ``behind`` is how many seconds ago it had all that others logged (None: never), ``events`` how many it is known to
    lack. ``lacks``: queried events may be missing. ``words`` is all of it in a sentence.
    """

    role: str
    replica: str
    lease: str
    holder: str
    behind: float | None
    events: int
    lacks: bool
    words: str


def standing(path: str | Path) -> LogStanding | None:
    """Return the standing of the log at a path; None if no writer reports on this file, such as for a copy."""
    said = read_status(Path(path))
    if said is None:
        return None
    age = max(0.0, time.time() - said.written)
    behind = None if said.behind is None else said.behind + age
    lacks = _may_lack_events(said, age, behind)
    words = _standing_in_words(said, age, behind, lacks=lacks)
    return LogStanding(said.role, said.name, said.lease, said.holder, behind, said.events, lacks, words)


def as_of(reader: LogReader) -> int:
    """Return the time (ns since the epoch) for which an answer about a whole log holds.

    That is now while the log is being written, so that waits continue in a quiet cluster; else the time of its last
    event.
    """
    last, said = reader.last_time(), read_status(reader.path)
    is_live = said is not None and time.time() - said.written <= SILENT
    return max(last, time.time_ns()) if is_live else last


@contextmanager
def told_of_standing(path: str | Path) -> Iterator[None]:
    """Add which replica may have the missing object or session to errors of a log that may lack it."""
    try:
        yield
    except (NotFound, SessionNotFound) as error:
        found = standing(path)
        if found is None or not found.lacks:
            raise
        raise type(error)(f"{error}; {found.words}") from error


def _may_lack_events(said: WriterStatus, age: float, behind: float | None) -> bool:
    """Return whether other replicas may have decided what is not in the log."""
    if said.role in ("follower", "reader"):
        return behind is None or behind > FRESH or said.events > 0
    return age > SILENT or (said.role == "apart" and bool(said.holder))


def _standing_in_words(said: WriterStatus, age: float, behind: float | None, *, lacks: bool) -> str:
    if said.role == "reader":
        return f"read from outside, {_lag_in_words(said, behind, lacks=lacks)}; {_lease_in_words(said, age)}"
    if age > SILENT:
        quiet = f"has said nothing for {span_in_words(age)}: it ended or stands still"
        return f"{said.name}, which wrote this log, {quiet}; {_lease_in_words(said, age)}"
    if said.role == "leader":
        return f"the leader's log: {_lease_in_words(said, age)}"
    if said.role == "apart":
        return f"{said.name}'s own log, and what others decide is in theirs; {_lease_in_words(said, age)}"
    if not said.source and behind is None:
        return f"the log of {said.name}, which follows nobody yet; {_lease_in_words(said, age)}"
    return (
        f"the log of {said.name}, a follower: {_lag_in_words(said, behind, lacks=lacks)}; {_lease_in_words(said, age)}"
    )


def _lag_in_words(said: WriterStatus, behind: float | None, *, lacks: bool) -> str:
    known = f" ({counted(said.events, 'event')} are known)" if said.events else ""
    if behind is None:
        return f"it has not all yet that {said.source} logged{known}"
    if lacks:
        return f"it lacks what {said.source} logged in the last {span_in_words(behind)}{known}"
    return f"it had all that {said.source} logged {span_in_words(behind)} ago"


def _lease_in_words(said: WriterStatus, age: float) -> str:
    """Return who holds the Lease, as far as that is known."""
    if said.holder_seen is None:
        return f"who holds Lease {said.lease} was never seen"
    who, seen = said.holder or "nobody", said.holder_seen + age
    if seen > SILENT:
        return f"{who} held Lease {said.lease} {span_in_words(seen)} ago, when it was last seen"
    return f"{who} holds Lease {said.lease}"
