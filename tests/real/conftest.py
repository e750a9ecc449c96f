"""A control plane with Volcano, for all tests of a worker that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.cluster import VolcanoCluster
from tests.real.controlplane import ControlPlane
from tests.real.volcano import Volcano


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
