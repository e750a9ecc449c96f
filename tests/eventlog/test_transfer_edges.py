"""Files of files that have lost their beginning, or were changed: what is made of them is sound, or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.eventlog.samples import Clock, as_is, fold, leads, outcome, put, session, write_history
from vcd.eventlog import EventLog, LogError, LogReader, export, import_logs, verify


async def test_an_event_that_was_changed_is_not_in_the_state_that_an_export_begins_with(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "out"
    await write_history(path, 4)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE event SET key = 'ns/other' WHERE sequence = 2")
    assert verify(path, fold).problems
    with pytest.raises(LogError, match="event 2 was changed after it was logged"):
        export(path, out, fold, first=3)
    assert not out.exists()


async def test_the_state_that_the_next_replica_begins_with_is_not_this_ones(tmp_path: Path) -> None:
    """The other replica's log is of after its retention: a session comes right after the state that it begins with."""
    one, other, merged, out = (tmp_path / name for name in ("one", "other", "merged", "out"))
    async with EventLog.open(one, clock=Clock()) as log:
        await log.append([leads(1), put(1)])
        with LogReader(one) as reader:
            await log.checkpoint(2, fold(b"", reader.read()))
        await log.append([session(1, 2, epoch=1)])
    async with EventLog.open(other, clock=Clock()) as log:
        await log.append([put(7), put(8), leads(2)])
        with LogReader(other) as reader:
            await log.checkpoint(3, fold(b"", reader.read()))
        await log.append([session(1, 3, epoch=2)])
        await log.retain(max_bytes=1)
    import_logs([one, other], merged, as_is)
    assert verify(merged, fold).problems == []
    export(merged, out, fold, last=1)
    assert verify(out, fold).problems == []


async def keep(log: EventLog) -> None:
    """Keep the state of now, and let go what is before."""
    with LogReader(log.path) as reader:
        base = reader.base(log.head)
        await log.checkpoint(log.head, fold(base.state, reader.read(base.sequence)))
    await log.retain(max_bytes=1)


async def test_a_session_without_its_state_in_one_and_an_outcome_without_its_session_in_another(tmp_path: Path) -> None:
    one, other, merged = (tmp_path / name for name in ("one", "other", "merged"))
    async with EventLog.open(one, clock=Clock()) as log:
        await log.append([leads(1), put(1), put(2)])  # session 1 is decided on what is before the last of these
        await keep(log)
        await log.append([session(1, 2, epoch=1), put(3), session(2, 5, epoch=1)])
    async with EventLog.open(other, clock=Clock()) as log:
        await log.append([leads(2), put(1), session(1, 2, epoch=2), session(2, 3, epoch=2)])
        await keep(log)  # while a call of session 2 is under way
        await log.append([session(3, 4, epoch=2), outcome(2)])
    for path in (one, other):
        assert verify(path, fold).problems == []
    import_logs([one, other], merged, as_is)
    assert verify(merged, fold).problems == []
    with LogReader(merged) as reader:
        assert [info.epoch for info in reader.sessions_with_state()] == [1, 2]
