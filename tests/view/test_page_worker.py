"""The process that answers: whose turn it is, how long that may last, and who goes away meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.kube.scripted import until
from tests.timetravel.histories import write_busy_history
from vcd.view.page_worker import LIMIT, Worker
from vcd.view.visibility import UnreviewedRights


class Asked:
    """A worker with a log of eight sessions to ask about, in a time that passes when it is told to."""

    def __init__(self, worker: Worker, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worker = worker
        self.path = path
        self._ahead = 0.0
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._ahead)

    def passes(self, seconds: float) -> None:
        """Let so much time pass."""
        self._ahead += seconds

    async def head(self, path: Path | None = None, requester: str = "") -> int:
        """The last session of a log."""
        found = await self.worker.ask(str(path or self.path), "head", (), None, requester=requester)
        assert not isinstance(found, UnreviewedRights)
        return int(json.loads(found[1])["last"])

    async def waiting(self, path: Path | None = None, requester: str = "") -> asyncio.Task[int]:
        """The same, for which another question has to end first."""
        assert self.worker._turn.locked()
        task = asyncio.create_task(self.head(path, requester))
        await asyncio.sleep(0)
        return task

    def process(self) -> int:
        """The process that answers."""
        assert self.worker._pool is not None
        (pid,) = self.worker._pool._processes
        return pid

    async def held(self) -> asyncio.Task[int]:
        """A question at its turn, to a process that stands still until it is told to go on."""
        await self.head()
        os.kill(self.process(), signal.SIGSTOP)
        task = asyncio.create_task(self.head())
        await until(self.worker._turn.locked)
        return task

    def goes_on(self) -> None:
        """Let the process go on."""
        os.kill(self.process(), signal.SIGCONT)


@pytest.fixture
async def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asked]:
    await write_busy_history(tmp_path / "busy.log")
    worker = Worker()
    yield Asked(worker, tmp_path / "busy.log", monkeypatch)
    await worker.stop()


async def test_the_limit_of_a_question_begins_with_its_turn(asked: Asked) -> None:
    first = await asked.held()
    asked.passes(5)
    second = await asked.waiting()
    asked.passes(LIMIT - 5)
    with pytest.raises(web.HTTPServiceUnavailable) as refused:
        await first
    assert refused.value.text == "the answer takes more than 60 s; try again later"
    await until(lambda: asked.worker._pool)  # the turn of the second one
    asked.passes(LIMIT / 2)
    assert await second == 8


async def test_who_waits_too_long_hears_so_and_nobodys_process_ends(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await asked.held()
    process = asked.process()
    monkeypatch.setattr("vcd.view.page_worker.LIMIT", 0.0)
    with pytest.raises(web.HTTPServiceUnavailable) as refused:
        await asked.head()
    assert refused.value.text == "busy: earlier queries took more than 0 s; try again"
    monkeypatch.undo()
    asked.goes_on()
    assert (await first, await asked.head(), asked.process()) == (8, 8, process)


async def test_who_goes_away_while_waiting_takes_no_turn(asked: Asked, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    await write_busy_history(other)
    was_opened = other.with_name("other.log-shm").exists
    first = await asked.held()
    second = await asked.waiting(other)
    third = await asked.waiting()
    second.cancel()
    asked.goes_on()
    assert (await first, await third, was_opened()) == (8, 8, False)
    assert (await asked.head(other), was_opened()) == (8, True)


async def test_what_nobody_waits_for_any_more_is_given_up_at_its_limit(asked: Asked) -> None:
    first = await asked.held()
    process = asked.process()
    first.cancel()
    asked.passes(5)
    second = await asked.waiting()
    asked.passes(LIMIT - 5)
    assert await second == 8
    assert asked.process() != process


async def test_many_questions_of_one_requester_delay_another_by_one(asked: Asked) -> None:
    first = await asked.held()
    many = [await asked.waiting(requester="ann") for _ in range(20)]
    one = await asked.waiting(requester="bob")
    asked.goes_on()
    assert (await first, await one) == (8, 8)
    assert sum(task.done() for task in many) <= 1
    assert await asyncio.gather(*many) == [8] * 20
    assert len(asked.worker._turn_of) == 0


async def test_a_question_that_is_given_up_leaves_its_requester_free(asked: Asked) -> None:
    first = await asked.held()
    second, third = [await asked.waiting(requester="ann") for _ in range(2)]
    third.cancel()
    other = await asked.waiting(requester="bob")
    asked.goes_on()
    assert (await first, await second, await other) == (8, 8, 8)
    assert third.cancelled()
    assert await asked.head(requester="ann") == 8
