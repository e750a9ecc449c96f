"""What is made of a session: computed off the event loop, told on it in slices, one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.kube.scripted import running, until
from tests.waiting import WAIT_LIMIT
from vcd.daemon.concurrency.followup import MOST, FollowUp


async def test_it_computes_in_another_thread_and_tells_on_the_loop() -> None:
    followup, threads = FollowUp(), dict[str, int]()

    def compute() -> str:
        threads["compute"] = threading.get_ident()
        return "found"

    def tell(found: str) -> Iterator[None]:
        threads[found] = threading.get_ident()
        yield

    async with running(followup.run()):
        followup.add(compute, tell)
        await followup.idle.wait()
    assert threads["found"] == threading.get_ident()
    assert threads["compute"] != threading.get_ident()


async def test_items_are_told_in_order() -> None:
    followup, told = FollowUp(), list[int]()

    def tell(number: int) -> Iterator[None]:
        for _ in range(3):
            told.append(number)
            yield

    async with running(followup.run()):
        for number in range(3):
            followup.add(lambda number=number: number, tell)  # type: ignore[misc]
        assert not followup.idle.is_set()
        await followup.idle.wait()
    assert told == [0, 0, 0, 1, 1, 1, 2, 2, 2]


async def test_who_gives_much_waits_until_most_of_it_is_done() -> None:
    followup = FollowUp()
    for _ in range(MOST):
        followup.add(lambda: None, lambda _: iter(()))
    await asyncio.wait_for(followup.room(), WAIT_LIMIT)
    followup.add(lambda: None, lambda _: iter(()))
    waits = asyncio.ensure_future(followup.room())
    await asyncio.sleep(0)
    assert not waits.done()
    async with running(followup.run()):
        await waits


async def test_the_loop_turns_while_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.daemon.concurrency.followup.SLICE", -1.0)  # each step is a slice, however fast the machine
    followup, turns = FollowUp(), 0

    async with running(followup.run()):
        followup.add(lambda: None, lambda _: iter([None] * 10))
        while not followup.idle.is_set():
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 10


async def test_nothing_is_told_while_a_session_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.daemon.concurrency.followup.SLICE", -1.0)  # each step is a slice, however fast the machine
    followup, told = FollowUp(), list[int]()

    def tell(_: None) -> Iterator[None]:
        for number in range(100):
            told.append(number)
            yield

    async def turns() -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        return len(told)

    async with running(followup.run()):
        with followup.session():
            computed: list[None] = []
            followup.add(lambda: computed.append(None), tell)
            await until(lambda: computed)
            assert await turns() == 0
        while not told:  # noqa: ASYNC110 - other ways to wait would let all of it be told
            await asyncio.sleep(0)
        with followup.session():
            began = await turns()
            assert began < 20
            assert await turns() == began
        await followup.idle.wait()
    assert told == list(range(100))
