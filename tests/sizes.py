"""How many random cases a property test tries: a share in `make test`, all of them in `make test-all`.

`VCD_WIDE=1`, which `make test-all` sets, selects the wide sizes and the tests marked `wide`. `VCD_SEEDS` overrides
both sizes of seeded tests: `VCD_SEEDS=5000` takes the seeds below 5,000, `VCD_SEEDS=5000:6000` those from 5,000 on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

WIDE = os.environ.get("VCD_WIDE", "") not in ("", "0")
_SHARE = 4
"""`make test` tries one in so many of the examples of a Hypothesis test."""
_FEWEST_EXAMPLES = 15


def seeds(usual: int, wide: int) -> range:
    """Return the seeds of a test: the first `usual`, the first `wide` in a wide run, or those of `VCD_SEEDS`."""
    first, _, last = os.environ.get("VCD_SEEDS", str(wide if WIDE else usual)).rpartition(":")
    return range(int(first or 0), int(last))


def blocks(usual: int, wide: int, size: int) -> list[range]:
    """Return the same seeds in blocks of at most `size`, so that each block is one test."""
    chosen = seeds(usual, wide)
    return [chosen[start : start + size] for start in range(0, len(chosen), size)]


def some(usual: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test, all but the first `usual` of them marked `wide`.

    A case of several arguments is a tuple.
    """
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=pytest.mark.wide if at >= usual else ()) for at, case in enumerate(listed)]


def examples(wide: int) -> int:
    """Return the number of Hypothesis examples: `wide` in a wide run, otherwise a quarter of it, but at least 15."""
    return wide if WIDE else min(wide, max(_FEWEST_EXAMPLES, wide // _SHARE))
