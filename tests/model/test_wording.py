"""Lengths of time and times as texts."""

from __future__ import annotations

import pytest

from vcd.model.wording import rfc3339, span_in_words, without_others


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "never"),
        (0, "0 s"),
        (0.0103, "less than 1 s"),
        (1, "1 s"),
        (4.24, "4.2 s"),
        (9.96, "10 s"),
        (45.24, "45 s"),
        (60, "1 min"),
        (59.4, "59 s"),
        (59.9, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (5 * 3600 + 3 * 60 + 59, "5 h 3 min"),
        (2 * 86400 + 59 * 60, "2 d"),
        (400 * 86400 + 3600, "400 d 1 h"),
    ],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(seconds: float | None, words: str) -> None:
    assert span_in_words(seconds) == words


def test_times_are_written_as_kubernetes_does() -> None:
    moment = 1_767_225_601_034_567_890
    assert rfc3339(moment) == "2026-01-01T00:00:01Z"
    assert rfc3339(moment, 3) == "2026-01-01T00:00:01.034Z"
    assert rfc3339(moment, 6) == "2026-01-01T00:00:01.034567Z"


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("mine/a", "mine/a"),
        ("theirs/a", "a job of another namespace"),
        ("theirs/a, mine/b and 8 more", "a job of another namespace, mine/b and 8 more"),
        ("theirs/a, others/b", "a job of another namespace"),
        ("queue-a, queue-b", "queue-a, queue-b"),
    ],
)
def test_jobs_of_other_namespaces_are_unnamed(keys: str, shown: str) -> None:
    assert without_others(keys, "mine") == shown
