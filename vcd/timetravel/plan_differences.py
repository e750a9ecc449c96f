"""Where two plans differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.scheduling.decide import PLAN, PLAN_VERSION
from vcd.text.plans import operation_in_words, status_in_words, usage_in_words, waiting_in_words
from vcd.text.replay_templates import REPLAYS

_Pair = tuple[str, Any, Any]
"""Where two plans differ, and the two parts there; None for a missing part."""


class Difference(msgspec.Struct, frozen=True):
    """The first difference between two plans: its place, the recorded and replayed parts, and its known reasons."""

    where: str
    recorded: str
    replayed: str
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        return REPLAYS.sentence("difference", msgspec.structs.asdict(self))


_ExplainScores = Callable[[str, str, str], tuple[str, ...]]


def difference_from(
    record: ev.SessionDecided, plan: ev.Plan, rated: _ExplainScores = lambda *_: ()
) -> Difference | None:
    """Return how a plan differs from the recorded one; ``rated`` as for ``first_difference``."""
    if ev.encode_plan(plan) == record.plan:
        return None
    return first_difference(record.plan, plan, rated, version=int(record.versions.get(PLAN, "1")))


def first_difference(
    recorded: bytes,
    plan: ev.Plan,
    rated: _ExplainScores = lambda *_: (),
    *,
    version: int = int(PLAN_VERSION),
) -> Difference | None:
    """Return where a plan first differs from a recorded one: statements operation by operation, then the rest in
    order.

    ``rated`` is called for the reason if a pod is bound to another node: with the pod, the node then, the node now.
    ``version`` is that of the recorded plan: reasons that are sentences (version 1) and conditions that contain
    sentences (1 and 2) are not compared. None if nothing else differs.
    """
    try:
        before = ev.decode_plan(recorded)
    except msgspec.MsgspecError as error:
        facts = {"size": f"{len(recorded)}", "error": f"{error}"}
        return Difference(REPLAYS["recorded plan"], REPLAYS.sentence("unreadable", facts), "a plan")
    found = next(_differences(before, plan, version), None)
    if found is None:
        then = REPLAYS.sentence("size", {"size": f"{len(recorded)}"})
        now = REPLAYS.sentence("same content", {"size": f"{len(ev.encode_plan(plan))}"})
        return Difference(REPLAYS["encoded plan"], then, now) if version == int(PLAN_VERSION) else None
    where, then, now = found
    why: tuple[str, ...] = ()
    if isinstance(then, ev.Operation) and isinstance(now, ev.Operation):
        same = (then.verb, then.key) == (now.verb, now.key) == ("bind", now.key)
        why = rated(then.key, then.node, now.node) if same and then.node != now.node else ()
    return Difference(where, _in_words(then), _in_words(now), why)


def _differences(recorded: ev.Plan, replayed: ev.Plan, version: int) -> Iterator[_Pair]:
    for number, (before, after) in enumerate(zip_longest(recorded.statements, replayed.statements)):
        where = f"statement {number}"
        if before is None or after is None or (before.group, before.action) != (after.group, after.action):
            yield where, before, after
        else:
            name = f"{where} ({before.action} for {before.group}), operation"
            yield from _in_lists(name, before.operations, after.operations)
    groups = (recorded.groups, replayed.groups) if version >= 3 else _without_conditions(recorded, replayed)
    yield from _in_lists("group status", *groups)
    yield from _in_lists("queue usage", recorded.queues, replayed.queues)
    if version >= 2:
        yield from _in_lists("reason to wait", recorded.waiting, replayed.waiting)
    yield from _in_lists("fault", recorded.faults, replayed.faults)
    yield from _in_lists("work left", (recorded.more,), (replayed.more,))
    yield from _in_lists("turn", recorded.turns, replayed.turns)


def _without_conditions(recorded: ev.Plan, replayed: ev.Plan) -> tuple[list[ev.GroupStatus], list[ev.GroupStatus]]:
    """Return the group statuses of two plans without conditions, and without statuses that only change a condition's
    text."""
    now = {status.key for status in replayed.groups}
    before = [status for status in recorded.groups if status.condition is None or status.key in now]
    bare = msgspec.structs.replace
    return [bare(one, condition=None) for one in before], [bare(one, condition=None) for one in replayed.groups]


def _in_lists(name: str, recorded: Sequence[Any], replayed: Sequence[Any]) -> Iterator[_Pair]:
    for number, (before, after) in enumerate(zip_longest(recorded, replayed)):
        if before != after:
            yield f"{name} {number}", before, after


def _in_words(part: Any) -> str:
    return "nothing" if part is None else _WORDS.get(type(part), str)(part)


def _statement_in_words(statement: ev.Statement) -> str:
    operations = [operation_in_words(one) for one in statement.operations[:1]]
    facts = {"action": statement.action, "group": statement.group, "count": f"{len(statement.operations)}"}
    return REPLAYS.sentence("statement", {**facts, "operation": "".join(operations)}, ["first" if operations else ""])


_WORDS: dict[type[Any], Callable[[Any], str]] = {
    ev.Statement: _statement_in_words,
    ev.Operation: operation_in_words,
    ev.GroupStatus: status_in_words,
    ev.QueueUsage: usage_in_words,
    ev.Waiting: waiting_in_words,
}
