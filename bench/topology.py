"""Gangs that are placed within HyperNodes, in addition to the values of Volcano, KAI and Kueue.

``python -m bench.topology [NAME ...]`` prints the table. A session's value is the median of five on a new state. The
peers' values are of their whole process; those of vcd are of the session, or of all sessions of the workloads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from bench.clusters import Manifest, in_turn
from bench.contention import GPU, conf, create_job, create_nodes, create_queue, timed
from bench.steady import Scheduler
from bench.table import Row, row, show

CONF = conf(
    "enqueue, allocate, backfill", "priority, gang, conformance", "predicates, nodeorder, network-topology-aware"
)
"""The configuration of all shapes."""
BASELINE = conf("enqueue, allocate, backfill", "priority, gang, conformance", "predicates, nodeorder")
"""The same without the plugin."""
_REQUEST = {"cpu": "4", "memory": "32Gi", GPU: "1"}


class Used(NamedTuple):
    """The share of GPUs that running pods use: of each node, or of the first nodes all."""

    share: float = 0.0
    spread: bool = True


def create_tree(node_count: int, *sizes: int) -> Iterator[Manifest]:
    """Yield nodes of 8 GPUs in HyperNodes of tier 1, 2, and so on; ``sizes`` has the members of one of each tier."""
    yield from create_nodes(node_count, 64, gpus=8)
    kind, members = "Node", [f"node-{number:05}" for number in range(node_count)]
    for tier, size in enumerate(sizes, 1):
        upper = []
        for start in range(0, len(members), size):
            upper.append(f"tier-{tier}-{start // size:04}")
            exact = [
                {"type": kind, "selector": {"exactMatch": {"name": name}}} for name in members[start : start + size]
            ]
            meta = {"name": upper[-1], "uid": upper[-1]}
            yield {
                "apiVersion": "topology.volcano.sh/v1alpha1",
                "kind": "HyperNode",
                "metadata": meta,
                "spec": {"tier": tier, "members": exact},
            }
        kind, members = "HyperNode", upper


def one_gang(node_count: int, sizes: tuple[int, ...], size: int, tier: int | None, used: Used) -> Iterator[Manifest]:
    """Yield a tree, running pods on some GPUs, and one gang, hard on a tier unless that is None."""
    yield from create_tree(node_count, *sizes)
    yield create_queue("q")
    for number in range(int(8 * node_count * used.share)):
        node = in_turn(number, node_count) if used.spread else in_turn(number // 8, node_count)
        yield from create_job(f"run-{number}", 1, "q", _REQUEST, on=node)
    topology = None if tier is None else {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}
    yield from create_job("gang", size, "q", _REQUEST, group=topology)


def gangs() -> Iterator[Row]:
    """Measure one gang of 512 pods that must be in one block, and the same pods without a topology."""
    what = "512 pods, 500 nodes of 8 GPUs, 25 racks, 5 blocks"
    for use, words, peer, goal in (
        (Used(), "empty, hard tier 2; KAI 48.7 s", 14.9, 0.05),
        (Used(0.4, spread=False), "40 % of the nodes full, hard tier 2", 8.7, 0.05),
        (Used(0.3), "30 % of each node used, hard tier 2", None, None),
    ):
        yield timed(f"{what}: {words}", partial(one_gang, 500, (20, 5), 512, 2, use), CONF, peer, goal)
    free = partial(one_gang, 500, (20, 5), 512, None, Used())
    yield timed("  without topology, the plugin active", free, CONF, None, None)
    yield timed("  without topology, no plugin", free, BASELINE, None, None)


def large() -> Iterator[Row]:
    """Measure one gang of 4,096 pods on 20,000 nodes in four tiers."""
    shape = partial(one_gang, 20_000, (20, 10, 10, 10), 4096, 3, Used())
    yield timed("4,096 pods, 20,000 nodes of 8 GPUs in four tiers, hard tier 3", shape, CONF, None, 0.5)


class Kind(NamedTuple):
    """Workloads of one kind: their share in 175, pods, CPUs of a pod, and the highest tier; None: a preference."""

    share: int
    size: int
    cpu: int
    tier: int | None


MIX = (Kind(50, 4, 2, 2), Kind(30, 8, 4, 2), Kind(20, 16, 8, 2), Kind(50, 6, 3, None), Kind(25, 22, 5, None))
"""Kueue's mix (test/performance/scheduler/configs/tas), its preferred and balanced kinds averaged."""
_PER_ROUND = 250


def workloads(count: int) -> Iterator[Row]:
    """Measure sessions of workloads that come in rounds; each round ends the workloads of the round before."""
    scheduler = Scheduler([*create_tree(640, 1, 64, 10), create_queue("q")], CONF)
    waiting = _workloads(count)
    began, bound, running = time.perf_counter(), 0, list[Manifest]()
    while coming := list(islice(waiting, _PER_ROUND)):
        objects = [each for workload in coming for each in workload]
        scheduler.put(objects)
        snapshot, plan = scheduler.decide()
        scheduler.fold(snapshot, plan)
        bound += sum(operation.verb == "bind" for statement in plan.statements for operation in statement.operations)
        scheduler.delete(running)
        running = objects
    seconds = time.perf_counter() - began
    what = f"{count:,} workloads of 4 to 22 pods, 640 nodes in three tiers, {bound:,} pods bound; Kueue 401 s"
    yield row(what, seconds, "s", None, 20)


def _workloads(count: int) -> Iterator[list[Manifest]]:
    kinds = [kind for kind in MIX for _ in range(kind.share)]
    for number in range(count):
        kind = kinds[number * 37 % len(kinds)]
        hard = {"mode": "hard", "highestTierAllowed": kind.tier}
        group = {"networkTopology": {"mode": "soft"} if kind.tier is None else hard}
        request = {"cpu": str(kind.cpu), "memory": "1Gi"}
        yield [*create_job(f"workload-{number}", kind.size, "q", request, group=group)]


BENCHES: dict[str, Callable[[], Iterable[Row]]] = {
    "gangs": gangs,
    "large": large,
    "workloads": lambda: workloads(15_000),
}


def run(names: list[str] | None = None) -> list[Row]:
    """Run the named benchmarks (default: all) and return their rows."""
    return [row for name in names or BENCHES for row in BENCHES[name]()]


if __name__ == "__main__":
    show(run(sys.argv[1:]))
