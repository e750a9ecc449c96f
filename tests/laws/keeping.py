"""Full clusters whose queues hold their parts of what can be had, and jobs alike that want more."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.dsl import Manifest, gang, node, pod, priority_class, queue
from tests.laws.mingled import mingled
from tests.reference.clusters import RandomCase

_ORDERS = (
    "allocate, reclaim",
    "reclaim, gangreclaim",
    "gangreclaim, reclaim, preempt",
    "preempt, reclaim, backfill, allocate",
    "reclaim, allocate, backfill, preempt",
    "reclaim, gangpreempt, preempt, gangreclaim",
    "enqueue, allocate, preempt, reclaim, backfill",
)
_TIERS = (
    (("priority", "gang", "conformance", "drf", "proportion", "predicates"),),
    (("priority", "gang", "conformance"), ("drf", "proportion", "predicates")),
    (("proportion", "gang"), ("priority", "predicates")),
)


def keeping_case(seed: int) -> RandomCase:
    """A case, two of five with gates, nominations, sub-groups and pods of others."""
    rng = random.Random(seed)
    tiers = ["- plugins:\n" + "".join(f"  - name: {name}\n" for name in tier) for tier in rng.choice(_TIERS)]
    objects = list(_objects(rng))
    for one in objects:
        if one["kind"] in ("Pod", "PodGroup"):
            one["metadata"].setdefault("namespace", "default")
            one.setdefault("status", {}).setdefault("phase", "Pending")
    if rng.random() < 0.4:
        objects = mingled(rng, objects)
    return RandomCase(seed, f'actions: "{rng.choice(_ORDERS)}"\ntiers:\n{"".join(tiers)}', objects)


def _objects(rng: random.Random) -> Iterator[Manifest]:
    size, places = rng.choice((1, 1, 2)), list[str]()
    for number in range(rng.randint(2, 5)):
        name, here, held = f"w{number}", rng.randint(1, 3), rng.randint(0, 6)
        places += [name] * here
        yield node(name, cpu=f"{(size * here + held) * 1000 + rng.choice((0, 250, 900))}m")
        if held:  # another scheduler's
            yield pod(f"of-{name}", on=name, namespace="kube-system", spec={"schedulerName": "other"}, cpu=held)
    queues = [f"q{number}" for number in range(rng.randint(2, 4))]
    yield from (queue(name, weight=rng.choice((1, 1, 2, 3)), reclaimable=rng.random() < 0.9) for name in queues)
    yield from (priority_class("low", 1), priority_class("high", 10))
    rng.shuffle(places)
    number = 0
    while places:
        on, places = places[: (count := rng.choice((1, 1, 2)))], places[count:]
        options = {"on": on, "members": rng.choice((0, 1, len(on))), "phase": "Running"}
        yield from _gang(rng, f"runs-{number}", len(on), size, rng.choice(queues), **options)
        number += 1
    for number in range(rng.randint(1, 2)):
        count = rng.choice((1, 1, 2, 3))
        yield from _gang(rng, f"wants-{number}", count, size, rng.choice(queues), members=rng.choice((0, 1, count)))


def _gang(rng: random.Random, name: str, count: int, cpu: int, of: str, **options: object) -> Iterator[Manifest]:
    spec = {"priorityClassName": rng.choice(("low", "high"))}
    yield from gang(name, count, cpu=cpu, queue=of, group_spec=spec, **options)  # type: ignore[arg-type]
