"""Settings of the whole suite."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
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


SLOW = (
    *("tests/cli/", "tests/cost/", "tests/deploy/", "tests/e2e/", "tests/examples/", "tests/laws/", "tests/planted/"),
    *("tests/simulation/", "tests/view/", "tests/walkthrough/"),
)
"""Folders with slow tests. Each worker begins with its share of them, so that a run ends with short tests."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import this worker's share of the test modules before all others.

    The first import of a module rewrites its assertions and compiles it. In a fresh checkout the workers would all do
    that for every module at the same time; with a share first, each module is compiled once.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    paths = sorted(path for given in session.config.args for path in Path(given).resolve().rglob("test_*.py"))
    for path in paths[number :: worker["workercount"]]:
        module = ".".join(path.relative_to(session.config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception):  # the collection imports it again, and reports the error
            importlib.import_module(module)


@pytest.hookimpl(trylast=True)  # once options such as -m have left out theirs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `wide` unless this is a wide run, and spread slow modules over the workers."""
    wide = [item for item in items if item.get_closest_marker("wide") is not None and not sizes.WIDE]
    if wide:
        config.hook.pytest_deselected(items=wide)
    left_out = set(wide)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = _spread([item for item in items if item not in left_out], workers)


def _spread(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in one part for each worker. A part begins with its share of slow modules.

    `--dist worksteal` gives each worker a part of equal length. Idle workers steal from the end of a part.
    """
    if workers == 1:
        return items
    modules = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    slow = [module for module in modules if module[0].nodeid.startswith(SLOW)]
    quick = iter([test for test in items if not test.nodeid.startswith(SLOW)])
    spread: list[pytest.Item] = []
    for worker in range(workers):
        spread += [test for module in slow[worker::workers] for test in module]
        spread += islice(quick, max(0, len(items) * (worker + 1) // workers - len(spread)))
    return [*spread, *quick]


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


@pytest.fixture
async def busy(tmp_path: Path) -> Path:
    """A log of eight sessions with two queues: the gang `large` waits twice and is bound, `third` waits in `small`."""
    from tests.timetravel.histories import write_busy_history

    await write_busy_history(tmp_path / "busy.log")
    return tmp_path / "busy.log"


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
