"""The predicate that reserves cpu and memory for idle units of a scarce resource."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from vcd.model.quantity import per_unit
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.search.parts import Mask, Predicate, Reads
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_PROPORTIONAL = ReasonCode(
    "proportional-of", Cause.NODE_ROOM, "proportional of resource {resource} check failed", nodes_help=True
)

_BYTES = 10**9


class Rate(NamedTuple):
    """The cores and gigabytes (10**9 bytes) that one unit of a scarce resource needs."""

    cores: float
    gigabytes: float

    @classmethod
    def of(cls, cores: float | None, gigabytes: float | None) -> Rate:
        """Return the effective rate: 1 for values that are missing or negative."""
        return cls(*[1.0 if each is None or each < 0 else each for each in (cores, gigabytes)])


class _Part(NamedTuple):
    """A rate as exact fractions: milli-cores and bytes per counted unit of the resource."""

    name: str
    column: int
    cpu: Fraction
    memory: Fraction


class Proportional(Predicate):
    """A pod that requests no scarce resource must leave idle units of these the cpu and memory that they need.

    A node fails when idle cpu less the request is below idle units x cores, or idle memory less the request below idle
    units x GB. Rates count to a thousandth. Source: the documented meaning of Volcano's proportional predicate
    (docs/semantics/plugins.md: its code took thousandths of cores, and megabytes).
    """

    name = "Proportional"
    reason = ReasonCode("proportional", Cause.NODE_ROOM, "proportional resource check failed", nodes_help=True)()
    reads = Reads.USAGE
    keys = ()
    kinds = ()

    def __init__(self, session: Session, rates: Mapping[str, Rate]) -> None:
        columns = session.nodes.column_of
        self._cpu, self._memory = columns[CPU], columns[MEMORY]
        self._parts = [
            _Part(
                name,
                columns[name],
                _exact(rates[name].cores) * Fraction(1000, per_unit(name)),
                _exact(rates[name].gigabytes) * Fraction(_BYTES, per_unit(name)),
            )
            for name in sorted(rates)
            if name in columns
        ]

    def applies(self, task: Task) -> bool:
        return bool(self._parts) and not any(task.request[part.column] > 0 for part in self._parts)

    def mask(self, task: Task, usage: Usage) -> Mask:
        result = np.ones(len(usage), np.bool_)
        for part in self._parts:
            result &= self._leaves_enough(part, task, usage)
        return result

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed  # as in Volcano

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        """Count nodes by the first resource that is left without enough."""
        counts = {}
        rest = failed.copy()
        for part in self._parts:
            lacking = rest & ~self._leaves_enough(part, task, usage)
            if lacking.any():
                counts[_PROPORTIONAL({"resource": part.name})] = int(lacking.sum())
            rest &= ~lacking
        return counts

    def _leaves_enough(self, part: _Part, task: Task, usage: Usage) -> Mask:
        idle = usage.idle
        units = idle[part.column]
        result = np.ones(len(usage), np.bool_)
        for column, rate in ((self._cpu, part.cpu), (self._memory, part.memory)):
            left = np.maximum(idle[column] - task.request[column], -1)
            result &= left * rate.denominator >= units * rate.numerator
        result |= units <= 0
        return result


def _exact(rate: float) -> Fraction:
    return Fraction(str(rate)).limit_denominator(1000)
