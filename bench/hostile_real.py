"""The attacks of ``bench.hostile`` at a real API server, with vcd's daemon and with vc-scheduler.

Run it with ``python -m bench hostile_real``. It uses the programs of ``make real-tools``. The measured value is what a
user of another namespace observes: the time from the creation of a pod to its bind. Both schedulers wait up to their
schedule period of one second before they see a new pod.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import yaml

from bench.clusters import Manifest, nodes
from bench.hostile import ATTACKS, group, pod
from bench.real import (
    CONF,
    IN_MEMORY,
    client_of,
    create,
    create_queues,
    serve,
    vc_scheduler,
    vcd,
    wait_for_default_queue,
    without_status,
)
from bench.table import Row, row, show
from tests.e2e.usage import peak_memory
from tests.real.controlplane import ControlPlane
from vcd.kube.client import KubeClient

NODES = 1000
_ROUNDS = 5
_LIMIT = 60.0
"""Seconds after which the wait for a pod ends."""
_PAUSE = 0.5
"""Seconds between two pods of the other namespace."""
_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
_REFUSED = (400, 403, 413, 422, 500)
"""Answers of an API server that refuses an attacker's object."""


class Waits(NamedTuple):
    """Median seconds that another namespace's pods wait before, during and after an attack, and the increase of the
    scheduler's peak memory (MiB)."""

    usual: float
    during: float
    later: float
    memory: float


async def measure(command: Callable[[ControlPlane, Path], list[str]], attack: str) -> Waits:
    """Measure one scheduler under one attack, with a new API server."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder, tempfile.TemporaryDirectory() as files:
        async with serve(ControlPlane(Path(folder))) as plane, client_of(plane) as client:
            await _create_cluster(plane, client)
            conf = Path(files) / "volcano-scheduler.conf"
            conf.write_text(yaml.safe_load(CONF.read_text())["data"]["volcano-scheduler.conf"])
            process = plane.run("scheduler", command(plane, conf))
            await wait_for_default_queue(plane)
            victim = _Victim(plane, client)
            await victim.wait()
            usual = [await victim.wait() for _ in range(_ROUNDS)]
            before = peak_memory(process.pid)
            attacking = asyncio.create_task(_attack(client, list(ATTACKS[attack](NODES))))
            during = [await victim.wait()]
            while not attacking.done():
                during.append(await victim.wait())
            await attacking
            later = [await victim.wait() for _ in range(_ROUNDS)]
            more = (peak_memory(process.pid) - before) / 2**20
            return Waits(statistics.median(usual), statistics.median(during), statistics.median(later), more)


async def _create_cluster(plane: ControlPlane, client: KubeClient) -> None:
    for namespace in ("bench", "hostile"):
        await create(client, "/api/v1/namespaces", [{"metadata": {"name": namespace}}])
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await create(client, accounts, [{"metadata": {"name": "default"}}], 409)
    await create_queues(plane, client, 10)
    await create(client, "/api/v1/nodes", list(nodes(NODES, cpu=64)))


async def _attack(client: KubeClient, objects: list[Manifest]) -> None:
    for obj in objects:
        path = _GROUPS.format("hostile") if obj["kind"] == "PodGroup" else "/api/v1/namespaces/hostile/pods"
        await create(client, path, [without_status(obj)], *_REFUSED)


class _Victim:
    """Creates pods of the other namespace, one after the other."""

    def __init__(self, plane: ControlPlane, client: KubeClient) -> None:
        self._plane, self._client, self._count = plane, client, 0

    async def wait(self) -> float:
        """Create a pod, wait for its bind, and return the seconds between them."""
        self._count += 1
        name = f"victim-{self._count}"
        await create(self._client, _GROUPS.format("bench"), [without_status(group(name, "bench"))])
        began = time.monotonic()
        await create(self._client, "/api/v1/namespaces/bench/pods", [without_status(pod(name, namespace="bench"))])
        while time.monotonic() - began < _LIMIT:
            found = await asyncio.to_thread(self._plane.api.get, "pods", "bench", name)
            if found["spec"].get("nodeName"):
                break
            await asyncio.sleep(0.02)  # polling is sufficient here
        took = time.monotonic() - began
        await asyncio.sleep(_PAUSE)
        return took


def run() -> list[Row]:
    """Measure each attack with both schedulers."""
    rows: list[Row] = []
    for attack in ATTACKS:
        ours, theirs = (asyncio.run(measure(command, attack)) for command in (vcd, vc_scheduler))
        click.echo(f"{attack}: vcd {ours}; vc-scheduler {theirs}", err=True)
        rows += [
            row(f"{NODES:,} nodes, {attack}: another pod waits, meanwhile", ours.during, "s", theirs.during),
            row("  later", ours.later, "s", theirs.later),
            row("  without it", ours.usual, "s", theirs.usual),
            row("  memory more", ours.memory, "MiB", theirs.memory),
        ]
    return rows


if __name__ == "__main__":
    show(run())
