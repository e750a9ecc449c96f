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
    """The cause that held longest, with its latest reasons and their diagnosis: how long (ns) it held, how much longer
    (``ahead``) than the cause at the end of the wait, and how much of the wait was diagnosed."""

    held: WaitSpan
    diagnosis: Diagnosis
    length: int
    ahead: int
    looked: int


def dominant(wait: WholeWait, diagnose: Callable[[WaitSpan], Diagnosis]) -> Dominant:
    """Return the cause of a wait; of causes that held equally long, that of its end.

    The last kind of reasons is diagnosed, then the others, the longest first, until most of the wait is, or no other
    cause can have held longer.
    """
    held = wait.held()
    last = held.pop(wait.spans[-1].kind)
    longest = sorted(held.values(), key=lambda span: (-span.weight, sorted(span.kind)))
    left, lengths, latest = wait.length, dict[str, int](), dict[str, tuple[WaitSpan, Diagnosis]]()
    for count, one in enumerate([last, *longest][:_MOST], 1):
        diagnosis = diagnose(one)
        cause = diagnosis.cause
        left -= one.weight
        lengths[cause] = lengths.get(cause, 0) + one.weight
        if cause not in latest or one.end > latest[cause][0].end:
            latest[cause] = one, diagnosis
        first, second = (*sorted(lengths.values(), reverse=True), 0)[:2]
        if left <= wait.length * (1 - _ENOUGH) or (count >= _FEW and first >= second + left):
            break
    present, cause = next(iter(lengths)), max(lengths, key=lengths.__getitem__)
    return Dominant(*latest[cause], lengths[cause], lengths[cause] - lengths[present], wait.length - left)
