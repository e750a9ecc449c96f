"""Pain 4: evictions stay although who asked fails (volcano #5022, PR #5011; reclaim ignores affinity, #4926)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, priority_class, queue
from tests.laws.answering import Answering
from vcd.model import events as ev
from vcd.scheduling.decide import run
from vcd.scheduling.session_close import plan_of
from vcd.scheduling.statement_verification import stale_statements

TIERS = """
tiers:
- plugins:
  - name: conformance
  - name: priority
  - name: proportion
  - name: predicates
  - name: nodeorder
- plugins:
  - name: gang
"""
ACTIONS = pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
HOST = {"topologyKey": "kubernetes.io/hostname"}


def world(
    action: str, *objects: Any, asks: Manifest | None = None, size: int = 1, cpu: int = 4, more: str = "", **new: Any
) -> Answering:
    """A queue that uses all of the cluster, and a job of another queue or of a higher priority in the same queue."""
    owner = "asks" if "reclaim" in action else "old"
    spec = {"priority": 1000, **(asks or {})}
    high = {"priorityClassName": "high"}
    return Answering(
        priority_class("high", 1000),
        queue("old"),
        queue("asks", weight=3),
        *objects,
        gang("new", size, queue=owner, cpu=cpu, group_spec=high, spec=spec, created=9, **new),
        conf=f'actions: "enqueue, allocate, {action}"{TIERS}{more}',
    )


def full(name: str, **options: Any) -> list[Manifest]:
    """A node of eight cpu and eight pods that fill it."""
    return [node(name), *gang(f"on-{name}", 8, members=1, on=[name] * 8, queue="old", cpu=1, **options)]


def affinity(kind: str, **labels: str) -> Manifest:
    term = {"labelSelector": {"matchLabels": labels}, **HOST}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@ACTIONS
def test_with_nothing_in_the_way_the_room_is_taken(action: str) -> None:
    """What the others are measured by."""
    there = world(action, full("n"), asks={})
    there.rest()
    assert len(there.evicted) == 4
    assert there.placed("new") == {"new-0": "n"}


@ACTIONS
def test_a_gang_of_which_all_find_a_node_gets_both(action: str) -> None:
    there = world(
        action, full("n"), full("m"), asks=affinity("podAntiAffinity", app="new"), size=2, labels={"app": "new"}
    )
    there.rest()
    assert len(there.evicted) == 8
    assert sorted(there.placed("new").values()) == ["m", "n"]


def stays(**options: Any) -> Iterator[Manifest]:
    """A pod on the node that no job may evict."""
    return gang("stays", 1, on=["n"], queue="old", annotations={"volcano.sh/preemptable": "false"}, **options)


OBSTACLES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "affinity to a pod that is nowhere": ([full("n")], {"asks": affinity("podAffinity", app="cache")}),
    "anti-affinity to a pod that stays": (
        [full("n"), [*stays(labels={"app": "x"})]],
        {"asks": affinity("podAntiAffinity", app="x")},
    ),
    "anti-affinity of a pod that stays": (
        [full("n"), [*stays(spec=affinity("podAntiAffinity", app="new"))]],
        {"labels": {"app": "new"}},
    ),
    "a gang of two that needs two hosts": (
        [full("n")],
        {"asks": affinity("podAntiAffinity", app="new"), "size": 2, "labels": {"app": "new"}},
    ),
    "a taint": ([{**full("n")[0], "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, *full("n")[1:]], {}),
}


@ACTIONS
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_nothing_is_evicted_for_a_job_that_could_not_be_placed_all_the_same(action: str, obstacle: str) -> None:
    """Victims would free enough cpu."""
    objects, new = OBSTACLES[obstacle]
    there = world(action, *objects, **new)
    there.rest()
    assert there.evicted == []


@ACTIONS
def test_who_is_gone_when_the_session_is_logged_costs_nobody_anything(action: str) -> None:
    """The pod that asked is deleted while the session decides: the evictions for it do not leave."""
    there = world(action, full("n"), asks={})
    base = there.maker.snapshot()
    plan: ev.Plan = plan_of(run(base, there.policy, there.now, 0))
    evicting = [
        number
        for number, statement in enumerate(plan.statements)
        if any(operation.verb == "evict" for operation in statement.operations)
    ]
    assert evicting
    assert stale_statements(plan, there.maker.snapshot(), base) == ()
    there.remove("Pod", "default/new-0")
    assert [number for number, _ in stale_statements(plan, there.maker.snapshot(), base)] == evicting
