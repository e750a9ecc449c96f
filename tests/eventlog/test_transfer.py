"""Export, import over handovers, compact."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.eventlog.samples import as_is, fold, gone, leads, noise, outcome, put, session, write_history
from vcd.eventlog import EventLog, LogError, Logged, LogReader, compact, export, import_logs, transfer, verify
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
    for write in (lambda: export(path, out, fold), lambda: import_logs([path], out, as_is)):
        with pytest.raises(LogError, match="exists already"):
            write()
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


async def write_replicas(folder: Path) -> tuple[Path, Path]:
    """The logs of two replicas: a led epoch 1 and 3, b led epoch 2; each saw other events around it."""
    a, b = folder / "a.sqlite", folder / "b.sqlite"
    async with EventLog.open(a) as log:
        await log.append([put(1), leads(1), session(1, 2), outcome(1, 0), put(2), session(2, 5)])
        await log.append([leads(1, leading=False), outcome(2, 1), put(30), gone(30)])
        await log.append([leads(3), put(4), session(3, 12, epoch=3), outcome(3)])
    async with EventLog.open(b) as log:
        await log.append([put(1), put(2)])
        await log.checkpoint(2, fold(b"", iter([Logged(1, 0, put(1)), Logged(2, 0, put(2))])))
        await log.append([put(3), leads(2), put(30), session(1, 4, epoch=2), outcome(1, 1), leads(2, leading=False)])
        await log.append([gone(30), put(4), put(5)])
    return a, b


async def test_an_import_replays_every_session_over_the_handovers(tmp_path: Path) -> None:
    a, b = await write_replicas(tmp_path)
    out = tmp_path / "out.sqlite"
    assert import_logs([b, a], out, as_is).sessions == 4
    assert verify(out, fold).problems == []
    (first, second, last), (middle,) = heads(a), heads(b)
    assert heads(out) == [first, second, middle, last]


async def test_an_import_numbers_sessions_anew_and_keeps_their_plans_and_outcomes(tmp_path: Path) -> None:
    a, b = await write_replicas(tmp_path)
    out = tmp_path / "out.sqlite"
    import_logs([a, b], out, as_is)
    with LogReader(out) as merged, LogReader(a) as of_a, LogReader(b) as of_b:
        assert [merged.session(n).plan for n in (1, 2, 3, 4)] == [
            of_a.session(1).plan, of_a.session(2).plan, of_b.session(1).plan, of_a.session(3).plan,
        ]  # fmt: skip
        found = [(o.session, o.result) for o in merged.operations_of("ns/pod-2")]
        assert found == [(1, None), (2, "done"), (3, "done"), (4, None)]


async def test_an_import_of_one_file_is_that_file(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 4, checkpoints=(2,))
    import_logs([path], out, as_is)
    with LogReader(path) as reader, LogReader(out) as merged:
        assert list(merged.read()) == list(reader.read())
        assert merged.checkpoints() == reader.checkpoints()
    assert verify(out, fold).problems == []


async def test_an_import_can_be_exported(tmp_path: Path) -> None:
    a, b = await write_replicas(tmp_path)
    out, part = tmp_path / "out.sqlite", tmp_path / "part.sqlite"
    import_logs([a, b], out, as_is)
    export(out, part, fold, 3, 4)
    assert verify(part, fold).problems == []
    assert heads(part) == heads(out)[2:]


async def test_an_import_begins_with_the_oldest_checkpoint_of_what_is_kept(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 4, checkpoints=(2,))
    async with EventLog.open(path) as log:
        await log.retain(max_age=0)
    assert import_logs([path], out, as_is).first == 13
    assert verify(out, fold).problems == []


async def test_two_leaders_of_one_epoch_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        await write_history(tmp_path / name, 1)
    with pytest.raises(LogError, match="both hold sessions of epoch 1"):
        import_logs([tmp_path / "a", tmp_path / "b"], tmp_path / "out", as_is)


async def test_an_import_is_not_imported_again(tmp_path: Path) -> None:
    a, b = await write_replicas(tmp_path)
    import_logs([a, b], tmp_path / "out.sqlite", as_is)
    with pytest.raises(LogError, match="an import itself"):
        import_logs([tmp_path / "out.sqlite"], tmp_path / "again.sqlite", as_is)


async def test_files_without_sessions_are_refused(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "a") as log:
        await log.append([put(1)])
    with pytest.raises(LogError, match="no session is in any"):
        import_logs([tmp_path / "a"], tmp_path / "out", as_is)


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
