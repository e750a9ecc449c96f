"""What fails is tried again ever later, at most each minute, and told once for each reason."""

from __future__ import annotations

import pytest

from tests.kube.scripted import FakeClock, HastyClock
from vcd.daemon.controllers.write_retry import Retry
from vcd.kube.api_errors import ApiError


def test_it_rests_ever_longer_and_a_minute_at_most() -> None:
    clock = FakeClock()
    retry, pauses = Retry(clock, 1.0), list[float]()
    assert not retry.rests
    for _ in range(12):
        retry.failed()
        pauses.append(retry.due - clock.now)
        assert retry.rests
        clock.advance(pauses[-1])
        assert not retry.rests
    assert [0.5 * 2**n <= pause < 2**n for n, pause in enumerate(pauses[:6])] == [True] * 6
    assert all(30.0 <= pause < 60.0 for pause in pauses[6:])
    assert retry.attempts == 12


async def test_the_server_may_ask_for_a_longer_rest() -> None:
    clock = HastyClock()
    retry = Retry(clock, 1.0)
    retry.failed(ApiError(429, "TooManyRequests", "", retry_after=20.0))
    await retry.pause()
    assert clock.slept == pytest.approx([20.0])
    await retry.pause()
    assert clock.slept[1] == 0.0


def test_a_reason_is_news_until_it_was_told() -> None:
    retry = Retry(FakeClock(), 1.0)
    assert [retry.is_new_reason(reason) for reason in ("a", "a", "b", "b", "a")] == [True, False, True, False, True]
