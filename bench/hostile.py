"""The effect of one tenant on another: memory, and the wait of another namespace's pods, with and without attacks.

An attack consists of objects that any user may create. Then pods of another namespace are created one after the other.
The measured value is the time from a pod's event in the daemon's log to the event of its bind, with and without the
attack. The user observes a longer time, because the benchmark's API server is one process that creates and sends the
attacker's objects first.

API server and daemon are processes of their own, new for each attack.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.clusters import Manifest, nodes, queues
from bench.endtoend import line, start
from bench.table import Row, row, show
from vcd.embedded.store import Store

NODES = (1000, 5000)
_ROUNDS = 9
_PAUSE = 0.3
"""Seconds between two pods of the other namespace."""
_AT_ONCE, _A_SECOND = 20, 500
"""Objects of the attacker that are created together, and per second."""
_SPREAD_AT_VOLCANO = 800.0
"""Milliseconds that another pod waits with vc-scheduler after a pod with 4,000 constraints (1,000 nodes)."""


def group(name: str, namespace: str = "hostile", **spec: object) -> Manifest:
    """Return a PodGroup of one pod."""
    meta = {"name": name, "namespace": namespace}
    return {
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": 1, "queue": "q1", **spec},
        "status": {"phase": "Inqueue"},
    }


def pod(
    name: str, requests: Manifest | None = None, node: str = "", namespace: str = "hostile", **spec: object
) -> Manifest:
    """Return a pod of the PodGroup with the same name."""
    meta = {"name": name, "namespace": namespace}
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1", **(requests or {})}}}
    return {
        "kind": "Pod",
        "metadata": {**meta, "annotations": {"scheduling.k8s.io/group-name": name}, "labels": {"app": name}},
        "spec": {
            "schedulerName": "volcano",
            "containers": [container],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def _names() -> Iterator[Manifest]:
    yield from (group("names"), pod("names", {f"example.com/resource-{i}": "1" for i in range(15_000)}))


def _minimum() -> Iterator[Manifest]:
    yield group("minimum", minResources={f"example.com/resource-{i}": "1" for i in range(15_000)})


def _keys() -> Iterator[Manifest]:
    for number in range(17):
        name = f"keys-{number}"
        terms = [
            {"matchExpressions": [{"key": f"example.com/{number}-{i}", "operator": "Exists"}]} for i in range(8000)
        ]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        yield from (group(name), pod(name, affinity=affinity))


def _constraints() -> Iterator[Manifest]:
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname" if i % 2 else f"example.com/key-{i}",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": f"app-{i}"}},
        }
        for i in range(4000)
    ]
    yield from (group("constraints"), pod("constraints", topologySpreadConstraints=constraints))


def _preferred(name: str, count: int) -> Manifest:
    terms = [
        {
            "weight": 1,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": f"{name}-{i}"}},
            },
        }
        for i in range(count)
    ]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def _waiting() -> Iterator[Manifest]:
    for number in range(1000):
        name = f"apart-{number}"
        yield from (group(name), pod(name, affinity=_preferred(name, 1)))


def _running(node_count: int) -> Iterator[Manifest]:
    for number in range(5000):
        name = f"runs-{number}"
        affinity = _preferred(name, 5)
        yield from (group(name), pod(name, node=f"node-{number % node_count:05}", affinity=affinity))


def _shapes(least: int) -> Iterator[Manifest]:
    for number in range(3000):
        name = f"shape-{number}"
        yield from (group(name), pod(name, {"memory": f"{least + number}Mi"}))


def _required(name: str, count: int, operator: str) -> Manifest:
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": operator, "values": [f"{name}-{i}"]}]},
        }
        for i in range(count)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _apart() -> Iterator[Manifest]:
    for number in range(1000):
        name = f"far-{number}"
        yield from (group(name), pod(name, {"memory": "1Pi"}, affinity=_required(name, 3, "NotIn")))


def _opposing(node_count: int) -> Iterator[Manifest]:
    for number in range(1000):
        name = f"keeps-{number}"
        affinity = _required(name, 100, "In")
        yield from (group(name), pod(name, node=f"node-{number % node_count:05}", affinity=affinity))


ATTACKS: dict[str, Callable[[int], Iterator[Manifest]]] = {
    "a pod with 15,000 resources": lambda _: _names(),
    "a PodGroup whose minResources has 15,000 resources": lambda _: _minimum(),
    "17 pods with 8,000 node selector terms": lambda _: _keys(),
    "a pod with 4,000 topologySpreadConstraints": lambda _: _constraints(),
    "1,000 groups with preferred anti-affinity": lambda _: _waiting(),
    "5,000 running pods with 5 preferred terms": _running,
    "1,000 running pods with 100 required terms": _opposing,
    "3,000 kinds of pods": lambda _: _shapes(1000),
    "3,000 kinds of pods that fit nowhere": lambda _: _shapes(10**9),
    "1,000 groups with required anti-affinity that fit nowhere": lambda _: _apart(),
}


async def serve(attack: str, node_count: int, log: str) -> None:
    """Run the server's process: create the cluster, start the daemon, and create the attacker's objects."""
    from vcd.embedded.api_server import ApiServer
    from vcd.embedded.cluster_clock import ClusterClock
    from vcd.embedded.embedded_cluster import EmbeddedCluster
    from vcd.embedded.store import Store

    clock = ClusterClock()
    store = Store(clock.now, random.Random(0))
    server = ApiServer(store)
    for namespace in ("volcano-system", "bench", "hostile"):
        store.create("namespaces", {"metadata": {"name": namespace}})
    for obj in (*queues(10), *nodes(node_count, cpu=64)):
        _create(store, obj)
    async with EmbeddedCluster(store, clock):
        await server.start()
        daemon = start([sys.executable, "-m", "bench.endtoend", "schedule", server.url, log], dict(os.environ))
        await asyncio.to_thread(line, daemon)
        victim = _Victim(store)
        await victim.waits()
        usual = [await victim.waits() for _ in range(_ROUNDS)]
        before = _peak(daemon.pid)
        attacking = asyncio.create_task(_attack(store, ATTACKS[attack](node_count)))
        during = [await victim.waits()]
        while not attacking.done():
            during.append(await victim.waits())
        await attacking
        later = [await victim.waits() for _ in range(_ROUNDS)]
        seen = statistics.median(map(victim.seen.__getitem__, during))
        more = _peak(daemon.pid) - before
        daemon.terminate()
        await asyncio.to_thread(daemon.wait, 60)
    await server.stop()
    took = _took(log)
    phases = {"usual": usual, "during": during, "later": later}
    found = {name: statistics.median(map(took.__getitem__, names)) for name, names in phases.items()}
    worst = max(map(took.__getitem__, during))
    print(json.dumps({**found, "worst": worst, "seen": seen, "more": more}), flush=True)  # noqa: T201


async def _attack(store: Store, objects: Iterator[Manifest]) -> None:
    """Create objects as fast as an API server accepts them from one user."""
    for number, obj in enumerate(objects):
        _create(store, obj)
        # an API server answers other clients between two objects, which may be large
        await asyncio.sleep(_AT_ONCE / _A_SECOND if number % _AT_ONCE == 0 else 0)


class _Victim:
    """Creates pods of the other namespace, one after the other."""

    def __init__(self, store: Store) -> None:
        self.seen: dict[str, float] = {}
        """Milliseconds from a pod's creation to its bind at the server, by key."""
        self._store = store
        self._count = 0
        self._bound = asyncio.Event()
        store.subscribe(["pods"], self._note)

    async def waits(self) -> str:
        """Create a pod, wait for its bind, and return its key."""
        self._count += 1
        self._bound.clear()
        for obj in (group(self._name, namespace="bench"), pod(self._name, namespace="bench")):
            _create(self._store, obj)
        began = time.monotonic()
        await asyncio.wait_for(self._bound.wait(), 300)
        key = f"bench/{self._name}"
        self.seen[key] = 1000 * (time.monotonic() - began)
        await asyncio.sleep(_PAUSE)
        return key

    @property
    def _name(self) -> str:
        return f"victim-{self._count}"

    def _note(self, event: str, _: str, obj: Manifest) -> None:
        if obj["metadata"]["name"] == self._name and obj["spec"].get("nodeName"):
            self._bound.set()


def _create(store: Store, obj: Manifest) -> None:
    resource = {"Node": "nodes", "Pod": "pods", "Queue": "queues.scheduling.volcano.sh"}.get(obj["kind"])
    store.create(resource or "podgroups.scheduling.volcano.sh", obj)


def _took(log: str) -> dict[str, float]:
    """Return the milliseconds from a pod's first event in the log to the outcome of its bind, by key."""
    query = """
        SELECT operation.key, (bound.time - min(shown.time)) / 1e6
        FROM operation JOIN outcome USING (session, statement, operation)
        JOIN event AS bound ON bound.sequence = outcome.sequence
        JOIN event AS shown ON shown.key = operation.key AND shown.kind = 'Pod'
        WHERE verb = 'bind' GROUP BY operation.key
    """
    with contextlib.closing(sqlite3.connect(log)) as database:
        return dict(database.execute(query))


def _peak(process: int) -> float:
    """Return the peak memory (MiB) of a process."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found) / 1024


def measure(attack: str, node_count: int) -> dict[str, float]:
    """Return the milliseconds that another namespace's pods take in the daemon: ``usual`` (before the attack),
    ``during`` it (median) and ``worst``, ``later``, and ``seen`` by their user during it. ``more`` is the increase of
    the daemon's peak memory (MiB) by the attack."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.hostile", attack, str(node_count), f"{folder}/log.sqlite"]
        server = start(command, {**os.environ, "PYTHONPATH": str(Path.cwd())})
        found = line(server)
        server.wait(60)
    return found


def run() -> list[Row]:
    """Measure each attack at each number of nodes."""
    rows: list[Row] = []
    for node_count in NODES:
        for attack in ATTACKS:
            found = measure(attack, node_count)
            what, goal = f"{node_count:,} nodes, {attack}", 2 * found["usual"]
            peer = _SPREAD_AT_VOLCANO if "topologySpread" in attack and node_count == NODES[0] else None
            rows += [
                row(f"{what}: another pod waits, meanwhile", found["during"], "ms", None, goal),
                row("  at worst", found["worst"], "ms"),
                row("  as its user sees it", found["seen"], "ms", peer),
                row("  later", found["later"], "ms", None, goal),
                row("  without it", found["usual"], "ms"),
                row("  memory more", found["more"], "MiB", None, 150),
            ]
    return rows


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
    else:
        show(run())
