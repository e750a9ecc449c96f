"""Statements against the head state: each reason to drop one, whole, and the room that it gives back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dsl import gang, group, node, pod
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.verify import stale_statements


def world() -> World:
    return World(node("n", cpu=4), node("m", cpu=4), gang("g", 3, cpu=2), gang("old", 1, on=["n"], cpu=1))


def bind(name: str, to: str = "n", uid: str = "") -> ev.Operation:
    return ev.Operation("bind", f"default/{name}", uid or f"uid-default-{name}", to)


def evict(name: str, uid: str = "") -> ev.Operation:
    return ev.Operation("evict", f"default/{name}", uid or f"uid-default-{name}", "n", "why")


def wait(name: str) -> ev.Operation:
    return ev.Operation("pipeline", f"default/{name}", f"uid-default-{name}", "n")


def verdict(state: World, *statements: tuple[ev.Operation, ...]) -> dict[int, str]:
    parts = [ev.Statement(f"default/group-{number}", "allocate", part) for number, part in enumerate(statements)]
    plan = ev.Plan(statements=tuple(parts))
    return dict(stale_statements(plan, state.maker.snapshot()))


def test_statements_that_hold_are_not_stale() -> None:
    assert verdict(world(), (bind("g-0"), bind("g-1", "m")), (evict("old-0"),)) == {}


@pytest.mark.parametrize(
    ("operation", "happening", "reason"),
    [
        (bind("g-0"), lambda w: w.remove("Pod", "default/g-0"), "bind default/g-0: the pod is gone"),
        (bind("g-0", uid="other"), lambda w: None, "bind default/g-0: another pod has its name now"),
        (
            bind("g-0"),
            lambda w: w.update_pod("default/g-0", node="m", phase="Running"),
            "bind default/g-0: the pod is no longer pending",
        ),
        (
            bind("g-0"),
            lambda w: w.put(pod("g-0", group="g", cpu=2, deleting=True)),
            "bind default/g-0: the pod is no longer pending",
        ),
        (bind("g-0"), lambda w: w.remove("Node", "n"), "bind default/g-0: node n is gone"),
        (bind("g-0"), lambda w: w.put(node("n", cpu=2)), "bind default/g-0: node n has no room left"),
        (
            bind("g-0"),
            lambda w: w.put(pod("theirs", on="n", cpu=2, spec={"schedulerName": "other"})),
            "bind default/g-0: node n has no room left",
        ),
        (bind("g-0"), lambda w: w.put(node("n", pods=1)), "bind default/g-0: node n has no room left"),
        (evict("old-0"), lambda w: w.remove("Pod", "default/old-0"), "evict default/old-0: the pod is gone"),
        (evict("old-0", uid="other"), lambda w: None, "evict default/old-0: another pod has its name now"),
        (evict("g-0"), lambda w: None, "evict default/g-0: the pod has no node"),
        (
            evict("old-0"),
            lambda w: w.update_pod("default/old-0", phase="Succeeded"),
            "evict default/old-0: the pod has ended",
        ),
        (wait("g-0"), lambda w: w.remove("Pod", "default/g-0"), "pipeline default/g-0: the pod is gone"),
        (wait("g-0"), lambda w: w.remove("Node", "n"), "pipeline default/g-0: node n is gone"),
        (
            wait("g-0"),
            lambda w: w.update_pod("default/g-0", node="m", phase="Running"),
            "pipeline default/g-0: the pod is no longer pending",
        ),
    ],
)
def test_what_no_longer_holds_is_stale(
    operation: ev.Operation, happening: Callable[[World], None], reason: str
) -> None:
    state = world()
    happening(state)
    assert verdict(state, (operation,)) == {0: reason}


def test_one_operation_that_does_not_hold_drops_its_statement_whole() -> None:
    state = world()
    state.remove("Pod", "default/g-2")
    assert verdict(state, (bind("g-0"), bind("g-1", "m"), bind("g-2", "m"))) == {0: "bind default/g-2: the pod is gone"}


def test_a_dropped_statement_gives_its_room_back() -> None:
    """n has 3 CPU left: the dropped statement's 2 are there for the next one."""
    state = world()
    state.remove("Pod", "default/g-2")
    assert list(verdict(state, (bind("g-0"), bind("g-2", "m")), (bind("g-1"),))) == [0]


def test_statements_take_room_from_those_after_them() -> None:
    assert verdict(world(), (bind("g-0"),), (bind("g-1"),)) == {1: "bind default/g-1: node n has no room left"}


def test_who_waits_for_room_needs_none_now() -> None:
    state = world()
    state.put(node("n", cpu=1))
    assert verdict(state, (wait("g-0"),)) == {}


def test_a_pod_that_is_going_away_still_holds_its_room() -> None:
    state = world()
    state.put(pod("old-0", group="old", on="n", cpu=3, deleting=True))
    assert list(verdict(state, (bind("g-0"),))) == [0]


def test_a_pod_that_ended_holds_none() -> None:
    state = world()
    state.put(pod("old-0", group="old", on="n", cpu=3, phase="Succeeded"))
    assert verdict(state, (bind("g-0"), bind("g-1"))) == {}


def test_a_bind_that_is_on_its_way_holds_its_room() -> None:
    """An earlier session's intent is in the state, and counts."""
    state = World(node("n", cpu=4), gang("a", 1, cpu=3))
    state.decide()
    state.put(group("g"), pod("g-0", group="g", cpu=2))
    assert list(verdict(state, (bind("g-0"),))) == [0]


def test_room_that_is_over_in_what_is_not_asked_for_is_room() -> None:
    state = World(node("n", cpu=4, gpu=1), gang("old", 1, on=["n"], cpu=1, gpu=2), gang("g", 1, cpu=2))
    assert verdict(state, (bind("g-0"),)) == {}


def test_a_stale_statement_is_logged_and_not_made() -> None:
    state = World(node("n", cpu=4), gang("g", 1, cpu=3))
    snapshot = state.maker.snapshot()
    plan = state.decide()
    assert [op.key for s in plan.statements for op in s.operations] == ["default/g-0"]
    assert "default/g-0" in state.state.intents
    assert snapshot.sequence < state.state.sequence
