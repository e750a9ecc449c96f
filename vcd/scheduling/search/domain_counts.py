"""Counts of pods by node, or by the domains that a label divides the nodes into."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vcd.state.node_facts import NodeFacts

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
V = TypeVar("V", bound=np.generic)

_FEW = 64
"""Up to this many numbers are stored in a dict; more become an array."""


class Sums:
    """Counts by number (a node's row, a domain's code): a dict while few are not zero, an array after that."""

    __slots__ = ("_array", "_few", "size", "total")

    def __init__(self, size: int) -> None:
        self.size = size
        self.total = 0
        self._few: dict[int, int] = {}
        self._array: Ints | None = None

    def add(self, number: int, times: int) -> None:
        """Count ``times`` more of a number; -1 means none and is not counted."""
        if number < 0:
            return
        self.total += times
        if self._array is not None:
            self._array[number] += times
            return
        count = self._few.pop(number, 0) + times
        if count:
            self._few[number] = count
            if len(self._few) > _FEW:
                self._array = self._as_array()

    def add_all(self, numbers: npt.NDArray[np.signedinteger], times: Ints | None = None) -> None:
        """Count one more for each entry, or ``times`` more; -1 is not counted."""
        times = np.ones(len(numbers), np.int64) if times is None else times
        numbers, times = numbers[numbers >= 0], times[numbers >= 0]
        if len(numbers) <= _FEW:
            for number, more in zip(numbers.tolist(), times.tolist(), strict=True):
                self.add(number, more)
            return
        self._array = self.counts().copy()
        np.add.at(self._array, numbers, times)
        self.total += int(times.sum())

    def copy(self) -> Sums:
        """Return a copy that may be changed."""
        result = Sums(self.size)
        result.total, result._few = self.total, self._few.copy()
        result._array = None if self._array is None else self._array.copy()
        return result

    def _as_array(self) -> Ints:
        array = np.zeros(self.size + 1, np.int64)
        for number, count in self._few.items():
            array[number] = count
        return array

    def counts(self) -> Ints:
        """Return counts by number, plus a final 0 that index -1 finds. Read-only."""
        return self._as_array() if self._array is None else self._array

    def positive(self) -> Mask:
        """Return which numbers have a count above 0, plus a final False that index -1 finds."""
        if self._array is not None:
            return self._array > 0
        mask = np.zeros(self.size + 1, np.bool_)
        for number, count in self._few.items():
            mask[number] = count > 0
        return mask


class Domains:
    """The domains of a topology key.

    ``codes`` is the domain number of each node (-1: none). ``present`` marks the domains that have a node.
    """

    __slots__ = ("codes", "present", "size")

    def __init__(self, codes: npt.NDArray[np.signedinteger], size: int) -> None:
        self.codes: Rows = codes.astype(np.intp)
        self.size = size
        self.present: Mask = np.bincount(self.codes[self.codes >= 0], minlength=size) > 0

    def by_node(self, by_domain: npt.NDArray[V]) -> npt.NDArray[V]:
        """Map values by domain to values by node; nodes without a domain get the last value."""
        result: npt.NDArray[V] = by_domain[self.codes]
        return result


def domains_of(facts: NodeFacts, key: str) -> Domains:
    """Return the domains into which a node label divides the nodes."""

    codes, values = facts.label(key)

    def make() -> Domains:
        return Domains(codes, len(values))

    found: Domains = facts.cached(("domains", key if values else ""), make)  # all keys that no node has share one entry
    return found
