"""Between two steps of retention, be it that it goes on or that its process is gone, what is read of a log is sound."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.eventlog.samples import Clock, fold, write_history
from tests.eventlog.test_replication import copied
from vcd.eventlog import EventLog, LogError, LogReader, export, verify
from vcd.eventlog.replication import LogSource, write_piece
from vcd.eventlog.rewind import rewind


class Ended(Exception):
    """The process is gone."""


async def begin_retention(path: Path, clock: Clock, steps: int) -> None:
    """Its first steps."""
    async with EventLog.open(path, clock=clock) as log:
        transact = log.run_in_transaction

        async def ending(work: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps < 0:
                raise Ended
            return await transact(work)

        log.run_in_transaction = ending  # type: ignore[method-assign]
        with suppress(Ended):
            await log.retain(max_age=0)


@pytest.mark.parametrize("steps", range(8))
async def test_an_export_is_sound_or_refused(tmp_path: Path, steps: int) -> None:
    path, out, clock = tmp_path / "log", tmp_path / "out", Clock()
    await write_history(path, 6, checkpoints=(2, 4, 6), clock=clock)
    await begin_retention(path, clock, steps)
    assert verify(path, fold).problems == []
    with suppress(LogError):
        export(path, out, fold, last=5)
        assert verify(out, fold).problems == []


@pytest.mark.parametrize("steps", range(8))
async def test_a_copy_that_goes_back_is_sound(tmp_path: Path, steps: int) -> None:
    path, out, clock = tmp_path / "log", tmp_path / "out", Clock()
    await write_history(path, 6, checkpoints=(2, 4, 5), clock=clock)
    await begin_retention(path, clock, steps)
    await copied(path, out)
    with LogReader(out) as reader:
        oldest = reader.oldest()
    rewind(out, max(oldest, 22))
    assert verify(out, fold).problems == []


@pytest.mark.parametrize("sent", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", range(4))
async def test_a_copy_that_is_made_beside_it_lacks_no_checkpoint(
    tmp_path: Path, steps: int, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcd.eventlog.replication._MAX_EVENTS", 10)
    path, out, clock = tmp_path / "log", tmp_path / "out", Clock()
    await write_history(path, 8, checkpoints=(2, 4, 6, 8), clock=clock)
    with LogSource(path) as source:
        async with EventLog.open(out) as log:
            for piece in source.pieces_from_start():
                await write_piece(log, piece)
            news = source.new_pieces()
            for _ in range(sent):
                await write_piece(log, next(news))
            await begin_retention(path, clock, steps)
            with suppress(LogError):
                for piece in news:
                    await write_piece(log, piece)
    assert verify(out, fold).problems == []
