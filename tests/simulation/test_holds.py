"""The invariant on remarks about holds fails if the named owner holds nothing, less, or not until the stated time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.dsl import gang, node, queue
from tests.scheduling.test_admissions import ghosts
from tests.scheduling.test_backoff import PREEMPTING, Refusing
from tests.scheduling.test_holdnotes import CLASSES, admitting, late, preempted
from tests.simulation.invariants.holds import untrue
from tests.world import World
from vcd.model import events as ev
from vcd.model.reasons import CODES, Amount, Reason


def nominated() -> World:
    return preempted(PREEMPTING, 2, late())


def reserved() -> World:
    world = ghosts()
    world.cycle()
    return world


def guaranteed() -> World:
    owner = queue("owner", guarantee={"resource": {"cpu": 5}}, deserved={"cpu": 5})
    other = gang("new", 1, queue="other", cpu=4, phase="Pending", minimum={"cpu": 4})
    return World(node("n", cpu=8), owner, queue("other"), other, conf=admitting("capacity"))


def refused() -> World:
    world = Refusing(
        node("n", cpu=4),
        *CLASSES,
        gang("low", 4, members=1, cpu=1, on=["n"] * 4),
        gang("high", 1, cpu=1, group_spec={"priorityClassName": "high"}),
        refuses=lambda operation: operation.verb == "evict",
        conf=PREEMPTING,
    )
    world.cycle()
    return world


def with_remark(plan: ev.Plan, change: Callable[[Reason], Reason]) -> ev.Plan:
    """A plan whose remarks on holds are changed."""
    waiting = [
        msgspec.structs.replace(one, reason=change(one.reason)) if one.gate == "held" else one for one in plan.waiting
    ]
    assert any(one.gate == "held" for one in waiting)
    return msgspec.structs.replace(plan, waiting=tuple(waiting))


def named(role: str, text: str) -> Callable[[Reason], Reason]:
    def change(reason: Reason) -> Reason:
        return msgspec.structs.replace(reason, names=tuple({**dict(reason.names), role: text}.items()))

    return change


def doubled(reason: Reason) -> Reason:
    amounts: list[Amount] = [(role, name, 2 * amount) for role, name, amount in reason.amounts]
    return msgspec.structs.replace(reason, amounts=tuple(amounts))


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        (nominated, [named("owner", "default/low"), named("owner", "default/gone"), named("owner", "default/late")]),
        (
            reserved,
            [named("owners", "default/ghost0"), named("owners", "default/new"), named("until", "2030"), doubled],
        ),
        (guaranteed, [named("owners", "other"), named("owners", "default"), named("owners", "gone"), doubled]),
        (refused, [named("until", "2030-01-01T00:00:00Z")]),
    ],
)
def test_only_a_true_remark_passes(made: Callable[[], World], changes: list[Callable[[Reason], Reason]]) -> None:
    world = made()
    plan, session = world.decide(), world.session
    assert session is not None
    before = msgspec.structs.replace(plan, waiting=())
    if not any(one.gate == "held" for one in plan.waiting):  # the unchanged plan violates nothing
        plan = msgspec.structs.replace(plan, waiting=sum(world.state.waiting.values(), ()))
    assert list(untrue(plan, session)) == list(untrue(before, session)) == []
    for change in changes:
        assert len(list(untrue(with_remark(plan, change), session))) == 1


def test_a_remark_that_does_not_explain_the_first_reason_fails() -> None:
    world = nominated()
    plan, session = world.decide(), world.session
    assert session is not None
    first = ev.Waiting("default/late", "predicate", "", CODES["larger-than-any-node"]())
    waits = [one for one in world.state.waiting["default/late"] if one.gate == "held"]
    (what,) = untrue(msgspec.structs.replace(plan, waiting=(first, *waits)), session)
    assert "does not explain its first reason" in what
    assert list(untrue(msgspec.structs.replace(plan, waiting=()), session)) == []
