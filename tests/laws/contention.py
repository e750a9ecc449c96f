"""Random full clusters: queues that borrow, priorities, gangs, and controllers that bring back what is evicted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.dsl import gang, node, priority_class, queue
from tests.laws.returning import Returning

Manifest = dict[str, Any]

PRIORITIES = {"low": 10, "mid": 100, "high": 1000}
_SHARES = ("proportion", "capacity")


def conf_of(rng: random.Random) -> str:
    """A configuration with actions that evict."""
    actions = ["enqueue", "allocate", *rng.choice((("preempt", "reclaim"), ("reclaim", "preempt"), ("preempt",)))]
    if rng.random() < 0.2:
        actions = ["enqueue", "allocate", "gangpreempt", "gangreclaim"]
    if rng.random() < 0.5:
        actions.append("backfill")
    shares = rng.choice(_SHARES)
    flat = rng.random() < 0.3
    first = ["priority", "gang", "conformance"] if rng.random() < 0.8 else ["gang", "conformance"]
    second = [*(["drf"] if rng.random() < 0.5 else []), "predicates", shares, "nodeorder"]
    if rng.random() < 0.3:
        second.append("overcommit")
    tiers = [first + second] if flat else [first, second]
    lines = [f'actions: "{", ".join(actions)}"', "tiers:"]
    for tier in tiers:
        lines += ["- plugins:", *[f"  - name: {name}" for name in tier]]
    if rng.random() < 0.2:
        lines += ["configurations:", "- name: preempt", "  arguments:", "    enableTopologyAwarePreemption: true"]
    return "\n".join(lines) + "\n"


def objects_of(rng: random.Random) -> Iterator[Manifest]:
    """Nodes, queues, classes, and jobs of which most run."""
    names = [f"n{i}" for i in range(rng.randint(1, 4))]
    sizes = {name: rng.choice((4, 6, 8)) for name in names}
    for name in names:
        yield node(name, cpu=sizes[name], labels={"zone": rng.choice("ab")})
    total = sum(sizes.values())
    queues = [f"q{i}" for i in range(rng.randint(1, 3))]
    for name in queues:
        spec: Manifest = {"weight": rng.choice((1, 2, 3)), "reclaimable": rng.random() < 0.85}
        share = max(1, total // len(queues) + rng.choice((-1, 0, 0, 1)))
        spec["deserved"] = {"cpu": str(share), "memory": f"{share * 4}Gi"}
        if rng.random() < 0.2:
            spec["capability"] = {"cpu": str(min(total, share + rng.randint(0, 4)))}
        if rng.random() < 0.2:
            spec["guarantee"] = {"resource": {"cpu": str(max(1, share // 2))}}
        yield queue(name, **spec)
    yield from (priority_class(name, value) for name, value in PRIORITIES.items())
    idle = dict(sizes)
    for number in range(rng.randint(3, 9)):
        yield from _job(rng, f"j{number}", rng.choice(queues), number, idle)


def _job(rng: random.Random, name: str, queue_name: str, number: int, idle: dict[str, int]) -> Iterator[Manifest]:
    size, cpu = rng.randint(1, 4), rng.choice((1, 1, 2, 3))
    priority = rng.choice(sorted(PRIORITIES))
    places = []
    if rng.random() < 0.65:
        for _ in range(size):
            fitting = sorted(place for place, room in idle.items() if room >= cpu)
            if fitting:
                places.append(rng.choice(fitting))
                idle[places[-1]] -= cpu
    members = rng.choice((0, 1, 1, size))
    spec: Manifest = {"priorityClassName": priority, "priority": PRIORITIES[priority]}
    if rng.random() < 0.1:
        spec["preemptionPolicy"] = "Never"
    if rng.random() < 0.1:
        key = "podAntiAffinity" if rng.random() < 0.7 else "podAffinity"
        term = {"labelSelector": {"matchLabels": {"app": rng.choice("xy")}}, "topologyKey": "zone"}
        spec["affinity"] = {key: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    annotations = {"volcano.sh/preemptable": "false"} if rng.random() < 0.1 else {}
    yield from gang(
        name,
        size,
        members=members,
        on=places,
        queue=queue_name,
        phase="Running" if len(places) >= max(members, 1) else rng.choice(("Inqueue", "Pending")),
        created=number,
        minimum={"cpu": members * cpu} if rng.random() < 0.7 else None,
        group_spec={"priorityClassName": priority},
        annotations=annotations,
        labels={"app": rng.choice("xyz")},
        spec=spec,
        cpu=cpu,
    )


class Contention(Returning):
    """A full cluster whose controllers bring back, under the same name or another, what is evicted."""

    def __init__(self, seed: int, *, memory: bool = True) -> None:
        rng = random.Random(seed)
        self.conf = conf_of(rng)
        objects = list(objects_of(rng))
        super().__init__(objects, conf=self.conf, memory=memory, renames=rng.random() < 0.4)
