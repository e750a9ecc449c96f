"""The ends of a log, and one short line for each of its sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.timetravel.history import History
from vcd.timetravel.log_standing import LogStanding, as_of, standing
from vcd.timetravel.log_warnings import remarks

_MILLISECOND = 1_000_000
_ADMITTED = ("Inqueue", "Running")


class Ends(msgspec.Struct, frozen=True):
    """The log's last event with its time (ms since the epoch), and its first and last session; 0 if there is none.
    ``remarks`` are displayed first. ``standing`` identifies the replica that wrote the log (None: unknown). Waits are
    counted up to ``as_of`` (ms)."""

    head: int
    time: int
    first: int
    last: int
    remarks: list[str] = []
    standing: LogStanding | None = None
    as_of: int = 0


class SessionLine(msgspec.Struct, frozen=True, array_like=True):
    """A session: its number, the time it was decided for (ms since the epoch), how many pods it bound, evicted and
    reserved resources for, how many groups it admitted, for how many groups the reasons to wait changed, how many
    statements were dropped since they no longer held, and how many plugins failed. Dropped statements do not count
    elsewhere."""

    number: int
    time: int
    binds: int
    evictions: int
    held: int
    admitted: int
    waiting: int
    stale: int
    faults: int


def ends(history: History) -> Ends:
    """Return where the log begins and ends now. Raises LogError."""
    reader = history.reader
    first = next((info.number for info in reader.sessions(limit=1)), 0)
    last = reader.last_session() if first else 0
    end, now = (time // _MILLISECOND for time in (reader.last_time(), as_of(reader)))
    return Ends(reader.head(), end, first, last, remarks(reader, named=False), standing(reader.path), now)


def session_lines(
    history: History, first: int, last: int, seen: Callable[[str, str], bool] = lambda kind, key: True
) -> Iterator[SessionLine]:
    """Yield the sessions from one number to another, in order, counting only pods and groups whose kind and key
    ``seen`` allows. Raises LogError."""
    return (_line(history.reader, info, seen) for info in history.reader.sessions(first, last))


def _line(reader: LogReader, info: SessionInfo, seen: Callable[[str, str], bool]) -> SessionLine:
    try:
        # read the row by its sequence; by session number it would be looked up once more
        (record,) = (logged.event for logged in reader.read(info.sequence - 1, info.sequence))
        assert isinstance(record, ev.SessionDecided)
        plan, decided = record.accepted(), ev.decode_plan(record.plan).statements
    except msgspec.MsgspecError as error:
        raise LogError(f"event log {reader.path}: this version cannot read session {info.number}: {error}") from error
    operations = (operation for statement in plan.statements for operation in statement.operations)
    verbs = Counter(operation.verb for operation in operations if seen("Pod", operation.key))
    groups = [group for group in plan.groups if seen("PodGroup", group.key)]
    return SessionLine(
        number=info.number,
        time=record.now // _MILLISECOND,
        binds=verbs["bind"],
        evictions=verbs["evict"],
        held=verbs["pipeline"],
        admitted=sum(group.phase in _ADMITTED and group.was in ("", "Pending") for group in groups),
        waiting=sum(seen("PodGroup", group) for group in {waiting.group for waiting in plan.waiting}),
        stale=sum(seen("PodGroup", decided[number].group) for number, _ in record.stale),
        faults=len(plan.faults),
    )
