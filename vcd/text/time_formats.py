"""Times of a log as text."""

from __future__ import annotations

from datetime import UTC, datetime

from vcd.model.wording import rfc3339


def clock(nanoseconds: int) -> str:
    """Return a time in nanoseconds since the epoch as text in UTC, to the second."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment(nanoseconds: int) -> str:
    """Return a time in nanoseconds since the epoch as RFC 3339, in UTC, to the millisecond."""
    return rfc3339(nanoseconds, 3)


def clock_time(nanoseconds: int) -> str:
    """Return the time of day (UTC) of a time in ns: ``09:22:38``."""
    return moment(nanoseconds)[11:19]
