"""Which of a namespace's pending groups had their turn, if one cycle does not try all of them."""

from __future__ import annotations

import msgspec

from vcd.model.events import Plan, Turn


class TurnsTaken(msgspec.Struct, frozen=True, gc=False):
    """The last group that had its turn, and whether anything happened since the first one had it.

    If something happened, all groups get another turn.
    """

    last: Turn
    is_news: bool


def after_news(turns: dict[str, TurnsTaken]) -> dict[str, TurnsTaken]:
    """Return the turns after an event other than a session."""
    return {namespace: TurnsTaken(taken.last, True) for namespace, taken in turns.items()}


def after_session(turns: dict[str, TurnsTaken], plan: Plan, is_news: bool) -> dict[str, TurnsTaken]:
    """Return the turns after a session.

    ``is_news``: whether anything happened during the decision. The decisions are news to groups that had their turn in
    earlier sessions.
    """
    result = after_news(turns) if decides(plan) else dict(turns)
    for turn in plan.turns:
        before = result.pop(turn.namespace, None)
        if turn.group:
            result[turn.namespace] = TurnsTaken(turn, is_news if before is None else before.is_news)
    return result


def decides(plan: Plan) -> bool:
    """Whether a plan changes what other groups may get. Pipelined placements are made again in each session."""
    done = any(operation.verb != "pipeline" for statement in plan.statements for operation in statement.operations)
    return done or bool(plan.lapsed) or any(status.phase != status.was for status in plan.groups)
