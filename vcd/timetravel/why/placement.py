"""Why a pod went where it went: the session is run again, watched, and its nodes are rated score by score."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Scores
from vcd.scheduling.search.static import SCALE, fixed_point
from vcd.scheduling.session.nodes import Ints, fits
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.timetravel.history import History, Observer

SHOWN_NODES = 3
"""How many of the best nodes a choice lists, the chosen one aside."""

_NOWHERE = np.iinfo(np.int64).min


class Rated(msgspec.Struct, frozen=True):
    """A node that takes a pod: whether it has room now, its points, and the points by score (weights applied)."""

    node: str
    room_now: bool
    points: float
    scores: dict[str, float]


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a session put a pod, at the moment when it did.

    ``passed`` of ``nodes`` took the pod; ``best`` rates the best of them in order, and the chosen one last where it
    is none of these; ``refused`` counts the other nodes by reason. ``nominated``: an earlier eviction made room for
    the pod there, and nothing was rated. ``beside`` rates another node that was asked for, where it took the pod.
    """

    pod: str
    node: str
    nodes: int = 0
    passed: int = 0
    best: tuple[Rated, ...] = ()
    refused: dict[str, int] = {}
    nominated: bool = False
    beside: Rated | None = None


def choices(
    history: History, session: int, pods: Collection[str], beside: Mapping[str, str] | None = None
) -> dict[str, Placement]:
    """The choices that a session made for some pods, by key; what it took back or never placed is not there.

    ``beside`` names, by pod, a node that shall be rated in any case.
    """
    observer = _Observer(frozenset(pods), beside or {})
    history.rerun(session, observers=(observer,))
    return observer.made


class _Observer(Observer):
    """Sees each choice of a node before it is made and what became of it."""

    def __init__(self, pods: frozenset[str], beside: Mapping[str, str]) -> None:
        super().__init__()
        self._pods = pods
        self._beside = beside
        self._seen: dict[str, _Rating] = {}
        self.made: dict[str, Placement] = {}

    def best_node(self, task: Task, keys: Ints) -> None:
        """Rate the nodes for a watched pod as they are now; the decision is left to the others."""
        if task.key in self._pods:
            self._seen[task.key] = _Rating(self.session, task, keys)

    def on_allocate(self, task: Task, row: int) -> None:
        """A watched pod was placed."""
        if task.key in self._pods:
            rating = self._seen.pop(task.key, None)
            node = self.session.nodes.facts.names[row]
            beside = self._beside.get(task.key, "")
            self.made[task.key] = (
                Placement(task.key, node, nominated=True) if rating is None else rating.choice(row, beside)
            )

    def on_deallocate(self, task: Task, row: int) -> None:
        """A placement was taken back."""
        self.made.pop(task.key, None)


class _Rating:
    """How the nodes rate for a task at one moment: computed at once, since the next placement changes it."""

    def __init__(self, session: Session, task: Task, keys: Ints) -> None:
        usage = session.nodes.usage
        passed = keys != _NOWHERE
        self._pod = task.key
        self._names = session.nodes.facts.names
        self._now = passed & fits(task.floor, usage.idle)
        feasible = self._now if self._now.any() else passed
        self._points: dict[str, Scores] = {}
        for score in framework_of(session).evaluator.scores:
            if score.weight and score.applies(task):
                raw = score.raw(task, usage)
                points = fixed_point(score, score.normalise(raw, feasible) if score.normalised else raw)
                self._points[score.name] = self._points.get(score.name, 0) + points
        self._order = [row for row in np.argsort(-keys, kind="stable").tolist() if passed[row]]
        self._refused = framework_of(session).evaluator.table(task).reasons()

    def choice(self, chosen: int, beside: str = "") -> Placement:
        """The choice of a row; ``beside`` is the name of another node to rate."""
        shown = self._order[:SHOWN_NODES]
        if chosen not in shown:
            shown.append(chosen)
        other = next((row for row in self._order if self._names[row] == beside), None)
        return Placement(
            self._pod,
            self._names[chosen],
            len(self._names),
            len(self._order),
            tuple(self._rated(row) for row in shown),
            {reason.words: nodes for reason, nodes in self._refused.items()},
            beside=None if other is None else self._rated(other),
        )

    def _rated(self, row: int) -> Rated:
        scores = {name: int(points[row]) for name, points in self._points.items()}
        shown = {name: points / SCALE for name, points in scores.items()}
        return Rated(self._names[row], bool(self._now[row]), sum(scores.values()) / SCALE, shown)
