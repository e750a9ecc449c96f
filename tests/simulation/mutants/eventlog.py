"""Planted bugs of vcd/eventlog: writing, opening, checkpoints, retention, the chain."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.simulation.mutants import replaces
from vcd.eventlog import retention
from vcd.eventlog.chain import Mark
from vcd.eventlog.log_connection import BEGIN, COMMIT, LogConnection, open_connection
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_file import check_noted_damage, translate_errors
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.log_writer import EventLog, Waiter, Work, _CopiedEvents
from vcd.eventlog.rows import Logged, Row
from vcd.eventlog.verified_reads import read_verified
from vcd.model.events import Event

# --- writing --------------------------------------------------------------------------------------------------------

_open_connection = open_connection
_next_transaction, _append = EventLog._next_transaction, EventLog.append


@replaces(EventLog._next_transaction, found_by="log first")
def acknowledged_before_commit(self: EventLog) -> tuple[list[Logged] | _CopiedEvents | Work, list[Waiter]]:
    """Acknowledged events are lost with the program: no log has what was folded and bound."""
    item, waiters = _next_transaction(self)
    for waiter in waiters if isinstance(item, list) else ():
        waiter.set_result(None)
    return item, waiters


@replaces(LogConnection._write, found_by="sound log")
def failed_write_passed_over(self: LogConnection, statements: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """If the disk is full, events are acknowledged that were not written, and the log has a gap."""
    self._conn.execute(BEGIN)
    try:
        for sql, rows in statements:
            self._conn.executemany(sql, rows)
        self._conn.execute(COMMIT)
    except sqlite3.Error:
        if self._conn.in_transaction:
            self._conn.execute("ROLLBACK")


@replaces(open_connection, found_by="logged for good")
@asynccontextmanager
async def commits_not_synced(path: Path, file: int) -> AsyncIterator[LogConnection]:
    """Acknowledged events are lost with the power: commits stay in the page cache of the operating system."""
    async with _open_connection(path, file) as connection:
        await connection.execute("PRAGMA synchronous = OFF")
        yield connection


@replaces(EventLog.append, found_by="sound log")
async def time_goes_back(self: EventLog, events: Sequence[Event]) -> int:
    """If the wall clock is set back, events are older than those before them, and answers about a time are wrong."""
    self._time = 0
    return await _append(self, events)


# --- opening --------------------------------------------------------------------------------------------------------


@replaces(translate_errors, found_by="no program ends with a traceback")
@contextmanager
def opening_unexplained(path: Path) -> Iterator[None]:
    """If the disk is full when it starts, vcd ends with a traceback. A past defect."""
    yield


@replaces(check_noted_damage, found_by="no program ends by itself")
def log_of_a_crash_refused(path: Path) -> None:
    """The log of a program that was killed is taken for damaged, and its replica does not start again."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        raise DamagedLog(f"event log {path}: it was not closed")


@replaces(LogReader.last_session, found_by="no program ends by itself")
def sessions_numbered_anew(self: LogReader) -> int:
    """After a restart sessions begin at 1 again, and the first one breaks the log."""
    return 0


@replaces(
    read_verified,
    found_by="tests/daemon/persistence/test_state_writer.py::test_nothing_is_folded_that_was_changed_since_it_was_logged",
)
def changed_events_gone_on_with(reader: LogReader, after: int, until: int | None = None) -> Iterator[Logged]:
    """After a restart vcd decides by events that a disk has changed."""
    return reader.read(after, until)


# --- checkpoints, retention, the chain ------------------------------------------------------------------------------

_remove = retention._remove


@replaces(EventLog.mark, found_by="sound log")
def checkpoint_not_in_the_chain(self: EventLog, after: int, mark: Mark) -> None:
    """A checkpoint can be changed unnoticed, and the log fails its own check."""


@replaces(retention._remove, found_by="sound log")
async def retention_beyond_the_checkpoint(transact: retention.Transact, cut: int) -> int:
    """Retention removes the first event after the checkpoint that the history begins with: no state can be rebuilt."""
    return await _remove(transact, cut + 1)
