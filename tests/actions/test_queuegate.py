"""The queue's own scheduling gate: who waits at it is let through once its queue has room, and holds its quota then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, flat, gang, node, planned, pod, queue
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.statement_verification import stale_statements
from vcd.state.cluster_state import ClusterState

GATE = "scheduling.volcano.sh/queue-allocation-gate"
TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: {quota}
"""
ACTIONS = ["enqueue, allocate, backfill", "allocate, preempt, reclaim", "backfill, reclaim, allocate"]


def conf(actions: str = ACTIONS[0], quota: str = "capacity") -> str:
    return f'actions: "{actions}"{TIERS.format(quota=quota)}'


def at_gate(name: str, size: int = 1, *gates: str, opted: str = "true", **options: Any) -> list[Manifest]:
    """A job of queue q whose pods wait at the queue's gate (and others), and say that they want it lifted."""
    options.setdefault("queue", "q")
    held = {"schedulingGates": [{"name": gate} for gate in (GATE, *gates)], **options.pop("spec", {})}
    marks = {GATE: opted} if opted else {}
    return list(gang(name, size, annotations=marks, spec=held, **options))


def ungated(plan: ev.Plan) -> list[str]:
    return [o.key.partition("/")[2] for s in plan.statements for o in s.operations if o.verb == "ungate"]


def lift(world: World, name: str, *, done: bool = True) -> None:
    """The API server takes the gate away, and the watch shows it."""
    pod_before = world.state.pod(f"default/{name}")
    assert pod_before is not None
    manifest = pod(
        name, group=pod_before.metadata.annotations["scheduling.k8s.io/group-name"], annotations={GATE: "true"}, cpu=1
    )
    world.put(manifest)
    if done:
        world.happen(ev.OperationDone(world.state.session, 0, 0, "done"))


@pytest.mark.parametrize("quota", ["capacity", "proportion"])
@pytest.mark.parametrize("actions", ACTIONS)
def test_it_is_lifted_when_the_queue_has_room(actions: str, quota: str) -> None:
    plan = planned(node("n"), queue("q", capability={"cpu": "4"}), at_gate("g", 2, cpu=2), conf=conf(actions, quota))
    assert (plan.ungated, plan.binds) == (["default/g-0", "default/g-1"], {})
    assert plan.why["default/g"][0]["gate"] == "gated"
    assert "is being lifted" in plan.why["default/g"][0]["reason"]


@pytest.mark.parametrize("amounts", [{"cpu": 2}, {"gpu": 2}, {"memory": 2}])
def test_no_more_are_let_through_than_the_queue_has_room_for(amounts: dict[str, Any]) -> None:
    (name,) = amounts
    capability = {"cpu": "5", "memory": "5Gi", "nvidia.com/gpu": "5"}
    held = [at_gate("a", 1, **amounts), at_gate("b", 1, created=1, **amounts), at_gate("c", 1, created=2, **amounts)]
    plan = planned(node("n", gpu=8), queue("q", capability=capability), *held, conf=conf())
    assert plan.ungated == ["default/a-0", "default/b-0"], name


def test_without_a_node_for_it_it_is_lifted_all_the_same() -> None:
    """So that whoever adds nodes sees what is missing."""
    plan = planned(queue("q"), at_gate("g", 1, cpu=2), conf=conf(quota="nodeorder"))
    assert plan.ungated == ["default/g-0"]


def test_what_asks_for_nothing_is_let_through_by_backfill() -> None:
    assert planned(node("n"), queue("q"), at_gate("g", 1), conf=conf()).ungated == ["default/g-0"]


@pytest.mark.parametrize("opted", ["", "false", "True"])
def test_without_the_annotation_nobody_lifts_it_and_the_reason_says_so(opted: str) -> None:
    plan = planned(node("n"), queue("q"), at_gate("g", 1, opted=opted, cpu=1), conf=conf())
    assert plan.ungated == []
    assert "an annotation is missing" in plan.why["default/g"][0]["reason"]


@pytest.mark.parametrize("actions", ACTIONS)
def test_a_gate_of_somebody_else_keeps_it_and_reserves_nothing(actions: str) -> None:
    other = at_gate("held", 2, "example.com/wait", cpu=2)
    free = gang("free", 2, queue="q", cpu=2, created=5)
    plan = planned(node("n"), queue("q", capability={"cpu": "4"}), other, free, conf=conf(actions))
    assert (plan.ungated, sorted(plan.binds)) == ([], ["default/free-0", "default/free-1"])


@pytest.mark.parametrize("quota", ["capacity", "proportion", "capacity-card", "overcommit"])
@pytest.mark.parametrize("minimum", [None, {"cpu": 6}])
@pytest.mark.parametrize("opted", ["", "false"])
def test_neither_does_a_gate_that_nobody_will_lift(opted: str, minimum: dict[str, Any] | None, quota: str) -> None:
    """Neither by its pods nor, once its group is admitted, by the minimum that the group states."""
    held = at_gate("held", 1, opted=opted, cpu=6, minimum=minimum)
    free = gang("free", 1, queue="q", cpu=6, created=5, phase="Pending", minimum={"cpu": 6})
    plan = planned(node("n"), queue("q", capability={"cpu": "6"}), held, free, conf=conf(quota=quota))
    assert (plan.ungated, list(plan.binds)) == ([], ["default/free-0"])


def test_one_that_will_be_lifted_holds_what_its_group_was_admitted_for() -> None:
    held = at_gate("held", 1, cpu=6, minimum={"cpu": 6})
    free = gang("free", 1, queue="q", cpu=6, created=5, phase="Pending", minimum={"cpu": 6})
    plan = planned(node("n"), queue("q", capability={"cpu": "6"}), held, free, conf=conf())
    assert (plan.ungated, plan.binds) == (["default/held-0"], {})


def test_nor_a_pod_that_waits_for_what_is_not_supported() -> None:
    claims = {"resourceClaims": [{"name": "gpu"}]}
    held = [
        at_gate("held", 1, cpu=2, spec=claims),
        gang("odd", 1, queue="q", cpu=2, annotations={GATE: "true"}, spec=claims),
    ]
    free = gang("free", 1, queue="q", cpu=2, created=5)
    plan = planned(node("n"), queue("q", capability={"cpu": "2"}), *held, free, conf=conf())
    assert (plan.ungated, list(plan.binds)) == ([], ["default/free-0"])


# --- over sessions --------------------------------------------------------------------------------------------------


def world(*objects: Any) -> World:
    return World(node("n"), queue("q", capability={"cpu": "2"}), *objects, conf=conf())


def test_it_is_asked_for_once_and_the_pod_goes_when_the_gate_is_gone() -> None:
    one = world(at_gate("g", 1, cpu=1))
    assert ungated(one.decide()) == ["g-0"]
    assert ungated(one.decide()) == []
    lift(one, "g-0")
    assert one.state.intents == {}
    one.cycle()
    assert one.placed() == {"g-0": "n"}


def test_between_the_decision_and_the_watch_it_holds_its_quota() -> None:
    one = world(at_gate("g", 2, cpu=1))
    assert ungated(one.decide()) == ["g-0", "g-1"]
    one.put(flat([gang("late", 1, queue="q", cpu=1)]))
    one.decide()
    assert one.placed() == {}
    assert "no room" in one.reasons("late")
    for name in ("g-0", "g-1"):
        lift(one, name, done=False)
    one.cycle()
    assert sorted(one.placed()) == ["g-0", "g-1"]


def test_who_waits_for_the_quota_that_it_holds_is_told_so() -> None:
    one = world(at_gate("g", 1, cpu=2), gang("late", 1, queue="q", cpu=1, created=5))
    one.cycle()
    (why,) = [told for told in one.why("late") if told.gate == "queue"]
    assert why.detail == {"queue": "q", "asks cpu": "1", "capability cpu": "2", "reserved cpu": "2"}


@pytest.mark.parametrize("result", ["failed", "conflict", "gone"])
def test_it_is_tried_again_when_that_failed(result: ev.Result) -> None:
    one = world(at_gate("g", 1, cpu=1))
    one.decide()
    one.happen(ev.OperationDone(one.state.session, 0, 0, result))
    assert ungated(one.decide()) == ["g-0"]
    assert one.state.immunity.evicted == {} and one.state.stranded == {}


def test_gated_and_ungated_pods_do_not_block_each_other_for_ever() -> None:
    """Room for two: the gated ones are let through and go, then the others as they end."""
    one = world(at_gate("g", 2, cpu=1), gang("free", 2, queue="q", cpu=1, created=5))
    for _ in range(3):
        for name in ungated(one.cycle()):
            lift(one, name, done=False)
    assert sorted(one.placed()) == ["g-0", "g-1"]
    one.remove("Pod", "default/g-0", "default/g-1")
    one.cycle()
    assert sorted(one.placed()) == ["free-0", "free-1"]


def test_a_restart_in_between_knows_of_it() -> None:
    one = world(at_gate("g", 1, cpu=1))
    one.decide()
    loaded = ClusterState.load(one.state.dump())
    assert loaded.lifting == one.state.lifting == {"default/g-0": "uid-default-g-0"}
    assert loaded.dump() == one.state.dump()


def test_one_whose_gate_went_meanwhile_is_not_touched() -> None:
    one = world(at_gate("g", 1, cpu=1))
    snapshot = one.maker.snapshot()
    plan = one.decide()
    lift(one, "g-0", done=False)
    assert stale_statements(plan, one.maker.snapshot(), snapshot) == (
        (0, "ungate default/g-0: its scheduling gate is lifted already"),
    )
