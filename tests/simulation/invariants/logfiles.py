"""What a log's file says when it is read: whether it is sound, replays, and which binds and evictions it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.simulation.invariants.decisions import operations_of
from tests.simulation.invariants.witness import Operation
from vcd.eventlog import LogError, LogReader
from vcd.model import events as ev
from vcd.timetravel.log_operations import verify
from vcd.timetravel.replay import replay


def problem_of(log: Path) -> str:
    """What is wrong with a log; empty where it is sound."""
    try:
        return next(iter(verify(log).problems), "")
    except LogError as error:
        return str(error)


def differences(log: Path) -> Iterator[str]:
    """The sessions of a log that are decided otherwise when they are decided again."""
    for one in replay(log):
        if one.difference:
            yield f"session {one.session}: {one.difference}"


def operations_in(log: Path) -> tuple[set[Operation], int]:
    """The binds and evictions of a log's sessions, and the first session that it has; 0 where it has all."""
    with LogReader(log) as reader:
        events = [logged.event for logged in reader.find(type="session")]
        whole, last = reader.oldest() == 0, reader.last_session()
    sessions = [event for event in events if isinstance(event, ev.SessionDecided)]
    first = 0 if whole else min((event.session for event in sessions), default=last + 1)
    return {operation for event in sessions for operation in operations_of(event)}, first
