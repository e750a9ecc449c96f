"""End to end with a real API server: vcd's daemon, vc-scheduler and a bare loop of bindings, each with a new server.

Run it with ``python -m bench real``. It uses the programs of ``make real-tools``. The pods exist and wait for their
PodGroups before the measurement starts, so that only scheduling is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import aiohttp
import click
import yaml

from bench.clusters import gang, nodes, queues
from bench.table import Row, row, show
from tests.e2e.usage import cpu_seconds, peak_memory
from tests.ports import free_port
from tests.real.controlplane import AuditLog, ControlPlane
from tests.real.volcano import program
from vcd.kube.api_errors import ApiError
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect

Obj = dict[str, Any]
NODES, PODS, GANG, QUEUES = 1000, 5000, 100, 4
IN_FLIGHT = 64
SETTLED = 3.0
"""Seconds before the first PodGroup and after the last bind, in which a scheduler completes other work."""
LIMIT = 300.0
GLANCE = 0.25
"""Seconds between checks of the API server's audit log."""
ROUNDS = 9
"""Runs of vcd, of which the median is printed. Each is between two runs of the bare loop, because the speed of a shared
machine varies by a quarter."""
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Directory for the files of etcd and the API server, which in production do not share a disk with the scheduler."""
CONF = Path(__file__).resolve().parents[1] / "deploy" / "base" / "configmap.yaml"
QUEUE_CRD = "queues.scheduling.volcano.sh"
OPEN = {"status": {"state": "Open"}}
ARGUMENTS = ("--kube-api-qps=2000", "--kube-api-burst=2000", "--schedule-period=1s", "--node-worker-threads=20", "-v=3")
"""The flags in deploy/ and Volcano's chart."""


class Measured(NamedTuple):
    """Seconds from the first to the last bind, and from the first PodGroup to the last bind; the scheduler's CPU
    seconds and peak memory (MiB)."""

    binding: float
    whole: float
    cpu: float
    memory: float


# --- the cluster ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[tuple[ControlPlane, KubeClient]]:
    """Start a new API server with nodes, queues and pods, but without their PodGroups."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        async with serve(ControlPlane(Path(folder))) as plane, client_of(plane) as client:
            await create(client, "/api/v1/namespaces", [{"metadata": {"name": "bench"}}])
            await create(client, "/api/v1/namespaces/bench/serviceaccounts", [{"metadata": {"name": "default"}}], 409)
            await create_queues(plane, client, QUEUES)
            await create(client, "/api/v1/nodes", list(nodes(NODES)))
            await create(client, "/api/v1/namespaces/bench/pods", [each for each in _gangs() if each["kind"] == "Pod"])
            yield plane, client


async def create_queues(plane: ControlPlane, client: KubeClient, count: int) -> None:
    """Create open queues, named as ``bench.clusters.queues`` does."""
    objects = list(queues(count))
    await create(client, "/apis/scheduling.volcano.sh/v1beta1/queues", list(map(without_status, objects)))
    for queue in objects:  # vc-scheduler waits until Volcano's controller does this
        plane.api.patch(QUEUE_CRD, None, queue["metadata"]["name"], OPEN, "status")


@contextlib.asynccontextmanager
async def serve(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """Start the servers and stop them at the end."""
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()


@contextlib.asynccontextmanager
async def client_of(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Open a client with an administrator's rights and without a limit of requests."""
    connection = await connect(kubeconfig=str(plane.kubeconfig("admin")))
    async with KubeClient(connection, qps=0, in_flight=IN_FLIGHT, request_timeout=30) as client:
        yield client


def _gangs() -> list[Obj]:
    return [without_status(obj) for number in range(PODS // GANG) for obj in gang(number, GANG, f"q{number % QUEUES}")]


def without_status(obj: Obj) -> Obj:
    """Return the object as a client creates it, without creation time and status."""
    group = "v1" if obj["kind"] == "Pod" else "scheduling.volcano.sh/v1beta1"
    metadata = {key: value for key, value in obj["metadata"].items() if key != "creationTimestamp"}
    return {"apiVersion": group, **{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


async def create(client: KubeClient, path: str, objects: list[Obj], *passed: int) -> None:
    """Create objects concurrently.

    Raises:
        ApiError: The server refused one, with a status that is not among ``passed``.
    """

    async def one(obj: Obj) -> None:
        try:
            await client.request("POST", path, json.dumps(obj).encode())
        except ApiError as error:
            if error.status not in passed:
                raise

    await asyncio.gather(*(one(obj) for obj in objects))


async def _groups(client: KubeClient) -> None:
    found = [each for each in _gangs() if each["kind"] == "PodGroup"]
    await create(client, "/apis/scheduling.volcano.sh/v1beta1/namespaces/bench/podgroups", found)


async def _binds(audited: AuditLog) -> tuple[float, float]:
    """Return the times of the first and the last bind from the API server's audit log, which needs no watch."""
    bound: list[float] = []
    while len(bound) < PODS:
        await asyncio.sleep(GLANCE)
        bound += [
            datetime.fromisoformat(each["stageTimestamp"]).timestamp() for each in audited.new() if _is_bind(each)
        ]
    return min(bound), max(bound)


def _is_bind(entry: Obj) -> bool:
    return bool(entry.get("objectRef", {}).get("subresource") == "binding" and entry["responseStatus"]["code"] == 201)


# --- schedulers -------------------------------------------------------------------------------------------------------


def vcd(plane: ControlPlane, conf: Path) -> list[str]:
    """Return the command of vcd's daemon."""
    return [
        sys.executable, "-m", "vcd", "run", f"--kubeconfig={plane.kubeconfig('admin')}", f"--scheduler-conf={conf}",
        f"--event-log={conf.with_name('events.sqlite')}", f"--listen-address=127.0.0.1:{free_port()}",
        f"--healthz-address=127.0.0.1:{free_port()}", "--view-address=", *ARGUMENTS,
    ]  # fmt: skip


def vc_scheduler(plane: ControlPlane, conf: Path) -> list[str]:
    """Return the command of vc-scheduler."""
    return [
        program("vc-scheduler"), f"--kubeconfig={plane.kubeconfig('admin')}", f"--scheduler-conf={conf}",
        f"--listen-address=127.0.0.1:{free_port()}", f"--healthz-address=127.0.0.1:{free_port()}",
        "--enable-metrics=true", "--leader-elect=true", "--leader-elect-resource-namespace=volcano-system",
        "--logtostderr", *ARGUMENTS,
    ]  # fmt: skip


async def scheduled(command: Any) -> Measured:
    """Measure a scheduler with a new API server."""
    with tempfile.TemporaryDirectory() as folder:
        async with cluster() as (plane, client):
            conf = Path(folder) / "volcano-scheduler.conf"
            conf.write_text(yaml.safe_load(CONF.read_text())["data"]["volcano-scheduler.conf"])
            process = plane.run("scheduler", command(plane, conf))
            await wait_for_default_queue(plane)
            await asyncio.sleep(SETTLED)
            before, began, audited = cpu_seconds(process.pid), time.time(), AuditLog(plane.audit)
            await _groups(client)
            first, last = await asyncio.wait_for(_binds(audited), LIMIT)
            await asyncio.sleep(SETTLED)
            return Measured(
                last - first, last - began, cpu_seconds(process.pid) - before, peak_memory(process.pid) / 2**20
            )


async def wait_for_default_queue(plane: ControlPlane) -> None:
    """Wait until the scheduler has created the first queues, which it does once it leads."""
    async with asyncio.timeout(60):
        while not any(each["metadata"]["name"] == "default" for each in plane.api.list(QUEUE_CRD)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # polling is sufficient here


async def bare() -> float:
    """Return the seconds from the first to the last of as many bindings, 64 at once, without any decision or log.

    It uses aiohttp like other asyncio programs, so that the result does not depend on vcd's HTTP client.
    """
    async with cluster() as (plane, _):
        names = [each["metadata"]["name"] for each in _gangs() if each["kind"] == "Pod"]
        await asyncio.sleep(SETTLED)
        connection, audited = await connect(kubeconfig=str(plane.kubeconfig("admin"))), AuditLog(plane.audit)
        connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=connection.credentials.ssl_context or True)
        async with aiohttp.ClientSession(connection.base_url, connector=connector) as session:
            await asyncio.gather(*(_bind(session, name, f"node-{i % NODES:05}") for i, name in enumerate(names)))
        first, last = await asyncio.wait_for(_binds(audited), LIMIT)
        return last - first


async def _bind(session: aiohttp.ClientSession, name: str, node: str) -> None:
    body = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }  # fmt: skip
    async with session.post(f"/api/v1/namespaces/bench/pods/{name}/binding", json=body) as response:
        assert response.status == 201, await response.text()


def run() -> list[Row]:
    """Measure vcd, the bare loop and vc-scheduler in one run, and return the rows."""
    loops, found = [asyncio.run(bare())], list[Measured]()
    for _ in range(ROUNDS):
        found.append(asyncio.run(scheduled(vcd)))
        loops.append(asyncio.run(bare()))
        click.echo(f"vcd: {found[-1]}; a bare loop: {PODS / loops[-1]:.0f} pods/s", err=True)
    beside = [mean(pair) for pair in pairwise(loops)]
    part = median(loop / one.binding for loop, one in zip(beside, found, strict=True))
    loop = median(loops)
    ours = Measured(*map(median, zip(*found, strict=True)))
    theirs = asyncio.run(scheduled(vc_scheduler))
    click.echo(f"vc-scheduler: {theirs}", err=True)
    name = f"real API server, {NODES:,} nodes, {PODS:,} pods in gangs of {GANG}"
    return [
        row(f"{name}: first to last bind", PODS / ours.binding, "pods/s", PODS / theirs.binding),
        row("  a bare loop of bindings, 64 at once", PODS / loop, "pods/s"),
        row("  as part of the bare loops before and after it", 100 * part, "%", 100 * loop / theirs.binding, 80),
        row("  from the first group to the last bind", ours.whole, "s", theirs.whole),
        row("  scheduler's CPU for a pod", _each(ours), "ms", _each(theirs), 1.2),
        row("  scheduler's peak memory", ours.memory, "MiB", theirs.memory),
    ]


def _each(measured: Measured) -> float:
    return 1000 * measured.cpu / PODS


if __name__ == "__main__":
    show(run())
