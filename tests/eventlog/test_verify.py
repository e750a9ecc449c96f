"""``verify`` finds each kind of damage, and says where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventlog.samples import execute, fold, gone, outcome, spoil_plan, write_history
from vcd.eventlog import EventLog, LogError, Logged, LogReader, verify

DAMAGE = {
    "DELETE FROM event WHERE sequence = 5": "events 5 to 5 are missing",
    "DELETE FROM event WHERE sequence BETWEEN 1 AND 3; DELETE FROM checkpoint": "the history begins with event 4",
    "UPDATE event SET time = 1 WHERE sequence = 8": "event 8: its time is before",
    "UPDATE event SET payload = x'01ff' WHERE sequence = 2": "event 2 cannot be read",
    "UPDATE event SET payload = x'00c1' WHERE sequence = 2": "event 2: ns/pod-2",
    "UPDATE event SET payload = x'' WHERE sequence = 2": "event 2 cannot be read",
    "UPDATE event SET payload = NULL WHERE sequence = 4": "event 4 cannot be read",
    "UPDATE event SET type = 'other' WHERE sequence = 4": "event 4: its columns",
    "UPDATE event SET key = 'ns/other' WHERE sequence = 4": "event 4: its columns",
    "UPDATE session SET epoch = 9 WHERE number = 1": "session 1: the index of its entry",
    "UPDATE statement SET verdict = 'stale' WHERE session = 2": "session 2: the index of its statements",
    "UPDATE operation SET node = 'other' WHERE session = 2": "session 2: the index of its operations",
    "DELETE FROM operation WHERE session = 2 AND operation = 1": "event 12: the outcome of operation 1 of statement 0",
    "DELETE FROM session WHERE number = 2": "1 sessions are indexed, 2 are in the events",
    "DELETE FROM outcome WHERE sequence = 6": "event 6: its outcome is not indexed",
    "DELETE FROM group_event WHERE sequence = 4": "event 4: the groups that it concerns",
    "UPDATE group_event SET sequence = 5 WHERE sequence = 4": "event 5: the groups that it concerns",
    "INSERT INTO group_event VALUES ('ns/gang', 7)": "event 7: the groups that it concerns",
    "INSERT INTO outcome VALUES (3, 1, 0, 0, 'done')": "5 outcomes are indexed, 4 are in the events",
    "UPDATE checkpoint SET digest = x'00'": "checkpoint 6 is damaged",
    "UPDATE checkpoint_part SET data = x'00'": "checkpoint 6 cannot be read",
    "DELETE FROM checkpoint_part": "checkpoint 6 is damaged",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    assert verify(path, fold).problems == []
    execute(path, damage)
    problems = verify(path).problems
    assert any(DAMAGE[damage] in problem for problem in problems), problems


OTHER_TYPES = {
    "UPDATE event SET payload = 7 WHERE sequence = 2": "event 2 cannot be read",
    "UPDATE event SET payload = 'text' WHERE sequence = 2": "event 2 cannot be read",
    "UPDATE event SET time = 'text' WHERE sequence = 2": "event 2 cannot be read",
    "UPDATE event SET key = x'07' WHERE sequence = 4": "event 4 cannot be read",
    "UPDATE event SET kind = x'ff' WHERE sequence = 4": "event 4 cannot be read",
    "UPDATE checkpoint_part SET data = 7": "checkpoint 6 cannot be read",
    "UPDATE dictionary SET content = 7": "the dictionary of its payloads is missing",
}


@pytest.mark.parametrize("damage", OTHER_TYPES)
async def test_a_column_whose_type_a_disk_changed_is_found(tmp_path: Path, damage: str) -> None:
    """Types stand in a row as amounts do, and SQLite does not look at them as it reads: one flipped bit is enough."""
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    execute(path, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')')")
    execute(path, damage)
    with pytest.raises(LogError, match=OTHER_TYPES[damage]), LogReader(path) as reader:
        list(reader.read())
        reader.latest_checkpoint()
    if "dictionary" not in damage:
        problems = verify(path).problems
        assert any(OTHER_TYPES[damage] in problem for problem in problems), problems


async def test_a_session_whose_plan_cannot_be_read_is_found(tmp_path: Path) -> None:
    """The groups that it concerns cannot be told either, and are indexed still."""
    path = tmp_path / "log.sqlite"
    await write_history(path, 2)
    spoil_plan(path)
    problems = verify(path, fold).problems
    assert any(problem.startswith("session 1: its plan cannot be read") for problem in problems), problems


async def test_damaged_pages_are_found(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([gone(n) for n in range(2000)])
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    assert any(problem.startswith("SQLite:") or "damaged" in problem for problem in verify(path).problems)


async def test_an_outcome_of_no_operation_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    async with EventLog.open(path) as log:
        await log.append([outcome(1, 7)])
    assert verify(path).problems == [
        "event 7: the outcome of operation 7 of statement 0 in session 1, which has no such operation"
    ]


async def test_a_state_that_is_not_the_fold_of_its_events_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    async with EventLog.open(path) as log:
        await log.checkpoint(12, b"another state")
    assert verify(path).problems == []
    assert verify(path, fold).problems == ["checkpoint 12: folding the events 7 to 12 gives another state"]


async def test_a_file_that_is_being_written_can_be_verified(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1, 2))
    async with EventLog.open(path) as log:
        await log.append([gone(1)])

        def fold_meanwhile(state: bytes, events: Iterator[Logged]) -> bytes:
            with LogReader(path) as reader:
                assert reader.head() == 13
            return fold(state, events)

        assert verify(path, fold_meanwhile).problems == []
