"""What the nodes' facts alone decide about tasks, computed once for tasks that predicates and scores read equally."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from vcd.scheduling.search.parts import Mask, Predicate, Rows, Score, Scores, compares
from vcd.scheduling.session.nodes import Nodes
from vcd.scheduling.session.views import Task

SCALE = 1_000_000
"""Scores are compared as integers: points times this, rounded half to even, score by score."""
_SCALE = np.float64(SCALE)
EXACT = 2**53
"""float64 adds integers exactly up to this."""


def fixed_point(score: Score, points: Scores) -> Scores:
    """Return a score's weighted points in millionths, as integers (docs/laws.md, law 5)."""
    scaled = points * _SCALE if score.weight == 1 else points * score.weight * _SCALE
    return np.rint(scaled, scaled)


def among(mask: Mask, points: Scores) -> Scores:
    """Return the points where ``mask`` is true, -inf elsewhere. Read-only."""
    return points if mask.size and mask.item(mask.argmin()) else np.where(mask, points, -np.inf)


def highest_of(raw: Scores, feasible: Mask) -> float:
    """Return the highest feasible rating, at least 0."""
    first = raw.argmax()
    highest = raw[first] if feasible[first] else np.where(feasible, raw, 0.0).max(initial=0.0)
    return max(float(highest), 0.0)


class PercentOfHighest(Score):
    """Base of scores that depend only on the highest rating among the feasible nodes, or 0 if all are lower."""

    def percent(self, raw: Scores, feasible: Mask, none: Scores) -> Scores:
        """Return raw x 100 / the highest feasible value, rounded down; ``none`` if that is 0."""
        highest = highest_of(raw, feasible)
        return np.floor(raw * 100.0 / highest) if highest else none


class RelativeScore:
    """The points of a score that depends on facts and on which nodes are rated; ``mask`` marks the passing nodes."""

    def __init__(self, score: Score, raw: Scores, mask: Mask) -> None:
        self._score = score
        self._raw = raw
        self._by_highest = isinstance(score, PercentOfHighest)
        self.top: int | None = int(among(mask, raw).argmax()) if self._by_highest else None
        """If this node is rated, the points are the same whichever other nodes are rated."""
        self._last: tuple[float, Scores] | None = None

    def points(self, rated: Mask) -> Scores:
        """Return the points in fixed point. Read-only."""
        highest = highest_of(self._raw, rated) if self._by_highest else np.nan  # NaN: computed at each call
        if self._last is None or highest != self._last[0]:
            self._last = highest, fixed_point(self._score, self._score.normalise(self._raw, rated))
        return self._last[1]


class TopNodes(NamedTuple):
    """The nodes to which facts give the most points, and the points of the next best."""

    rows: Rows
    points: float
    next: float
    """The most points of the other nodes; -inf if none of them passes."""
    tops: tuple[int | None, ...]
    """The result is valid whenever these nodes are rated. None: unknown."""

    def holds(self, worth: Scores, of: Rows) -> bool:
        """Whether the result is valid for ``worth``, points by group; ``of`` is each node's group."""
        return all(row is not None and worth.item(of.item(row)) > -np.inf for row in self.tops)


class FactScores(msgspec.Struct):
    """Which nodes pass, and their points, by facts alone; for scores that compare nodes, their raw ratings."""

    key: Hashable
    """Which parts apply, and what they read."""
    mask: Mask
    """``everywhere`` itself if all nodes pass."""
    points: Scores | None
    """None: equal for all."""
    offset: Scores | None
    """Mask and points in one: -inf for nodes that do not pass. None: all pass, with equal points."""
    compared: tuple[RelativeScore, ...]
    used: int = 0
    """Increasing number of the last use."""
    _first: TopNodes | None = None

    def first(self, worth: Scores, of: Rows) -> TopNodes:
        """Return the nodes that facts put first among the nodes whose group (``of``) is worth more than -inf."""
        if self._first is not None and self._first.holds(worth, of):
            return self._first
        rated = (worth > -np.inf).take(of) & self.mask
        points = np.zeros(len(of)) if self.offset is None else self.offset
        for compared in self.compared:
            points = points + compared.points(rated)
        most = points.max(initial=-np.inf)
        others = points < most
        tops = tuple([compared.top for compared in self.compared])
        found = TopNodes((~others).nonzero()[0], float(most), float(points[others].max(initial=-np.inf)), tops)
        if found.holds(worth, of):
            self._first = found
        return found

    @classmethod
    def of(
        cls, key: Hashable, task: Task, parts: Sequence[Predicate | Score], nodes: Nodes, everywhere: Mask
    ) -> FactScores:
        """Compute the result of the parts that apply to a task; predicates come first in ``parts``."""
        mask = everywhere
        points: Scores | None = None
        compared = []
        for part in parts:
            if isinstance(part, Predicate):
                mask = mask & part.mask(task, nodes.usage)
                continue
            raw = part.raw(task, nodes.usage)
            if raw.size == 0 or (raw == raw[0]).all():
                continue  # equal for all nodes: it does not order them
            if compares(part):
                compared.append(RelativeScore(part, raw, mask))
            else:
                added = fixed_point(part, raw)
                points = added if points is None else points + added
        offset = points if mask is everywhere else among(mask, np.zeros(len(mask)) if points is None else points)
        return cls(key, mask, points, offset, tuple(compared))
