"""Times as people write them: what each means in a log, and which session is there then."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

import vcd
from tests.timetravel.histories import START, write_busy_history
from vcd.timetravel.log_queries import Log
from vcd.timetravel.log_times import BadTime
from vcd.timetravel.query_errors import NotFound

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log of eight sessions: when they were is what the tests ask the file for."""
    await write_busy_history(tmp_path / "busy.log")
    return tmp_path / "busy.log"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    """The same, open."""
    with vcd.open(path) as opened:
        yield opened


def ns(*parts: int) -> int:
    """A time of the first of January 2026, in ns."""
    return int(datetime.datetime(2026, 1, 1, *parts, tzinfo=datetime.UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:05:00Z", ns(0, 5)),
        ("2026-01-01t00:05:00z", ns(0, 5)),
        ("2026-01-01T01:05:00+01:00", ns(0, 5)),
        ("2026-01-01 00:05:00", ns(0, 5)),
        ("2026-01-01T00:05:00.25Z", ns(0, 5) + SECOND // 4),
        ("00:05", ns(0, 5)),
        ("0:05:30", ns(0, 5, 30)),
        ("00:05:30.000000001", ns(0, 5, 30) + 1),
    ],
)
def test_a_moment(log: Log, text: str, expected: int) -> None:
    assert log.time(text) == expected


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "999999d"])
def test_a_time_before_all_years_is_before_the_log(log: Log, text: str) -> None:
    with pytest.raises(NotFound, match=r"no session is at or before 0*1-01-01T"):
        log.session_at(log.time(text))
    assert log.session_after(log.time(text)) == 1


def test_a_time_after_all_years_is_after_the_log(log: Log) -> None:
    with pytest.raises(NotFound, match="no session is at or after 9999-12-31"):
        log.session_after(log.time("9999-12-31T23:59:59-23:59"))


def test_a_clock_means_the_last_such_moment_in_the_log(log: Log) -> None:
    end = log.history.reader.last_time()
    assert START < end < ns(23, 0)
    assert log.time("23:00") == ns(23, 0) - 24 * 60 * MINUTE
    assert log.time("00:00") == START


@pytest.mark.parametrize(
    ("text", "back"), [("90s", 90 * SECOND), ("2h", 120 * MINUTE), ("1h30m", 90 * MINUTE), ("1d12h", 36 * 60 * MINUTE)]
)
def test_a_span_goes_back_from_the_last_event(log: Log, text: str, back: int) -> None:
    assert log.time(text) == log.history.reader.last_time() - back


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "00:61", "2026-02-30T00:00:00Z", "2026-01-01", "-2h", "2", "2h ago"]
)
def test_what_is_no_time_is_answered_with_what_is(log: Log, text: str) -> None:
    words = r"is not a time; write one such as 2026-01-31T05:12:00Z, 05:12 \(in UTC, .*\), or 2h \(before its end\)"
    with pytest.raises(BadTime, match=words):
        log.time(text)


def test_the_session_at_a_time_is_the_last_one_that_was_not_later(log: Log) -> None:
    times = {info.number: info.now for info in log.history.reader.sessions()}
    for number, now in times.items():
        assert log.session_at(now) == number
        assert number == 1 or log.session_at(now - 1_000_000) == number - 1
        assert log.session_after(now) == number
    assert log.session_at(times[8] + 60 * MINUTE) == 8


def test_times_are_compared_as_they_are_shown(log: Log) -> None:
    (info,) = log.history.reader.sessions(3, 3)
    shown = info.now // 1_000_000 * 1_000_000
    assert log.session_at(shown) == 3


def test_no_session_is_there_before_the_first_or_after_the_last(log: Log) -> None:
    with pytest.raises(NotFound, match=r"no session is at or before 2025-12-31T.*; its first is of 2026-01-01T00:"):
        log.session_at(START - 60 * MINUTE)
    with pytest.raises(NotFound, match=r"no session is at or after 2026-01-02T.*; it ends at 2026-01-01T"):
        log.session_after(START + 24 * 60 * MINUTE)
