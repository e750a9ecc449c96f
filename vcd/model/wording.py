"""Format amounts and times as text, for messages, Events, conditions and reports."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

SECOND = 1_000_000_000
"""Nanoseconds of a second."""
_KEY = re.compile(r"([^\s,/]+)/[^\s,]+")
"""A key: namespace and name."""


def quantities_in_words(amounts: Mapping[str, str]) -> str:
    """Format like ``cpu 4, memory 8Gi``."""
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())


def counted(count: int, noun: str) -> str:
    """Format like ``1 node``, ``1,000 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    """Format like ``1st``, ``22nd``, ``113th``."""
    last = number % 10 if number % 100 // 10 != 1 else 0
    return f"{number:,}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"


def some(names: Sequence[str], shown: int = 4, count: int = 0) -> str:
    """List the first of many names: ``a, b, c, d and 8 more``. ``count`` is the total if not all are given."""
    more = max(count, len(names)) - len(names[:shown])
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more else "")


def without_others(keys: str, namespace: str) -> str:
    """Return a list of jobs' keys, as formatted by `some`, without the names of jobs in other namespaces."""
    named = [
        _KEY.sub(lambda key: key[0] if key[1] == namespace else "a job of another namespace", part)
        for part in keys.split(", ")
    ]
    return ", ".join(dict.fromkeys(named))


def cut(text: str, most: int) -> str:
    """Cut a text to at most ``most`` characters; dots replace the rest."""
    return text if len(text) <= most else text[: most - 3] + "..."


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Return ``; did you mean X or Y?`` with the known words nearest to ``word``; empty if none is near."""
    by_folded = {name.casefold(): name for name in known}
    near = [by_folded[name] for name in difflib.get_close_matches(word.casefold(), by_folded, n=most)]
    words = " or ".join(filter(None, (", ".join(near[:-1]), *near[-1:])))
    return f"; did you mean {words}?" if near else ""


def span_in_words(seconds: float | None) -> str:
    """Format a duration in its two largest units; None is ``never``.

    Examples: ``less than 1 s``, ``4.2 s``, ``45 s``, ``12 min 30 s``, ``2 d 4 h``.
    """
    if seconds is None:
        return "never"
    if 0 < seconds < 1:
        return "less than 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{round(seconds, 1) if whole < 10 else whole:g} s"
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    first = next(place for place, (size, _) in enumerate(units) if whole >= size)
    (size, unit), (part_size, part) = units[first : first + 2]
    rest = whole % size // part_size
    return f"{whole // size} {unit}" + (f" {rest} {part}" if rest else "")


def rfc3339(nanoseconds: int, digits: int = 0) -> str:
    """Format a time (nanoseconds since the epoch) as RFC 3339 in UTC, with ``digits`` digits of the second."""
    seconds, rest = divmod(nanoseconds, SECOND)
    fraction = f".{rest:09d}"[: digits + 1] if digits else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"
