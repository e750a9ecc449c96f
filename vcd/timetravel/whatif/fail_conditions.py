"""Conditions on the outcome of a workload under one configuration compared with another: ``wait.p95{queue=research} >
+10%``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal

import msgspec

from vcd.model.wording import SECOND, did_you_mean
from vcd.scheduling.framework.arguments import parse_duration

Unit = Literal["seconds", "count", "part", "hours", "cards", "index"]
"""The unit of a metric; ``part`` is of the whole, ``index`` has no unit."""

_WRITTEN = "'wait.p95 > +10%' or 'wait.max{queue=research} > 30m and evictions > 0'"
_METRIC = re.compile(r"(?P<name>[^\s{}<>=]+)(?:\{queue=(?P<quote>\"?)(?P<queue>[^{}\"]*)(?P=quote)\})?")
_CLAUSE = re.compile(rf"(?P<metric>{_METRIC.pattern})\s*(?P<operator>>=|<=|>|<)\s*(?P<value>\S+)")
_CHANGE = re.compile(r"[+-]\d+(\.\d+)?%")
_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")
_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class ConditionError(ValueError):
    """A condition that cannot be parsed, or that names an unknown metric; the message states how to write it."""


class MetricLimit(msgspec.Struct, frozen=True):
    """One comparison: ``metric`` in its canonical form, ``operator`` one of > >= < <=, ``value`` a limit in the
    metric's unit, or a part of the old value (0.1 for +10%) if it is ``relative``."""

    text: str
    metric: str
    operator: str
    value: float
    relative: bool

    def limit(self, old: float) -> float:
        """Return the limit for the new value, given the old one."""
        return float(self._limit(old))

    def holds(self, old: float, new: float) -> bool:
        """Return whether the comparison holds for two values; the wait of jobs that never start is infinite."""
        return _HOLDS[self.operator](new if math.isinf(new) else Fraction(new), self._limit(old))

    def _limit(self, old: float) -> Fraction | float:
        # exact: in floats 55 is less than 10% more than 50
        value = Fraction(str(self.value))
        if not self.relative:
            return value
        return old if math.isinf(old) else Fraction(old) * (1 + value)


class FailCondition(msgspec.Struct, frozen=True):
    """A condition, which holds if all its clauses hold."""

    text: str
    clauses: tuple[MetricLimit, ...]


def metric(name: str, queue: str | None = None) -> str:
    """Return the name of a metric: ``wait.p95``, or ``wait.p95{queue=research}`` for one queue."""
    return name if queue is None else f"{name}{{queue={queue}}}"


def read_condition(text: str, units: Mapping[str, Unit]) -> FailCondition:
    """Parse a condition. ``units`` has the units of the metrics, by name. Raises ConditionError."""
    parts = re.split(r"\s+and\s+", text.strip())
    return FailCondition(text.strip(), tuple(_clause(part, text, units) for part in parts))


def _clause(part: str, text: str, units: Mapping[str, Unit]) -> MetricLimit:
    found = _CLAUSE.fullmatch(part.strip())
    if found is None:
        where = f"{part.strip()!r} in " if part.strip() != text.strip() else ""
        raise ConditionError(
            f"{where}{text!r} is not a condition: write METRIC, one of > >= < <=, and VALUE: {_WRITTEN}"
        )
    name = metric(found["name"], found["queue"])
    if name not in units:
        raise ConditionError(f"{text!r}: {_unknown(found['name'], found['queue'], units)}")
    value, relative = _value(found["value"], units[name], f"{text!r}: {name}")
    return MetricLimit(part.strip(), name, found["operator"], value, relative)


def _unknown(name: str, queue: str | None, units: Iterable[str]) -> str:
    names = list(dict.fromkeys(each.partition("{")[0] for each in units))
    queues = {each.partition("{queue=")[2].removesuffix("}"): None for each in units if "{" in each}
    by_queue = [each for each in names if any(one.startswith(each + "{") for one in units)]
    if name not in names:
        example = metric(by_queue[0], next(iter(queues))) if by_queue else ""
        hint = f"; {', '.join(by_queue)} also by queue, such as {example}" if example else ""
        return f"there is no metric {name}{did_you_mean(name, names)}; there are {', '.join(names)}{hint}"
    if name not in by_queue:
        return f"{name} is not measured by queue; by queue are {', '.join(by_queue)}"
    there = ", ".join(each or "(none)" for each in queues)
    return f"no job came in queue {queue}{did_you_mean(queue or '', queues)}; jobs came in {there}"


def _value(text: str, unit: Unit, where: str) -> tuple[float, bool]:
    """Return a limit, and whether it is relative. Raises ConditionError."""
    if _CHANGE.fullmatch(text):
        change = Fraction(text.removesuffix("%")) / 100
        if change < -1:
            raise ConditionError(f"{where}: {text} is below -100%")
        return float(change), True
    if text.endswith("%"):
        raise ConditionError(f"{where}: {text} has no sign: write +{text} for a change" + _instead(text, unit))
    if text[:1] in "+-":
        raise ConditionError(f"{where}: {text} is not a change: changes are in percent, such as +10%")
    if unit != "seconds":
        if not _NUMBER.fullmatch(text):
            raise ConditionError(f"{where}: {text!r} is not a number; write one such as 12 or 0.5, or a change as +10%")
        return float(text), False
    try:
        return parse_duration(text) / SECOND, False
    except ValueError:
        raise ConditionError(f"{where} is a time, not {text!r}; write it like 90s, 30m or 1h30m") from None


def _instead(text: str, unit: Unit) -> str:
    number = text.removesuffix("%").lstrip("+-")
    if unit != "part" or not _NUMBER.fullmatch(number):
        return ""
    return f", {float(Fraction(number) / 100):g} for the part itself"
