"""Sums of requests and capacities of pods, groups and nodes.

A user may create any number of pods that each request up to 2**53 of a resource, so sums can exceed int64. All of them
are computed here: exact, and LARGEST_SUM if they are larger. A few such sums may be added and are still within int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from vcd.model.resource_requests import LARGEST, LARGEST_SUM

Ints = npt.NDArray[np.int64]
_Number = TypeVar("_Number", np.int32, np.int64)

_HALF: Final = LARGEST_SUM.bit_length() // 2
_LOW: Final = (1 << _HALF) - 1
"""Amounts are summed in two halves if their sum may be too large: halves of millions of them are not."""
_FEW: Final = 1000
"""Fewer rows of amounts are summed at once: a step for each resource would cost more than the sums."""


def sums_by(keys: npt.NDArray[_Number], amounts: Ints, count: int) -> Ints:
    """Sum amounts by key (below ``count``); amounts are not negative, of one resource or in rows by resource."""
    if amounts.ndim == 1:
        return _column(keys, amounts, count)
    width = amounts.shape[1]
    if len(amounts) < _FEW:
        cells = keys[:, None] * width + np.arange(width)
        return _column(cells.ravel(), amounts.ravel(), count * width).reshape(count, width)
    result = np.zeros((count, width), np.int64)
    for column in range(width):
        result[:, column] = _column(keys, amounts[:, column], count)
    return result


def sum_of(amounts: Ints, axis: int = 0) -> Ints:
    """Sum along an axis."""
    return _join_halves((amounts >> _HALF).sum(axis=axis), (amounts & _LOW).sum(axis=axis))


def sums_up_to(amounts: Ints) -> Ints:
    """Return cumulative sums, for amounts that are not negative."""
    return _join_halves(np.cumsum(amounts >> _HALF), np.cumsum(amounts & _LOW))


def sums_before(keys: npt.NDArray[_Number], amounts: Ints) -> Ints:
    """Return for each amount the sum of earlier ones with the same key; keys ascending, amounts not negative."""
    if not len(keys):
        return amounts
    first = np.searchsorted(keys, keys)
    high, low = (np.cumsum(half) - half for half in (amounts >> _HALF, amounts & _LOW))
    return _join_halves(high - high[first], low - low[first])


def plus(have: Sequence[int], more: Sequence[int], times: int) -> list[int]:
    """Return ``have`` plus ``times`` times ``more``."""
    if times == 1:
        return list(map(add, have, more))
    return [amount + times * added for amount, added in zip(have, more, strict=True)]


def changed(sums: Ints, less: Ints, more: Ints) -> Ints | None:
    """Return sums after the part ``less`` became ``more``; None if they are saturated."""
    return None if sums.max(initial=0) >= LARGEST_SUM else np.minimum(sums - less + more, LARGEST_SUM)


def times(amounts: Ints, counts: Ints) -> Ints:
    """Multiply amounts of up to LARGEST by counts."""
    high, low = (amounts >> _HALF) * counts, (amounts & _LOW) * counts
    return _join_halves(high, low)


def bounded(sums: Ints) -> Ints:
    """Bound sums of a few sums."""
    result: Ints = np.minimum(sums, LARGEST_SUM)
    return result


def _column(keys: npt.NDArray[_Number], amounts: Ints, count: int) -> Ints:
    sums = np.bincount(keys, weights=amounts, minlength=count)
    # below LARGEST the sums of floats are exact; a larger sum is never rounded below it
    if sums.max(initial=0) < LARGEST:
        return sums.astype(np.int64)
    halves = (np.bincount(keys, weights=half, minlength=count) for half in (amounts >> _HALF, amounts & _LOW))
    high, low = (half.astype(np.int64) for half in halves)
    return _join_halves(high, low)


def _join_halves(high: Ints, low: Ints) -> Ints:
    high = high + (low >> _HALF)
    result: Ints = np.where(high > _LOW, LARGEST_SUM, (high << _HALF) + (low & _LOW))
    return result
