"""End to end: the daemon and the embedded API server, each in a process of its own on the same machine.

``python -m bench.endtoend`` prints the pods per second from the first to the last bind, and the daemon's CPU per pod.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.clusters import gang, nodes, queues
from bench.table import Row, row, show

NODES, PODS, GANG = 1000, 5000, 100


async def serve(node_count: int, pod_count: int) -> None:
    """Run the server's process: create the cluster, wait for a line, submit the gangs and watch the binds."""
    from vcd.embedded.api_server import ApiServer
    from vcd.embedded.cluster_clock import ClusterClock
    from vcd.embedded.embedded_cluster import EmbeddedCluster
    from vcd.embedded.store import Store

    clock = ClusterClock()
    store = Store(clock.now, random.Random(0))
    server = ApiServer(store)
    for namespace in ("volcano-system", "bench"):
        store.create("namespaces", {"metadata": {"name": namespace}})
    for queue in queues(4):
        store.create("queues.scheduling.volcano.sh", queue)
    for node in nodes(node_count):
        store.create("nodes", node)
    bound: list[float] = []
    finished = asyncio.Event()

    def note(event: str, _: str, pod: dict[str, Any]) -> None:
        if event == "MODIFIED" and pod["spec"].get("nodeName") and pod["metadata"]["name"] not in seen:
            seen.add(pod["metadata"]["name"])
            bound.append(time.monotonic())
            if len(bound) == pod_count:
                finished.set()

    seen: set[str] = set()
    store.subscribe(["pods"], note)
    async with EmbeddedCluster(store, clock):
        await server.start()
        print(json.dumps({"url": server.url}), flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.readline)
        began = time.monotonic()
        for number in range(pod_count // GANG):
            for obj in gang(number, GANG, f"q{number % 4}"):
                obj = {key: value for key, value in obj.items() if key != "status"}
                store.create("pods" if obj["kind"] == "Pod" else "podgroups.scheduling.volcano.sh", obj)
        submitted = time.monotonic()
        await asyncio.wait_for(finished.wait(), 300)
        print(  # noqa: T201
            json.dumps(
                {
                    "submit": submitted - began,
                    "first": bound[0] - began,
                    "last": bound[-1] - began,
                    "seconds": bound[-1] - bound[0],
                    "cpu": time.process_time(),
                }
            ),
            flush=True,
        )
        await asyncio.to_thread(sys.stdin.readline)
    await server.stop()


async def schedule(url: str, log: str) -> None:
    """Run the daemon's process until SIGTERM, then print its CPU time and memory."""
    from vcd.daemon import structured_logging
    from vcd.daemon.options import Options
    from vcd.daemon.process import open_service

    structured_logging.configure(verbosity=-1)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = Options(event_log=Path(log), master=url, enable_metrics=False, enable_healthz=False)
    async with open_service(options) as service:
        started = asyncio.create_task(service.run(stop))
        await service.watches.wait_synced()
        while not service.terms.leads():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = time.process_time()
        print(json.dumps({"ready": before}), flush=True)  # noqa: T201
        await started
        sessions = service.cycle.sessions
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(  # noqa: T201
        json.dumps({"cpu": time.process_time() - before, "rss": usage.ru_maxrss / 1024, "sessions": sessions}),
        flush=True,
    )


def run(node_count: int = NODES, pod_count: int = PODS) -> list[Row]:
    """Measure and return the rows, with Volcano's values."""
    command = [sys.executable, "-m", "bench.endtoend"]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with tempfile.TemporaryDirectory() as folder:
        server = start([*command, "serve", str(node_count), str(pod_count)], environment)
        url = line(server)["url"]
        daemon = start([*command, "schedule", url, f"{folder}/log.sqlite"], environment)
        line(daemon)
        tell(server)
        binds = line(server)
        time.sleep(1)
        daemon.send_signal(signal.SIGTERM)
        spent = line(daemon)
        tell(server)
        for process in (daemon, server):
            process.wait(30)
        size = Path(f"{folder}/log.sqlite").stat().st_size
    name = f"end to end, {node_count:,} nodes, {pod_count:,} pods in gangs of {GANG}"
    return [
        row(f"{name}: first to last bind", pod_count / binds["seconds"], "pods/s", 180, 720),
        row("  daemon's CPU for a pod", 1000 * spent["cpu"] / pod_count, "ms", 9, 4.5),
        row("  server's CPU", binds["cpu"], "s"),
        row("  from submission to the last bind", binds["last"], "s", 25.4),
        row("  daemon's peak memory", spent["rss"], "MiB", 460),
        row("  sessions", spent["sessions"], ""),
        row("  log", size / 2**20, "MiB"),
    ]


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a program that reads lines and answers with lines of JSON."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"{process.args!r} ended with {process.wait()}")


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", node_count, pod_count]:
            asyncio.run(serve(int(node_count), int(pod_count)))
        case ["schedule", url, log]:
            asyncio.run(schedule(url, log))
        case _:
            show(run())
