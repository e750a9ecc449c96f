"""Checkpoints, and the retention that cuts history at them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.eventlog.samples import SECOND, Clock, fold, noise, put, session, write_history
from vcd.eventlog import EventLog, LogError, LogReader, verify
from vcd.model.events import PolicyLoaded

STATE = os.urandom(100) * 30_000


async def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1), put(2)])
        await log.checkpoint(2, STATE)
    with LogReader(log.path) as reader:
        found = reader.latest_checkpoint()
        assert found is not None
        assert (found.sequence, found.state == STATE) == (2, True)
    assert log.path.stat().st_size < len(STATE) / 10


async def test_the_latest_checkpoint_at_or_before_an_event(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 3, checkpoints=(1, 2))
    with LogReader(path) as reader:
        found = [reader.latest_checkpoint(at) for at in (5, 6, 11, 12, None)]
        assert [c.sequence if c else None for c in found] == [None, 6, 6, 12, 12]
        assert [reader.base(at).sequence for at in (5, 6)] == [0, 6]


async def test_a_checkpoint_that_is_there_stays(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        await asyncio.gather(log.checkpoint(1, b"one"), log.checkpoint(1, b"two"))
    with LogReader(log.path) as reader:
        found = reader.latest_checkpoint()
        assert found is not None
        assert found.state == b"one"


@pytest.mark.parametrize("sequence", [0, 2])
async def test_no_checkpoint_where_there_is_no_event(tmp_path: Path, sequence: int) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        with pytest.raises(ValueError, match=f"no checkpoint at {sequence}"):
            await log.checkpoint(sequence, b"state")


async def test_an_unfinished_checkpoint_does_not_count_and_is_cleared(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        await log.run_in_transaction(lambda db: db.execute("INSERT INTO checkpoint_part VALUES (1, 0, x'00')"))
    with LogReader(log.path) as reader:
        assert reader.latest_checkpoint() is None
    async with EventLog.open(log.path) as log:
        await log.checkpoint(1, STATE)
    assert verify(log.path).problems == []


async def test_a_cancelled_checkpoint_can_be_made_again(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        task = asyncio.create_task(log.checkpoint(1, STATE))
        await log.append([put(2)])
        assert log._checkpointing.locked()
        task.cancel()
        await asyncio.wait([task])
        await log.checkpoint(1, STATE)
    with LogReader(log.path) as reader:
        assert reader.latest_checkpoint() is not None


async def test_appends_go_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        await log.append([put(1)])
        task = asyncio.create_task(log.checkpoint(1, os.urandom(20 << 20)))
        appended = 0
        while not task.done():
            await log.append([put(1)])
            appended += 1
        assert appended >= 20


async def test_retention_by_age_keeps_what_is_since_the_checkpoint_before_the_limit(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "log.sqlite"
    await write_history(path, 10, checkpoints=(2, 4, 6, 8), clock=clock)
    async with EventLog.open(path, clock=clock) as log:
        done = await log.retain(max_age=int(5.5 * 60) * SECOND)
    assert (done.removed, done.begins) == (24, 24)
    with LogReader(path) as reader:
        assert reader.first() == 25
        assert [info.number for info in reader.sessions()] == [5, 6, 7, 8, 9, 10]
        assert [c.sequence for c in reader.checkpoints()] == [24, 36, 48]
        assert next(reader.operations_of("ns/pod-1")).session == 5
    assert verify(path, fold).problems == []
    first = {
        **{"event.sequence": 25, "checkpoint.sequence": 24, "checkpoint_part.sequence": 24, "seal.after": 24},
        **{"session.number": 5, "statement.session": 5, "operation.session": 5},
    }
    with closing(sqlite3.connect(path)) as connection:
        for column, oldest in first.items():
            table, _, name = column.partition(".")
            assert connection.execute(f"SELECT min({name}) FROM {table}").fetchone() == (oldest,), column


async def test_retention_by_size_removes_no_more_than_it_must(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        for number in range(1, 6):
            head = await log.append([noise(number * 100 + n, 3000) for n in range(100)])
            await log.append([session(number, head)])
            await log.checkpoint(log.head, b"state")
        limit = (await log.retain()).size * 3 // 4
        done = await log.retain(max_bytes=limit)
        assert limit * 2 // 3 < done.size <= limit
    assert path.stat().st_size == done.size
    assert verify(path).problems == []


async def test_retention_never_removes_the_newest_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 4, checkpoints=(1, 3))
    async with EventLog.open(path) as log:
        await log.retain(max_age=0, max_bytes=1)
    with LogReader(path) as reader:
        assert [c.sequence for c in reader.checkpoints()] == [18]
        assert reader.first() == 19


async def test_without_a_checkpoint_retention_removes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 4)
    async with EventLog.open(path) as log:
        assert (await log.retain(max_age=0, max_bytes=1)).removed == 0
    assert verify(path, fold).problems == []


async def test_numbers_go_on_after_everything_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(2,))
    async with EventLog.open(path) as log:
        await log.retain(max_age=0)
    async with EventLog.open(path) as log:
        assert (log.head, log.last_session) == (12, 2)
        assert await log.append([session(3, 12)]) == 13
    assert verify(path, fold).problems == []


async def test_an_interrupted_retention_leaves_a_sound_file_and_is_finished_later(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 6, checkpoints=(2, 4))
    async with EventLog.open(path) as log:
        transact, steps = log.run_in_transaction, iter(range(2))

        async def interrupted(work):  # type: ignore[no-untyped-def]
            if next(steps, None) is None:
                raise asyncio.CancelledError
            return await transact(work)

        log.run_in_transaction = interrupted  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await log.retain(max_age=0)
    assert verify(path, fold).problems == []
    async with EventLog.open(path) as log:
        await log.retain()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT min(session) FROM operation").fetchone() == (5,)
        assert connection.execute("SELECT min(sequence) FROM outcome").fetchone() > (24,)
    connection.close()


async def test_configurations_of_kept_sessions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([PolicyLoaded("unused", "a"), PolicyLoaded("digest", "b"), PolicyLoaded("newest", "c")])
        await log.checkpoint(3, b"state")
        await log.append([session(1, 3)])
        await log.retain(max_age=0)
    with LogReader(path) as reader:
        assert (reader.policy("digest"), reader.policy("newest")) == ("b", "c")
        with pytest.raises(LogError, match="unused"):
            reader.policy("unused")


async def test_history_that_is_gone_is_said_to_be_gone(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 4, checkpoints=(2,))
    async with EventLog.open(path) as log:
        await log.retain(max_age=0)
    with LogReader(path) as reader:
        with pytest.raises(LogError, match="the oldest checkpoint is at 12"):
            reader.base(11)
        with pytest.raises(LogError, match="the events after 3 and before 13 are missing"):
            list(reader.read(3))


async def test_appends_are_not_held_up_by_retention(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([noise(n, 900) for n in range(8000)])
        await log.checkpoint(log.head, b"state")
        task = asyncio.create_task(log.retain(max_age=0))
        appended = 0
        while not task.done():
            await log.append([put(1)])
            appended += 1
        assert task.result().removed == 8000
        assert appended >= 20
