"""Host ports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.dsl import Manifest, node, pod, session_of
from tests.predicates.random_pods import SEEDS, Twins, check_against_reference, random_ports, tasks_of
from tests.reference.predicates import _ports
from vcd.scheduling.search.podindex import index_of
from vcd.scheduling.search.predicates.ports import NodePorts

NODES = [node("n1"), node("n2")]


def using(port: int, container: str = "containers", **more: str) -> Manifest:
    """A spec with one host port."""
    one = {"name": "c", "ports": [{"containerPort": 80, "hostPort": port, **more}]}
    return {"containers": [{"name": "main"}], container: [one]}


def asked(*objects: Manifest) -> list[bool]:
    """Which nodes the task ``new`` can go to."""
    session = session_of(*NODES, *objects)
    found: list[bool] = NodePorts(session).mask(tasks_of(session)["default/new"], session.nodes.usage).tolist()
    return found


@given(SEEDS)
def test_equals_the_reference_after_any_placements_and_reverses(seed: int) -> None:
    twins = Twins.of(seed, random_ports)
    check_against_reference(twins, NodePorts(twins.session), _ports)


def test_a_port_that_is_taken_is_not_free() -> None:
    assert asked(pod("a", on="n1", spec=using(80)), pod("new", spec=using(80))) == [False, True]


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, True),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {}, False),
        ({}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "0.0.0.0"}, {"hostIP": "10.0.0.1"}, False),
        ({"protocol": "UDP"}, {"protocol": "TCP"}, True),
        ({"protocol": "TCP"}, {}, False),
    ],
)
def test_overlap_is_by_protocol_and_address(held: dict[str, str], wanted: dict[str, str], free: bool) -> None:
    assert asked(pod("a", on="n1", spec=using(80, **held)), pod("new", spec=using(80, **wanted))) == [free, True]


def test_sidecars_hold_ports() -> None:
    spec = using(80, container="initContainers")
    spec["initContainers"][0]["restartPolicy"] = "Always"
    assert asked(pod("a", on="n1", spec=spec), pod("new", spec=using(80))) == [False, True]


def test_init_containers_that_end_hold_none() -> None:
    spec = using(80, container="initContainers")
    assert asked(pod("a", on="n1", spec=spec), pod("new", spec=using(80))) == [True, True]


def test_ended_pods_hold_none() -> None:
    assert asked(pod("a", on="n1", phase="Failed", spec=using(80)), pod("new", spec=using(80))) == [True, True]


def test_a_placement_of_the_session_takes_the_port_and_its_reverse_frees_it() -> None:
    session = session_of(*NODES, pod("a", spec=using(80)), pod("new", spec=using(80)))
    tasks, predicate = tasks_of(session), NodePorts(session)
    index_of(session).move([tasks["default/a"]], [1], 1)
    assert predicate.mask(tasks["default/new"], session.nodes.usage).tolist() == [True, False]
    index_of(session).move([tasks["default/a"]], [1], -1)
    assert predicate.mask(tasks["default/new"], session.nodes.usage).tolist() == [True, True]


def test_looks_at_chosen_rows_only() -> None:
    session = session_of(*NODES, pod("a", on="n2", spec=using(80)), pod("new", spec=using(80)))
    some = session.nodes.usage.take(np.array([1]))
    assert NodePorts(session).mask(tasks_of(session)["default/new"], some).tolist() == [False]


def test_does_not_apply_to_pods_without_host_ports() -> None:
    session = session_of(*NODES, pod("a", on="n1", spec=using(80)), pod("new", spec=using(0)))
    assert not NodePorts(session).applies(tasks_of(session)["default/new"])
