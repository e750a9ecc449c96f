"""Write plain data from users as the JSON that an API server could have sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import msgspec

_Path = tuple[Any, ...]
"""The path of a value: its key or index, preceded by the path of its container."""

_DEEPEST = 1000
"""Maximum number of levels; Python itself encodes no more."""
TOO_MANY_DIGITS = "a number of more than 4,300 digits; write one of 64 bits"
"""Python's default limit for integers (`sys.set_int_max_str_digits`)."""
_MOST_STEPS = 12
"""Maximum number of steps of a displayed path."""


class NotJson(ValueError):
    """Plain data that JSON cannot hold; the message states where, what it is, and what to write instead."""


def as_json(value: Any) -> bytes:
    """Encode plain data as JSON; keys that are numbers become texts. Raises NotJson for what JSON cannot hold."""
    try:
        raw = msgspec.json.encode(value)
    except RecursionError as error:
        raise NotJson(_fault(value) or "nested too deep; write fewer levels") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise NotJson(_fault(value) or str(error)) from error
    # msgspec writes null for infinite numbers and NaN
    if b"null" in raw and (fault := _fault(value)):
        raise NotJson(fault)
    return raw


def _fault(value: Any) -> str:
    """Return the path and description of the first value that JSON cannot hold; empty if there is none."""
    waiting: list[tuple[_Path, int, Any]] = [((), 0, value)]
    while waiting:
        path, depth, value = waiting.pop()
        if depth > _DEEPEST:
            return f"{_format_path(path)}: nested more than {_DEEPEST} deep, or in itself; write fewer levels"
        inside: Iterable[tuple[Any, Any]]
        if isinstance(value, dict):
            if words := next(filter(None, map(_fault_of_key, value)), ""):
                return f"{_format_path(path)}: {words}"
            inside = value.items()
        elif isinstance(value, list | tuple | set | frozenset):
            inside = enumerate(value)
        elif words := _fault_of(value):
            return f"{_format_path(path)}: {words}"
        else:
            continue
        waiting += [((path, key), depth + 1, item) for key, item in reversed([*inside])]
    return ""


def _fault_of(value: Any) -> str:
    """Return what is wrong with a scalar value; empty if nothing is."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a JSON number; write a finite one, or leave it out"
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        return _half_a_character(error)
    except ValueError:
        if isinstance(value, int):
            return TOO_MANY_DIGITS
        return f"{type(value).__name__} cannot be written as JSON; write a text or a number"
    except (TypeError, OverflowError):
        return f"{type(value).__name__} is not JSON; write a text, a number, a list or a mapping"
    return ""


def _fault_of_key(key: Any) -> str:
    try:
        msgspec.json.encode({key: None})
    except UnicodeEncodeError as error:
        return f"a key: {_half_a_character(error)}"
    except (TypeError, ValueError, OverflowError):
        return f"a key must be a text, not {type(key).__name__}; write it in quotes"
    return ""


def _half_a_character(error: UnicodeEncodeError) -> str:
    near = json.dumps(error.object[max(0, error.start - 20) : error.end + 20])
    return f"{near} has half a character (a lone surrogate) in it; write the whole one"


def _format_path(path: _Path) -> str:
    """Format a path like ``spec.containers[0]``; a long one is cut."""
    steps: list[Any] = []
    while path:
        path, step = path
        steps.append(step)
    steps.reverse()
    text = "".join(map(_step, steps[:_MOST_STEPS])) + ("..." if len(steps) > _MOST_STEPS else "")
    return text.removeprefix(".") or "the whole"


def _step(step: Any) -> str:
    if not isinstance(step, str):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]"
