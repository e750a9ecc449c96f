"""The servers that the contract is asked of."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from tests.contract.server import KUBECONFIG, NODES, Server, embedded, real


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A server with a namespace of the test's own; a real one is the environment's, or one of the tests' own."""
    async with _opener(request) as opened:
        try:
            await opened.prepare()
            yield opened
        finally:
            await opened.clean()


def _opener(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Server]:
    if request.param == "embedded":
        return embedded()
    if given := os.environ.get(KUBECONFIG):
        return real(given, nodes=os.environ.get(NODES) == "1")
    return real(str(request.getfixturevalue("plane").kubeconfig("admin")), nodes=True)


@pytest.fixture
def with_nodes(server: Server) -> Server:
    """A server on which the test may create nodes."""
    if not server.may_create_nodes:
        pytest.skip("VCD_TEST_NODES=1 lets tests create Nodes of their own on a real server")
    return server
