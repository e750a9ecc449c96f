"""``verify`` finds each kind of damage, and says where."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.eventlog.samples import execute, fold, gone, outcome, spoil_plan, write_history
from vcd.eventlog import EventLog, LogError, Logged, LogReader, verify
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_file import connect, connect_read_only
from vcd.eventlog.packing import PART, Packer, PackError, build_dictionary, unpack_state

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
    "DELETE FROM outcome WHERE sequence = 6": "event 6: its outcome differs from the index",
    "DELETE FROM group_event WHERE sequence = 4": "event 4: its groups differ from the index",
    "UPDATE group_event SET sequence = 5 WHERE sequence = 4": "event 5: its groups differ from the index",
    "INSERT INTO group_event VALUES ('ns/gang', 7)": "event 7: its groups differ from the index",
    "INSERT INTO outcome VALUES (3, 1, 0, 0, 'done')": "5 outcomes are indexed, 4 are in the events",
    "UPDATE checkpoint SET digest = x'00'": "checkpoint 6 is damaged",
    "UPDATE checkpoint_part SET data = x'00'": "checkpoint 6 cannot be read",
    "DELETE FROM checkpoint_part": "checkpoint 6 cannot be read: its parts do not add up",
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
    writable = "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = "
    execute(path, f"{writable} replace(sql, ') STRICT', ') /*STRICT*/')")
    execute(path, damage)
    execute(path, f"{writable} replace(sql, '/*STRICT*/', 'STRICT')")
    with pytest.raises(LogError, match=OTHER_TYPES[damage]), LogReader(path) as reader:
        list(reader.read())
        reader.latest_checkpoint()
    if "dictionary" not in damage:
        (problem,) = verify(path).problems
        assert problem.startswith("SQLite: non-")


async def test_a_schema_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2)
    flipped = "replace(sql, 'chained', CAST(x'636861696eff64' AS TEXT))"
    execute(path, f"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = {flipped} WHERE name = 'segment'")
    with pytest.raises(DamagedLog, match="not UTF-8"), LogReader(path):
        pass


_DISGUISED = """
CREATE TRIGGER odd AFTER INSERT ON event BEGIN DELETE FROM outcome; END;
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET name = 'sqlite_odd', sql = replace(sql, 'odd', 'sqlite_odd') WHERE name = 'odd'
"""
"""A trigger that has a name as SQLite gives to objects of its own."""
HOSTILE = {
    "CREATE TRIGGER odd AFTER INSERT ON event BEGIN DELETE FROM outcome; END": "its trigger odd is not that of",
    _DISGUISED: "its trigger sqlite_odd is not that of",
    "CREATE VIEW odd AS SELECT * FROM event": "its view odd is not that of",
    "DROP TABLE seal; CREATE VIEW seal AS SELECT 1 AS after, 2 AS checkpoint, 3 AS time, 4 AS digest": "seal is not",
    "CREATE TABLE odd (a)": "its table odd is not that of",
    "DROP INDEX operation_key; CREATE INDEX operation_key ON operation (lower(key))": "its index operation_key is not",
    "ALTER TABLE seal ADD COLUMN more BLOB": "its table seal is not that of",
    "ALTER TABLE seal DROP COLUMN digest": "its table seal is not that of",
    "DROP TABLE group_event": "its table group_event is not that of",
}


@pytest.mark.parametrize("change", HOSTILE)
async def test_a_file_whose_schema_is_not_that_of_the_migrations_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    execute(path, change)
    with pytest.raises(LogError, match=HOSTILE[change]), LogReader(path):
        pass
    with pytest.raises(LogError, match=HOSTILE[change]):
        verify(path)
    with pytest.raises(LogError, match=HOSTILE[change]):
        async with EventLog.open(path):
            pass


async def test_no_schema_of_a_file_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 1)
    for connection in (connect(path), connect_read_only(path)):
        with closing(connection):
            assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)


def bomb(size: int) -> bytes:
    """A frame of a few bytes that says, and is, so many bytes of zeros."""
    maker = zstandard.ZstdCompressor(level=1)
    stream = maker.compressobj(size=size)
    block = bytes(PART)
    return b"".join([*(stream.compress(block) for _ in range(size // PART)), stream.flush()])


@pytest.mark.parametrize("says", [4 * PART, 6])
async def test_a_checkpoint_is_not_unpacked_before_its_size_is_known(
    tmp_path: Path, says: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoint_part SET data = ?", (bomb(4 * PART),))
        connection.execute("UPDATE checkpoint SET size = ?", (says,))
    monkeypatch.setattr("zstandard.decompress", lambda *_: pytest.fail("it is unpacked"))
    with (
        LogReader(path) as reader,
        pytest.raises(LogError, match="checkpoint 6 cannot be read: its parts do not add up"),
    ):
        reader.latest_checkpoint()


async def test_a_state_larger_than_any_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [bomb(PART)] * 4
    monkeypatch.setattr("vcd.eventlog.packing.MAX_STATE", 4 * PART)
    assert len(unpack_state(parts, 4 * PART)) == 4 * PART
    monkeypatch.setattr("vcd.eventlog.packing.MAX_STATE", 4 * PART - 1)
    with pytest.raises(PackError, match="exceeds the limit"):
        unpack_state(parts, 4 * PART)


def test_a_payload_is_not_unpacked_before_its_size_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.eventlog.packing._MAX_PAYLOAD", PART)
    packer = Packer({1: build_dictionary()})
    for body in (bomb(2 * PART), zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * 1000)):
        with pytest.raises(PackError, match="has no size, or more than"):
            packer.unpack(b"\x01" + body)


def test_what_is_unpacked_is_in_proportion_to_what_is_packed() -> None:
    packer = Packer({1: build_dictionary()})
    size = 32 * PART
    with pytest.raises(
        PackError, match=r"packed payload of [\d,]+ bytes has no size, or more than 1[67],\d{3},\d{3} b"
    ):
        packer.unpack(b"\x01" + bomb(size))
    with pytest.raises(PackError, match="exceeds the limit"):
        unpack_state([bomb(PART)] * 32, size)
    assert packer.unpack(packer.pack(bytes(size))) == bytes(size)


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
