"""Export, import over handovers, compact."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.eventlog.samples import fold, gone, noise, outcome, put, session, write_history
from vcd.eventlog import EventLog, LogError, LogReader, compact, export, transfer, verify
from vcd.eventlog.log_file import open_for_writing
from vcd.model.events import PolicyLoaded


def state_at(path: Path, sequence: int) -> bytes:
    """The state as of an event, as a replay rebuilds it."""
    with LogReader(path) as reader:
        base = reader.base(sequence)
        return fold(base.state, reader.read(base.sequence, sequence))


def heads(path: Path) -> list[tuple[int, bytes]]:
    """The epoch of each session and the state that it was decided from."""
    with LogReader(path) as reader:
        return [(info.epoch, state_at(path, info.head)) for info in reader.sessions()]


async def test_an_export_holds_the_sessions_and_what_their_replay_needs(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 6, checkpoints=(1, 2, 4))
    written = export(path, out, fold, 4, 5)
    assert (written.first, written.last, written.sessions) == (22, 33, 2)
    assert verify(out, fold).problems == []
    with LogReader(path) as reader, LogReader(out) as exported:
        assert [c.sequence for c in exported.checkpoints()] == [21, 24]
        assert list(exported.read()) == list(reader.read(21, 33))
        assert [exported.session(n) for n in (4, 5)] == [reader.session(n) for n in (4, 5)]
    assert state_at(out, 30) == state_at(path, 30)


async def test_an_export_from_the_beginning_begins_with_the_first_event(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 3)
    assert export(path, out, fold, last=2).first == 1
    assert verify(out, fold).problems == []


async def test_an_export_of_later_sessions_holds_nothing_of_before(tmp_path: Path) -> None:
    """Whoever gets it sees no object, no session and no configuration of an earlier time but by the state then."""
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    async with EventLog.open(path) as log:
        await log.append([PolicyLoaded("old", "actions: secret"), put(1)])
        await log.append([session(1, 2), gone(1), PolicyLoaded("digest", "actions: allocate"), put(2)])
        await log.append([session(2, 6), outcome(2), put(3)])
    written = export(path, out, fold, 2)
    assert (written.first, written.last, written.sessions) == (7, 9, 1)
    assert verify(out, fold).problems == []
    assert state_at(out, 9) == state_at(path, 9)
    with LogReader(out) as exported:
        assert [logged.sequence for logged in exported.read()] == [7, 8, 9]
        assert list(exported.object_history("Pod", "ns/pod-1")) == []
        assert exported.policy("digest") == "actions: allocate"
        with pytest.raises(LogError, match="configuration old is not in it"):
            exported.policy("old")


async def test_an_export_is_one_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "sub" / "out.sqlite"
    out.parent.mkdir()
    await write_history(path, 2)
    export(path, out, fold)
    assert [(file.name, stat.S_IMODE(file.stat().st_mode)) for file in out.parent.glob("*")] == [("out.sqlite", 0o600)]


async def test_an_export_can_be_written_on(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 3, checkpoints=(2,))
    export(path, out, fold, 3)
    await write_history(out, 1)
    assert verify(out, fold).problems == []


async def test_an_export_of_no_session_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "sub" / "out.sqlite"
    out.parent.mkdir()
    await write_history(path, 2)
    with pytest.raises(LogError, match="no session from 3 to the end"):
        export(path, out, fold, 3)
    assert list(out.parent.glob("*")) == []


async def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 1)
    out.write_text("mine")
    with pytest.raises(LogError, match="exists already"):
        export(path, out, fold)
    assert out.read_text() == "mine"


async def test_an_export_beyond_what_is_kept_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([put(1), put(2)])
        await log.checkpoint(2, b"state")
        await log.append([session(1, 1)])
        await log.retain(max_age=0)
    with pytest.raises(LogError, match="cannot be rebuilt"):
        export(path, tmp_path / "out.sqlite", fold)


async def test_compacting_gives_room_back_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([noise(n, 900) for n in range(500)])
        await log.run_in_transaction(lambda db: db.execute("DELETE FROM event WHERE sequence > 100"))
    with LogReader(path) as reader:
        events = list(reader.read())
    before, after = compact(path)
    assert after < before / 2
    with LogReader(path) as reader:
        assert list(reader.read()) == events
    assert verify(path).problems == []


async def test_what_compacting_writes_first_is_in_a_file_and_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "log.sqlite", set[str]()
    async with EventLog.open(path) as log:
        await log.append([noise(n, 900) for n in range(500)])

    def look() -> None:
        """At the files that this process has open, while SQLite works."""
        for file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                seen.add(file.readlink().name[:7])

    @contextmanager
    def opened(path: Path) -> Iterator[sqlite3.Connection]:
        with open_for_writing(path) as connection:
            connection.execute("PRAGMA cache_size = 10")  # pages, beyond which a file is made
            connection.set_progress_handler(look, 1000)
            yield connection

    monkeypatch.setattr(transfer, "open_for_writing", opened)
    compact(path)
    assert "etilqs_" in seen, "SQLite's name for a temporary file"


async def test_a_log_that_is_written_is_not_compacted(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        with pytest.raises(LogError, match="locked"):
            compact(log.path)
