"""The queue's own scheduling gate over HTTP: lifted when the queue has room, under faults, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from tests.dsl import BY_QUEUE
from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Obj, failed, group, pod, until
from tests.sizes import some
from vcd.eventlog import LogReader
from vcd.model import events as ev

GATE = "scheduling.volcano.sh/queue-allocation-gate"


def gated(cluster: Cluster, name: str, size: int, *others: str) -> list[str]:
    """A gang in queue q that waits at the queue's gate, as Volcano's webhook leaves it; the pods' keys."""
    cluster.store.create(GROUPS, group(name, size, queue="q"))
    for number in range(size):
        gates = [{"name": gate} for gate in (GATE, *others)]
        made = pod(f"{name}-{number}", name, 1, schedulingGates=gates)
        made["metadata"]["annotations"][GATE] = "true"
        cluster.store.create("pods", made)
    return [f"default/{name}-{number}" for number in range(size)]


def gates(cluster: Cluster, key: str) -> list[str]:
    found: Obj = cluster.store.get("pods", *key.split("/"))
    return [gate["name"] for gate in found["spec"].get("schedulingGates", [])]


def lifts(path: Path) -> list[tuple[str, str]]:
    """Each pod whose gate was to be lifted, and what became of it, in the log's order."""
    with LogReader(path) as reader:
        plans = {
            logged.event.session: ev.decode_plan(logged.event.plan)
            for logged in reader.find(type="session")
            if isinstance(logged.event, ev.SessionDecided)
        }
        found = []
        for logged in reader.find(type="outcome"):
            done = logged.event
            assert isinstance(done, ev.OperationDone)
            operation = plans[done.session].statements[done.statement].operations[done.operation]
            if operation.verb == "ungate":
                found.append((operation.key, done.result))
        return found


async def started(cluster: Cluster, folder: Path, name: str = "a") -> Path:
    file = folder / "scheduler.conf"
    file.write_text(BY_QUEUE)
    daemon = await cluster.started(name, f"--scheduler-conf={file}")
    return daemon.log


async def test_the_gate_is_lifted_as_far_as_the_queue_has_room(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 8)
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"capability": {"cpu": "2"}}})
        log = await started(cluster, tmp_path)
        first = gated(cluster, "first", 2)
        await cluster.until_bound(first)
        second, held = gated(cluster, "second", 1), gated(cluster, "held", 1, "example.com/wait")
        await until(
            lambda: any(e["involvedObject"]["name"] == "second" for e in cluster.store.list("events", "default"))
        )
        assert gates(cluster, second[0]) == [GATE]
        cluster.store.delete("pods", "default", "first-0")
        await cluster.until_bound(second)
        assert gates(cluster, held[0]) == [GATE, "example.com/wait"]
        await until(lambda: len(lifts(log)) == 3, what="each lifting has its outcome in the log")
        assert sorted(lifts(log)) == [(key, "done") for key in sorted([*first, *second])]


@pytest.mark.parametrize("status, reason", some(1, [(500, "InternalError"), (429, "TooManyRequests")]))
async def test_a_server_that_fails_is_asked_again(tmp_path: Path, status: int, reason: str) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 8)
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}})
        seen: list[str] = []

        def twice(request: web.Request) -> web.Response | None:
            if request.method == "PATCH" and request.path.endswith("/pods/g-0") and len(seen) < 2:
                seen.append(request.path)
                return failed(status, reason)
            return None

        with cluster.faults(twice):
            await started(cluster, tmp_path)
            await cluster.until_bound(gated(cluster, "g", 1))
        assert len(seen) == 2
