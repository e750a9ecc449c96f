"""Sessions on full clusters: reclaim, preemption and quotas, compared with Volcano, and the cost of quota plugins.

``python -m bench.contention [NAME ...]`` prints the table; each value is the median of five sessions on a new state.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from bench.clusters import Manifest, in_turn
from bench.table import Row, row, show
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

GPU = "nvidia.com/gpu"
MODELS = ("NVIDIA-H200", "NVIDIA-H100", "NVIDIA-A100", "NVIDIA-L40S")


def conf(actions: str, *tiers: str) -> str:
    """Return a configuration with a tier per text; plugins are separated by commas. ``name!flag`` turns a flag off,
    ``name+flag`` on."""
    lines = [f'actions: "{actions}"', "tiers:"]
    for tier in tiers:
        lines.append("- plugins:")
        for entry in tier.split(","):
            name, _, off = entry.strip().partition("!")
            name, _, on = name.partition("+")
            lines.append(f"  - name: {name}")
            lines += [f"    {flag}: {value}" for flag, value in ((off, "false"), (on, "true")) if flag]
    return "\n".join(lines) + "\n"


def timed(
    what: str, objects: Callable[[], Iterator[Manifest]], text: str, peer: float | None, goal: float | None
) -> Row:
    """Return the median of five sessions, each on a new state."""
    policy = read_policy(text)
    seconds, counts = [], (0, 0, 0)
    for _ in range(5):
        maker = SnapshotMaker(state_of(objects()))
        gc.collect()
        gc.freeze()
        began = time.perf_counter()
        plan = decide(maker.snapshot(), policy, 0, 0)
        seconds.append(time.perf_counter() - began)
        verbs = [operation.verb for statement in plan.statements for operation in statement.operations]
        counts = (verbs.count("evict"), verbs.count("pipeline"), verbs.count("bind"))
    told = ", ".join(f"{n:,} {w}" for n, w in zip(counts, ("evicted", "waiting", "bound"), strict=True) if n)
    return row(f"{what} ({told})" if told else what, statistics.median(seconds), "s", peer, goal)


# --- manifests --------------------------------------------------------------------------------------------------------


def create_nodes(
    count: int, cpu: int, gpus: int = 0, labels: Callable[[int], dict[str, str]] = lambda _: {}
) -> Iterator[Manifest]:
    """Yield nodes ``node-00000`` and so on; ``labels`` returns the labels of node i."""
    for i in range(count):
        room = {"cpu": str(cpu), "memory": "512Gi", "pods": "256", **({GPU: str(gpus)} if gpus else {})}
        meta = {"name": f"node-{i:05}", "labels": {"kubernetes.io/hostname": f"node-{i:05}", **labels(i)}}
        yield {"kind": "Node", "metadata": meta, "status": {"allocatable": room, "capacity": room}}


def create_queue(name: str, annotations: dict[str, str] | None = None, **spec: object) -> Manifest:
    """Return an open queue."""
    meta = {"name": name, "annotations": annotations or {}}
    return {"kind": "Queue", "metadata": meta, "spec": {"weight": 1, **spec}, "status": {"state": "Open"}}


def create_job(
    name: str,
    size: int,
    queue: str,
    request: dict[str, str],
    *,
    members: int | None = None,
    on: Callable[[int], str] | None = None,
    priority: tuple[str, int] | None = None,
    annotations: dict[str, str] | None = None,
    group: Manifest | None = None,
    spec: Manifest | None = None,
) -> Iterator[Manifest]:
    """Yield a PodGroup and its pods, which run on the nodes that ``on`` returns, or are pending without ``on``.

    ``group`` adds to the spec of the PodGroup, ``spec`` to those of the pods.
    """
    born = "2026-01-01T00:00:00Z" if on else "2026-01-02T00:00:00Z"
    group = {"minMember": size if members is None else members, "queue": queue, **(group or {})}
    if priority:
        group["priorityClassName"] = priority[0]
    phase = "Running" if on else "Inqueue"
    meta = {"name": name, "namespace": "bench", "creationTimestamp": born, "annotations": annotations or {}}
    yield {"kind": "PodGroup", "metadata": meta, "spec": group, "status": {"phase": phase}}
    marks = {"scheduling.k8s.io/group-name": name, **(annotations or {})}
    for i in range(size):
        extra: Manifest = {"nodeName": on(i)} if on else {}
        if priority:
            extra["priority"] = priority[1]
        yield {
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{i}",
                "namespace": "bench",
                "uid": f"{name}-{i}",
                "creationTimestamp": born,
                "annotations": marks,
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [{"name": "c", "resources": {"requests": request}}],
                **extra,
                **(spec or {}),
            },
            "status": {"phase": "Running" if on else "Pending"},
        }


# --- shapes -----------------------------------------------------------------------------------------------------------


_SHARED = ("priority, gang, conformance", "drf, predicates, nodeorder")
_FREE, _WHOLE = "priority, gang!enablePreemptable, conformance", "priority, gang, conformance"
CONFS = {
    "reclaim": conf("reclaim", "gang, conformance", "predicates, capacity, nodeorder"),
    "gangreclaim": conf("gangreclaim", "gang, conformance", "predicates, capacity, nodeorder"),
    "allocate": conf("allocate", _FREE, "predicates, nodeorder"),
    "preempt": conf("allocate, preempt", _FREE, "predicates, nodeorder"),
    "preempt by share": conf("allocate, preempt", _FREE, "drf, predicates, nodeorder"),
    "gangpreempt": conf("allocate, gangpreempt", _WHOLE, "predicates, nodeorder"),
    "queues": conf("enqueue, allocate", *_SHARED),
    "capacity": conf("enqueue, allocate", _SHARED[0], f"capacity, {_SHARED[1]}"),
    "capacity in a tree": conf("enqueue, allocate", _SHARED[0], f"capacity+enableHierarchy, {_SHARED[1]}"),
    "cards": conf("allocate", *_SHARED),
    "capacity-card": conf("allocate", _SHARED[0], f"capacity-card, {_SHARED[1]}"),
}
"""The configuration of each shape."""


def half_deserved(count: int, gangs: int = 1) -> Iterator[Manifest]:
    """Yield nodes of 8 GPUs, full of one-GPU jobs of queue a, which deserves half, and gangs of b that request 10 %."""
    yield from create_nodes(count, 64, gpus=8)
    half = {"cpu": str(32 * count), "memory": f"{256 * count}Gi", GPU: str(4 * count)}
    yield from (create_queue(name, reclaimable=True, deserved=half) for name in "ab")
    request = {"cpu": "1", "memory": "1Gi", GPU: "1"}
    for i in range(8 * count):
        yield from create_job(f"a{i}", 1, "a", request, on=in_turn(i, count))
    for i in range(gangs):
        yield from create_job(f"wants{i}", count // 10 * 8 // gangs, "b", request)


def full_of_low(count: int) -> Iterator[Manifest]:
    """Yield nodes full of gangs of low priority, and pods of high priority with two CPUs each, one per two nodes."""
    yield from create_nodes(count, 32)
    yield create_queue("q")
    for name, value in (("low", 10), ("high", 1000)):
        yield {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    request = {"cpu": "1", "memory": "1Gi"}
    for number in range(32 * count // 100):
        yield from create_job(f"low{number}", 100, "q", request, on=in_turn(number * 100, count), priority=("low", 10))
    for number in range(count // 2):
        yield from create_job(f"high{number}", 1, "q", {"cpu": "2", "memory": "1Gi"}, priority=("high", 1000))


def in_teams(count: int, *, tree: bool) -> Iterator[Manifest]:
    """Yield queues of ten departments with twenty teams, half-full nodes, and two new gangs of five per node."""
    departments, teams = 10, 20
    yield from create_nodes(count, 32)
    yield create_queue("root")
    for d in range(departments):
        if tree:
            amounts = {"cpu": str(32 * count // 10), "memory": f"{512 * count // 10}Gi"}
            yield create_queue(f"d{d}", parent="root", deserved=amounts, capability=amounts)
        for t in range(teams):
            spec: Manifest = {
                "deserved": {"cpu": str(32 * count // 200), "memory": f"{512 * count // 200}Gi"},
                "capability": {"cpu": str(32 * count // 50), "memory": f"{512 * count // 50}Gi"},
            }
            if tree:
                spec["parent"] = f"d{d}"
            yield create_queue(f"d{d}-t{t}", **spec)
    request = {"cpu": "1", "memory": "4Gi"}
    for number in range(16 * count // 5):
        queue = f"d{number % departments}-t{number // departments % teams}"
        yield from create_job(f"run{number}", 5, queue, request, on=in_turn(number * 5, count))
        if number < 2 * count:
            yield from create_job(f"new{number}", 5, queue, request)


def with_cards(count: int) -> Iterator[Manifest]:
    """Yield nodes of four card models, 50 queues with quotas, and two jobs per node that name one or two models."""

    def labels(i: int) -> dict[str, str]:
        return {
            "nvidia.com/gpu.product": MODELS[i % 4],
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.memory": "81559",
        }

    yield from create_nodes(count, 64, gpus=8, labels=labels)
    quota = json.dumps(dict.fromkeys(MODELS, count // 25))
    for number in range(50):
        room = {"cpu": str(2 * count), "memory": f"{20 * count}Gi"}
        yield create_queue(f"q{number}", {"volcano.sh/card.quota": quota}, capability=room)
    for number in range(2 * count):
        models = (MODELS[number % 4],) if number % 3 else (MODELS[number % 4], MODELS[(number + 1) % 4])
        term = {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": list(models)}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        yield from create_job(
            f"job{number}",
            2,
            f"q{number % 50}",
            {"cpu": "2", "memory": "8Gi", GPU: "1"},
            annotations={"volcano.sh/card.name": "|".join(models)},
            spec={"affinity": affinity},
        )


def reclaim(count: int, peer: float | None, goal: float | None) -> Row:
    """Measure reclaim: a queue below its deserved share evicts pods of another queue."""
    what = f"reclaim, {count:,} nodes of 8 GPUs"
    return timed(what, lambda: half_deserved(count), CONFS["reclaim"], peer, goal)


def gangreclaim() -> Row:
    """Measure gangreclaim for many gangs of one pod, each of which evicts a job."""
    what = "gangreclaim, 500 nodes of 8 GPUs, 400 gangs"
    return timed(what, lambda: half_deserved(500, 400), CONFS["gangreclaim"], None, None)


def storm() -> Iterator[Row]:
    """Measure preemption by pods of high priority on full nodes."""
    for what, name, goal in (
        ("1,000 full nodes, 500 pods of high priority: allocate alone", "allocate", None),
        ("  and preempt", "preempt", 0.2),
        ("  and drf, whose order follows the evictions", "preempt by share", None),
        ("  gangs that may only go as a whole: gangpreempt", "gangpreempt", 0.25),
    ):
        yield timed(what, lambda: full_of_low(1000), CONFS[name], None, goal)


def hierarchy() -> Iterator[Row]:
    """Measure 200 queues and 2,000 new gangs of five, with and without capacity."""
    for what, name, goal in (
        ("200 queues, 26,000 pods, no quota plugin", "queues", None),
        ("  capacity, flat", "capacity", None),
        ("  capacity, ten departments of twenty teams", "capacity in a tree", 0.45),
    ):
        yield timed(what, partial(in_teams, 1000, tree=name == "capacity in a tree"), CONFS[name], None, goal)


def cards() -> Iterator[Row]:
    """Measure 4,000 jobs of two pods on 2,000 nodes, with and without capacity-card."""
    for what, name, goal in (
        ("2,000 nodes, 50 queues, 8,000 pods that name cards: no quota plugin", "cards", None),
        ("  capacity-card", "capacity-card", 1.0),
    ):
        yield timed(what, lambda: with_cards(2000), CONFS[name], None, goal)


PEERS = {100: 0.04, 200: 0.08, 500: 0.25, 1000: 0.48, 5000: 5.6}
GOALS = {1000: 0.08, 5000: 0.4}

BENCHES: dict[str, Callable[[], Iterable[Row]]] = {
    "reclaim": lambda: [reclaim(count, peer, GOALS.get(count)) for count, peer in PEERS.items()],
    "gangreclaim": lambda: [gangreclaim()],
    "storm": storm,
    "hierarchy": hierarchy,
    "cards": cards,
}


def run(names: list[str] | None = None) -> list[Row]:
    """Run the named benchmarks (default: all) and return their rows."""
    return [row for name in names or BENCHES for row in BENCHES[name]()]


if __name__ == "__main__":
    show(run(sys.argv[1:]))
