"""Which write goes first, and how many at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.kube.scripted import FakeClock, until
from tests.waiting import WAIT_LIMIT
from vcd.kube.write_limiter import Urgency, WriteLimiter


async def test_the_rate_of_writes_is_limited() -> None:
    clock = FakeClock()
    limiter = WriteLimiter(qps=10, burst=2, in_flight=100, clock=clock)
    entered = 0

    async def enter() -> None:
        nonlocal entered
        await limiter.acquire(Urgency.COMMIT)
        entered += 1

    tasks = [asyncio.create_task(enter()) for _ in range(4)]
    await until(lambda: clock.sleeping)
    assert entered == 2
    await clock.advance_when_asleep(0.1)
    await until(lambda: entered == 3)
    await clock.advance_when_asleep(0.1)
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("qps", [2.7, 3, 7, 11, 13])
async def test_what_rounding_leaves_of_a_token_is_not_waited_for_without_end(qps: float) -> None:
    """A clock that tells no time as short as that stands still while it is waited for."""
    clock = Advancing()
    limiter = WriteLimiter(qps=qps, burst=1, in_flight=1, clock=clock)
    for number in range(300):
        clock.now = 1e6 + number / 7
        async with asyncio.timeout(WAIT_LIMIT):
            await limiter.acquire(Urgency.COMMIT)
        limiter.release(Urgency.COMMIT)
        assert clock.stood == 0


class Advancing:
    """A clock on which a sleep is over at once; ``stood`` is how often none of its time passed by that."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stood = 0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> int:
        return round(self.now * 1e9)

    async def sleep(self, seconds: float) -> None:
        self.stood += self.now + seconds == self.now
        self.now += seconds
        await asyncio.sleep(0)


async def test_urgent_writes_go_first() -> None:
    limiter = WriteLimiter(qps=0, burst=1, in_flight=1)
    order: list[Urgency] = []

    async def write(urgency: Urgency) -> None:
        await limiter.acquire(urgency)
        order.append(urgency)
        limiter.release(urgency)

    await limiter.acquire(Urgency.STATUS)
    tasks = [asyncio.create_task(write(urgency)) for urgency in (Urgency.EVENT, Urgency.STATUS, Urgency.COMMIT)]
    await asyncio.sleep(0)
    limiter.release(Urgency.STATUS)
    await asyncio.gather(*tasks)
    assert order == [Urgency.COMMIT, Urgency.STATUS, Urgency.EVENT]


@pytest.mark.parametrize(("urgency", "seconds"), [(Urgency.STATUS, 5.0), (Urgency.EVENT, 30.0)])
async def test_what_is_less_urgent_lets_others_go_first_for_a_bounded_time(urgency: Urgency, seconds: float) -> None:
    clock, order = FakeClock(), list[str]()
    limiter = WriteLimiter(qps=0, burst=1, in_flight=1, clock=clock)

    async def write(name: str, urgency: Urgency) -> None:
        await limiter.acquire(urgency)
        order.append(name)
        limiter.release(urgency)

    await limiter.acquire(Urgency.COMMIT)
    tasks = [asyncio.create_task(write("less", urgency))]
    await asyncio.sleep(0)
    clock.advance(seconds - 0.1)
    tasks.append(asyncio.create_task(write("within", Urgency.COMMIT)))
    await asyncio.sleep(0)
    clock.advance(0.2)
    tasks.append(asyncio.create_task(write("after", Urgency.COMMIT)))
    await asyncio.sleep(0)
    limiter.release(Urgency.COMMIT)
    await asyncio.gather(*tasks)
    assert order == ["within", "less", "after"]


async def test_a_cancelled_write_gives_its_place_back() -> None:
    limiter = WriteLimiter(qps=0, burst=1, in_flight=1)
    await limiter.acquire(Urgency.COMMIT)
    waiting = asyncio.create_task(limiter.acquire(Urgency.COMMIT))
    await asyncio.sleep(0)
    limiter.release(Urgency.COMMIT)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(limiter.acquire(Urgency.COMMIT), WAIT_LIMIT)


class Writes:
    """Writes that enter and stay until they are ended."""

    def __init__(self, limiter: WriteLimiter) -> None:
        self.limiter = limiter
        self._tasks: list[asyncio.Task[None]] = []
        self._ends = asyncio.Event()
        self.sent: list[Urgency] = []

    async def begin(self, urgency: Urgency, count: int) -> int:
        """Begin writes, and return how many are sent at once."""
        before = len(self.sent)
        self._tasks += [asyncio.create_task(self._write(urgency)) for _ in range(count)]
        await asyncio.sleep(0)
        return len(self.sent) - before

    async def end(self) -> None:
        """End what was sent, and what is sent from now on."""
        self._ends.set()
        for _ in range(3):
            await asyncio.sleep(0)

    async def _write(self, urgency: Urgency) -> None:
        await self.limiter.acquire(urgency)
        self.sent.append(urgency)
        await self._ends.wait()
        self.limiter.release(urgency)


@pytest.mark.parametrize("urgency", [Urgency.STATUS, Urgency.EVENT])
async def test_no_status_and_no_event_is_sent_while_a_session_is_decided(urgency: Urgency) -> None:
    clock = FakeClock()
    writes = Writes(WriteLimiter(qps=0, burst=1, in_flight=64, clock=clock))
    with writes.limiter.session():
        assert await writes.begin(urgency, 50) == 0
        assert await writes.begin(Urgency.COMMIT, 1) == 1
        await writes.end()
    assert len(writes.sent) == 1
    await until(lambda: len(writes.sent) == 51)


async def test_binds_of_a_session_go_before_the_statuses_that_it_held_back() -> None:
    writes = Writes(WriteLimiter(qps=0, burst=1, in_flight=64))
    with writes.limiter.session():
        await writes.begin(Urgency.STATUS, 50)
    for _ in range(5):
        await asyncio.sleep(0)
    await writes.begin(Urgency.COMMIT, 1)
    await until(lambda: len(writes.sent) > 1)
    assert writes.sent == [Urgency.COMMIT, Urgency.STATUS, Urgency.STATUS]


async def test_two_statuses_at_once_are_sent_while_a_session_does_not_end() -> None:
    clock = FakeClock()
    writes = Writes(WriteLimiter(qps=0, burst=1, in_flight=64, clock=clock))
    with writes.limiter.session():
        assert await writes.begin(Urgency.STATUS, 50) == 0
        await clock.advance_when_asleep(0.2)
        await until(lambda: len(writes.sent) == 2)


async def test_a_session_that_follows_at_once_holds_statuses_back_again() -> None:
    writes = Writes(WriteLimiter(qps=0, burst=1, in_flight=64, clock=FakeClock()))
    with writes.limiter.session():
        pass
    with writes.limiter.session():
        await writes.begin(Urgency.STATUS, 50)
        for _ in range(20):
            await asyncio.sleep(0)
        assert writes.sent == []


async def test_statuses_are_sent_beside_sessions_that_follow_each_other_without_a_pause() -> None:
    clock = FakeClock()
    writes = Writes(WriteLimiter(qps=0, burst=1, in_flight=64, clock=clock))
    with writes.limiter.session():
        assert await writes.begin(Urgency.STATUS, 50) == 0
    clock.now += 5.0  # as long as a status lets others go first
    with writes.limiter.session():
        pass
    with writes.limiter.session():
        await asyncio.sleep(0)
        assert len(writes.sent) == 2


async def test_few_statuses_are_sent_while_a_bind_is_under_way() -> None:
    limiter = WriteLimiter(qps=0, burst=1, in_flight=64)
    writes, bind = Writes(limiter), Writes(limiter)
    assert await bind.begin(Urgency.COMMIT, 1) == 1
    assert await writes.begin(Urgency.STATUS, 50) == 2
    await bind.end()
    assert len(writes.sent) == 16


async def test_a_bind_finds_a_place_however_many_statuses_there_are() -> None:
    writes = Writes(WriteLimiter(qps=0, burst=1, in_flight=17))
    assert await writes.begin(Urgency.STATUS, 50) == 16
    assert await writes.begin(Urgency.COMMIT, 1) == 1
