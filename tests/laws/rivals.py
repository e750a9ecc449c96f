"""Worlds in which every waiting job may have any other job's pods evicted: only immunity ends eviction cycles."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.dsl import gang, node, priority_class, queue
from tests.laws.returning import Returning
from vcd.model import events as ev
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.views import Task

Manifest = dict[str, Any]
ACTIONS = (
    "allocate, preempt",
    "preempt, allocate",
    "allocate, reclaim",
    "allocate, preempt, reclaim, backfill",
    "reclaim, preempt, allocate",
    "allocate, gangpreempt, gangreclaim",
    "gangreclaim, allocate",
)
TIERS = """tiers:
- plugins:
  - name: gang
    enablePreemptable: false
    enableReclaimable: false
    enableUnifiedEvictable: false
  - name: predicates
"""
PRIORITIES = {"low": 10, "high": 1000}


class Greedy(Plugin):
    """A plugin by which everyone may take from everyone."""

    name = "greedy"

    def preemptable(self, preemptor: Any, tasks: list[Task]) -> list[Task]:
        return tasks

    reclaimable = unified_evictable = preemptable


class Rivals(Returning):
    """A few nodes, and more jobs than they hold.

    ``taken`` counts how often each pod, or what replaced it, was evicted for a group. With ``busy`` a job that fits
    nowhere comes before each session: something new happened, and it changes nothing for the others.
    """

    observers = (Greedy({}),)

    def __init__(self, seed: int, *, busy: bool) -> None:
        self._rng = random.Random(seed)
        self._busy = busy
        self.taken: Counter[tuple[str, str]] = Counter()
        conf = f'actions: "{self._rng.choice(ACTIONS)}"\n{TIERS}'
        super().__init__(list(self._objects()), conf=conf, renames=self._rng.random() < 0.5)

    def _objects(self) -> Iterator[Manifest]:
        rng = self._rng
        sizes = [rng.choice((2, 3, 4)) for _ in range(rng.randint(1, 3))]
        yield from (node(f"n{index}", cpu=cpu) for index, cpu in enumerate(sizes))
        yield from (queue(name) for name in ("q0", "q1", "news"))
        yield from (priority_class(name, value) for name, value in PRIORITIES.items())
        idle = list(sizes)
        for number in range(rng.randint(3, 5)):
            size, cpu, rank = rng.randint(1, 2), rng.choice((1, 2)), rng.choice(sorted(PRIORITIES))
            places = []
            for _ in range(size):
                found = [index for index, room in enumerate(idle) if room >= cpu]
                if found:
                    places.append(f"n{found[0]}")
                    idle[found[0]] -= cpu
            yield from gang(
                f"j{number}",
                size,
                members=rng.choice((1, size)),
                on=places,
                queue=rng.choice(("q0", "q1")),
                phase="Inqueue",
                created=number,
                group_spec={"priorityClassName": rank},
                spec={"priority": PRIORITIES[rank]},
                cpu=cpu,
            )

    def cycle(self) -> ev.Plan:
        if self._busy:
            self.put(gang(f"news{self.state.session}", 1, queue="news", cpu=99, phase="Inqueue"))
        slots = dict(self._slot)
        plan = super().cycle()
        for statement in plan.statements:
            for operation in statement.operations:
                if operation.verb == "evict":
                    self.taken[slots[operation.key], statement.group] += 1
        return plan
