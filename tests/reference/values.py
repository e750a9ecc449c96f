"""Quantities and resource vectors of the reference: exact numbers, plain dictionaries.

Comparisons follow Volcano's resource arithmetic, with its tolerance of a tenth of a unit (which never matters on
integers, but does on the fractions that proportion's shares produce).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

CPU, MEMORY, PODS = "cpu", "memory", "pods"
TOLERANCE = 0.1
UNLIMITED = 1.7976931348623157e308

_QUANTITY = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$")
_SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    None: Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


def quantity(text: Any) -> Fraction:
    """The exact value of a Kubernetes quantity, written as text or as a number."""
    return _exact(str(text).strip())


@lru_cache(maxsize=4096)
def _exact(text: str) -> Fraction:
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    sign, digits, suffix = match.groups()
    value = Fraction(digits if not digits.endswith(".") else digits + "0")
    if suffix is not None and suffix not in _SUFFIX:
        value *= Fraction(10) ** int(suffix[1:])
    else:
        value *= _SUFFIX[suffix]
    return -value if sign == "-" else value


def whole(value: Fraction) -> int:
    """Rounded up to a whole unit, as Quantity.Value()."""
    return math.ceil(value)


def milli(value: Fraction) -> int:
    """Rounded up to a thousandth, as Quantity.MilliValue()."""
    return math.ceil(value * 1000)


def is_scalar_name(name: str) -> bool:
    """Whether a resource is one that schedulers account as a scalar: extended, huge pages, native, attachable."""
    if name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name:
        return True
    return "/" in name and not name.startswith("requests.")


class Resource:
    """cpu in milli-cores, memory in bytes, scalars by name (None: no scalar was ever set)."""

    def __init__(self, cpu: float = 0, memory: float = 0, scalars: dict[str, float] | None = None) -> None:
        self.cpu, self.memory, self.scalars = cpu, memory, scalars

    @classmethod
    def of(cls, items: dict[str, Fraction]) -> Resource:
        """From a resource list; names that are not accounted are dropped."""
        res = cls()
        for name, value in items.items():
            if name == CPU:
                res.cpu += milli(value)
            elif name == MEMORY:
                res.memory += whole(value)
            elif name == PODS:
                res.add_scalar(PODS, whole(value))
            elif name == "ephemeral-storage" or (not name.startswith("count/") and is_scalar_name(name)):
                res.add_scalar(name, milli(value))
        return res

    def clone(self) -> Resource:
        return Resource(self.cpu, self.memory, None if self.scalars is None else dict(self.scalars))

    def get(self, name: str) -> float:
        if name == CPU:
            return self.cpu
        if name == MEMORY:
            return self.memory
        return (self.scalars or {}).get(name, 0)

    def names(self) -> list[str]:
        """Dimensions that are not zero; scalars by name."""
        found = [CPU] if self.cpu >= TOLERANCE else []
        if self.memory >= TOLERANCE:
            found.append(MEMORY)
        return found + sorted(n for n, v in (self.scalars or {}).items() if v >= TOLERANCE)

    def add_scalar(self, name: str, value: float) -> None:
        self.scalars = self.scalars or {}
        self.scalars[name] = self.scalars.get(name, 0) + value

    def add(self, other: Resource) -> Resource:
        self.cpu += other.cpu
        self.memory += other.memory
        for name, value in (other.scalars or {}).items():
            self.add_scalar(name, value)
        return self

    def sub(self, other: Resource) -> Resource:
        self.cpu -= other.cpu
        self.memory -= other.memory
        if self.scalars is not None:
            for name, value in (other.scalars or {}).items():
                self.scalars[name] = self.scalars.get(name, 0) - value
        return self

    def multiply(self, ratio: float) -> Resource:
        self.cpu *= ratio
        self.memory *= ratio
        for name in self.scalars or {}:
            self.scalars[name] *= ratio  # type: ignore[index]
        return self

    def is_empty(self) -> bool:
        """Nothing but pods is asked for."""
        return (
            self.cpu < TOLERANCE
            and self.memory < TOLERANCE
            and all(v < TOLERANCE for n, v in (self.scalars or {}).items() if n != PODS)
        )

    def exceeding(self, other: Resource) -> list[str]:
        """Dimensions in which self is more than other; what other lacks counts as zero."""
        found = [n for n in (CPU, MEMORY) if not _at_most(self.get(n), other.get(n))]
        return found + sorted(n for n, v in (self.scalars or {}).items() if not _at_most(v, other.get(n)))

    def fits(self, other: Resource) -> bool:
        return not self.exceeding(other)

    def exceeding_requested(self, other: Resource, request: Resource) -> list[str]:
        """Dimensions, of those requested, in which self is more than other, without tolerance; pods are ignored."""
        found = [n for n in (CPU, MEMORY) if request.get(n) > 0 and self.get(n) > other.get(n)]
        if self.scalars is None:
            return found
        wanted = [n for n, v in (request.scalars or {}).items() if v > 0 and n != PODS]
        return found + sorted(n for n in wanted if self.get(n) > other.get(n))

    def set_max(self, other: Resource) -> None:
        self.cpu, self.memory = max(self.cpu, other.cpu), max(self.memory, other.memory)
        for name, value in (other.scalars or {}).items():
            self.scalars = self.scalars or {}
            self.scalars[name] = max(self.scalars.get(name, value), value)

    def limit_to(self, other: Resource, missing_is_unlimited: bool) -> Resource:
        """Lower each dimension to other's; a scalar that other lacks is unlimited or zero."""
        self.cpu, self.memory = min(self.cpu, other.cpu), min(self.memory, other.memory)
        for name, value in (self.scalars or {}).items():
            if name in (other.scalars or {}):
                self.scalars[name] = min(value, other.scalars[name])  # type: ignore[index]
            elif not missing_is_unlimited:
                self.scalars[name] = 0  # type: ignore[index]
        return self

    def minus_floor(self, other: Resource) -> Resource:
        """What self has more than other, per dimension; scalars that are not more are left out."""
        scalars = {n: v - other.get(n) for n, v in (self.scalars or {}).items() if v > other.get(n)}
        cpu = self.cpu - other.cpu if self.cpu > other.cpu else 0
        return Resource(cpu, self.memory - other.memory if self.memory > other.memory else 0, scalars)

    def same_as(self, other: Resource) -> bool:
        mine, others = (self.cpu, self.memory, self.scalars or {}), (other.cpu, other.memory, other.scalars or {})
        return mine == others

    def __repr__(self) -> str:
        return f"Resource(cpu={self.cpu}, memory={self.memory}, {self.scalars})"


def maximum(left: Resource, right: Resource) -> Resource:
    """The larger in each dimension."""
    out = Resource(max(left.cpu, right.cpu), max(left.memory, right.memory))
    if left.scalars is None and right.scalars is None:
        return out
    out.scalars = {n: v for n, v in (left.scalars or {}).items() if v >= 0}
    for name, value in (right.scalars or {}).items():
        if value >= 0:
            out.scalars[name] = max(value, out.scalars.get(name, 0))
    return out


def share(part: float, total: float) -> float:
    """part of total; all of nothing is 1, nothing of nothing 0."""
    if total == 0:
        return 0.0 if part == 0 else 1.0
    return part / total


def _at_most(left: float, right: float) -> bool:
    return left < right or abs(left - right) < TOLERANCE
