"""Files of files that have lost their beginning, or were changed: what is made of them is sound, or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.eventlog.samples import fold, write_history
from vcd.eventlog import LogError, export, verify


async def test_an_event_that_was_changed_is_not_in_the_state_that_an_export_begins_with(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "out"
    await write_history(path, 4)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE event SET key = 'ns/other' WHERE sequence = 2")
    assert verify(path, fold).problems
    with pytest.raises(LogError, match="event 2 was changed after it was logged"):
        export(path, out, fold, first=3)
    assert not out.exists()
