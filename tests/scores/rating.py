"""Questions to a session's scores, by name."""

from __future__ import annotations

import numpy as np

from tests.predicates.asking import pending
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Score, compares
from vcd.scheduling.session.session import Session


def named(session: Session, name: str) -> Score | None:
    """The session's score of a name; None if it distinguishes no nodes, and so is left out."""
    return next((score for score in framework_of(session).evaluator.scores if score.name == name), None)


def rated(session: Session, name: str, task: str | None = None) -> bool:
    """Whether a score distinguishes nodes for a pending task."""
    score = named(session, name)
    return score is not None and score.applies(pending(session, task))


def points(session: Session, name: str, task: str | None = None, feasible: set[str] | None = None) -> dict[str, float]:
    """A score's points, before its weight, by node; normalised over the feasible nodes (all unless given)."""
    score, names = named(session, name), session.nodes.facts.names
    if score is None:
        return dict.fromkeys(names, 0.0)
    raw = score.raw(pending(session, task), session.nodes.usage)
    mask = np.array([feasible is None or node in feasible for node in names], np.bool_)
    if compares(score):
        raw = score.normalise(raw, mask)
    return {node: float(value) for node, value, within in zip(names, raw, mask, strict=True) if within}
