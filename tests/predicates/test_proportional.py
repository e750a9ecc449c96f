"""Cpu and memory kept for idle units of scarce resources."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import node, pod, session_of
from tests.predicates.asking import applies, named, passing, reasons, with_arguments
from tests.sizes import examples
from vcd.scheduling.session.session import Session

GPU = "nvidia.com/gpu"


def opened(*objects: dict[str, Any], resources: str = GPU, **rates: Any) -> Session:
    arguments: dict[str, Any] = {"predicate.ProportionalEnable": True, "predicate.resources": resources}
    arguments |= {f"predicate.resources.{GPU}.{name}": rate for name, rate in rates.items()}
    return session_of(*objects, conf=with_arguments("predicates", arguments))


def test_it_is_off_unless_switched_on() -> None:
    session = session_of(node("n", gpu=1), pod("p"), conf=with_arguments("predicates", {"predicate.resources": GPU}))
    assert named(session, "Proportional") == []


def test_idle_units_keep_their_cores() -> None:
    session = opened(node("n", cpu=8, gpu=1), pod("p", cpu=5), cpu=4, memory=0)
    assert passing(session, "Proportional") == set()


def test_exactly_enough_cores_left_is_enough() -> None:
    session = opened(node("n", cpu=8, gpu=1), pod("p", cpu=4), cpu=4, memory=0)
    assert passing(session, "Proportional") == {"n"}


def test_idle_units_keep_their_gigabytes_of_ten_to_the_nine_bytes() -> None:
    nodes = [node("tight", memory="10G", gpu=1), node("wide", memory="10000000001", gpu=1)]
    session = opened(*nodes, pod("p", memory="2000000001"), cpu=0, memory=8)
    assert passing(session, "Proportional") == {"wide"}


def test_only_idle_units_count() -> None:
    session = opened(node("n", cpu=8, gpu=2), pod("a", on="n", gpu=1), pod("p", cpu=4), cpu=4, memory=0)
    assert passing(session, "Proportional") == {"n"}


def test_a_node_without_idle_units_keeps_nothing() -> None:
    session = opened(node("n", cpu=8, gpu=1), node("m", cpu=8), pod("a", on="n", gpu=1), pod("p", cpu=8), cpu=4)
    assert passing(session, "Proportional") == {"n", "m"}


def test_a_pod_that_asks_for_a_scarce_resource_is_let_in() -> None:
    assert not applies(opened(node("n", gpu=2), pod("p", cpu=8, gpu=1), cpu=4), "Proportional")


def test_a_pod_that_asks_for_another_scarce_resource_is_let_in() -> None:
    session = opened(
        node("n", gpu=2, **{"example.com/fpga": 1}),
        pod("p", requests={"cpu": "8", "example.com/fpga": "1"}),
        resources=f"{GPU}, example.com/fpga",
    )
    assert not applies(session, "Proportional")


def test_rates_not_given_and_negative_ones_are_one() -> None:
    session = opened(node("n", cpu=8, gpu=2), node("m", cpu=9, gpu=2), pod("p", cpu=7), cpu=-5)
    assert passing(session, "Proportional") == {"m"}


def test_the_reason_names_the_resource() -> None:
    session = opened(node("n", cpu=8, gpu=1), node("m", cpu=8), pod("p", cpu=5), cpu=4)
    assert reasons(session, "Proportional") == {f"proportional of resource {GPU} check failed": 1}


def test_a_resource_that_no_node_has_keeps_nothing() -> None:
    assert not applies(opened(node("n"), pod("p", cpu=8), cpu=4), "Proportional")


@settings(max_examples=examples(60), deadline=None)
@given(
    room=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64), st.integers(0, 8)), min_size=1, max_size=5),
    wanted=st.tuples(st.integers(0, 16), st.integers(0, 16)),
    rates=st.tuples(st.integers(0, 8000), st.integers(0, 8000)),
)
def test_it_is_the_documented_comparison(
    room: list[tuple[int, int, int]], wanted: tuple[int, int], rates: tuple[int, int]
) -> None:
    cores, gigabytes = Fraction(rates[0], 1000), Fraction(rates[1], 1000)
    nodes = [node(f"n{i}", cpu=cpu, memory=f"{memory}G", gpu=gpu) for i, (cpu, memory, gpu) in enumerate(room)]
    expected = {
        f"n{i}"
        for i, (cpu, memory, gpu) in enumerate(room)
        if not gpu or (cpu - wanted[0] >= gpu * cores and memory - wanted[1] >= gpu * gigabytes)
    }
    session = opened(*nodes, pod("p", cpu=wanted[0], memory=f"{wanted[1]}G"), cpu=float(cores), memory=float(gigabytes))
    assert passing(session, "Proportional") == expected
