"""Rows that stay, rows that go, and new ones between them: columns and lists arranged anew, whole runs at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Column = npt.NDArray[Any]

NEW: Final = -1
"""Where a row was that was not there."""
_FEW = 1000
"""Up to so many runs are copied one by one, which is faster."""


class Rearranged:
    """Rows of which ``before`` says where each was, NEW where nowhere; those that stay are in the order of then."""

    def __init__(self, before: npt.NDArray[np.int64]) -> None:
        self.before = before
        follows = (before[1:] == before[:-1] + 1) & (before[:-1] != NEW)
        starts = [0, *(np.flatnonzero(~follows) + 1).tolist()] if len(before) else []
        firsts = before[starts].tolist()
        self._runs = [
            None if first == NEW else slice(first, first + end - start)
            for first, (start, end) in zip(firsts, pairwise([*starts, len(before)]), strict=True)
        ]
        """The rows that follow each other now as they did, None for each new one."""

    def column(self, column: Column, axis: int = 0) -> Column:
        """A column of these rows along an axis, made of that of before, which is not empty; new rows hold anything."""
        if not 0 < len(self._runs) <= _FEW:
            return column.take(self.before, axis)
        runs = [slice(0, 1) if run is None else run for run in self._runs]
        return np.concatenate([column[:, run] if axis else column[run] for run in runs], axis)

    def items(self, items: Sequence[T], new: Iterable[T]) -> list[T]:
        """A list of what these rows have, made of that of before and of what the new ones have, in order."""
        result: list[T] = []
        more = iter(new)
        for run in self._runs:
            if run is None:
                result.append(next(more))
            else:
                result += items[run]
        return result
