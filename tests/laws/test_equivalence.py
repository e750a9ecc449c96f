"""Law: tasks share a table only where they find the same, within a session and from one session to the next.

All pods have one of two shapes. They differ in queue, annotations and role, and what the plugins make of these changes
between cycles. Each task's table is held to one that no other task was ever asked about.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

from tests.dsl import group, node, open_session, pod, queue
from tests.plugins.opened import task_of
from tests.sizes import seeds
from tests.topology.manifests import hyper_node, parent
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.decide import instances
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]

SEEDS = seeds(1, 5)
CYCLES = 4
GPU, VGPU, VGPU_MEMORY = "nvidia.com/gpu", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
SHARE = "volcano.sh/vgpu-memory-percentage"
MODELS, QUEUES, GROUPS, POLICIES = ("A", "B", "C"), ("q0", "q1", "q2"), ("x", "y"), ("restricted", "best-effort")
PLUGINS: dict[str, dict[str, Any]] = {
    "nodegroup": {"strict": False},
    "capacity-card": {},
    "deviceshare": {f"deviceshare.{key}": value for key, value in
                    (("VGPUEnable", True), ("ScheduleWeight", 3), ("SchedulePolicy", "binpack"))},
    "resource-strategy-fit": {},
    "numa-aware": {},
    "nodeorder": {},
    "task-topology": {},
    "network-topology-aware": {},
}  # fmt: skip
"""One after the other: where several are on, tasks that one of them would mix up are told apart by another."""


def conf_of(plugin: str) -> str:
    names = ("gang", "predicates", *([plugin] if plugin else PLUGINS))
    plugins = [{"name": name, "arguments": PLUGINS.get(name, {})} for name in names]
    return json.dumps({"actions": "enqueue, allocate, preempt, reclaim, backfill", "tiers": [{"plugins": plugins}]})


# --- clusters ---------------------------------------------------------------------------------------------------------


def cluster_node(rand: random.Random, number: int) -> Iterator[Manifest]:
    """Cards of a model, cards that are shared, a group of nodes, and two NUMA nodes."""
    name, model = f"n{number}", rand.choice(MODELS)
    labels = {"nvidia.com/gpu.product": model, "nvidia.com/gpu.count": "4", "nvidia.com/gpu.memory": "81920"}
    if rand.random() < 0.8:
        labels["volcano.sh/nodegroup-name"] = rand.choice(GROUPS)
    room = {GPU: 4, VGPU: 40, VGPU_MEMORY: 64000, "volcano.sh/vgpu-cores": 200, SHARE: 4000}
    manifest = node(name, cpu=rand.choice((4, 8)), memory=32, labels=labels, **room)
    cards = "".join(f"{name}-{model}{card},10,16000,NVIDIA-{model},true,hami-core:" for card in range(2))
    manifest["metadata"]["annotations"] = {"volcano.sh/node-vgpu-register": cards}
    yield manifest
    yield {
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "kind": "Numatopology",
        "metadata": {"name": name},
        "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": rand.choice(POLICIES)},
            "numares": {"cpu": {"allocatable": "0-7", "capacity": 8}},
            "cpuDetail": {str(i): {"numa": i // 4, "socket": i // 4, "core": i} for i in range(8)},
        },
    }


def some_service(name: str, **selector: str) -> Manifest:
    """One whose pods go apart."""
    return {"kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}


def some_topology(rand: random.Random) -> Manifest:
    """What a group, or its sub-groups by role, may ask of the racks."""
    limits = {"mode": "hard", "highestTierAllowed": rand.choice((1, 2))}, {"mode": "soft"}
    found: Manifest = {"networkTopology": rand.choice(limits)} if rand.random() < 0.5 else {}
    if rand.random() < 0.3:
        policy = {"name": "p", "matchLabelKeys": ["app"], "networkTopology": rand.choice(limits)}
        found["subGroupPolicy"] = [policy]
    return found


def some_queue(rand: random.Random, name: str) -> Manifest:
    """Its rules for groups of nodes, its limits there, its quota of cards and its capability of shares."""
    hard, soft = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
    affinity = rand.choice((None, {hard: ["x", "y"]}, {hard: ["x"], soft: ["y"]}, {hard: [rand.choice(GROUPS)]}))
    rules = {} if affinity is None else {"affinity": {"nodeGroupAffinity": affinity}}
    capability = {VGPU_MEMORY: str(rand.choice((8000, 20000, 60000)))} if rand.random() < 0.5 else {}
    manifest = queue(name, capability=capability, **rules)
    quota = {model: rand.choice((0, 2, 4, 8)) for model in MODELS}
    manifest["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps(quota)}
    if rand.random() < 0.8:
        limits = {name: {"cpu": str(rand.randrange(4))} for name in GROUPS}
        manifest["metadata"]["annotations"]["volcano.sh/nodegroup-resource-limits"] = json.dumps(limits)
    return manifest


def some_annotations(rand: random.Random) -> Iterator[tuple[str, str]]:
    """What a pod may say to each of the plugins."""
    if rand.random() < 0.6:
        yield "volcano.sh/card.name", "|".join(rand.sample(MODELS, rand.randrange(1, 3)))
    if rand.random() < 0.5:
        yield "volcano.sh/resource-strategy-scoring-type", rand.choice(("MostAllocated", "LeastAllocated", "odd"))
        yield "volcano.sh/resource-strategy-weight", rand.choice(('{"cpu": 1}', '{"memory": 2}'))
    if rand.random() < 0.5:
        yield "volcano.sh/numa-topology-policy", rand.choice(POLICIES)
    if rand.random() < 0.5:
        which = rand.choice(("nvidia.com/use-gputype", "nvidia.com/nouse-gputype"))
        yield which, rand.choice(MODELS)


def some_job(rand: random.Random, name: str) -> Iterator[Manifest]:
    """One or more pods, all of one of two shapes, which ask for whole cards or for shares."""
    which = rand.choice(QUEUES)
    amounts = {"cpu": "1", "memory": "1Gi", **rand.choice(({GPU: "1"}, {VGPU: "1", SHARE: "30"}))}
    marks = {}
    if rand.random() < 0.4:
        marks["volcano.sh/task-topology-affinity"] = rand.choice(("a,b", "a;b"))
        marks["volcano.sh/task-topology-anti-affinity"] = rand.choice(("a", "b"))
    topology = some_topology(rand)
    made = group(name, members=1, queue=which, phase="Inqueue", created=rand.randrange(9), **topology)
    made["metadata"]["annotations"] = marks
    yield made
    for number in range(2 if marks else rand.randrange(1, 4)):
        annotations = {**dict(some_annotations(rand)), "volcano.sh/task-spec": "ab"[number % 2]}
        containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        labels = rand.choice(({}, {"app": "a"}, {"app": "b"}, {"app": "b", "tier": "t"}))
        spec = {"containers": containers}
        yield pod(f"{name}-{number}", group=name, labels=labels, annotations=annotations, spec=spec)


class Changing:
    """A cluster on which jobs come and end and queues change their minds; the same seed gives the same history."""

    def __init__(self, seed: int, plugin: str, *, memory: bool = True) -> None:
        self.rand = random.Random(seed)
        nodes = [manifest for number in range(6) for manifest in cluster_node(self.rand, number)]
        nodes += [some_service("one", app="a"), some_service("two", app="b"), some_service("three", tier="t")]
        racks = [hyper_node(f"r{rack}", 1, f"n{2 * rack}", f"n{2 * rack + 1}") for rack in range(3)]
        self.world = World(
            *nodes,
            *racks,
            parent("spine", 2, "r0", "r1"),
            *[some_queue(self.rand, name) for name in QUEUES],
            conf=conf_of(plugin),
            memory=memory,
        )
        self._jobs = 0
        self.change(6)

    def change(self, jobs: int = 3) -> None:
        for _ in range(jobs):
            self._jobs += 1
            self.world.put(some_job(self.rand, f"j{self._jobs}"))
        for name in sorted(self.world.placed()):
            if self.rand.random() < 0.3:
                self.world.remove("Pod", f"default/{name}")
        if self.rand.random() < 0.7:
            self.world.put(some_queue(self.rand, self.rand.choice(QUEUES)))


# --- the law ----------------------------------------------------------------------------------------------------------


def opened(world: World, memory: Memory) -> Session:
    """A session of the next cycle, which decides nothing."""
    return open_session(world.maker.snapshot(), world.policy, instances(world.policy), world.now, 0, memory)


def keys_alone(world: World, placed: list[tuple[str, int]], name: str) -> Ints:
    """What a task finds in a session in which no other was asked about, after some placements."""
    session = opened(world, Memory())
    for other, row in placed:
        place(session, other, row)
    return framework_of(session).candidates(task_of(session, name)).keys()


def place(session: Session, name: str, row: int) -> None:
    task = task_of(session, name)
    statement = Statement(session.trial, "trial", task.job)
    if session.nodes.has_room(row, task.floor):
        statement.allocate([task], [row])
    else:
        statement.pipeline([task], [row])


def look(world: World, memory: Memory, rand: random.Random) -> int:
    """Ask about the tasks that wait, some of them again, placing some in trial; how many shared a table."""
    session = opened(world, memory)
    names = [task.name for job in session.jobs_with_pending() for task in job.pending()]
    placed: list[tuple[str, int]] = []
    asked: dict[Hashable, list[str]] = {}
    for name in [*names, *rand.sample(names, len(names) // 2)]:
        task = task_of(session, name)
        if any(other == name for other, _ in placed):
            continue
        table = framework_of(session).candidates(task)
        asked.setdefault(framework_of(session).evaluator.keys.of(task)[0], []).append(name)
        keys = table.keys().copy()
        assert keys.tolist() == keys_alone(world, placed, name).tolist(), name
        row = table.best()
        if row is not None and rand.random() < 0.4:
            placed.append((name, row))
            place(session, name, row)
    return sum(len(set(names)) - 1 for names in asked.values())


@pytest.mark.parametrize("plugin", [*PLUGINS, ""])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_says_what_each_task_would_find_alone(seed: int, plugin: str) -> None:
    history, rand, memory = Changing(seed, plugin), random.Random(seed), Memory()
    shared = 0
    for _ in range(CYCLES):
        shared += look(history.world, memory, rand)
        history.world.cycle()
        history.change()
    assert shared or not plugin


@pytest.mark.parametrize("plugin", [*PLUGINS, ""])
def test_with_and_without_memory_the_plans_are_the_same(plugin: str) -> None:
    decided = 0
    for seed in SEEDS:
        kept, fresh = Changing(seed, plugin), Changing(seed, plugin, memory=False)
        for _ in range(CYCLES):
            plan = kept.world.cycle()
            assert ev.encode_plan(plan) == ev.encode_plan(fresh.world.cycle())
            decided += sum(len(statement.operations) for statement in plan.statements)
            kept.change()
            fresh.change()
    assert decided > len(SEEDS) * CYCLES
