"""One session on clusters of several sizes, in process, compared with Volcano.

``python -m bench.session [NAME ...]`` prints the table; each value is the median of five sessions on a new state.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from bench.clusters import Manifest, gang, nodes, pending_gangs, queues, running_in_turn
from bench.table import Row, row, show
from vcd.model.events import ObjectPut, SessionDecided, encode_plan
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.search.candidates import Memory
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

DEFAULT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: conformance
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
PLACEMENT = """
actions: "allocate"
tiers:
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def session(
    state: ClusterState, policy: Policy, memory: Memory | None = None, maker: SnapshotMaker | None = None
) -> tuple[float, int]:
    """Run cycles until no work is left; return their seconds, including snapshots, and the number of placed pods."""
    maker = SnapshotMaker(state) if maker is None else maker
    seconds, placed, number = 0.0, 0, 0
    while True:
        number += 1
        gc.collect()
        gc.freeze()
        began = time.perf_counter()
        snapshot = maker.snapshot()
        plan = decide(snapshot, policy, 0, 0, memory)
        seconds += time.perf_counter() - began
        placed += sum(op.verb == "bind" for statement in plan.statements for op in statement.operations)
        if not plan.more:
            return seconds, placed
        state.apply(
            state.sequence + 1,
            SessionDecided(number, snapshot.sequence, policy.digest, 0, 0, 0, {}, encode_plan(plan)),
        )


def timed(what: str, make: Callable[[], ClusterState], conf: str, peer: float | None, goal: float | None) -> Row:
    """Return the median of five runs, each on a new state."""
    policy = read_policy(conf)
    runs = [session(make(), policy) for _ in range(5)]
    seconds = statistics.median(run[0] for run in runs)
    return row(f"{what} ({runs[0][1]:,} bound)", seconds, "s", peer, goal)


def gangs(node_count: int, pod_count: int, queue_count: int, peer: float | None, goal: float | None) -> Row:
    """Measure gangs of 100 on an empty cluster."""
    what = f"{node_count:,} nodes, {pod_count:,} pods, {queue_count} queue(s)"
    return timed(what, lambda: pending_gangs(node_count, pod_count, queue_count), DEFAULT, peer, goal)


def different_pods(node_count: int = 5000, gang_count: int = 100) -> Iterator[Manifest]:
    """Yield gangs of 100 pods, each pod with another spec, half of them with node affinity and preferred terms."""
    yield from nodes(node_count, zone="z{zone}", rack="r{i}")
    yield from queues(4)
    for number in range(gang_count):
        yield from gang(number, 100, f"q{number % 4}", spec=partial(_different, number * 100))


def different() -> Row:
    """Measure a session with pods of which no two are equivalent."""
    what = "5,000 nodes, 10,000 pods, all different, half with affinity"
    return timed(what, lambda: state_of(different_pods()), DEFAULT, None, 1.4)


def _different(first: int, i: int) -> Manifest:
    number = first + i
    requests = {"cpu": f"{900 + number % 200}m", "memory": f"{1024 + number // 10}Mi"}
    spec: Manifest = {"containers": [{"name": "c", "image": f"image-{number}", "resources": {"requests": requests}}]}
    if number % 2:
        zones = [f"z{zone}" for zone in range(10) if zone != number % 10]
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": zones}]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1 + number % 100,
                        "preference": {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{number % 7}"]}]
                        },
                    }
                ],
            }
        }
    return spec


def running_gangs(gang_count: int, node_count: int) -> Iterator[Manifest]:
    """Yield nodes of 64 CPU with running gangs of 100, as in the state of a scheduler after a long time."""
    yield from nodes(node_count, cpu=64)
    yield from queues(4)
    condition = {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}
    for number in range(gang_count):
        spec = running_in_turn(number * 100, node_count)
        for obj in gang(number, 100, f"q{number % 4}", phase="Running", spec=spec):
            if obj["kind"] == "PodGroup":
                obj["status"] |= {"running": 100, "conditions": [condition]}
            yield obj


def running(gang_count: int = 1400, node_count: int = 5000) -> ClusterState:
    """Return the state of a cluster of ``running_gangs``."""
    return state_of(running_gangs(gang_count, node_count))


def newcomer() -> list[Row]:
    """Measure a session with one new gang among 140,000 running pods, after the first session."""
    policy = read_policy(DEFAULT)
    state = running()
    memory, maker = Memory(), SnapshotMaker(state)
    session(state, policy, memory, maker)
    results = []
    for number in (9000, 9001, 9002):
        create_gang(state, number)
        gc.collect()
        gc.freeze()
        began = time.perf_counter()
        snapshot = maker.snapshot()
        taken = time.perf_counter() - began
        plan = decide(snapshot, policy, 0, 0, memory)
        results.append((time.perf_counter() - began, taken))
        decided = SessionDecided(number, snapshot.sequence, policy.digest, 0, 0, 0, {}, encode_plan(plan))
        state.apply(state.sequence + 1, decided)
    whole = statistics.median(result[0] for result in results)
    part = statistics.median(result[1] for result in results)
    return [
        row("a new gang of 100 among 140,000 running pods on 5,000 nodes", whole, "s", 6.4, 0.012),
        row("  of which the snapshot", part, "s", 5.5),
    ]


def create_gang(state: ClusterState, number: int) -> None:
    """Create a gang of 100 in a state."""
    for manifest in gang(number, 100, "q1"):
        kind, obj, version = from_manifest({**manifest, "metadata": {**manifest["metadata"], "uid": "u"}})
        state.apply(state.sequence + 1, ObjectPut(kind, obj.key, version, encode_payload(obj)))


def pods_apart(count: int) -> Iterator[Manifest]:
    """Yield as many pods as nodes, one per node by anti-affinity on the host name."""
    term = {"labelSelector": {"matchLabels": {"app": "alone"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    extra = {"affinity": affinity, "labels": {"app": "alone"}}
    yield from nodes(count)
    yield from queues(1)
    yield from gang(0, count, "q0", phase="Inqueue", spec=lambda _: extra)


def alone(count: int, peer: float, goal: float | None) -> Row:
    """Measure one pod per node by anti-affinity."""
    what = f"one a node by anti-affinity, {count:,} nodes and pods"
    return timed(what, lambda: state_of(pods_apart(count)), PLACEMENT, peer, goal)


def pods_spread(count: int) -> Iterator[Manifest]:
    """Yield as many pods as nodes, spread over ten zones."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
    extra = {"topologySpreadConstraints": [constraint], "labels": {"app": "spread"}}
    yield from nodes(count, zone="z{zone}")
    yield from queues(1)
    yield from gang(0, count, "q0", phase="Inqueue", spec=lambda _: extra)


def spread(count: int, peer: float, goal: float) -> Row:
    """Measure topology spread over ten zones."""
    what = f"spread over 10 zones, {count:,} nodes and pods"
    return timed(what, lambda: state_of(pods_spread(count)), PLACEMENT, peer, goal)


BENCHES: dict[str, Callable[[], list[Row]]] = {
    "gangs": lambda: [
        gangs(100, 1000, 1, 0.88, None),
        gangs(1000, 5000, 4, 15.7, None),
        gangs(5000, 10_000, 4, 45.0, 0.12),
        gangs(20_000, 100_000, 4, None, 1.2),
    ],
    "different": lambda: [different()],
    "newcomer": newcomer,
    "antiaffinity": lambda: [alone(1000, 3.6, None), alone(5000, 51.1, 0.8)],
    "spread": lambda: [spread(1000, 3.0, 0.12)],
}


def run(names: list[str] | None = None) -> list[Row]:
    """Run the named benchmarks (default: all) and return their rows."""
    return [row for name in names or BENCHES for row in BENCHES[name]()]


if __name__ == "__main__":
    show(run(sys.argv[1:]))
