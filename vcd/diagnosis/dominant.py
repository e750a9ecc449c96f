"""The dominant cause of a wait: the one that held for the largest share of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vcd.diagnosis.waittimeline import WaitSpan, WholeWait
from vcd.model.diagnosis import Diagnosis

_ENOUGH = 0.9
"""The share of a wait after which no more reasons are diagnosed."""
_FEW = 3
"""Kinds of reasons that are diagnosed even if it is certain earlier which cause held longest."""
_MOST = 12
"""Kinds of reasons that are diagnosed at most: each one costs deciding a session again."""


class Dominant(NamedTuple):
    """The cause that held longest: its longest kind of reasons, how long (ns) the cause held, and how much of the wait
    (ns) was diagnosed."""

    held: WaitSpan
    diagnosis: Diagnosis
    length: int
    looked: int


def dominant(wait: WholeWait, ask: Callable[[WaitSpan], Diagnosis | None]) -> Dominant | None:
    """Return the cause of a wait, or None if ``ask`` returns no diagnosis of the reasons that held longest.

    Kinds of reasons are diagnosed, the longest first, until most of the wait is, or no other cause can have held
    longer.
    """
    longest = sorted(wait.held().values(), key=lambda span: (-span.weight, sorted(span.kind)))
    left, lengths, firsts = wait.length, dict[str, int](), dict[str, tuple[WaitSpan, Diagnosis]]()
    for count, one in enumerate(longest[:_MOST], 1):
        diagnosis = ask(one)
        if diagnosis is None:
            if count == 1:
                return None
            continue
        left -= one.weight
        lengths[diagnosis.cause] = lengths.get(diagnosis.cause, 0) + one.weight
        firsts.setdefault(diagnosis.cause, (one, diagnosis))
        first, second = (*sorted(lengths.values(), reverse=True), 0)[:2]
        if left <= wait.length * (1 - _ENOUGH) or (count >= _FEW and first >= second + left):
            break
    cause = max(lengths, key=lengths.__getitem__)
    return Dominant(*firsts[cause], lengths[cause], wait.length - left)
