"""A log of the first schema is migrated, and answers as before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import dsl
from tests.eventlog.first_schema import FIRST, revert_to_first_schema
from tests.eventlog.samples import SECOND, leads
from tests.timetravel.histories import Scheduler, scheduler, write_busy_history
from vcd.api import explain
from vcd.eventlog import EventLog, LogError, LogReader, log_file
from vcd.eventlog.log_errors import NewerSchema
from vcd.model.events import ForeignBound
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings
from vcd.timetravel.log_operations import compact, verify
from vcd.timetravel.replay import replay


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log that a scheduler wrote."""
    await write_busy_history(tmp_path / "log.sqlite")
    return tmp_path / "log.sqlite"


def schema(path: Path) -> list[tuple[str, str]]:
    """The tables, indexes and columns of a file."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
        columns = [(name, row[1]) for name in names for row in db.execute(f"PRAGMA table_info({name})")]
        return sorted([*columns, *((name, "") for name in names)])


def first_schema(path: Path) -> list[tuple[str, str]]:
    """What the first migration makes."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(log_file.migrations()[0][1])
    return schema(path)


def events(path: Path) -> list[tuple[object, ...]]:
    """The rows of events, as far as schema 1 has them."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT sequence, time, type, kind, key, resource_version, payload FROM event").fetchall()


async def test_it_has_the_older_schema_and_every_event(path: Path, tmp_path: Path) -> None:
    before = events(path)
    revert_to_first_schema(path)
    assert schema(path) == first_schema(tmp_path / "first.sqlite")
    assert events(path) == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FIRST,)


async def test_brought_up_to_date_it_answers_as_before(path: Path) -> None:
    told = explain(path, "job", "large")
    revert_to_first_schema(path)
    compact(path)
    found = verify(path)
    assert found.problems == []
    assert "were written before there was a chain" in found.uncovered[0]
    assert explain(path, "job", "large") == told
    assert [each.difference for each in replay(path) if each.difference is not None] == []


async def test_what_the_older_version_cannot_read_is_told_and_nothing_is_changed(path: Path, tmp_path: Path) -> None:
    async with EventLog.open(path) as log:
        at = await log.append([ForeignBound("ns/pod", "uid", "node-1")])
        await log.append([leads(9)])
    before = events(path), schema(path)
    with pytest.raises(LogError, match=f"cannot read event {at}, of type foreign"):
        revert_to_first_schema(path)
    assert (events(path), schema(path)) == before


async def test_who_meets_a_newer_schema_says_what_to_do(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(NewerSchema, match=r"a newer vcd wrote it \(schema 99.* name a new file"):
        LogReader(path)


async def test_a_log_that_was_merged_from_those_of_replicas_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO segment (sequence, live, source, chained) VALUES (9, 12, 'other.sqlite', 1)")
    with pytest.raises(LogError, match=r"merged it from the logs of several replicas.*; name the log of one replica"):
        LogReader(path)


CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: overcommit
"""


async def admit_incomplete(made: Scheduler) -> None:
    """A group is admitted, and has fewer pods than its minimum; its reservation ends after 300 s."""
    await made.load(CONF, **Settings(admission_timeout=300).as_text())
    await made.show(dsl.node("n", cpu=8), dsl.queue("default"))
    await made.show(dsl.group("ghost", members=2, phase="Pending", minimum={"cpu": "4"}))
    await made.carry_out(await made.cycle())


async def state_of(path: Path) -> ClusterState:
    """The state that the next start loads."""
    with LogReader(path) as reader:
        base = reader.base(reader.head())
        state = ClusterState.load(base.state) if base.state else ClusterState()
        for logged in reader.read(base.sequence):
            state.apply(logged.sequence, logged.event)
        return state


async def test_reservations_last_as_long_as_before(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with scheduler(path, CONF) as made:
        await admit_incomplete(made)
        since = made.state.admissions["default/ghost"].since
        made.clock.now += 100 * SECOND
        await made.cycle()
        await made.checkpoint()
    revert_to_first_schema(path)
    compact(path)
    assert (await state_of(path)).admissions["default/ghost"].since == since


async def test_reservations_older_than_the_log_begin_with_it(tmp_path: Path) -> None:
    """Of a log whose beginning is gone, version 0.1.0 needs the first checkpoint, which loses the reservations."""
    path = tmp_path / "log.sqlite"
    async with scheduler(path, CONF) as made:
        await admit_incomplete(made)
        made.clock.now += 100 * SECOND
        decided = (await made.cycle()).now
        await made.checkpoint()
        begins = made.state.sequence
        await made.cycle()
        await made.checkpoint()
        await made.log.retain(max_age=SECOND)
    revert_to_first_schema(path)
    compact(path)
    with LogReader(path) as reader:
        assert [each.sequence for each in reader.checkpoints()] == [begins]
    assert (await state_of(path)).admissions["default/ghost"].since == decided
