"""A row of a real log that is changed, taken out, or exchanged for another is found by ``verify``, and named."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import dsl
from tests.sizes import WIDE
from tests.timetravel.histories import Scheduler, scheduler
from vcd.eventlog import LogError
from vcd.timetravel import log_operations

DRAWS = 12 if WIDE else 4
NAMES = {
    "event": ("event {sequence}", "events {sequence} to"),
    "dictionary": ("cannot be read", "the dictionary of its payloads is missing"),
    "policy": ("configuration {digest}",),
    "session": ("session {number}",),
    "statement": ("session {session}",),
    "operation": ("session {session}",),
    "group_event": ("event {sequence}",),
    "outcome": ("event {sequence}",),
    "checkpoint": ("checkpoint {sequence}", "event {next}"),
    "checkpoint_part": ("checkpoint {sequence}",),
    "seal": ("event {next}",),
}
"""Each table, and what names a row of it in a problem; ``next`` is the event that follows."""
WAYS = ("changed", "taken out", "exchanged")
LOGS = ("whole", "shortened")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, and what retention leaves of it."""
    folder = tmp_path_factory.mktemp("logs")
    asyncio.run(_write(folder / "whole", 1))
    asyncio.run(_write(folder / "shortened", 1, shortened=True))
    return folder


@pytest.fixture(scope="module")
def heads(logs: Path) -> dict[str, log_operations.Head | None]:
    """The head of each of these logs."""
    return {log: log_operations.verify(logs / log).head for log in LOGS}


async def _write(path: Path, epoch: int, *, shortened: bool = False) -> None:
    """Gangs that come, run and end; a checkpoint after each second one."""
    async with scheduler(path, epoch=epoch) as made:
        await made.show([dsl.node(f"n{i}", cpu=8) for i in range(2)], dsl.queue("root"), dsl.queue("default"))
        for number in range(6):
            await _gang(made, f"gang-{number}")
            if number % 2:
                await made.checkpoint()
            if shortened and number == 3:
                assert (await made.log.retain(max_age=0)).removed
        await _gang(made, "last")


async def _gang(made: Scheduler, name: str) -> None:
    await made.show(dsl.gang(name, 2, cpu=4, phase="Pending", minimum={"cpu": 8}))
    await made.carry_out(await made.cycle())
    await made.carry_out(await made.cycle())
    for i in range(2):
        await made.finish(f"default/{name}-{i}")


def rows_of(connection: sqlite3.Connection, table: str) -> list[Row]:
    """All rows of a table."""
    cursor = connection.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def keys_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table's primary key."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]


def another(value: Any) -> Any:
    """Another value of the same type; bytes for none."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    return bytes(reversed(value or b"some")) + b"x"


def meddle(connection: sqlite3.Connection, table: str, way: str, chance: Random) -> list[Row]:
    """Change rows of a table in one way; the rows as they were and as they are."""
    rows, keys = rows_of(connection, table), keys_of(connection, table)
    if table == "checkpoint" and way == "taken out":
        rows = rows[1:]  # the oldest may go: retention takes it first
    if len(rows) < (2 if way == "exchanged" else 1):
        return []
    row, other = chance.sample(rows, 2) if len(rows) > 1 else (rows[0], rows[0])
    if way == "taken out":
        write(connection, table, keys, row, None)
        return [row]
    columns = [column for column in row if column not in keys] if way == "exchanged" else [chance.choice(list(row))]
    if way == "exchanged":
        one, two = row | {name: other[name] for name in columns}, other | {name: row[name] for name in columns}
        write(connection, table, keys, row, one)
        write(connection, table, keys, other, two)
        return [row, other] if one != row else []
    (column,) = columns
    value = other[column] if other[column] != row[column] else another(row[column])
    write(connection, table, keys, row, row | {column: value})
    return [row, row | {column: value}]


def write(connection: sqlite3.Connection, table: str, keys: list[str], row: Row, becomes: Row | None) -> None:
    """Write over a row, or delete it (None)."""
    where = " AND ".join(f"{key} = :{key}" for key in keys)
    if becomes is None:
        connection.execute(f"DELETE FROM {table} WHERE {where}", row)
        return
    values = ", ".join(f"{name} = :new_{name}" for name in becomes)
    connection.execute(f"UPDATE {table} SET {values} WHERE {where}", row | {f"new_{k}": v for k, v in becomes.items()})


def problems_of(path: Path, head: log_operations.Head) -> list[str]:
    """What ``verify`` says of a log whose head was noted; of texts that nothing proves, that nothing does."""
    try:
        found = log_operations.verify(path, head)
        return [*found.problems, *found.uncovered]
    except LogError as error:
        return [str(error)]


def test_each_table_of_a_log_is_known_here(logs: Path) -> None:
    with closing(sqlite3.connect(logs / "whole")) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    empty = {"segment"}  # an older vcd wrote it, in logs that are not read any more
    assert names - {"sqlite_sequence"} - empty == set(NAMES)


@pytest.mark.parametrize("log", LOGS)
def test_a_log_as_it_was_written_is_sound(logs: Path, log: str) -> None:
    found = log_operations.verify(logs / log)
    assert (found.problems, found.uncovered, found.head is None) == ([], [], False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("table", NAMES)
@pytest.mark.parametrize("log", LOGS)
def test_what_was_done_to_a_row_is_found(
    logs: Path, heads: dict[str, log_operations.Head | None], tmp_path: Path, log: str, table: str, way: str
) -> None:
    head = heads[log]
    assert head is not None
    chance = Random(f"{log} {table} {way}")
    for _ in range(DRAWS):
        path = shutil.copy(logs / log, tmp_path / "log")
        with closing(sqlite3.connect(path)) as connection:
            try:
                touched = meddle(connection, table, way, chance)
                connection.commit()
            except sqlite3.IntegrityError:
                continue
        if not touched or is_unknown(log, table, touched):
            continue
        problems = problems_of(path, head)
        names = [name.format(next=next_event(row), **row) for row in touched for name in NAMES[table]]
        assert any(name in problem for name in names for problem in problems), (touched, problems)


def next_event(row: Row) -> int | None:
    """The event after a row of a table, where it has a place among them."""
    place = row.get("after", row.get("sequence"))
    return None if place is None else place + 1


def is_unknown(log: str, table: str, touched: list[Row]) -> bool:
    """Which event, gone by now, loaded a configuration last: it decides nothing, and nothing else tells it."""
    return (log, table) == ("shortened", "policy") and {k for k in touched[0] if touched[0][k] != touched[-1][k]} == {
        "sequence"
    }
