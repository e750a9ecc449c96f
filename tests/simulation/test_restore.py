"""A restore of the API server's storage: the kubelets follow the restored pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.embedded.simulated import PODS, Simulated, pod
from tests.simulation.illegal import restore

FULL = "64"
"""Cores of a node."""


@pytest.fixture
def sim() -> Simulated:
    simulated = Simulated(nodes=2)
    for name in ("a", "b"):
        simulated.create(PODS, pod(name, cpu=FULL))
    return simulated


def restored(sim: Simulated) -> Callable[[], None]:
    """Back up the cluster's storage, and return a function that restores it."""
    planned: list[Callable[[], Any]] = []
    simulation = SimpleNamespace(
        store=sim.store,
        cluster=sim.cluster,
        calm=False,
        affected=Counter(),
        server=SimpleNamespace(cut_watches=lambda: None),
        loop=SimpleNamespace(call_later=lambda _, act, *given: planned.append(lambda: act(*given))),
    )
    restore(simulation, 1.0)  # type: ignore[arg-type]

    def happen() -> None:
        planned[0]()
        sim.settle()

    return happen


def test_a_node_is_free_of_a_pod_whose_bind_a_restore_undid(sim: Simulated) -> None:
    back = restored(sim)
    sim.bind("a", "n0")
    sim.advance(1)
    back()
    sim.bind("b", "n0")
    sim.bind("a", "n1")
    sim.advance(1)
    assert sim.phases() == {"a": "Running", "b": "Running"}


def test_a_pod_that_a_restore_took_back_to_its_bind_runs_again(sim: Simulated) -> None:
    sim.bind("a", "n0")
    back = restored(sim)
    sim.advance(1)
    back()
    assert sim.phases()["a"] == "Pending"
    sim.advance(1)
    assert sim.phases()["a"] == "Running"
