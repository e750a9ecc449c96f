"""A control plane with Volcano, for all tests of a worker that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.cluster import VolcanoCluster
from tests.real.controlplane import ControlPlane
from tests.real.volcano import Volcano


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The storm comes first: while one worker has it for ten minutes, another does all the rest."""
    items.sort(key=lambda item: "test_storm.py" not in item.nodeid)


@pytest.fixture(scope="session")
def volcano(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with Volcano's controllers and webhooks."""
    made = ControlPlane(tmp_path_factory.mktemp("volcano"))
    made.start()
    try:
        Volcano(made).start()
        VolcanoCluster.plane = made
        yield made
    finally:
        made.stop()
