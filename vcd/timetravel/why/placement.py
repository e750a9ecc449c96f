"""Why a pod went where it went: the session is decided again, and writes down how its nodes were rated."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from vcd.scheduling.framework.framework import trace_of
from vcd.scheduling.framework.trace import NodeChoice
from vcd.scheduling.search.static import SCALE
from vcd.timetravel.history import History

SHOWN_NODES = 3
"""How many of the best nodes a choice lists, the chosen one aside."""


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
    about = frozenset(pods)
    _, decided = history.rerun(session, about=about)
    trace = trace_of(decided)
    names, made = decided.nodes.facts.names, {}
    for key, row in trace.places().items():
        if key in about:
            choice = trace.choice_of(key)
            made[key] = (
                Placement(key, names[row], nominated=True)
                if choice is None
                else _placement(choice, row, names, (beside or {}).get(key, ""))
            )
    return made


def _placement(choice: NodeChoice, chosen: int, names: list[str], beside: str) -> Placement:
    """A choice, with another node to rate by its name."""
    rating = choice.rating
    order = [row for row in np.argsort(-rating.keys, kind="stable").tolist() if rating.passed[row]]
    shown = order[:SHOWN_NODES] + [row for row in (chosen,) if row not in order[:SHOWN_NODES]]

    def rated(row: int) -> Rated:
        points = {name: int(of_score[row]) for name, of_score in rating.points.items()}
        scores = {name: value / SCALE for name, value in points.items()}
        return Rated(names[row], bool(rating.now[row]), sum(points.values()) / SCALE, scores)

    other = next((row for row in order if names[row] == beside), None)
    return Placement(
        choice.task.key,
        names[chosen],
        len(names),
        len(order),
        tuple(map(rated, shown)),
        {reason.words: nodes for reason, nodes in rating.refused.items()},
        beside=None if other is None else rated(other),
    )
