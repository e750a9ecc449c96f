"""The contents of a log as tables: rows of flat columns, which pandas, polars and pyarrow take as they are.

Each table is one function in `TABLES`. Its rows come from the functions behind the commands, so that both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from html import escape
from itertools import chain
from typing import Any

import msgspec

from vcd.eventlog import SessionInfo
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState
from vcd.text.amounts import plain_number
from vcd.timetravel.history import History
from vcd.timetravel.joblist import JobRow, jobs
from vcd.timetravel.queuestatistics import QueueStatistics, held_back, queue_statistics
from vcd.timetravel.session_lines import session_lines
from vcd.timetravel.why.session_explanation import evicted_by, group_in, queue_in

SAMPLES = 40
"""Sessions that are decided again for the usage of queues."""
_NOTEBOOK_ROWS = 50
"""Rows that a notebook displays."""


class SessionRow(msgspec.Struct, frozen=True):
    """A session: how many pods it bound, evicted and reserved resources for, how many groups it admitted, for how many
    groups the reasons to wait changed, how many statements were dropped, and how many plugins failed."""

    session: int
    time: datetime
    binds: int
    evictions: int
    held: int
    admitted: int
    waiting: int
    stale: int
    faults: int


class EvictionRow(msgspec.Struct, frozen=True):
    """A pod that a session chose to evict, its group and queue, and the group and queue that it was evicted for; see
    `EvictedPod`."""

    session: int
    time: datetime
    action: str
    pod: str
    node: str
    group: str
    queue: str
    for_group: str
    for_queue: str
    reason: str


class QueueUsageRow(msgspec.Struct, frozen=True):
    """A resource of a queue after a session: what its jobs have allocated and request, and its deserved share,
    guarantee and capability, in cores, bytes and pieces. A value is None if no plugin counts it; ``capability`` is
    None if there is no limit."""

    session: int
    time: datetime
    queue: str
    parent: str
    state: str
    weight: int
    overused: bool
    resource: str
    allocated: float | None
    request: float | None
    deserved: float | None
    guarantee: float | None
    capability: float | None


_SERIES = ("allocated", "request", "deserved", "guarantee", "capability")


class TableRows(list[dict[str, Any]]):
    """The rows of one table, a dictionary each; ``kind`` declares the columns and their types."""

    def __init__(self, kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> None:
        super().__init__(map(msgspec.structs.asdict, rows))
        self.kind = kind

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, also of a table without rows."""
        return self.kind.__struct_fields__

    def _repr_html_(self) -> str:
        """Return the first rows as an HTML table, for notebooks."""
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        cells = (
            "".join(f"<td>{escape(as_text(value))}</td>" for value in row.values()) for row in self[:_NOTEBOOK_ROWS]
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        more = f"<p>{len(self) - _NOTEBOOK_ROWS:,} more rows</p>" if len(self) > _NOTEBOOK_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def as_text(value: Any) -> str:
    """Return a cell as text: a list with spaces, a time as RFC 3339, None as an empty text."""
    if isinstance(value, list):
        return " ".join(value)
    return "" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)


def jobs_table(history: History) -> TableRows:
    """Return all jobs after the last session. Raises LogError."""
    return TableRows(JobRow, jobs(history).jobs)


def waits_table(history: History) -> TableRows:
    """Return the jobs that wait after the last session, the longest waits first. Raises LogError."""
    waiting = sorted((-(row.waited or 0), row.job, row) for row in jobs(history).jobs if row.cause)
    return TableRows(JobRow, (row for *_, row in waiting))


def sessions_table(history: History) -> TableRows:
    """Return all sessions. Raises LogError."""
    lines = session_lines(history, 1, history.reader.last_session())
    fields = SessionRow.__struct_fields__[2:]
    rows = (SessionRow(one.number, _time(one.time / 1e3), *(getattr(one, field) for field in fields)) for one in lines)
    return TableRows(SessionRow, rows)


def evictions_table(history: History) -> TableRows:
    """Return the evictions of all sessions whose state can be rebuilt, without those of dropped statements. Folds the
    log up to the last of them. Raises LogError."""
    return TableRows(EvictionRow, _evictions(history))


def _evictions(history: History) -> Iterator[EvictionRow]:
    reader = history.reader
    info_of = {info.sequence: info for info in reader.sessions_with_state()}
    for logged in history.reader.find(type="session"):
        info, record = info_of.get(logged.sequence), logged.event
        assert isinstance(record, ev.SessionDecided)
        evicting = [one for one in record.accepted().statements if any(each.verb == "evict" for each in one.operations)]
        if info is None or not evicting:
            continue
        state = history.state(info.head, jump=True)
        queue_of, group_of = partial(queue_in, state), partial(_group_of, state)
        for one in chain.from_iterable(evicted_by(statement, info, queue_of, group_of) for statement in evicting):
            yield EvictionRow(**{**msgspec.structs.asdict(one), "time": _time(info.time / 1e9)})


def _group_of(state: ClusterState, pod: str, _: SessionInfo) -> str:
    return group_in(state, pod)


def queue_usage_table(history: History, samples: int = SAMPLES) -> TableRows:
    """Return the usage of all queues by resource, in ``samples`` sessions, evenly spaced, and in the last one. Each of
    them is decided again. Raises LogError."""
    rows = (
        row for info in _evenly_spaced(history.reader.sessions_with_state(), samples) for row in _usage(history, info)
    )
    return TableRows(QueueUsageRow, rows)


def _evenly_spaced(infos: Sequence[SessionInfo], count: int) -> list[SessionInfo]:
    places = {place * len(infos) // count for place in range(count)} | {len(infos) - 1}
    return [infos[place] for place in sorted(places)] if infos else []


def _usage(history: History, info: SessionInfo) -> Iterator[QueueUsageRow]:
    record, session = history.rerun(info.number)
    found = held_back(queue_statistics(session), session, ev.decode_plan(record.plan))
    for queue in found.values():
        for resource in sorted({name for series in _SERIES for name in queue.amounts.get(series, {})}):
            about = (queue.name, queue.parent, queue.state, queue.weight, queue.overused, resource)
            amounts = (_amount(queue, series, resource) for series in _SERIES)
            yield QueueUsageRow(info.number, _time(info.time / 1e9), *about, *amounts)


def _amount(queue: QueueStatistics, series: str, resource: str) -> float | None:
    amounts = queue.amounts.get(series)
    if amounts is None or (series == "capability" and resource not in amounts):
        return None
    return plain_number(resource, amounts.get(resource, 0))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


TABLES: dict[str, Callable[[History], TableRows]] = {
    "jobs": jobs_table,
    "waits": waits_table,
    "sessions": sessions_table,
    "evictions": evictions_table,
    "queue-usage": queue_usage_table,
}
"""The tables by their names."""
