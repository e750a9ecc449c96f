"""Times as texts, and pauses."""

from __future__ import annotations

from tests.kube.scripted import START
from vcd.kube.clock import SYSTEM_CLOCK, Backoff, rfc3339


def test_times_are_written_as_kubernetes_does() -> None:
    moment = START + 1_234_567_890
    assert rfc3339(moment) == "2026-01-01T00:00:01Z"
    assert rfc3339(moment, micro=True) == "2026-01-01T00:00:01.234567Z"


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
