"""Questions to a log that is being written: all parts of an answer are as of one moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import dsl
from tests.timetravel.histories import scheduler
from vcd import api
from vcd.eventlog import LogReader
from vcd.timetravel.history import opened
from vcd.timetravel.overview import glances


async def test_an_answer_is_as_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with scheduler(path) as made:
        await made.show(dsl.queue("default"), dsl.node("n", cpu=8), dsl.gang("waits", 1, cpu=9))
        await made.cycle(seconds=60)
        with api.open(path) as log:
            with log.pinned():
                job = log.job("waits")
                before = job.verdict(), job.story(), log.history.reader.head()
                await made.show(dsl.node("large", cpu=16))
                await made.carry_out(await made.cycle(seconds=60))
                with log.pinned():  # it may be nested
                    assert log.history.reader.head() == before[2]
                again = log.job("waits")
                assert (again.verdict(), again.story(), log.history.reader.head()) == before
            assert log.history.reader.head() == made.log.head
            assert log.job("waits").story().state != before[1].state


async def test_the_next_glance_sees_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with scheduler(path) as made:
        await made.show(dsl.queue("default"), dsl.node("n", cpu=8))
        await made.cycle()
        with opened(path) as history:
            found = glances(history)
            assert next(found).session == 1
            await made.cycle()
            assert next(found).session == 2


async def test_an_error_ends_the_pin(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with scheduler(path) as made:
        await made.show(dsl.queue("default"))
        with LogReader(path) as reader:
            with pytest.raises(ZeroDivisionError), reader.pinned():
                assert reader.head() == made.log.head
                raise ZeroDivisionError
            await made.show(dsl.node("n", cpu=8))
            assert reader.head() == made.log.head
