"""The servers that the contract is asked of."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from tests.contract.server import KUBECONFIG, Server, embedded, real

OPENERS = {"embedded": embedded, "real": real}


@pytest.fixture(params=["embedded", *(["real"] if os.environ.get(KUBECONFIG) else [])])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A server with a namespace of the test's own."""
    async with OPENERS[request.param]() as opened:
        try:
            await opened.prepare()
            yield opened
        finally:
            await opened.clean()


@pytest.fixture
def with_nodes(server: Server) -> Server:
    """A server on which the test may create nodes."""
    if not server.may_create_nodes:
        pytest.skip("VCD_TEST_NODES=1 lets tests create Nodes of their own on a real server")
    return server
