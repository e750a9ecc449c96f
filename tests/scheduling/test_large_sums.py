"""Whoever may create pods and groups may let them ask for anything, in any number: no sum of it breaks a session."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, pod, queue, session_after
from tests.sizes import some
from vcd.model.events import Plan, decode_plan, encode_plan
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.timetravel.queuestatistics import queue_statistics

ACTIONS = 'actions: "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim"\n'
OTHERS = ("priority", "gang", "predicates", "nodeorder", "resourcequota", "task-topology", "deviceshare")
QUOTAS = {
    "proportion": "{name: proportion}",
    "capacity": "{name: capacity}",
    "capacity-hierarchy": "{name: capacity, enableHierarchy: true}",
    "capacity-card": "{name: capacity-card}",
    "capacity-card-only": "{name: capacity-card, arguments: {cardUnlimitedCpuMemory: true}}",
    "drf": "{name: drf}",
    "drf-hierarchy": "{name: drf, enableHierarchy: true}",
}
MOST = {"cpu": "9007199254740992m", "memory": "8Pi", "ephemeral-storage": "8Pi", "gpu": "9007199254740992m"}
"""The largest that is counted."""
MANY = 1200
"""More of these than int64 can hold."""


def conf(quota: str, *more: str) -> str:
    lines = [*(f"{{name: {name}}}" for name in (*OTHERS, *more)), QUOTAS[quota]]
    return f"{ACTIONS}tiers:\n- plugins:\n" + "".join(f"  - {line}\n" for line in lines)


def cluster() -> list[Manifest]:
    """Room for the small jobs, and a node that takes nobody."""
    card = {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81920"}
    return [
        node("n1", cpu=8),
        node("n2", cpu=8, gpu=8, labels=card),
        node("far", cpu=1, unschedulable=True),
        queue("wild", capability={"cpu": "4", "memory": "8Gi"}),
        queue("small", deserved={"cpu": "4"}, capability={"cpu": "6", "memory": "64Gi"}),
    ]


def small_jobs() -> Iterator[Manifest]:
    yield from gang("run", 2, on=["n1", "n1"], queue="small", phase="Running", minimum={"cpu": 2}, cpu=1)
    yield from gang("fits", 2, queue="small", phase="Inqueue", minimum={"cpu": 2}, created=1, cpu=1, memory=1)
    yield from gang("over", 4, queue="small", phase="Inqueue", minimum={"cpu": 4}, created=2, cpu=1)


def amounts(chance: random.Random) -> dict[str, Any]:
    """Some resources, the most of them or a part of that."""
    found: dict[str, Any] = {}
    for name in chance.sample(sorted(MOST), chance.randint(1, len(MOST))):
        small = str(chance.randint(1, 2**53)) + ("" if name in ("memory", "ephemeral-storage") else "m")
        beyond = chance.choice(["9223372036854775807m", "7Ei", "9E", "1e30"])
        found[name] = chance.choices([MOST[name], small, beyond], [90, 8, 2])[0]
    return {**found, "cpu": MOST["cpu"]} if chance.random() < 0.5 else found


def wild_pods(chance: random.Random) -> Iterator[Manifest]:
    """Groups of very many pods, some on a node that their makers named, be it one that is not there."""
    for number in range(2):
        name, asked = f"wild{number}", [amounts(chance) for _ in range(3)]
        phase = chance.choice(["Pending", "Inqueue", "Running"])
        members, minimum = chance.choice([1, MANY, 2**31 - 1]), chance.choice([None, {"cpu": 1}, amounts(chance)])
        yield group(name, members=members, queue="wild", phase=phase, minimum=minimum)
        for count in range(MANY):
            place = chance.choice(["", "", "", "far", "far", "nowhere"])
            marks = {"volcano.sh/task-spec": f"role{count % 2}", "volcano.sh/card.name": chance.choice(["A100", ""])}
            yield pod(
                f"{name}-{count}",
                group=name,
                on=place,
                phase=chance.choice(["Running", "Pending"]) if place else "",
                deleting=chance.random() < 0.1,
                annotations=marks,
                **chance.choice(asked),
            )


def wild_groups(chance: random.Random) -> Iterator[Manifest]:
    """Very many groups without a pod."""
    for number in range(2 * MANY):
        phase = chance.choice(["Pending", "Inqueue", "Inqueue"])
        one = group(f"wild{number}", queue="wild", phase=phase, minimum=amounts(chance))
        one["metadata"]["annotations"] = {"volcano.sh/card.request": '{"A100": 1099511627776}'}
        yield one


def decided(quota: str, *more: Manifest) -> tuple[Session, Plan]:
    """A session without a fault, in which some plugins sum up what the queues have, and its plan."""
    session = session_after(*cluster(), *small_jobs(), *more, conf=conf(quota, "overcommit"))
    assert session.faults == ()
    return session, plan_of(session)


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("wild", [wild_pods, wild_groups])
@pytest.mark.parametrize("seed", some(1, range(2)))
def test_absurd_work_in_one_queue_changes_nothing_for_another(quota: str, wild: Any, seed: int) -> None:
    """Where the queue has a capability no plugin is left out, and the other queue's jobs get what they get without."""
    _, alone = decided(quota)
    session, beside = decided(quota, *wild(random.Random(seed)))
    binds = {op.key: op.node for op in alone.operations("bind")}
    assert binds.keys() >= {"default/fits-0", "default/fits-1"}
    assert {op.key: op.node for op in beside.operations("bind")} == binds
    assert all(op.key.startswith("default/wild") for op in beside.operations("evict"))
    is_no_less_than_nothing(session, beside)


def is_no_less_than_nothing(session: Session, plan: Plan) -> None:
    """What is shown of the queues has no negative quantity, and can be read back."""
    assert decode_plan(encode_plan(plan)) == plan
    for usage in plan.queues:
        assert not any(text.startswith("-") for text in usage.allocated.values())
    for figures in queue_statistics(session).values():
        for series, values in figures.amounts.items():
            assert all(value >= 0 for value in values.values()), f"{figures.name} {series}"
            assert all(not figures.quantity(series, name).startswith("-") for name in values)
