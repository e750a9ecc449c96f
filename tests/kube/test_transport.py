"""What an answer's headers say, whatever text they have."""

from __future__ import annotations

import pytest

from vcd.kube.transport import retry_after


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("007", 7), ("", 0), ("soon", 0), ("-1", 0), ("1.5", 0), ("²", 0), ("٣", 0), ("9" * 10, 0)],
)
def test_retry_after_is_a_number_of_seconds_or_nothing(said: str, seconds: int) -> None:
    assert retry_after({"Retry-After": said}) == seconds


def test_retry_after_of_more_digits_than_are_read_is_nothing() -> None:
    assert retry_after({"Retry-After": "1" * 5000}) == 0
