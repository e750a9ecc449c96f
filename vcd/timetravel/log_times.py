"""Times of a log as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from vcd.eventlog import LogReader
from vcd.model.wording import SECOND
from vcd.scheduling.framework.arguments import parse_duration
from vcd.text.time_formats import moment
from vcd.timetravel.query_errors import NotFound

_MILLISECOND = 1_000_000
_DAY = 86_400 * SECOND
_LATEST = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAYABLE = tuple((datetime(*day, tzinfo=UTC) - _EPOCH).days * _DAY for day in ((1, 1, 1), (9999, 12, 31)))
"""The first and the last time that can be formatted; an offset or a duration may lead beyond them."""
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?")
_CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(\.\d{1,9})?)?")
_SPAN = re.compile(r"(?:(\d{1,6})d)?((?:\d+\.?\d*(?:ms|s|m|h))*)")

UNDERSTOOD = "2026-01-31T05:12:00Z, 05:12 (in UTC, the last one in the log), or 2h (before its end)"


class BadTime(ValueError):
    """A time that cannot be read; the message states the accepted forms."""


def time_of(reader: LogReader, text: str) -> int:
    """Parse a time to ns since the epoch: RFC 3339, a time of day in UTC (the last such time in the log), or a
    duration before the log's last event. Raises BadTime."""
    return time_before(reader.last_time(), text)


def time_before(end: int, text: str) -> int:
    """Do the same for a log that ends at a time (ns)."""
    try:
        found = _moment(text.strip(), end)
    except (ValueError, OverflowError):  # digits that form no time
        found = None
    if found is None:
        raise BadTime(f"{text!r} is not a time; write one such as {UNDERSTOOD}")
    return max(_SAYABLE[0], min(found, _SAYABLE[1]))


def span_of(text: str) -> int:
    """Parse a duration to ns, such as 90m, 7d or 1d12h. Raises BadTime."""
    match = _SPAN.fullmatch(text.strip())
    try:
        found = None if match is None else _span(match)
    except ValueError:
        found = None
    if not found:
        raise BadTime(f"{text!r} is not a duration; write one such as 90m, 7d or 1d12h")
    return found


def _span(match: re.Match[str]) -> int:
    return int(match[1] or 0) * _DAY + (parse_duration(match[2]) if match[2] else 0)


def _moment(text: str, end: int) -> int | None:
    if match := _RFC3339.fullmatch(text):
        day, clock, fraction, zone = match.groups()
        when = datetime.fromisoformat(f"{day}T{clock}{(zone or 'Z').upper()}")
        return _nanoseconds(when) + _fraction(fraction)
    if match := _CLOCK.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in match.group(1, 2, 3))
        day_of_end = _EPOCH + timedelta(days=end // _DAY)
        found = _nanoseconds(day_of_end.replace(hour=hour, minute=minute, second=second)) + _fraction(match[4])
        return found if found <= end else found - _DAY
    if text and (match := _SPAN.fullmatch(text)):
        return end - _span(match)
    return None


def _nanoseconds(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(seconds=1) * SECOND


def _fraction(digits: str | None) -> int:
    """Return the nanoseconds of ``.25``."""
    return int(f"{digits[1:]:0<9}") if digits else 0


def _storable(time: int) -> int:
    """Clamp a time to what a log can store: up to the year 2262."""
    return max(-_LATEST, min(time, _LATEST))


def session_at(reader: LogReader, time: int) -> int:
    """Return the number of the last session that was decided at or before a time (ns), to the millisecond, as times
    are displayed. Raises NotFound if there is none."""
    last = (time // _MILLISECOND + 1) * _MILLISECOND - 1
    ((number,),) = reader.rows("session_at", now=_storable(last))
    if number is not None:
        return int(number)
    first = next(reader.sessions(limit=1), None)
    there = "it has no sessions" if first is None else f"its first is of {moment(first.now)}"
    raise NotFound(f"event log {reader.path}: no session is at or before {moment(time)}; {there}")


def session_after(reader: LogReader, time: int) -> int:
    """Return the number of the first session that was decided at or after a time (ns), or the last one if the log
    continues until then without another. Raises NotFound if the log ends before."""
    ((number,),) = reader.rows("session_after", now=_storable(time))
    if number is not None:
        return int(number)
    ((last,),) = reader.rows("session_at", now=reader.last_time())
    if last is not None and time <= reader.last_time():
        return int(last)
    end = moment(reader.last_time())
    raise NotFound(f"event log {reader.path}: no session is at or after {moment(time)}; it ends at {end}")
