"""A clock that is set back prolongs no hold: each ends after the time that it states (docs/laws.md, law 8)."""

from __future__ import annotations

import pytest

from tests.dsl import BARE, gang, group, node, pod
from tests.scheduling.test_backoff import Refusing, binds_of
from tests.world import World
from vcd.model import events as ev
from vcd.state.backoff import RefusalBackoff
from vcd.state.cluster_state import ClusterState
from vcd.state.incomplete_admissions import IncompleteAdmission

SECOND = 10**9
HOUR = 3600 * SECOND
T = 2 * HOUR
LENGTHS = pytest.mark.parametrize("back", [HOUR, 20 * SECOND, 24 * HOUR], ids=["1h", "20s", "1d"])


def after(world: World, back: int) -> int:
    """Set the clock back, decide, and return the time of the first session after it."""
    world.now -= back
    world.cycle()
    return world.now


@LENGTHS
def test_a_pod_whose_bind_was_refused_is_tried_as_soon_as_it_would_have_been(back: int) -> None:
    world = Refusing(node("n", cpu=4), gang("a", 1, cpu=1), refuses=binds_of("a-0"))
    for _ in range(4):
        world.run(8)
    left = world.state.backoffs["default/a-0"].until - world.now
    assert 0 < left <= 32 * SECOND
    now = after(world, back)
    assert world.state.backoffs["default/a-0"].until - now <= left + SECOND
    world.refuses = lambda _: False
    world.run(left // SECOND + 1)
    assert world.placed() == {"a-0": "n"}


@LENGTHS
def test_a_namespace_is_held_back_no_longer(back: int) -> None:
    world = World(node("n", cpu=4), group("a", namespace="a"), pod("a-0", group="a", namespace="a", cpu=1), conf=BARE)
    world.happen(ev.ForeignBound("a/theirs", "u", "n", world.now + 60 * SECOND))
    world.cycle()
    assert world.placed() == {}
    now = after(world, back)
    assert now < world.state.held_namespaces["a"] <= now + 60 * SECOND
    world.now += 60 * SECOND
    world.cycle()
    assert world.placed() == {"a-0": "n"}


def decided(back: int) -> ClusterState:
    """Holds of a state whose last session was at T = 2 h, after another session so much earlier."""
    running = pod("g-0", group="g", cpu=1, on="n", phase="Running")
    state = World(node("n", cpu=1), group("g", members=2), running, pod("g-1", group="g", cpu=1)).state
    decide(state, T)
    state.backoffs["a/p"] = RefusalBackoff("u", "bind", 9, T + 300 * SECOND)
    state.released["default/g"] = RefusalBackoff("u", "release", 1, T + 60 * SECOND)
    state.late["slow"] = ev.PluginLate("slow", "slow: late", T + 100 * SECOND, 100 * SECOND)
    state.held_namespaces["a"] = T + 50 * SECOND
    state.admissions["default/g"] = IncompleteAdmission(T - 10 * SECOND)
    state.stranded["default/g"] = T - 20 * SECOND
    state.rounds["rescheduling"] = T - 30 * SECOND
    decide(state, T - back)
    return state


def decide(state: ClusterState, now: int) -> None:
    plan = ev.encode_plan(ev.Plan())
    state.apply(state.sequence + 1, ev.SessionDecided(state.session + 1, state.sequence, "", now, 0, 1, {}, plan))


def times(state: ClusterState) -> dict[str, int]:
    """When each hold ends or began, in seconds after T."""
    found = {
        "backoff": state.backoffs["a/p"].until,
        "released": state.released["default/g"].until,
        "late": state.late["slow"].until,
        "namespace": state.held_namespaces["a"],
        "admission": state.admissions["default/g"].since,
        "stranded": state.stranded["default/g"],
        "round": state.rounds["rescheduling"],
    }
    return {name: (time - T) // SECOND for name, time in found.items()}


UNMOVED = {"backoff": 300, "released": 60, "late": 100, "namespace": 50}
BEGAN = {"admission": -10, "stranded": -20, "round": -30}


@pytest.mark.parametrize("back", [3600, 6000])
def test_all_times_move_with_the_clock(back: int) -> None:
    assert times(decided(back * SECOND)) == {name: at - back for name, at in {**UNMOVED, **BEGAN}.items()}


@pytest.mark.parametrize("back", [-1, 0, 1, 5])
def test_a_small_correction_moves_nothing(back: int) -> None:
    assert times(decided(back * SECOND)) == {**UNMOVED, **BEGAN}


def test_what_began_before_the_new_time_stays() -> None:
    """The clock may have been right then, so nothing tells how long ago it was."""
    assert times(decided(15 * SECOND)) == {
        **{name: at - 15 for name, at in UNMOVED.items()}, "admission": -25, "stranded": -20, "round": -30,
    }  # fmt: skip


def test_what_was_refused_after_the_change_ends_as_stated() -> None:
    state = decided(0)
    state.backoffs["a/p"] = RefusalBackoff("u", "bind", 1, T - 3599 * SECOND)
    decide(state, T - 3600 * SECOND)
    assert times(state)["backoff"] == -3599
