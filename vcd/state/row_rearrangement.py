"""Insert and remove rows of columns and lists, copying whole runs of rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Column = npt.NDArray[Any]

NEW: Final = -1
"""The earlier index of a row that is new."""
_FEW = 1000
"""Up to this many runs are copied one by one, which is faster."""


class Rearrangement:
    """A rearrangement of rows. ``before`` is the earlier index of each row, or NEW; the others stay in order."""

    def __init__(self, before: npt.NDArray[np.int64]) -> None:
        self.before = before
        follows = (before[1:] == before[:-1] + 1) & (before[:-1] != NEW)
        starts = [0, *(np.flatnonzero(~follows) + 1).tolist()] if len(before) else []
        firsts = before[starts].tolist()
        self._runs = [
            None if first == NEW else slice(first, first + end - start)
            for first, (start, end) in zip(firsts, pairwise([*starts, len(before)]), strict=True)
        ]
        """Runs of rows that were consecutive before, too; None for each new row."""

    def column(self, column: Column, axis: int = 0) -> Column:
        """Return a rearranged copy of a column along an axis; it must not be empty. New rows hold arbitrary values."""
        if not 0 < len(self._runs) <= _FEW:
            return column.take(self.before, axis)
        runs = [slice(0, 1) if run is None else run for run in self._runs]
        return np.concatenate([column[:, run] if axis else column[run] for run in runs], axis)

    def items(self, items: Sequence[T], new: Iterable[T]) -> list[T]:
        """Return a rearranged copy of a list; ``new`` has the items of new rows, in order."""
        result: list[T] = []
        more = iter(new)
        for run in self._runs:
            if run is None:
                result.append(next(more))
            else:
                result += items[run]
        return result
