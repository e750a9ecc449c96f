"""Jumps of the clock, and pauses."""

from __future__ import annotations

from tests.kube.scripted import START, FakeClock
from vcd.kube.clock import SYSTEM_CLOCK, Backoff, ClockJump, SteadyClock

SECOND = 1_000_000_000
DAY = 24 * 3600 * SECOND


def test_pauses_double_up_to_the_cap() -> None:
    backoff = Backoff(1.0, 5.0, lambda: 1.0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_chance_spreads_pauses_over_their_upper_half() -> None:
    assert Backoff(1.0, 5.0, lambda: 0.0).next() == 0.5


def test_success_starts_pauses_again() -> None:
    backoff = Backoff(1.0, 5.0, lambda: 1.0)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 1


async def test_the_system_clock_sleeps_as_long_as_it_says() -> None:
    start = SYSTEM_CLOCK.monotonic()
    await SYSTEM_CLOCK.sleep(0.01)
    assert SYSTEM_CLOCK.monotonic() - start >= 0.009


# --- a wall clock that jumps ------------------------------------------------------------------------------------------


class Machine(FakeClock):
    """A machine whose wall clock can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.off = 0

    def wall(self) -> int:
        return super().wall() + self.off


def test_a_wall_clock_that_agrees_is_followed() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.now += 100
    machine.off = 2 * SECOND  # as NTP steps it
    assert clock.wall() == machine.wall()
    assert clock.take_jumps() == []


def test_a_jump_that_passes_leaves_no_trace_in_the_times_and_is_told_once() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    before = clock.wall()
    machine.off = 8 * DAY
    for _ in range(25):
        machine.now += 1
        clock.wall()
    assert clock.wall() == before + 25 * SECOND
    assert round(clock.wall_offset) == 8 * 24 * 3600
    machine.off = 0
    machine.now += 1
    assert clock.wall() == machine.wall() == before + 26 * SECOND
    assert clock.wall_offset == 0
    assert clock.take_jumps() == [ClockJump(8 * DAY, accepted=False)]
    assert clock.take_jumps() == []


def test_a_clock_that_is_set_back_does_not_take_time_back() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    before = clock.wall()
    machine.off = -3600 * SECOND
    machine.now += 10
    assert clock.wall() == before + 10 * SECOND
    assert clock.wall_offset == -3600


def test_a_new_time_that_stays_is_believed_in_the_end() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.off = DAY
    clock.wall()
    machine.now += SteadyClock.ACCEPT_AFTER
    assert clock.wall() == machine.wall()
    assert [jump.accepted for jump in clock.take_jumps()] == [False, True]


def test_each_further_jump_begins_anew() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    for number in (1, 2, 3):
        machine.off = number * DAY
        machine.now += SteadyClock.ACCEPT_AFTER / 2
        assert clock.wall() == START + round((machine.now - 1000.0) * 1e9)
    assert [jump.offset for jump in clock.take_jumps()] == [DAY, 2 * DAY, 3 * DAY]


def test_nothing_is_judged_by_its_age_until_both_clocks_have_agreed_for_long() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    assert not clock.is_steady()
    machine.now += SteadyClock.ACCEPT_AFTER
    assert clock.is_steady()
    machine.off = 8 * DAY
    assert not clock.is_steady()
    machine.off = 0
    assert not clock.is_steady()
    machine.now += SteadyClock.ACCEPT_AFTER
    assert clock.is_steady()
