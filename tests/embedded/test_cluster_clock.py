"""The cluster clock: timers, speed, and jumps when all is at rest."""

import asyncio

import pytest

from tests.embedded.simulated import jump_to
from tests.waiting import WAIT_LIMIT
from vcd.embedded.cluster_clock import FARTHEST, ClusterClock, parse_seconds, parse_timestamp


class Real:
    """A source of real time that the test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


async def test_a_jumping_clock_goes_to_the_next_timer() -> None:
    clock = ClusterClock(start=0, speed=None)
    seen: list[float] = []
    for when in (500.0, 20.0):
        clock.call_at(when, lambda: seen.append(clock.now()))
    running = asyncio.create_task(clock.run())
    await clock.wait_idle()
    running.cancel()
    assert seen == [20.0, 500.0]


async def test_a_jumping_clock_stands_still_while_somebody_is_busy() -> None:
    clock = ClusterClock(start=0, speed=None)
    asked = asyncio.Event()
    busy = [True] * 3

    def still_busy() -> bool:
        asked.set()
        return bool(busy) and busy.pop()

    fired: list[int] = []
    clock.add_busy(still_busy)
    clock.call_at(9, lambda: fired.append(len(busy)))
    running = asyncio.create_task(clock.run())
    await clock.wait_idle()
    running.cancel()
    assert fired == [0]


async def test_a_jumping_clock_waits_for_those_outside() -> None:
    clock = ClusterClock(start=0, speed=None)
    answers = iter([False, False, True])
    asked: list[float] = []

    async def quiescent() -> bool:
        asked.append(clock.now())
        return next(answers, True)

    clock.quiescent = quiescent
    clock.call_at(9, lambda: None)
    running = asyncio.create_task(clock.run())
    await clock.wait_idle()
    running.cancel()
    assert asked[:3] == [0, 0, 0]
    assert clock.now() == 9


async def test_an_answer_given_before_something_happened_does_not_count() -> None:
    clock = ClusterClock(start=0, speed=None)

    async def quiescent() -> bool:
        clock.touch()
        return True

    clock.quiescent = quiescent
    assert not await clock.at_rest()


async def test_background_timers_are_never_jumped_to() -> None:
    clock = ClusterClock(start=0, speed=None)
    clock.call_at(50, lambda: None, background=True)
    running = asyncio.create_task(clock.run())
    await clock.wait_idle()
    running.cancel()
    assert clock.now() == 0


async def test_background_timers_fire_at_their_own_time_when_time_passes_them() -> None:
    clock = ClusterClock(start=0, speed=None)
    fired: list[tuple[str, float]] = []
    for when in (70, 50, 5000):
        clock.call_at(when, lambda: fired.append(("background", clock.now())), background=True)
    clock.call_at(600, lambda: fired.append(("work", clock.now())))
    running = asyncio.create_task(clock.run())
    await clock.wait_idle()
    running.cancel()
    assert fired == [("background", 50), ("background", 70), ("work", 600)]


async def test_idle_again_after_new_work() -> None:
    clock = ClusterClock(start=0, speed=None)
    running = asyncio.create_task(clock.run())
    await clock.wait_idle()
    clock.call_later(5, lambda: None)
    await clock.wait_idle()
    running.cancel()
    assert clock.now() == 5


def test_speed_scales_real_time() -> None:
    real = Real()
    clock = ClusterClock(start=1000, speed=60, monotonic=real)
    real.at += 2
    assert clock.now() == 1120


def test_timers_fire_once_their_time_has_come() -> None:
    real = Real()
    clock = ClusterClock(start=0, speed=60, monotonic=real)
    fired: list[int] = []
    clock.call_at(60, lambda: fired.append(1))
    real.at += 0.5
    assert clock.fire_due() == 0
    real.at += 0.5
    assert clock.fire_due() == 1
    assert fired == [1]


async def test_a_running_clock_fires_at_its_speed() -> None:
    clock = ClusterClock(start=0, speed=10_000)
    fired = asyncio.Event()
    clock.call_at(20, fired.set)
    running = asyncio.create_task(clock.run())
    async with asyncio.timeout(WAIT_LIMIT):
        await fired.wait()
    running.cancel()
    assert clock.now() >= 20


async def test_a_running_clock_notices_an_earlier_timer() -> None:
    clock = ClusterClock(start=0, speed=1)
    running = asyncio.create_task(clock.run())
    clock.call_at(1e9, lambda: None)
    fired = asyncio.Event()
    await asyncio.sleep(0)
    clock.call_at(0, fired.set)
    async with asyncio.timeout(WAIT_LIMIT):
        await fired.wait()
    running.cancel()


def test_timers_of_one_time_fire_in_the_order_they_were_made() -> None:
    clock = ClusterClock(start=0, speed=None)
    fired: list[int] = []
    for number in range(5):
        clock.call_at(7, lambda number=number: fired.append(number))  # type: ignore[misc]
    jump_to(clock, 7)
    assert fired == [0, 1, 2, 3, 4]


def test_a_cancelled_timer_does_not_fire() -> None:
    clock = ClusterClock(start=0, speed=None)
    fired: list[int] = []
    clock.call_at(7, lambda: fired.append(1)).cancel()
    jump_to(clock, 10)
    assert fired == []


def test_a_cancelled_timer_is_not_due() -> None:
    clock = ClusterClock(start=0, speed=None)
    clock.call_at(7, lambda: None).cancel()
    clock.call_at(9, lambda: None)
    assert clock.next_due() == 9


def test_each_timer_sees_its_own_time_in_a_jump() -> None:
    clock = ClusterClock(start=0, speed=None)
    seen: list[float] = []
    clock.call_at(3, lambda: seen.append(clock.now()))
    clock.call_at(5, lambda: seen.append(clock.now()))
    jump_to(clock, 100)
    assert seen == [3, 5]
    assert clock.now() == 100


def test_time_never_goes_back() -> None:
    clock = ClusterClock(start=50, speed=None)
    jump_to(clock, 10)
    assert clock.now() == 50


@pytest.mark.parametrize("when", [FARTHEST + 1, 1e300, float("inf"), float("nan")])
def test_what_is_too_far_never_comes_and_nobody_waits_for_it(when: float) -> None:
    clock = ClusterClock(start=0, speed=None)
    fired: list[float] = []
    clock.call_at(when, lambda: fired.append(when))
    clock.call_at(FARTHEST, lambda: fired.append(0))
    assert clock.next_due() == FARTHEST
    jump_to(clock, FARTHEST)
    assert (fired, clock.next_due()) == ([0], None)


def test_a_fast_clock_ends_where_the_others_do() -> None:
    elapsed = iter((0.0, 1.0, 2.0))
    clock = ClusterClock(start=5, speed=1e300, monotonic=lambda: next(elapsed))
    assert (clock.now(), clock.now()) == (5 + FARTHEST, 5 + FARTHEST)


@pytest.mark.parametrize("text", ["ten", "nan"])
def test_what_is_no_number_of_seconds_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_seconds(text)


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_clock_has_a_speed_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        ClusterClock(speed=speed)


def test_times_are_read_as_the_api_writes_them() -> None:
    assert parse_timestamp("2023-11-14T22:13:20Z") == 1_700_000_000
