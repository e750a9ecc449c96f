"""Sums are those of whole numbers without bound, up to the most that a sum counts as."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from vcd.model.resource_requests import LARGEST, LARGEST_SUM
from vcd.state.sums import sum_of, sums_before, sums_by, sums_up_to, times

AMOUNTS = st.one_of(
    st.integers(0, LARGEST_SUM), st.integers(0, 1000), st.sampled_from([0, 1, LARGEST, LARGEST - 1, LARGEST_SUM])
)
KEYED = st.lists(st.tuples(st.integers(0, 4), AMOUNTS), max_size=300)


def expected(amounts: list[int]) -> int:
    return min(sum(amounts), LARGEST_SUM)


@given(KEYED)
@example([(0, LARGEST + 1)])
def test_by_key(pairs: list[tuple[int, int]]) -> None:
    keys, amounts = np.array([*pairs, (0, 0)], np.int64).T
    sums = [expected([amount for key, amount in pairs if key == wanted]) for wanted in range(5)]
    assert sums_by(keys, amounts, 5).tolist() == sums
    assert sums_by(keys, np.stack([amounts, amounts // 2], axis=1), 5)[:, 0].tolist() == sums


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=300))
def test_along_an_axis(rows: list[tuple[int, int]]) -> None:
    table = np.array(rows, np.int64)
    assert sum_of(table).tolist() == [expected([row[column] for row in rows]) for column in range(2)]
    assert sum_of(table, axis=1).tolist() == [expected(list(row)) for row in rows]


@given(KEYED)
def test_what_comes_before(pairs: list[tuple[int, int]]) -> None:
    ordered = sorted(pairs, key=lambda pair: pair[0])
    keys, amounts = (np.array([pair[part] for pair in ordered], np.int64) for part in range(2))
    before = [
        expected([amount for other, amount in ordered[:place] if other == key])
        for place, (key, _) in enumerate(ordered)
    ]
    assert sums_before(keys, amounts).tolist() == before
    assert sums_up_to(amounts).tolist() == [expected(amounts[: place + 1].tolist()) for place in range(len(ordered))]


@given(st.integers(0, LARGEST), st.integers(0, 2**31))
def test_so_many_times(amount: int, count: int) -> None:
    assert times(np.array([amount]), np.array([count])).tolist() == [min(amount * count, LARGEST_SUM)]
