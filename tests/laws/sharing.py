"""Random small clusters in which queues share: weights, guarantees, trees, gangs, pods that no node takes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.dsl import gang, node, queue
from tests.reference.clusters import RandomCase

Manifest = dict[str, Any]

ACTIONS = (
    "enqueue, allocate",
    "allocate, backfill",
    "enqueue, allocate, reclaim",
    "reclaim, allocate",
    "enqueue, allocate, preempt, reclaim, backfill",
)
_PLUGINS = ("priority", "gang", "predicates", "nodeorder")


def shares_case(seed: int) -> RandomCase:
    """Draw one case."""
    rng = random.Random(f"shares {seed}")
    by_weight = rng.random() < 0.6
    tree = not by_weight and rng.random() < 0.5
    plugins = [name for name in _PLUGINS if rng.random() < 0.9]
    rng.shuffle(plugins)
    lines = [f'actions: "{rng.choice(ACTIONS)}"', "tiers:", "- plugins:", *[f"  - name: {name}" for name in plugins]]
    lines.insert(rng.randrange(3, len(lines) + 1), f"  - name: {'proportion' if by_weight else 'capacity'}")
    conf = "\n".join(lines) + "\n"
    if tree:
        conf = conf.replace("  - name: capacity\n", "  - name: capacity\n    enableHierarchy: true\n")
    if rng.random() < 0.1:
        name = "proportion" if by_weight else "capacity"
        conf = conf.replace(f"- name: {name}\n", f"- name: {name}\n    arguments:\n      volcanoSharesEnable: true\n")
    return RandomCase(seed, conf, [*_nodes(rng), *_queues(rng, tree), *_jobs(rng, tree)])


def borrowed_case(seed: int) -> RandomCase:
    """Draw a case in which some queues hold most of the cluster, and groups of any queue ask to be admitted."""
    rng = random.Random(f"borrowed {seed}")
    share, tree = rng.choice((("proportion", False), ("capacity", False), ("capacity", True)))
    plugins = ["priority", "predicates", *(["gang"] if rng.random() < 0.7 else []), share, "overcommit"]
    lines = [f"  - name: {name}" for name in plugins]
    lines.append("    arguments:\n      overcommit-factor: 1.0")
    if rng.random() < 0.1:
        lines.append("      countVictimsEnable: false")
    if tree:
        lines[plugins.index("capacity")] += "\n    enableHierarchy: true"
    reclaim = rng.choice(("reclaim", "reclaim", "gangreclaim", "preempt, reclaim"))
    conf = "\n".join([f'actions: "enqueue, allocate, {reclaim}"', "tiers:", "- plugins:", *lines]) + "\n"
    return RandomCase(seed, conf, [*_full_nodes(rng), *_queues(rng, tree), *_borrowers(rng), *_askers(rng)])


def _nodes(rng: random.Random) -> Iterator[Manifest]:
    for index in range(rng.randint(1, 4)):
        labels = {"zone": "a"} if rng.random() < 0.6 else {}
        taints = [{"key": "own", "effect": "NoSchedule"}] if rng.random() < 0.15 else []
        gpus = {"gpu": rng.choice((2, 4, 8))} if rng.random() < 0.6 else {}
        yield node(f"n{index}", cpu=rng.choice((4, 6, 8)), memory=64, labels=labels, taints=taints, **gpus)


def _queues(rng: random.Random, tree: bool) -> Iterator[Manifest]:
    if tree:
        yield queue("root")
        yield queue("team", parent="root", deserved={"cpu": "20"}, guarantee={"resource": {"cpu": "8"}})
    for index in range(3):
        spec: Manifest = {}
        if rng.random() < 0.4:
            spec["guarantee"] = {"resource": {"cpu": str(rng.choice((1, 2, 4)))}}
        if rng.random() < 0.4:
            spec["deserved"] = {"cpu": str(rng.choice((2, 4)))}
        if rng.random() < 0.2:
            spec["capability"] = {"cpu": str(rng.choice((6, 9)))}
        if tree:
            spec["parent"] = rng.choice(("root", "team"))
            spec["deserved"] = {"cpu": "4"}
        drawn = rng.random()
        state = "Closed" if drawn < 0.1 else "Closing" if drawn < 0.25 else "Open"
        yield queue(f"q{index}", weight=rng.randint(1, 3), state=state, **spec)


def _jobs(rng: random.Random, tree: bool) -> Iterator[Manifest]:
    places = [0] * 4
    for index in range(rng.randint(3, 8)):
        size = rng.choice((1, 1, 2, 3, 4))
        asks: Manifest = {"cpu": rng.choice((1, 1, 2, 3))}
        if rng.random() < 0.3:
            asks["gpu"] = rng.choice((1, 2))
        spec: Manifest = {}
        odd = rng.random()
        if odd < 0.1:
            spec["nodeSelector"] = {"zone": rng.choice(("a", "none"))}
        elif odd < 0.2:
            asks["cpu"] = 9
        elif odd < 0.25:
            spec["schedulingGates"] = [{"name": "wait"}]
        elif odd < 0.3:
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
        elif odd < 0.4:
            spec["tolerations"] = [{"operator": "Exists"}]
        on = []
        if odd > 0.4 and "gpu" not in asks and rng.random() < 0.3 and places[0] + asks["cpu"] * size <= 4:
            places[0] += asks["cpu"] * size
            on = ["n0"] * size
        minimum = asks if rng.random() < 0.5 else None
        yield from gang(
            f"g{index}",
            size,
            members=rng.choice((1, size, size + (rng.random() < 0.1))),
            on=on,
            queue=f"q{rng.randrange(3)}",
            phase="Running" if on else rng.choice(("Inqueue", "Inqueue", "Pending")),
            created=index,
            minimum=minimum,
            spec=spec,
            **asks,
        )


def _full_nodes(rng: random.Random) -> Iterator[Manifest]:
    for index in range(2):
        yield node(f"n{index}", cpu=8, memory=64, gpu=rng.choice((0, 4)))


def _borrowers(rng: random.Random) -> Iterator[Manifest]:
    """Running groups that hold up to 8 cpus of each node."""
    for index in range(2):
        left = 8
        while left > 0 and rng.random() < 0.95:
            size = rng.randint(1, min(left, 4))
            left -= size
            members = rng.randint(1, size)
            yield from gang(
                f"held-{index}-{left}",
                size,
                members=members,
                on=[f"n{index}"] * size,
                queue=f"q{rng.choice((0, 0, 0, 1, 2))}",
                phase="Running",
                minimum={"cpu": members} if rng.random() < 0.8 else None,
                cpu=1,
                memory=1,
            )


def _askers(rng: random.Random) -> Iterator[Manifest]:
    """Groups that are not admitted; some have no pods yet."""
    for index in range(rng.randint(1, 5)):
        size, asks = rng.randint(1, 4), {"cpu": rng.choice((1, 1, 2))}
        yield from gang(
            f"new-{index}",
            size if rng.random() < 0.6 else 0,
            members=size,
            queue=f"q{rng.randrange(3)}",
            phase="Pending",
            created=index,
            minimum={"cpu": asks["cpu"] * size},
            **asks,
        )
