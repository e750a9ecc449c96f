"""A copy of a log is the same log; and a log that went another way goes back to where the two part."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from tests.eventlog.samples import SECOND, Clock, fold, leads, put, session, write_history
from vcd.eventlog import EventLog, LogError, LogReader, verify
from vcd.eventlog.replication import (
    CheckpointPiece,
    EventsPiece,
    LogSource,
    Piece,
    Position,
    StartPiece,
    sample_positions,
    write_piece,
)
from vcd.eventlog.rewind import rewind
from vcd.model.events import PolicyLoaded

TABLES = (
    "event", "session", "statement", "operation", "outcome", "group_event", "checkpoint", "checkpoint_part", "seal",
)  # fmt: skip
_wire = msgspec.msgpack.Decoder(Piece)


def sent(piece: Piece) -> Piece:
    """A piece as it arrives."""
    found: Piece = _wire.decode(msgspec.msgpack.encode(piece))
    return found


def content(path: Path, *, tables: tuple[str, ...] = TABLES) -> dict[str, list[Any]]:
    """All rows of a log, its payloads unpacked, the configurations without where they were loaded last."""
    with LogReader(path) as reader:
        events = [(reader.parse_row(row[:-1])[0], row[-1]) for row in reader.cursor("chained")]
        policies = sorted((digest, text) for digest, text, _ in reader.rows("policies"))
    with closing(sqlite3.connect(path)) as db:
        rows = {table: sorted(db.execute(f"SELECT * FROM {table}").fetchall()) for table in tables if table != "event"}
        rows["numbered"] = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'session'").fetchall()
    return {**rows, "event": events, "policy": policies}


async def copy_all(source: LogSource, out: Path) -> None:
    """What a source has to send, written into a log."""
    async with EventLog.open(out) as log:
        for piece in source.new_pieces():
            await write_piece(log, sent(piece))


async def copied(path: Path, out: Path) -> None:
    """A copy of a whole log."""
    with LogSource(path) as source:
        async with EventLog.open(out) as log:
            for piece in (*source.pieces_from_start(), *source.new_pieces()):
                await write_piece(log, sent(piece))


async def agree(path: Path, out: Path) -> None:
    """Find where a copy and its log part, take back what only the copy has, and copy what follows."""
    with LogSource(path) as source:
        with LogReader(out) as reader:
            known, head = sample_positions(reader), reader.head()
        shared = source.last_shared(known)
        assert shared is not None
        with LogSource(out) as own:
            sealed = own.seals_at(shared)
        if shared < head or not set(sealed) <= set(source.seals_at(shared)):
            rewind(out, shared)
            sealed = []
        source.continue_after(shared, sealed)
        await copy_all(source, out)


async def test_a_copy_holds_what_the_log_does(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    await write_history(path, 5, checkpoints=(2, 4))
    async with EventLog.open(path) as log:
        await log.append([PolicyLoaded("digest", "actions: none", {}), leads(2)])
    await copied(path, out)
    assert content(out) == content(path)
    assert verify(out, fold) == verify(path, fold)
    assert not verify(out, fold).problems


async def test_a_copy_grows_with_its_log(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    clock = Clock()
    await write_history(path, 2, checkpoints=(2,), clock=clock)
    with LogSource(path) as source:
        async with EventLog.open(out) as log:
            for piece in (*source.pieces_from_start(), *source.new_pieces()):
                await write_piece(log, piece)
            for checkpoints in ((3, 4), (), (5,)):
                await write_history(path, 1, checkpoints=checkpoints, clock=clock)
                for piece in source.new_pieces():
                    await write_piece(log, piece)
                assert not list(source.new_pieces())
    assert content(out) == content(path)
    assert not verify(out, fold).problems


async def test_a_checkpoint_that_is_kept_late_comes_after_the_events_before_it(tmp_path: Path) -> None:
    """It is kept while events go on: its seal is after a later event than its own."""
    path, out = tmp_path / "log", tmp_path / "copy"
    async with EventLog.open(path) as log:
        await log.append([put(1), put(2), put(3)])
        with LogSource(path) as source:
            async with EventLog.open(out) as copy:
                for piece in (*source.pieces_from_start(), *source.new_pieces()):
                    await write_piece(copy, piece)
                await log.checkpoint(1, b"one" * 100)  # after event 3, which the copy has
                (kept,) = source.new_pieces()
                assert isinstance(kept, CheckpointPiece) and (kept.after, kept.sequence) == (3, 1)
                await write_piece(copy, kept)
                await log.append([put(4)])
                for piece in source.new_pieces():
                    await write_piece(copy, piece)
    assert content(out) == content(path)
    assert not verify(out).problems


async def test_of_a_log_without_its_beginning_the_copy_begins_with_its_checkpoint(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    clock = Clock()
    await write_history(path, 6, checkpoints=(2, 4), clock=clock)
    async with EventLog.open(path, clock=clock) as log:
        await log.retain(max_age=3 * 60 * SECOND)
    with LogReader(path) as reader:
        assert reader.first() != 1
    await copied(path, out)
    assert content(out) == content(path)
    assert not verify(out, fold).problems
    await write_history(path, 1, clock=clock)
    await agree(path, out)
    assert content(out) == content(path)


async def test_so_does_one_of_a_log_that_an_older_vcd_kept_and_goes_on_from_there(tmp_path: Path) -> None:
    """Neither that checkpoint nor its events have links: the copy is known by the checkpoint's state."""
    path, out, clock = tmp_path / "log", tmp_path / "copy", Clock()
    await write_history(path, 6, checkpoints=(2, 4), clock=clock)
    async with EventLog.open(path, clock=clock) as log:
        await log.retain(max_age=0)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE event SET chain = NULL")
        db.execute("UPDATE checkpoint SET chain = NULL")
        db.execute("DELETE FROM seal")
    with LogSource(path) as source:
        begin, kept = source.pieces_from_start()
        async with EventLog.open(out) as log:
            for piece in (begin, kept):
                await write_piece(log, sent(piece))
        with LogReader(out) as reader:
            assert source.last_shared(sample_positions(reader)) == reader.head()
    await write_history(path, 1, clock=clock)
    await agree(path, out)
    assert content(out) == content(path)


async def test_a_copy_goes_on_where_it_was(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    clock = Clock()
    await write_history(path, 3, checkpoints=(1, 3), clock=clock)
    await copied(path, out)
    await agree(path, out)
    assert content(out) == content(path)
    await write_history(path, 3, checkpoints=(5,), clock=clock)
    await agree(path, out)
    assert content(out) == content(path)


@pytest.mark.parametrize("only", [1, 2, 3, 17])
async def test_what_only_the_copy_has_is_taken_back(tmp_path: Path, only: int) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    clock = Clock()
    await write_history(path, 4, checkpoints=(2,), clock=clock)
    await copied(path, out)
    await write_history(out, only, checkpoints=(5, 20), clock=clock)  # it went on by itself
    async with EventLog.open(path, clock=clock) as log:
        await log.append([put(900), leads(2)])
    await write_history(path, 2, checkpoints=(6,), clock=clock)
    await agree(path, out)
    assert content(out) == content(path)
    assert not verify(out, fold).problems


async def test_a_checkpoint_that_only_the_copy_kept_is_taken_back(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    await write_history(path, 2)
    await copied(path, out)
    async with EventLog.open(out) as copy:
        await copy.checkpoint(6, b"of its own")
    await write_history(path, 1)
    await agree(path, out)
    assert content(out) == content(path)
    assert not verify(out).problems


async def test_going_back_to_where_no_session_was_leaves_numbers_as_they_were_then(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await write_history(path, 3)
    rewind(path, 3)
    with LogReader(path) as reader:
        assert (reader.head(), reader.last_session()) == (3, 0)
    async with EventLog.open(path) as log:
        await log.append([session(1, 3)])
    assert not verify(path).problems


async def test_a_configuration_that_was_loaded_again_stays_with_its_first_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = PolicyLoaded("first", "actions: a", {}), PolicyLoaded("second", "actions: b", {})
    async with EventLog.open(path) as log:
        await log.append([first, put(1), second, first])
    rewind(path, 2)
    with LogReader(path) as reader:
        assert reader.rows("policies") == [("first", "actions: a", 1)]


async def test_a_log_goes_back_no_further_than_it_reaches(tmp_path: Path) -> None:
    path = tmp_path / "log"
    clock = Clock()
    await write_history(path, 6, checkpoints=(4,), clock=clock)
    async with EventLog.open(path, clock=clock) as log:
        await log.retain(max_age=60 * SECOND)
    before = content(path)
    for to in (23, 37):
        with pytest.raises(LogError, match=f"cannot go back to event {to}; it has 24 to 36"):
            rewind(path, to)
    assert content(path) == before
    rewind(path, 24)
    assert not verify(path, fold).problems


async def test_two_logs_of_different_beginnings_share_nothing(tmp_path: Path) -> None:
    await write_history(tmp_path / "one", 2)
    async with EventLog.open(tmp_path / "other") as log:
        await log.append([put(7)] * 9)
    with LogSource(tmp_path / "one") as source, LogReader(tmp_path / "other") as other:
        assert source.last_shared(sample_positions(other)) is None
        assert source.last_shared([]) is None


async def test_positions_reach_from_the_end_to_the_beginning(tmp_path: Path) -> None:
    await write_history(tmp_path / "log", 17)
    with LogReader(tmp_path / "log") as reader:
        found = sample_positions(reader)
        assert [one.sequence for one in found] == [102, 101, 100, 98, 94, 86, 70, 38, 1]
        assert found[0] == Position(102, reader.link(102) or b"")


@pytest.mark.parametrize("change", ["content", "link", "gap", "order"])
async def test_events_that_are_not_the_next_are_refused(tmp_path: Path, change: str) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    await write_history(path, 1)
    with LogSource(path) as source:
        begin, events = *source.pieces_from_start(), *source.new_pieces()
    assert isinstance(begin, StartPiece) and isinstance(events, EventsPiece)
    rows = list(events.rows)
    if change == "content":
        rows[2] = ((*rows[2][0][:4], "ns/other", *rows[2][0][5:]), rows[2][1])
    elif change == "link":
        rows[2] = (rows[2][0], b"0" * 16)
    elif change == "gap":
        del rows[2]
    else:
        rows[1], rows[2] = rows[2], rows[1]
    async with EventLog.open(out) as log:
        with pytest.raises(LogError, match=r"to (copy|be copied)"):
            await write_piece(log, EventsPiece(rows))
        assert log.head == 0
    with LogReader(out) as reader:
        assert not list(reader.read())


async def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "copy"
    await write_history(path, 1, checkpoints=(1,))
    with LogSource(path) as source:
        pieces = [*source.pieces_from_start(), *source.new_pieces()]
    async with EventLog.open(out) as log:
        for piece in pieces[:-1]:
            await write_piece(log, piece)
        kept = pieces[-1]
        assert isinstance(kept, CheckpointPiece)
        for wrong in ([b"nothing"], [*kept.parts, *kept.parts]):
            with pytest.raises(LogError, match="checkpoint 6 of another log"):
                await write_piece(log, msgspec.structs.replace(kept, parts=wrong))
        with pytest.raises(LogError, match="follows event 5, not 6"):
            await write_piece(log, msgspec.structs.replace(kept, after=5))


async def test_a_log_with_events_takes_no_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    clock = Clock()
    await write_history(path, 6, checkpoints=(2, 4), clock=clock)
    async with EventLog.open(path, clock=clock) as log:
        await log.retain(max_age=60 * SECOND)
    with LogSource(path) as source:
        _, base = source.pieces_from_start()
    async with EventLog.open(tmp_path / "other") as log:
        await log.append([put(1)])
        with pytest.raises(LogError, match="it has events already"):
            await write_piece(log, base)


async def test_what_history_has_lost_cannot_be_sent(tmp_path: Path) -> None:
    path = tmp_path / "log"
    clock = Clock()
    await write_history(path, 6, checkpoints=(4,), clock=clock)
    with LogSource(path) as source:
        source.continue_after(6, [])
        async with EventLog.open(path, clock=clock) as log:
            await log.retain(max_age=60 * SECOND)
        with pytest.raises(LogError, match="events after 6 were removed"):
            list(source.new_pieces())


async def test_a_piece_without_events_is_nothing(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "copy") as log:
        assert await write_piece(log, EventsPiece([])) == []


def test_a_checkpoint_is_unpacked_as_far_as_its_parts_are_large() -> None:
    bomb = zstandard.compress(bytes(1 << 28), 1)
    assert len(bomb) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(LogError):
            CheckpointPiece(None, 3, 0, 5, b"x", [bomb] * 4).check()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
