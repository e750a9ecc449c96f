"""Requests of shapes in columns by number, updated when a number gets another shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vcd.state.interning import Pages
from vcd.state.records import Shape

T = TypeVar("T")
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class ShapeColumns:
    """One row per shape, and a last one for none (number -1).

    ``requests`` (shapes + 1, resources) in the order of ``resources``; ``scored`` (shapes + 1, 2): cpu and memory as
    scores count them; ``weights`` (shapes + 1): as how many kinds each counts (``Shape.weight``).
    """

    def __init__(self, shapes: Pages[Shape | None], resources: tuple[str, ...]) -> None:
        self.resources = resources
        self._shapes = shapes
        self.requests: Ints = np.zeros((len(shapes) + 1, len(resources)), np.int64)
        self.scored: Ints = np.zeros((len(shapes) + 1, 2), np.int64)
        self.weights: Ints = np.zeros(len(shapes) + 1, np.int64)
        self._flags: dict[Callable[[Shape], bool], Flags] = {}
        self._cached: dict[str, dict[int, Any]] = {}
        self._fill(range(len(shapes)))

    def with_changes(self, shapes: Pages[Shape | None], numbers: Collection[int]) -> ShapeColumns:
        """Return a copy with the current shapes of some numbers."""
        result = object.__new__(ShapeColumns)
        result.resources, result._shapes = self.resources, shapes
        more = len(shapes) + 1 - len(self.requests)
        result.requests = np.concatenate([self.requests, np.zeros((more, len(self.resources)), np.int64)])
        result.scored = np.concatenate([self.scored, np.zeros((more, 2), np.int64)])
        result.weights = np.concatenate([self.weights, np.zeros(more, np.int64)])
        known = dict(self._flags)  # a thread that computes gauges may add to it
        result._flags = {of: np.concatenate([flags, np.zeros(more, np.bool_)]) for of, flags in known.items()}
        result._cached = {name: dict(results) for name, results in dict(self._cached).items()}
        for results in result._cached.values():
            for number in numbers:
                results.pop(number, None)
        result._fill(numbers)
        return result

    def _fill(self, numbers: Iterable[int]) -> None:
        column_of = {name: column for column, name in enumerate(self.resources)}
        for number in numbers:
            shape = self._shapes[number]
            self.scored[number] = (0, 0) if shape is None else shape.scored
            self.weights[number] = 0 if shape is None else shape.weight
            write_amounts(self.requests[number], column_of, {} if shape is None else shape.requests)
            for of, flags in self._flags.items():
                flags[number] = shape is not None and of(shape)

    def cached(self, name: str, numbers: Sequence[int], make: Callable[[list[int]], Iterable[T]]) -> list[T]:
        """Return the result of ``make`` for each of some shapes, by number, computed once for each ``name``."""
        results = self._cached.setdefault(name, {})
        new = list(dict.fromkeys([number for number in numbers if number not in results]))
        if new:
            results.update(zip(new, make(new), strict=True))
        return [results[number] for number in numbers]

    def flags(self, of: Callable[[Shape], bool]) -> Flags:
        """Return the result of a function of a module for each shape; it is only called for new shapes."""
        found = self._flags.get(of)
        if found is None:
            found = self._flags[of] = flags_of(self._shapes, of)
        return found


def write_amounts(row: Ints, column_of: Mapping[str, int], amounts: Mapping[str, int]) -> None:
    """Write amounts by name into a row by resource; those without a column count as UNOFFERED."""
    row[:] = 0
    for name, value in amounts.items():
        column = column_of.get(name)
        if column is None:
            row[-1] = max(row[-1], value)
        else:
            row[column] = value


def unoffered(column_of: Mapping[str, int], amounts: Mapping[str, int]) -> str:
    """Return the names of requested resources without a column, as text; empty if there are none."""
    names = sorted(name for name, value in amounts.items() if value and name not in column_of)
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)


def flags_of(shapes: Pages[Shape | None], of: Callable[[Any], bool]) -> Flags:
    """Return a bool per shape, and False for none."""
    return np.array([shape is not None and of(shape) for shape in shapes] + [False], np.bool_)
