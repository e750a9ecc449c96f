"""What one tenant can do to another: memory, and how long another namespace's pod waits, with and without each attack.

Each attack is what any user may create. A pod of another namespace comes with it; the figure is the time of all
sessions until that pod is bound, and of the same without the attack. Each attack runs in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from bench.clusters import Manifest, nodes, queues
from bench.steady import Scheduler
from bench.table import Row, row, show

NODES = (1000, 5000)
_ROUNDS = 5
_MOST_SESSIONS = 200
_SPREAD_AT_VOLCANO = 800.0
"""Milliseconds that another pod waits with vc-scheduler beside one of 4,000 constraints (1,000 nodes)."""
_BORN = "2026-01-01T00:00:00Z"


def group(name: str, **spec: object) -> Manifest:
    """A group of one pod."""
    meta = {"name": name, "namespace": "hostile", "uid": name, "creationTimestamp": _BORN}
    return {
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": 1, "queue": "q1", **spec},
        "status": {"phase": "Inqueue"},
    }


def pod(name: str, requests: Manifest | None = None, node: str = "", **spec: object) -> Manifest:
    """A pod of the group of its name."""
    meta = {"name": name, "namespace": "hostile", "uid": f"pod-{name}", "creationTimestamp": _BORN}
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


def _shapes() -> Iterator[Manifest]:
    for number in range(3000):
        name = f"shape-{number}"
        yield from (group(name), pod(name, {"memory": f"{1000 + number}Mi"}))


ATTACKS: dict[str, Callable[[int], Iterator[Manifest]]] = {
    "a pod with 15,000 resources": lambda _: _names(),
    "a PodGroup whose minResources has 15,000 resources": lambda _: _minimum(),
    "17 pods with 8,000 node selector terms": lambda _: _keys(),
    "a pod with 4,000 topologySpreadConstraints": lambda _: _constraints(),
    "1,000 groups with preferred anti-affinity": lambda _: _waiting(),
    "5,000 running pods with 5 preferred terms": _running,
    "3,000 shapes": lambda _: _shapes(),
}


def _until_bound(scheduler: Scheduler) -> float:
    """Create a pod; return the milliseconds of all sessions until it is bound."""
    scheduler.create_job()
    key, took = scheduler.newest, 0.0
    for _ in range(_MOST_SESSIONS):
        took += scheduler.session()
        if scheduler.is_bound(key):
            return took * 1000
    raise RuntimeError(f"{key} is not bound after {_MOST_SESSIONS} sessions")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(attack: str, node_count: int) -> tuple[float, float, float, float]:
    """Return milliseconds without the attack, with it as it comes and later, and the MiB that it adds to the peak."""
    scheduler = Scheduler([*nodes(node_count, cpu=64), *queues(10)])
    usual = statistics.median(_until_bound(scheduler) for _ in range(_ROUNDS))
    before = _peak()
    scheduler.put(ATTACKS[attack](node_count))
    first = _until_bound(scheduler)
    later = statistics.median(_until_bound(scheduler) for _ in range(_ROUNDS))
    return usual, first, later, _peak() - before


def run() -> list[Row]:
    """Measure each attack at each number of nodes."""
    found: list[Row] = []
    for node_count in NODES:
        for attack in ATTACKS:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                usual, first, later, more = process.submit(measure, attack, node_count).result()
            what, goal = f"{node_count:,} nodes, {attack}", 2 * usual
            peer = _SPREAD_AT_VOLCANO if "topologySpread" in attack and node_count == NODES[0] else None
            found += [
                row(f"{what}: another pod waits, as it comes", first, "ms", peer, goal),
                row("  later", later, "ms", peer, goal),
                row("  without it", usual, "ms"),
                row("  memory more", more, "MiB", None, 150),
            ]
    return found


if __name__ == "__main__":
    show(run())
