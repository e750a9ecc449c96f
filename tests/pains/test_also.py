"""What else users suffer from: panics at start (volcano #4261) and in accounting (#3301), misled autoscalers (#3976), a
capability below what is deserved (#4292). Hung calls (#4692) and what pods show are in tests/e2e, failing sources of
usage (#5578) in tests/plugins/test_usage.py and tests/daemon/outside/test_usage_poller.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import gang, group, node, pod, queue
from tests.laws.answering import Answering
from tests.sizes import WIDE
from vcd.model import events as ev
from vcd.scheduling.framework import execution, registry
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.object_problems import Problem

JOBS = 3_000 if WIDE else 1_000
EVERYTHING = """
actions: "enqueue, allocate, preempt, reclaim, gangpreempt, gangreclaim, shuffle, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: {shares}
  - name: overcommit
  - name: nodeorder
  - name: binpack
"""
CONFS = pytest.mark.parametrize(
    "conf",
    [None, EVERYTHING.format(shares="proportion"), EVERYTHING.format(shares="capacity")],
    ids=["default", "all actions, proportion", "all actions, capacity"],
)


@CONFS
def test_the_first_session_over_many_jobs_in_every_phase_has_no_fault(conf: str | None) -> None:
    """#4261: queues whose deserved amount misses resources that the nodes have, and thousands of jobs at start."""
    phases = ("Pending", "Inqueue", "Running", "Unknown", "Completed", "")
    jobs: list[dict[str, Any]] = []
    for i in range(JOBS):
        on = [f"n{i % 50}"] if i % 30 == 0 else []
        options: dict[str, Any] = {"gpu": 1} if i % 5 == 0 else {}
        minimum = {"cpu": 1, **({"pods": "1"} if i % 2 else {})}
        jobs += gang(
            f"g{i}", 2, on=on, cpu=1, queue=f"q{i % 4}", phase=phases[i % 6], minimum=minimum, created=i, **options
        )
    nodes = [node(f"n{i}", cpu=8, gpu=i % 2, **{"hugepages-2Mi": 0, "ephemeral-storage": "1Gi"}) for i in range(50)]
    queues = [queue(f"q{i}", weight=i, capability={"cpu": str(100 * i)} if i else {}) for i in range(4)]
    world = Answering(nodes, queues, jobs, conf=conf)
    plan = world.cycle()
    assert plan.faults == ()
    assert plan.statements


def bound(plan: ev.Plan) -> list[str]:
    return [operation.key for statement in plan.statements for operation in statement.operations]


@pytest.mark.parametrize(
    "odd",
    [
        [node("odd", cpu=1), *gang("x", 3, on=["odd"] * 3, cpu=2, phase="Running", minimum={"cpu": 1})],
        [node("odd", pods=1), *gang("x", 3, on=["odd"] * 3, cpu=1, phase="Running")],
        [*gang("x", 2, on=["nowhere"] * 2, cpu=2, phase="Running", minimum={"cpu": 9})],
        [queue("q", guarantee={"resource": {"cpu": "1000"}}), *gang("x", 1, cpu=1, queue="q")],
        [queue("q", capability={"cpu": "0", "example.com/card": "0"}), *gang("x", 1, cpu=1, queue="q")],
        [queue("q", weight=0), *gang("x", 1, cpu=1, queue="q", phase="Pending", minimum={"example.com/card": 3})],
        [group("x", members=0, phase="Running"), pod("x-0", group="x", on="n", phase="Succeeded", cpu=3)],
        [group("x", members=5, phase="Running"), pod("x-0", group="x", on="n", cpu=3, deleting=True)],
    ],
    ids=[
        "a node over its room",
        "a node over its pods",
        "pods on a node that is not there",
        "a guarantee above the cluster",
        "a capability of nothing",
        "a queue without weight",
        "a job that is over",
        "a gang that is leaving",
    ],
)
@CONFS
def test_odd_accounts_make_no_fault_and_stop_nobody_else(odd: list[dict[str, Any]], conf: str | None) -> None:
    """#3301, #3127: subtracting more than there is."""
    fine = gang("fine", 1, cpu=1, queue="other", phase="Inqueue")
    world = Answering(node("n", cpu=8), queue("other", guarantee={"resource": {"cpu": "1"}}), fine, odd, conf=conf)
    plan = world.cycle()
    assert plan.faults == ()
    assert "default/fine-0" in bound(plan)
    world.rest()


def test_a_gang_blocked_by_one_pod_shows_an_unschedulable_reason_not_schedulable() -> None:
    """#3976: Volcano gives the pods that would fit the reason Schedulable, so that autoscalers do nothing."""
    world = Answering(node("m", cpu=3), node("n", cpu=3), gang("g", 3, cpu=2))
    world.rest()
    condition = world.state.groups["default/g"].group.status.conditions[0]
    assert (condition.type, condition.status) == ("Unschedulable", "True")
    assert {why.gate for why in world.why("g")} == {"predicate", "gang"}
    first = world.why("g")[0]
    assert (first.reason, first.nodes) == ("Insufficient cpu", 2)


def contradictory(hierarchy: bool, **spec: Any) -> Answering:
    flag = "\n    enableHierarchy: true" if hierarchy else ""
    conf = EVERYTHING.format(shares="capacity" + flag)
    jobs = [gang(f"g{i}", 1, cpu=1, queue="q", phase="Pending", minimum={"cpu": 1}, created=i) for i in range(6)]
    return Answering(node("n", cpu=8), queue("root"), queue("q", capability={"cpu": "2"}, **spec), *jobs, conf=conf)


@pytest.mark.parametrize("hierarchy", [False, True], ids=["flat", "in a tree"])
@pytest.mark.parametrize(
    ("spec", "field"),
    [({"deserved": {"cpu": "4"}}, "deserved"), ({"guarantee": {"resource": {"cpu": "4"}}}, "guarantee.resource")],
    ids=["deserved", "guaranteed"],
)
def test_a_capability_below_what_is_deserved_or_guaranteed_holds_and_is_told(
    spec: dict[str, Any], field: str, hierarchy: bool
) -> None:
    """#4292: accepted without a word."""
    world = contradictory(hierarchy, **spec)
    world.rest()
    assert len(world.placed("g")) == 2
    assert world.session is not None
    execution.take_problems(framework_of(world.session), registry.kinds(), None)
    words = f"spec.{field} cpu 4 is more than the 2 of spec.capability, which holds: raise that or lower this"
    assert world.session.problems["capacity"] == (Problem("Queue", "q", words),)


def test_a_queue_without_contradictions_is_not_told_of() -> None:
    world = contradictory(False, deserved={"cpu": "2"}, guarantee={"resource": {"cpu": "1", "memory": "9Gi"}})
    world.rest()
    assert world.session is not None
    execution.take_problems(framework_of(world.session), registry.kinds(), None)
    assert world.session.problems["capacity"] == ()
