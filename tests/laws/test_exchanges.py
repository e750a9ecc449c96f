"""Law: who may go for one of several tasks alike, said once, is what each of them is told when it asks.

``VCD_SEEDS`` asks for more clusters, or for a range, as `tests/sizes.py` says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.dsl import NOW_NS, Manifest, flat, gang, node, queue
from tests.sizes import seeds
from tests.world import asked_first
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.closing import plan_of
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Task
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

_PRIORITIES = {"low": 10, "high": 1000}
SEEDS = seeds(25, 150)


class _Minds(Plugin):
    """It has no opinion, but may have one of any task that asks."""

    name = "minds"

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> None:
        """No opinion."""

    reclaimable = preemptable


def _conf(rng: random.Random) -> str:
    first = rng.sample(["priority", "gang", "conformance", "pdb", "cdp"], rng.randint(1, 5))
    second = ["predicates", "nodeorder", rng.choice(("capacity", "capacity", "capacity", "proportion", "drf"))]
    actions = rng.choice(("reclaim", "reclaim", "reclaim", "preempt", "preempt, reclaim"))
    lines = [f'actions: "{actions}"', "tiers:"]
    for tier in [first, second] if rng.random() < 0.7 else [[*first, *second]]:
        lines += ["- plugins:", *[f"  - name: {name}" for name in tier]]
    if rng.random() < 0.1:
        lines.append("    enableHierarchy: true")
    return "\n".join(lines) + "\n"


def _objects(rng: random.Random) -> Iterator[Any]:
    """Full nodes, and gangs that want the places of pods like their own."""
    nodes = [f"n{number}" for number in range(rng.randint(1, 4))]
    size = rng.randint(4, 9)
    yield from (node(name, cpu=size, gpu=8) for name in nodes)
    cpu = size * len(nodes) // rng.choice((1, 2))
    deserved = {"cpu": str(cpu), "memory": "64Gi", "nvidia.com/gpu": "8"}
    yield from (queue(name, reclaimable=True, deserved=deserved if name == "b" else {}) for name in "ab")
    for name, value in _PRIORITIES.items():
        yield {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    yield {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": rng.randint(0, 4)},
    }
    places = [name for name in nodes for _ in range(size)]
    rng.shuffle(places)
    number, sizes = 0, rng.choice(((1,), (1, 1, 2, 3)))
    while places:
        count = rng.choice(sizes)
        on, places = places[:count], places[count:]
        yield _gang(rng, f"runs-{number}", len(on), rng.choice("aab"), "low", on=on)
        number += 1
    for number in range(rng.randint(1, 2)):
        yield _gang(rng, f"wants-{number}", rng.randint(2, 12), "b", "high")


def _gang(rng: random.Random, name: str, size: int, of: str, priority: str, **more: Any) -> list[Manifest]:
    labels = {"app": "x"} if rng.random() < 0.2 else {}
    spec = {"priorityClassName": priority, "priority": _PRIORITIES[priority]}
    cpu = 1 if rng.random() < 0.9 else 2
    members = rng.choice((1, size, rng.randint(1, size)))
    return gang(name, size, members=members, queue=of, cpu=cpu, labels=labels, spec=spec, **more)


def _plan(objects: Sequence[Manifest], conf: str, observers: Sequence[Plugin]) -> bytes:
    snapshot = SnapshotMaker(state_of([*default_queues(objects), *objects])).snapshot()
    with asked_first(*observers):
        return ev.encode_plan(plan_of(run(snapshot, read_policy(conf), NOW_NS, 0)))


def test_what_is_said_once_of_tasks_alike_is_what_each_is_told(monkeypatch: Any) -> None:
    """Beside a plugin that may say something else each time, plugins are asked by each task; and often enough to tell
    a difference they are not without it, and several of them are let in at once."""
    once: list[int] = []
    several: list[int] = []
    again, exchange = Victims.again, Statement.exchange

    def counted(self: Victims, tasks: Sequence[Task]) -> Victims:
        once.append(len(tasks))
        return again(self, tasks)

    def noted(self: Statement, tasks: list[Task], victims: list[Task], node: int, reason: str) -> None:
        several.append(len(tasks))
        exchange(self, tasks, victims, node, reason)

    monkeypatch.setattr(Victims, "again", counted)
    monkeypatch.setattr(Statement, "exchange", noted)
    wrong = []
    for seed in SEEDS:
        rng = random.Random(seed)
        conf, objects = _conf(rng), list(flat(_objects(rng)))
        plain = _plan(objects, conf, ())
        asked = len(once)
        if plain != _plan(objects, conf, (_Minds({}),)):
            wrong.append(seed)
        assert len(once) == asked
    assert wrong == []
    assert len(once) * 10 > len(SEEDS)
    assert sum(count > 1 for count in several) * 20 > len(SEEDS)
