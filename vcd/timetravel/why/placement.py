"""Why a pod was placed on its node: the session is decided again with a trace of the nodes' scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from vcd.scheduling.framework.framework import trace_of
from vcd.scheduling.framework.trace import NodeChoice
from vcd.scheduling.search.factscores import SCALE
from vcd.timetravel.history import History

SHOWN_NODES = 3
"""The best nodes in a choice, in addition to the chosen one."""


class Rated(msgspec.Struct, frozen=True):
    """A feasible node: whether it has free resources now, its points, and the points by score (with weights)."""

    node: str
    room_now: bool
    points: float
    scores: dict[str, float]


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a session placed a pod, and the nodes' scores at that time.

    ``passed`` of ``nodes`` were feasible; ``best`` has the scores of the best of them in order, and the chosen one
    last if it is not among them; ``refused`` counts the other nodes by reason. ``nominated``: an earlier eviction had
    freed capacity for the pod there, and nothing was scored. ``beside`` has the scores of another requested node, if
    feasible.
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
    """Return the choices that a session made for some pods, by key, without those that were rolled back or never made.

    ``beside`` names, by pod, a node whose scores are included in any case.
    """
    about = frozenset(pods)
    _, decided = history.rerun(session, about=about)
    trace = trace_of(decided)
    names, placements = decided.nodes.facts.names, {}
    for key, row in trace.places().items():
        if key in about:
            choice = trace.choice_of(key)
            placements[key] = (
                Placement(key, names[row], nominated=True)
                if choice is None
                else _placement(choice, row, names, (beside or {}).get(key, ""))
            )
    return placements


def _placement(choice: NodeChoice, chosen: int, names: list[str], beside: str) -> Placement:
    """Return a choice, with the scores of another node by name."""
    rating = choice.rating
    order = [row for row in np.argsort(-rating.keys, kind="stable").tolist() if rating.passed[row]]
    displayed = order[:SHOWN_NODES] + [row for row in (chosen,) if row not in order[:SHOWN_NODES]]

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
        tuple(map(rated, displayed)),
        {reason.words: nodes for reason, nodes in rating.refused.items()},
        beside=None if other is None else rated(other),
    )
