"""Shrunk scripts violate the same invariant."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.script import Act, Script
from tests.simulation.shrinking import Shrinker, minimal, simpler


@given(st.integers(0, 40), st.sets(st.integers(0, 39), max_size=5))
def test_what_is_left_is_what_it_takes(count: int, needed: set[int]) -> None:
    needed = {number for number in needed if number < count}
    assert set(minimal(range(count), lambda items: needed <= set(items))) == needed


def test_one_of_two_that_do_is_enough() -> None:
    assert len(minimal(range(16), lambda items: 3 in items or 12 in items)) == 1


def _script(count: int) -> Script:
    acts = tuple(Act(float(number), "submit", (f"gang-{number}", 4, 6, {"queue": "q"})) for number in range(count))
    return Script(7, replicas=3, flags={"percentage": ["1"], "replay-every": ["3"]}, conf="actions: x", acts=acts)


def test_a_script_loses_all_that_does_not_matter() -> None:
    def violated(script: Script) -> Sequence[str]:
        names = [act.given[0] for act in script.acts]
        return ["room"] if {"gang-3", "gang-11"} <= set(names) and "replay-every" in script.flags else ["rest"]

    found = Shrinker(violated, "room", 2000).shrunk(_script(20))
    assert [act.given for act in found.acts] == [("gang-3", 1, 1, {}), ("gang-11", 1, 1, {})]
    assert (found.replicas, found.flags, found.conf) == (1, {"replay-every": ["3"]}, "")
    assert found.acts[-1].at < found.storm < 20
    assert found.calm == _script(20).calm


def test_another_seed_is_tried_where_a_smaller_script_draws_otherwise() -> None:
    found = Shrinker(lambda script: ["room"] if script.seed >= 8 or len(script.acts) > 3 else [], "room", 500)
    assert found.shrunk(_script(4)).seed == 8


def test_it_ends_when_it_has_run_as_many_as_it_may() -> None:
    ran: list[Script] = []

    def violated(script: Script) -> Sequence[str]:
        ran.append(script)
        return ["room"]

    Shrinker(violated, "room", 5).shrunk(_script(20))
    assert len(ran) == 5


def test_nothing_is_simpler_than_the_simplest() -> None:
    assert list(simpler(Script(1, replicas=1, storm=1.0))) == []
