"""Another scheduler beside the daemons of a cluster, and shadows with deploy/'s rights."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import subprocess
import sys
import time
from collections.abc import AsyncIterator

from tests.deploy.kustomize import render
from tests.deploy.rbac import Grant, allows, grants
from tests.e2e.cluster import NAMESPACE, ROOT, Cluster, Daemon, Made, request_of, until
from tests.embedded.disturbed import Call

OTHER = "first-fit"
"""The other scheduler's identity at the server."""
SHADOW = "shadow"
"""The identity of daemons that may do what deploy/overlays/shadow lets them."""
DECIDING = "deciding as a shadow: no decision is carried out"


@contextlib.asynccontextmanager
async def first_fit(cluster: Cluster, period: float = 0.1) -> AsyncIterator[None]:
    """``tests.e2e.first_fit`` schedules meanwhile."""
    assert cluster.server.tokens is not None
    cluster.server.tokens[f"token-of-{OTHER}"] = OTHER
    command = [sys.executable, "-m", "tests.e2e.first_fit", cluster.server.url, f"token-of-{OTHER}", str(period)]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, cwd=ROOT)
    assert process.stdin is not None
    try:
        yield
        assert process.returncode is None, "the other scheduler ended by itself"
    finally:
        process.stdin.close()
        await process.wait()


@functools.cache
def _shadows() -> set[Grant]:
    return grants(render(ROOT / "deploy" / "overlays" / "shadow").values(), "vcd-scheduler", NAMESPACE)


class ShadowedCluster(Cluster):
    """A cluster in which ``SHADOW`` may read what deploy/overlays/shadow lets it, and nothing else."""

    def _authorize(self, identity: str, call: Call, name: str) -> bool:
        if identity != SHADOW:
            return super()._authorize(identity, call, name)
        self.made.append(Made(time.monotonic(), identity, call, name))
        asked = request_of(call, name)
        if not allows(_shadows(), asked):
            self.refused.append(f"{identity}: {asked}")
            return False
        return True

    async def shadow(self, *flags: str, **environment: str) -> Daemon:
        """Start a shadow, on the log of the one before, and wait until it decides."""
        daemon = await self.start(SHADOW, "--shadow", *flags, **environment)
        await until(lambda: daemon.lines(DECIDING), what="the shadow decides")
        return daemon
