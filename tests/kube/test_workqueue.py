"""The keyed queue behind statuses and Events."""

from __future__ import annotations

import asyncio

import structlog

from tests.kube.scripted import running, until
from vcd.kube.workqueue import WorkQueue


async def test_only_the_newest_of_a_key_is_worked_on() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10)
    done: list[tuple[str, int]] = []

    async def work(key: str, value: int) -> None:
        done.append((key, value))

    for value in range(3):
        queue.put("a", value)
    async with running(queue.serve(2, work)):
        await queue.idle.wait()
    assert done == [("a", 2)]


async def test_a_key_has_one_worker_at_a_time() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10)
    gate, done = asyncio.Event(), []
    started: list[int] = []

    async def work(key: str, value: int) -> None:
        started.append(value)
        await gate.wait()
        done.append(value)

    async with running(queue.serve(3, work)):
        queue.put("a", 1)
        await until(lambda: started)
        queue.put("a", 2)
        queue.put("a", 3)
        queue.put("b", 4)
        await until(lambda: len(started) == 2)
        assert started == [1, 4]
        gate.set()
        await queue.idle.wait()
    assert sorted(done) == [1, 3, 4]


async def test_the_newest_value_is_queued_or_worked_on_and_not_of_before_a_clear() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10)
    gate = asyncio.Event()

    async def work(key: str, value: int) -> None:
        await gate.wait()

    async with running(queue.serve(1, work)):
        assert queue.newest("a") is None
        queue.put("a", 1)
        await until(lambda: queue.pending("a") is None)
        assert queue.newest("a") == 1
        queue.put("a", 2)
        assert queue.newest("a") == 2
        queue.clear()
        assert queue.newest("a") is None
        gate.set()
        await queue.idle.wait()


async def test_lower_ranks_go_first() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10, ranks=2)
    done: list[str] = []

    async def work(key: str, value: int) -> None:
        done.append(key)

    queue.put("pod", 1, rank=1)
    queue.put("group", 1, rank=0)
    async with running(queue.serve(1, work)):
        await queue.idle.wait()
    assert done == ["group", "pod"]


def _lane(key: str) -> str:
    return key[0]


async def test_lanes_take_turns() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10, ranks=2, lane_of=_lane)
    done: list[str] = []

    async def work(key: str, value: int) -> None:
        done.append(key)

    for key, rank in (("a1", 1), ("a2", 0), ("a3", 0), ("b1", 1), ("c1", 0), ("b2", 1)):
        queue.put(key, 1, rank=rank)
    async with running(queue.serve(1, work)):
        await queue.idle.wait()
        queue.put("a4", 1)
        await queue.idle.wait()
    assert done == ["a2", "b1", "c1", "a3", "b2", "a1", "a4"]


async def test_a_full_queue_drops_the_last_key_of_the_longest_lane() -> None:
    dropped: list[str] = []
    queue: WorkQueue[str, int] = WorkQueue(4, ranks=2, on_dropped=dropped.append, lane_of=_lane)
    done: list[str] = []

    async def work(key: str, value: int) -> None:
        done.append(key)

    for key, rank in (("a1", 1), ("a2", 0), ("a3", 1), ("a4", 0), ("a5", 0), ("b1", 1), ("c1", 0), ("b2", 1)):
        queue.put(key, 1, rank=rank)
    assert dropped == ["a5", "a3", "a1", "a4"]
    async with running(queue.serve(1, work)):
        await queue.idle.wait()
    assert done == ["a2", "b1", "c1", "b2"]


async def test_a_full_queue_drops_new_keys() -> None:
    queue: WorkQueue[str, int] = WorkQueue(1)
    for key, value in (("a", 1), ("b", 1), ("a", 2)):
        queue.put(key, value)
    assert (len(queue), queue.pending("a"), queue.pending("b")) == (1, 2, None)


async def test_what_is_dropped_is_told_one_by_one_and_logged_once_until_there_was_room_again() -> None:
    dropped: list[int] = []
    queue: WorkQueue[int, int] = WorkQueue(4, on_dropped=dropped.append)

    async def work(key: int, value: int) -> None: ...

    with structlog.testing.capture_logs() as lines:
        for key in range(6):
            queue.put(key, 0)
        async with running(queue.serve(1, work)):
            await queue.idle.wait()
        for key in range(6):
            queue.put(key, 0)
    assert dropped == [4, 5, 4, 5]
    assert [(line["event"], line["key"], line["capacity"]) for line in lines] == [("work_dropped", 4, 4)] * 2


async def test_a_queue_that_stays_nearly_full_is_logged_once() -> None:
    dropped: list[int] = []
    queue: WorkQueue[int, int] = WorkQueue(8, on_dropped=dropped.append)
    begun, go_on = list[int](), asyncio.Event()

    async def work(key: int, value: int) -> None:
        begun.append(key)
        if key:
            await go_on.wait()

    with structlog.testing.capture_logs() as lines:
        for key in range(9):
            queue.put(key, 0)
        async with running(queue.serve(1, work)):
            await until(lambda: begun == [0, 1])  # so that two places are free
            for key in (10, 11, 12):
                queue.put(key, 0)
            go_on.set()
            await queue.idle.wait()
    assert dropped == [8, 12]
    assert len(lines) == 1


async def test_cleared_work_is_never_done() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10)
    done: list[str] = []

    async def work(key: str, value: int) -> None:
        done.append(key)

    queue.put("a", 1)
    queue.clear()
    async with running(queue.serve(1, work)):
        queue.put("b", 1)
        await queue.idle.wait()
    assert done == ["b"]


async def test_work_that_raises_is_told_and_the_rest_goes_on() -> None:
    queue: WorkQueue[str, int] = WorkQueue(10)
    done: list[str] = []

    async def work(key: str, value: int) -> None:
        done.append(str(1 // value))

    with structlog.testing.capture_logs() as lines:
        async with running(queue.serve(2, work)):
            for key, value in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
                queue.put(key, value)
            await queue.idle.wait()
    assert done == ["1", "1"]
    assert [(line["event"], line["key"], line["exc_info"]) for line in lines] == [
        ("work_failed", "a", True), ("work_failed", "c", True),
    ]  # fmt: skip
