"""Logs of an older schema: read from a migrated copy, and left as they are."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.timetravel.histories import write_busy_history
from vcd.api import explain
from vcd.eventlog import LogError, LogReader
from vcd.eventlog.log_file import migrations
from vcd.timetravel.log_upgrade import up_to_date
from vcd.timetravel.replay import replay

_SEAL = re.compile(r"CREATE TABLE seal\b[^;]*;")


def make_older(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn a log back to before a made-up migration that brings a table which every reader needs."""
    with closing(sqlite3.connect(path)) as connection:
        ((script,),) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'seal'")
        connection.execute("DROP TABLE seal")
    before = [(number, _SEAL.sub("", text)) for number, text in migrations()]
    later = (*before, (before[-1][0] + 1, f"{script};\n"))
    monkeypatch.setattr("vcd.eventlog.log_file.migrations", lambda: later)


@pytest.fixture
async def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of eight sessions in an older schema."""
    await write_busy_history(tmp_path / "older.log")
    make_older(tmp_path / "older.log", monkeypatch)
    return tmp_path / "older.log"


def test_sessions_of_an_older_file_are_replayed_and_explained(older: Path) -> None:
    with pytest.raises(LogError, match="written by an older vcd"):
        LogReader(older)
    with up_to_date(older) as copy:
        assert [one.difference for one in replay(copy)] == [None] * 8
        assert explain(copy, "job", "first").now == "the job is Completed with 3 Succeeded"


def test_the_file_stays_as_it_is_and_the_copy_goes(older: Path) -> None:
    before = older.read_bytes()
    told: list[str] = []
    with up_to_date(older, told.append) as copy, LogReader(copy) as reader:
        assert (copy.name, copy != older, reader.last_session()) == (older.name, True, 8)
    assert (older.read_bytes(), copy.exists(), copy.parent.exists()) == (before, False, False)
    (note,) = told
    assert str(older) in note
    assert "vcd log compact" in note


def test_errors_name_the_file_and_not_its_copy(older: Path) -> None:
    with pytest.raises(LogError) as raised, up_to_date(older) as copy, LogReader(copy) as reader:
        reader.session(99)
    assert str(raised.value) == f"event log {older}: session 99 is not in it; it has sessions 1 to 8"


async def test_what_its_writer_has_not_moved_into_the_file_yet_is_read(older: Path) -> None:
    with closing(sqlite3.connect(older, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("DELETE FROM session WHERE number > 5")
        assert older.with_name(older.name + "-wal").stat().st_size
        with up_to_date(older) as copy, LogReader(copy) as reader:
            assert [info.number for info in reader.sessions()] == [1, 2, 3, 4, 5]


async def test_a_file_of_this_schema_is_read_itself(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    told: list[str] = []
    with up_to_date(tmp_path / "log", told.append) as path:
        assert (path, told) == (tmp_path / "log", [])


@pytest.mark.parametrize("made", ["empty file", "empty database"])
def test_a_file_with_nothing_in_it_is_called_empty(tmp_path: Path, made: str) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    if made == "empty database":
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")
    with pytest.raises(LogError, match=r"it is empty; `vcd run` fills it, `vcd sim` writes"), up_to_date(path):
        pass
    with pytest.raises(LogError, match="it is empty"):
        LogReader(path)


def test_a_newer_file_and_one_that_is_no_log_are_refused(older: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(older)) as connection:
        connection.execute("PRAGMA user_version = 1000")
    (tmp_path / "text").write_text("hello " * 1000)
    for path, message in (
        (older, "a newer vcd wrote it"),
        (tmp_path / "text", "not a vcd log"),
        (tmp_path / "x", "no such"),
    ):
        with pytest.raises(LogError, match=message), up_to_date(path):
            pass
