"""Settings of the whole suite."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests import sizes

if TYPE_CHECKING:
    from tests.real.controlplane import ControlPlane

# the same examples on every run, and no time limit for one: a busy machine is no defect
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=sizes.examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("VCD_HYPOTHESIS", "suite"))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so begins a job in the background; tests interrupt programs
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected: hardly anything of that is garbage


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `wide` unless this is a wide run."""
    if sizes.WIDE:
        return
    chosen = [item for item in items if item.get_closest_marker("wide") is None]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("wide") is not None])
        items[:] = chosen


def pytest_collection_finish() -> None:
    """What was collected stays until the end, and no collection of garbage need go through it.

    A daemon unfreezes what is frozen when it starts. In a test's own process each would go through all tests.
    """
    gc.freeze()
    gc.enable()
    gc.freeze = gc.unfreeze = lambda: None


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """What a command made of logging is not that of the tests after it."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager, for tests marked ``real``: one for all tests of a worker."""
    from tests.real.cluster import RealCluster
    from tests.real.controlplane import ControlPlane

    made = ControlPlane(tmp_path_factory.mktemp("plane"))
    made.start()
    RealCluster.plane = made
    yield made
    made.stop()
