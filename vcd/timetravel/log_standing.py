"""The standing of a log among those of replicas, in words: the leader's, or how far it lags, and behind which one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from vcd.eventlog import LogReader
from vcd.eventlog.log_errors import SessionNotFound
from vcd.eventlog.writer_status import WriterStatus, read_status
from vcd.model.wording import counted, span_in_words
from vcd.text.log_templates import LOGS
from vcd.timetravel.query_errors import NotFound

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
    status = read_status(Path(path))
    if status is None:
        return None
    age = max(0.0, time.time() - status.written)
    behind = None if status.behind is None else status.behind + age
    lacks = _may_lack_events(status, age, behind)
    words = _standing_text(status, age, behind, lacks=lacks)
    return LogStanding(status.role, status.name, status.lease, status.holder, behind, status.events, lacks, words)


def as_of(reader: LogReader) -> int:
    """Return the time (ns since the epoch) for which an answer about a whole log holds.

    That is now while the log is being written, so that waits continue in a quiet cluster; else the time of its last
    event.
    """
    last, status = reader.last_time(), read_status(reader.path)
    is_live = status is not None and time.time() - status.written <= SILENT
    return max(last, time.time_ns()) if is_live else last


@contextmanager
def errors_with_writer(path: str | Path) -> Iterator[None]:
    """Add which replica may have the missing object or session to errors of a log that may lack it."""
    try:
        yield
    except (NotFound, SessionNotFound) as error:
        found = standing(path)
        if found is None or not found.lacks:
            raise
        raise type(error)(f"{error}; {found.words}") from error


def _may_lack_events(status: WriterStatus, age: float, behind: float | None) -> bool:
    """Return whether other replicas may have decided what is not in the log."""
    if status.role in ("follower", "reader"):
        return behind is None or behind > FRESH or status.events > 0
    return age > SILENT or (status.role == "apart" and bool(status.holder))


def _standing_text(status: WriterStatus, age: float, behind: float | None, *, lacks: bool) -> str:
    facts = {"name": status.name, "lease": _lease_text(status, age), "age": span_in_words(age)}
    facts["lag"] = _lag_text(status, behind, lacks=lacks)
    if status.role == "reader" or (status.role in ("leader", "apart") and age <= SILENT):
        return LOGS.sentence(status.role, facts)
    if age > SILENT:
        return LOGS.sentence("quiet", facts)
    return LOGS.sentence("follower" if status.source or behind is not None else "alone", facts)


def _lag_text(status: WriterStatus, behind: float | None, *, lacks: bool) -> str:
    events = {"events": counted(status.events, "event")}
    facts = {"source": status.source, "known": LOGS.sentence("known", events) if status.events else ""}
    if behind is None:
        return LOGS.sentence("lag unknown", facts)
    return LOGS.sentence("lag", {**facts, "behind": span_in_words(behind)}, ["lacks" if lacks else ""])


def _lease_text(status: WriterStatus, age: float) -> str:
    """Return who holds the Lease, as far as that is known."""
    if status.holder_seen is None:
        return LOGS.sentence("lease unseen", {"lease": status.lease})
    seen = status.holder_seen + age
    facts = {"holder": status.holder or "nobody", "lease": status.lease, "seen": span_in_words(seen)}
    return LOGS.sentence("lease", facts, ["past" if seen > SILENT else ""])
