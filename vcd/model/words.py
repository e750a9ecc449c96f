"""Amounts and times in words, for messages, Events, conditions and reports."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

_KEY = re.compile(r"([^\s,/]+)/[^\s,]+")
"""A key: namespace and name."""


def quantities_in_words(amounts: Mapping[str, str]) -> str:
    """``cpu 4, memory 8Gi``."""
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())


def counted(count: int, noun: str) -> str:
    """``1 node``, ``1,000 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    """``1st``, ``22nd``, ``113th``."""
    last = number % 10 if number % 100 // 10 != 1 else 0
    return f"{number:,}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"


def some(names: Sequence[str], shown: int = 4, count: int = 0) -> str:
    """The first of many: ``a, b, c, d and 8 more``; ``count`` where there are more than are given."""
    more = max(count, len(names)) - len(names[:shown])
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more else "")


def without_others(keys: str, namespace: str) -> str:
    """Return a list of jobs' keys, as `some` writes it, in which jobs of other namespaces are unnamed."""
    shown = [
        _KEY.sub(lambda key: key[0] if key[1] == namespace else "a job of another namespace", part)
        for part in keys.split(", ")
    ]
    return ", ".join(dict.fromkeys(shown))


def cut(text: str, most: int) -> str:
    """A text of at most so many characters; dots stand for what is left out."""
    return text if len(text) <= most else text[: most - 3] + "..."


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """``; did you mean X or Y?`` with the known words that are nearest to ``word``; nothing where none is near."""
    by_folded = {name.casefold(): name for name in known}
    near = [by_folded[name] for name in difflib.get_close_matches(word.casefold(), by_folded, n=most)]
    words = " or ".join(filter(None, (", ".join(near[:-1]), *near[-1:])))
    return f"; did you mean {words}?" if near else ""


def span_in_words(seconds: float | None) -> str:
    """A length of time in its two largest units: ``less than 1 s``, ``4.2 s``, ``45 s``, ``12 min 30 s``, ``2 d 4 h``;
    ``never`` for none."""
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
    """A time in nanoseconds since the epoch as Kubernetes writes it, in UTC, with so many digits of the second."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    fraction = f".{rest:09d}"[: digits + 1] if digits else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"
