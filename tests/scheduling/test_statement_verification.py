"""Statements against the head state: each reason to drop one, whole, and the room that it gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.dsl import BARE, Manifest, gang, group, node, pod, queue
from tests.world import World
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.statement_verification import differing, evicted_under, stale_statements
from vcd.state.records import PREEMPTABLE, TASK_SPEC, ZONE
from vcd.state.snapshot import Snapshot


def world() -> World:
    return World(node("n", cpu=4), node("m", cpu=4), gang("g", 3, cpu=2), gang("old", 1, on=["n"], cpu=1))


def bind(name: str, to: str = "n", uid: str = "") -> ev.Operation:
    return ev.Operation("bind", f"default/{name}", uid or f"uid-default-{name}", to)


def evict(name: str, uid: str = "") -> ev.Operation:
    return ev.Operation("evict", f"default/{name}", uid or f"uid-default-{name}", "n", "why")


def wait(name: str) -> ev.Operation:
    return ev.Operation("pipeline", f"default/{name}", f"uid-default-{name}", "n")


def verdict(state: World, *statements: tuple[ev.Operation, ...]) -> dict[int, str]:
    parts = [ev.Statement(f"default/group-{number}", "allocate", part) for number, part in enumerate(statements)]
    plan = ev.Plan(statements=tuple(parts))
    head = state.maker.snapshot()
    return dict(stale_statements(plan, head, head))


def test_statements_that_hold_are_not_stale() -> None:
    assert verdict(world(), (bind("g-0"), bind("g-1", "m")), (evict("old-0"),)) == {}


@pytest.mark.parametrize(
    ("operation", "happening", "reason"),
    [
        (bind("g-0"), lambda w: w.remove("Pod", "default/g-0"), "bind default/g-0: the pod is gone"),
        (bind("g-0", uid="other"), lambda w: None, "bind default/g-0: another pod has its name now"),
        (
            bind("g-0"),
            lambda w: w.update_pod("default/g-0", node="m", phase="Running"),
            "bind default/g-0: the pod is no longer pending",
        ),
        (
            bind("g-0"),
            lambda w: w.put(pod("g-0", group="g", cpu=2, deleting=True)),
            "bind default/g-0: the pod is no longer pending",
        ),
        (bind("g-0"), lambda w: w.remove("Node", "n"), "bind default/g-0: node n is gone"),
        (bind("g-0"), lambda w: w.put(node("n", cpu=2)), "bind default/g-0: node n has no room left"),
        (
            bind("g-0"),
            lambda w: w.put(pod("theirs", on="n", cpu=2, spec={"schedulerName": "other"})),
            "bind default/g-0: node n has no room left",
        ),
        (bind("g-0"), lambda w: w.put(node("n", pods=1)), "bind default/g-0: node n has no room left"),
        (evict("old-0"), lambda w: w.remove("Pod", "default/old-0"), "evict default/old-0: the pod is gone"),
        (evict("old-0", uid="other"), lambda w: None, "evict default/old-0: another pod has its name now"),
        (evict("g-0"), lambda w: None, "evict default/g-0: the pod has no node"),
        (
            evict("old-0"),
            lambda w: w.update_pod("default/old-0", phase="Succeeded"),
            "evict default/old-0: the pod has ended",
        ),
        (wait("g-0"), lambda w: w.remove("Pod", "default/g-0"), "pipeline default/g-0: the pod is gone"),
        (wait("g-0"), lambda w: w.remove("Node", "n"), "pipeline default/g-0: node n is gone"),
        (
            wait("g-0"),
            lambda w: w.update_pod("default/g-0", node="m", phase="Running"),
            "pipeline default/g-0: the pod is no longer pending",
        ),
    ],
)
def test_what_no_longer_holds_is_stale(
    operation: ev.Operation, happening: Callable[[World], None], reason: str
) -> None:
    state = world()
    happening(state)
    assert verdict(state, (operation,)) == {0: reason}


MOVED, MARKED = "it is of another group now", "its labels, or annotations that plugins heed, have changed"
KEPT = {"volcano.sh/preemptable": "false"}


@pytest.mark.parametrize(
    ("operation", "there_now", "reason"),
    [
        (bind("g-0"), pod("g-0", group="old", cpu=2), MOVED),
        (bind("g-0"), pod("g-0", cpu=2), MOVED),
        (bind("g-0"), pod("g-0", group="fresh", cpu=2), MOVED),
        (bind("g-0"), pod("g-0", group="g", cpu=3), "it asks for more now"),
        (bind("g-0"), pod("g-0", group="g", cpu=2, labels={"app": "web"}), MARKED),
        (bind("g-0"), pod("g-0", group="g", cpu=2, annotations={TASK_SPEC: "ps"}), MARKED),
        (bind("g-0"), pod("g-0", group="g", cpu=2, annotations={ZONE: "*"}), MARKED),
        (bind("g-0"), pod("g-0", group="g", cpu=2, annotations={PREEMPTABLE: "true"}), MARKED),
        (bind("g-0"), pod("g-0", group="g", cpu=1), None),
        (bind("g-0"), pod("g-0", group="g", cpu=2, annotations={"seen": "yes"}), None),
        (wait("g-0"), pod("g-0", group="g", cpu=3), "it asks for more now"),
        (evict("old-0"), pod("old-0", group="old", on="n", cpu=1, annotations=KEPT), MARKED),
        (evict("old-0"), pod("old-0", group="old", on="n", cpu=1, labels={"protected": "yes"}), MARKED),
        (evict("old-0"), pod("old-0", group="g", on="n", cpu=1), MOVED),
        (evict("old-0"), pod("old-0", group="old", on="n", cpu=2), None),
    ],
)
def test_a_pod_that_was_changed_meanwhile_is_decided_about_anew(
    operation: ev.Operation, there_now: Manifest, reason: str | None
) -> None:
    state = world()
    base = state.maker.snapshot()
    state.put(there_now)
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (operation,)),))
    stale = dict(stale_statements(plan, state.maker.snapshot(), base))
    assert stale == ({} if reason is None else {0: f"{operation.verb} {operation.key}: {reason}"})


def test_a_pod_that_was_made_again_among_many_is_another() -> None:
    state = world()
    base = state.maker.snapshot()
    state.remove("Pod", "default/g-0")
    made = pod("g-0", group="g", cpu=2)
    made["metadata"]["uid"] = "another"
    state.put(gang("many", 300, members=1), made)
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    stale = dict(stale_statements(plan, state.maker.snapshot(), base))
    assert stale == {0: "bind default/g-0: another pod has its name now"}


def _gang_of_two(members: int = 1, **spec: Any) -> Manifest:
    return next(gang("v", 2, members=members, queue="inner", on=["n", "n"], cpu=1, group_spec=spec))


OUTER, INNER = queue("outer", parent="root"), queue("inner", parent="outer")


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (_gang_of_two(2), "PodGroup default/v has changed since the snapshot"),
        (_gang_of_two(1, minTaskMember={"w": 2}), "PodGroup default/v has changed since the snapshot"),
        ({**_gang_of_two(), "status": {"phase": "Running"}}, None),
        (queue("inner", parent="outer", reclaimable=False), "Queue inner has changed since the snapshot"),
        (queue("inner", parent="outer", state="Closed"), "Queue inner has changed since the snapshot"),
        (queue("inner", parent="outer", state=""), None),
        ({**INNER, "status": {"state": "Open", "allocated": {"cpu": "2"}}}, None),
        (queue("outer", parent="root", deserved={"cpu": "9"}), "Queue outer has changed since the snapshot"),
        (queue("outer", parent="root", weight=2), "Queue outer has changed since the snapshot"),
        (queue("apart", reclaimable=False), None),
        (group("g", members=2, queue="default"), None),
    ],
)
@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangreclaim"])
def test_a_victim_goes_only_while_its_group_and_queues_are_as_they_were(
    action: str, now: Manifest, reason: str | None
) -> None:
    state = World(node("n", cpu=4), OUTER, INNER, queue("apart"), gang("v", 2, members=1, queue="inner", on=["n", "n"]))
    state.put(group("g"), pod("g-0", group="g", cpu=1), pod("g-1", group="g", cpu=1))
    base = state.maker.snapshot()
    state.put(now)
    both = ev.Statement("default/g", action, (evict("v-0"), wait("g-0")))
    plan = ev.Plan(statements=(both, ev.Statement("default/h", action, (bind("g-1"),))))
    assert dict(stale_statements(plan, state.maker.snapshot(), base)) == ({} if reason is None else {0: reason})


@pytest.mark.parametrize("gone", [("PodGroup", "default/v"), ("Queue", "outer")])
def test_a_victim_whose_group_or_queue_is_gone_is_decided_about_anew(gone: tuple[str, str]) -> None:
    state = World(node("n", cpu=4), OUTER, INNER, gang("v", 2, members=1, queue="inner", on=["n", "n"]), gang("g", 1))
    base = state.maker.snapshot()
    state.remove(*gone)
    plan = ev.Plan(statements=(ev.Statement("default/g", "reclaim", (evict("v-0"), wait("g-0"))),))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_a_victim_is_protected_by_the_annotations_of_its_group() -> None:
    state = World(node("n", cpu=4), gang("v", 2, members=1, on=["n", "n"]), gang("g", 1))
    base = state.maker.snapshot()
    changed = next(gang("v", 2, members=1))
    changed["metadata"].setdefault("annotations", {})["volcano.sh/preemptable"] = "false"
    state.put(changed)
    plan = ev.Plan(statements=(ev.Statement("default/g", "preempt", (evict("v-0"), wait("g-0"))),))
    reason = "PodGroup default/v has changed since the snapshot"
    assert dict(stale_statements(plan, state.maker.snapshot(), base)) == {0: reason}


def test_a_victim_without_a_group_is_protected_by_no_group() -> None:
    state = World(node("n", cpu=4), gang("g", 1), gang("v", 1, members=1), pod("alone", on="n", phase="Running"))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "shuffle", (evict("alone"),)),))
    assert evicted_under(base, plan) == {}
    state.put(group("v", members=2))
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_a_victim_whose_group_comes_back_goes() -> None:
    """The snapshot had no PodGroup that could protect it."""
    state = World(node("n", cpu=4), gang("v", 1, on=["n"]), gang("g", 1))
    state.remove("PodGroup", "default/v")
    base = state.maker.snapshot()
    state.put(group("v"))
    plan = ev.Plan(statements=(ev.Statement("default/g", "reclaim", (evict("v-0"), wait("g-0"))),))
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_an_object_that_the_snapshot_lacks_differs_from_nothing() -> None:
    """Its watch has yet to show it, and then the pods that it decides about."""
    other = World(queue("new")).maker.snapshot().queues["new"].queue
    assert differing(world().maker.snapshot(), {("Queue", "new"): other, ("PodGroup", "default/new"): None}) == {}


@pytest.mark.parametrize("operation", [bind("g-0"), wait("g-0")])
def test_no_pod_is_placed_in_a_queue_that_was_closed(operation: ev.Operation) -> None:
    state = World(node("n", cpu=4), queue("q"), gang("g", 1, queue="q"), gang("old", 1, queue="q", on=["n"]))
    base = state.maker.snapshot()
    state.put(queue("q", state="Closed"))
    only_evicts = ev.Statement("default/old", "shuffle", (evict("old-0"),))
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (operation,)),))
    assert stale_statements(plan, state.maker.snapshot(), base) == ((0, "queue q was closed"),)
    closed = state.maker.snapshot()
    assert stale_statements(ev.Plan(statements=(only_evicts,)), closed, closed) == ()


def test_a_queue_that_was_closed_before_or_came_closed_refuses_nobody_anew() -> None:
    """What was decided knew of the one, and nothing is in the other."""
    state = World(node("n", cpu=4), queue("q", state="Closed"), gang("g", 1, queue="q"))
    base = state.maker.snapshot()
    state.put(queue("late", state="Closed"))
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_one_operation_that_does_not_hold_drops_its_statement_whole() -> None:
    state = world()
    state.remove("Pod", "default/g-2")
    assert verdict(state, (bind("g-0"), bind("g-1", "m"), bind("g-2", "m"))) == {0: "bind default/g-2: the pod is gone"}


def test_a_dropped_statement_gives_its_room_back() -> None:
    """n has 3 CPU left: the dropped statement's 2 are there for the next one."""
    state = world()
    state.remove("Pod", "default/g-2")
    assert list(verdict(state, (bind("g-0"), bind("g-2", "m")), (bind("g-1"),))) == [0]


def test_statements_take_room_from_those_after_them() -> None:
    assert verdict(world(), (bind("g-0"),), (bind("g-1"),)) == {1: "bind default/g-1: node n has no room left"}


def test_who_waits_for_room_needs_none_now() -> None:
    state = world()
    state.put(node("n", cpu=1))
    assert verdict(state, (wait("g-0"),)) == {}


def test_a_pod_that_is_going_away_still_holds_its_room() -> None:
    state = world()
    state.put(pod("old-0", group="old", on="n", cpu=3, deleting=True))
    assert list(verdict(state, (bind("g-0"),))) == [0]


def test_a_pod_that_ended_holds_none() -> None:
    state = world()
    state.put(pod("old-0", group="old", on="n", cpu=3, phase="Succeeded"))
    assert verdict(state, (bind("g-0"), bind("g-1"))) == {}


def test_a_bind_that_is_on_its_way_holds_its_room() -> None:
    """An earlier session's intent is in the state, and counts."""
    state = World(node("n", cpu=4), gang("a", 1, cpu=3))
    state.decide()
    state.put(group("g"), pod("g-0", group="g", cpu=2))
    assert list(verdict(state, (bind("g-0"),))) == [0]


def test_room_that_is_over_in_what_is_not_asked_for_is_room() -> None:
    state = World(node("n", cpu=4, gpu=1), gang("old", 1, on=["n"], cpu=1, gpu=2), gang("g", 1, cpu=2))
    assert verdict(state, (bind("g-0"),)) == {}


def test_a_stale_statement_is_logged_and_not_made() -> None:
    state = World(node("n", cpu=4), gang("g", 1, cpu=3))
    snapshot = state.maker.snapshot()
    plan = state.decide()
    assert [op.key for s in plan.statements for op in s.operations] == ["default/g-0"]
    assert "default/g-0" in state.state.intents
    assert snapshot.sequence < state.state.sequence


# --- gangs that lost a pod while the session was decided --------------------------------------------------------------


def half_refused(members: int) -> World:
    """A gang of two of which one bind was refused, while the other is still under way."""
    state = World(node("n", cpu=4), gang("g", 2, members=members, cpu=1))
    state.decide()
    refused(state, "default/g-0")
    return state


def refused(state: World, key: str = "default/g-1") -> None:
    intent = state.state.intents[key]
    state.happen(ev.OperationDone(1, intent.statement, intent.operation, "failed", "refused"))


@pytest.mark.parametrize(
    ("members", "happening", "reason"),
    [
        (2, refused, "its gang has lost a pod on which its minimum rests"),
        (2, lambda w: w.remove("Pod", "default/g-1"), "its gang has lost a pod on which its minimum rests"),
        (2, lambda w: w.update_pod("default/g-1", node="n", phase="Running"), None),
        (2, lambda w: w.update_pod("default/g-1", node="n", phase="Succeeded"), None),
        (1, refused, None),
    ],
)
def test_a_gang_that_lost_a_pod_on_which_its_minimum_rests_gets_no_more(
    members: int, happening: Callable[[World], None], reason: str | None
) -> None:
    state = half_refused(members)
    base = state.maker.snapshot()
    plan = decided(base, BARE)
    happening(state)
    stale = dict(stale_statements(plan, state.maker.snapshot(), base))
    assert stale == ({} if reason is None else {0: reason})


PARTS: dict[str, Any] = {"subGroupPolicy": [{"name": "parts", "matchLabelKeys": ["part"], "subGroupSize": 1}]}


@pytest.mark.parametrize("spec", [{"minMember": 3}, {"minTaskMember": {"worker": 2}}, PARTS, {"queue": "other"}])
def test_a_gang_whose_minimum_was_edited_is_decided_on_anew(spec: dict[str, Any]) -> None:
    state = half_refused(2)
    base = state.maker.snapshot()
    plan = decided(base, BARE)
    state.put(group("g", **{"minMember": 2, **spec}))
    stale = dict(stale_statements(plan, state.maker.snapshot(), base))
    assert stale == ({} if "queue" in spec else {0: "the minimum of its gang is another one"})


@pytest.mark.parametrize("spec", [{"minTaskMember": {"worker": 1}}, PARTS], ids=["roles", "sub-groups"])
def test_a_gang_with_minima_of_parts_may_lose_none(spec: dict[str, Any]) -> None:
    state = half_refused(1)
    state.put(group("g", **spec))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    refused(state)
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


# --- queues above others ----------------------------------------------------------------------------------------------

TREE = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: capacity, enableHierarchy: true}]
"""


@pytest.mark.parametrize("conf", [TREE, TREE.replace(", enableHierarchy: true", "")])
@pytest.mark.parametrize(
    ("happening", "dropped"),
    [
        (lambda w: w.put(queue("above", parent="root", capability={"cpu": "2"})), True),
        (lambda w: w.put(queue("q", parent="narrow")), True),
        (lambda w: w.put(gang("more", 2, queue="beside", on=["n", "n"], cpu=4)), True),
        (lambda w: w.put(gang("more", 1, queue="narrow", on=["n"], cpu=1)), False),
        (lambda w: w.put(queue("late", parent="above")), False),
        (lambda w: w.put(queue("late", parent="not there")), False),
        (lambda w: w.put(node("m")), False),
    ],
)
def test_queues_above_stay_within_their_capability(
    happening: Callable[[World], None], dropped: bool, conf: str
) -> None:
    state = World(
        *[node("n", cpu=32), queue("root"), queue("above", parent="root", capability={"cpu": "8"})],
        *[queue("q", parent="above"), queue("beside", parent="above")],
        queue("narrow", parent="root", capability={"cpu": "2"}),
        gang("g", 4, queue="q", cpu=2),
        conf=conf,
    )
    base = state.maker.snapshot()
    plan = decide(base, read_policy(conf), 0, 0)
    happening(state)
    stale = dict(stale_statements(plan, state.maker.snapshot(), base))
    assert list(stale) == ([0] if dropped else [])


def test_a_queue_above_that_nobody_holds_to_its_capability_drops_nothing() -> None:
    conf = TREE.replace(", enableHierarchy: true", "")
    above = queue("above", parent="root", capability={"cpu": "4"})
    objects = [node("n", cpu=32), queue("root"), above, queue("q", parent="above"), queue("beside", parent="above")]
    state = World(*objects, gang("g", 4, queue="q", cpu=2), conf=conf)
    base = state.maker.snapshot()
    plan = decide(base, read_policy(conf), 0, 0)
    state.put(gang("more", 1, queue="beside", on=["n"], cpu=1))
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_queues_without_a_parent_are_below_root() -> None:
    root = queue("root", capability={"cpu": "8"})
    state = World(node("n", cpu=32), root, queue("q"), queue("beside"), gang("g", 2, queue="q", cpu=2))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"), bind("g-1"))),))
    assert stale_statements(plan, base, base) == ()
    state.put(gang("more", 1, queue="beside", on=["n"], cpu=6))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_what_only_waits_for_room_takes_nothing_of_a_queue_above() -> None:
    """The plan bound as much as the queue above may have, and what it pipelined does not count: the queue is held."""
    state = World(
        *[node("n", cpu=32), queue("above", parent="root", capability={"cpu": "8"})],
        *[queue("q", parent="above"), queue("beside", parent="above"), gang("g", 5, queue="q", cpu=2)],
    )
    base = state.maker.snapshot()
    binds, waits = tuple(bind(f"g-{number}") for number in range(4)), (wait("g-4"),)
    plan = ev.Plan(statements=tuple(ev.Statement("default/g", "allocate", part) for part in (binds, waits)))
    assert stale_statements(plan, base, base) == ()
    state.put(gang("more", 1, queue="beside", on=["n"], cpu=1))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0, 1]


def test_a_resource_that_a_queue_above_does_not_limit_holds_it_to_nothing() -> None:
    """Zero is no limit to hierarchical capacity: what is beyond it tells nothing of the other resources."""
    above = queue("above", parent="root", capability={"cpu": "8", "nvidia.com/gpu": "0"})
    state = World(
        *[node("n", cpu=32, gpu=4), above, queue("q", parent="above"), queue("beside", parent="above")],
        *[gang("has", 1, queue="beside", on=["n"], cpu=1, gpu=1), gang("g", 3, queue="q", cpu=2)],
    )
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", tuple(bind(f"g-{n}") for n in range(3))),))
    state.put(gang("more", 1, queue="beside", on=["n"], cpu=2))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


# --- queues that a plugin limits --------------------------------------------------------------------------------------

T4 = {"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.memory": "15360"}
CARDS = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: capacity-card}]
"""


GPU: dict[str, Any] = {"cpu": 1, "nvidia.com/gpu": 1}


def decided(snapshot: Snapshot, conf: str) -> ev.Plan:
    plan = decide(snapshot, read_policy(conf), 0, 0)
    assert [len(statement.operations) for statement in plan.statements] == [1]
    return plan


def limited(quota: str = '{"T4": 1, "A10": 8}') -> dict[str, Any]:
    manifest = queue("q")
    manifest["metadata"]["annotations"] = {"volcano.sh/card.quota": quota}
    return manifest


def cards_world(labels: dict[str, str] = T4) -> World:
    card = node("n", cpu=8, labels=labels, **{"nvidia.com/gpu": 4})
    return World(card, limited(), gang("g", 1, queue="q", **GPU), group("other", queue="default"), conf=CARDS)


INTO_LATE = group("g", queue="late")


def theirs(name: str = "theirs", in_group: str = "their", **changes: Any) -> list[dict[str, Any]]:
    return [group(in_group, queue="q"), pod(name, group=in_group, on="n", phase="Running", **GPU, **changes)]


@pytest.mark.parametrize(
    ("happening", "reason"),
    [
        (lambda w: w.put(theirs()), "what its queue holds, or may hold, has changed"),
        (lambda w: w.put(limited('{"T4": 0}')), "what its queue holds, or may hold, has changed"),
        (lambda w: w.put(queue("q")), "what its queue holds, or may hold, has changed"),
        (
            lambda w: w.put(node("n", cpu=8, labels={**T4, "nvidia.com/gpu.product": "A10"}, **{"nvidia.com/gpu": 4})),
            "the labels of node n have changed",
        ),
        (lambda w: w.put(pod("idle", group="other", on="n", phase="Running", cpu=1)), None),
        (lambda w: w.put(node("new", cpu=1)), None),
        (lambda w: w.put(pod("more", group="g", **GPU)), None),
    ],
)
def test_a_queue_that_a_plugin_limits_is_decided_on_anew(
    happening: Callable[[World], None], reason: str | None
) -> None:
    state = cards_world()
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    happening(state)
    stale = dict(stale_statements(plan, state.maker.snapshot(), base))
    assert stale == ({} if reason is None else {0: f"bind default/g-0: {reason}"})


def test_a_pod_that_only_started_changes_nothing() -> None:
    state = cards_world()
    state.put(limited('{"T4": 2}'), [group("their", queue="q"), pod("theirs", group="their", on="n", **GPU)])
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.update_pod("default/theirs", node="n", phase="Running")
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_nodes_that_come_and_go_move_nobody() -> None:
    state = cards_world()
    state.put(limited('{"T4": 2}'), node("b", cpu=1), theirs())
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.put(node("a", cpu=1))
    state.remove("Node", "b")
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_a_label_of_a_node_that_the_queue_uses_counts_for_all_of_its_binds() -> None:
    state = cards_world()
    old = node("old", cpu=8, labels={**T4, "nvidia.com/gpu.product": "A10"}, **{"nvidia.com/gpu": 4})
    state.put(old, group("their", queue="q"), pod("theirs", group="their", on="old", phase="Running", **GPU))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    state.put(node("old", cpu=8, labels=T4, **{"nvidia.com/gpu": 4}))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_a_pod_that_came_in_the_place_of_another_is_another() -> None:
    state = cards_world()
    state.put(limited('{"T4": 2}'), theirs())
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.remove("Pod", "default/theirs")
    state.put(theirs("new"))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_a_group_that_came_into_the_queue_brings_its_pods() -> None:
    state = cards_world()
    state.put(group("their", queue="default"), pod("theirs", group="their", on="n", phase="Running", **GPU))
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.put(group("their", queue="q"))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


@pytest.mark.parametrize(
    ("before", "happening"),
    [
        (limited(), lambda w: w.remove("Queue", "q")),
        (queue("q"), lambda w: w.put(limited())),
        (queue("q"), lambda w: w.put({**limited(), "metadata": {**limited()["metadata"], "name": "late"}}, INTO_LATE)),
    ],
    ids=["deleted", "limited from now on", "the group moves to a new one"],
)
def test_limits_that_come_and_go_are_decided_on_anew(before: Manifest, happening: Callable[[World], None]) -> None:
    state = cards_world()
    state.put(before)
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    happening(state)
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_a_queue_without_such_limits_may_change_however_many_pods_come() -> None:
    state = cards_world()
    state.put(gang("free", 1, cpu=1))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/free", "allocate", (bind("free-0"),)),))
    state.put(pod("idle", group="other", on="n", phase="Running", cpu=1), gang("many", 300, members=1, cpu=1))
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_a_group_that_moves_between_two_limited_queues_counts_for_the_other_one() -> None:
    state = cards_world()
    second = limited()
    second["metadata"]["name"] = "r"
    state.put(second, group("their", queue="r"), pod("theirs", group="their", on="n", phase="Running", **GPU))
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.put(group("their", queue="q"))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_a_pod_that_another_scheduler_bound_elsewhere_counts_as_other_cards() -> None:
    """One that was about to be bound to a node of other cards when the plan was decided."""
    state = cards_world()
    state.put(limited('{"T4": 1, "A10": 8}'), node("b", cpu=8, labels={**T4, "nvidia.com/gpu.product": "A10"}, gpu=4))
    state.put(group("their", queue="q"), pod("theirs", group="their", on="b", **GPU))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    assert stale_statements(plan, base, base) == ()
    state.update_pod("default/theirs", node="n")
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


@pytest.mark.parametrize("gpu", [4, None], ids=["labels", "resources"])
def test_a_node_counts_anew_when_its_labels_or_the_names_of_its_resources_change(gpu: int | None) -> None:
    state = cards_world()
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    labels = T4 if gpu is None else {**T4, "nvidia.com/gpu.product": "A10"}
    resources = {"nvidia.com/gpu": 4, **({"nvidia.com/gpu.shared": 4} if gpu is None else {})}
    state.put(node("n", cpu=8, labels=labels, **resources))
    assert dict(stale_statements(plan, state.maker.snapshot(), base)) == {
        0: "bind default/g-0: the labels of node n have changed"
    }


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_a_capability_that_became_zero_is_decided_on_anew(resource: str) -> None:
    """To some plugins zero is none, to others no limit: who decides next knows."""
    state = World(node("n"), queue("q", capability={"cpu": 2}), gang("g", 1, queue="q", cpu=1, memory=1), conf=CARDS)
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.put(queue("q", capability={resource: 0}))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]
    now = state.maker.snapshot()
    state.put(node("late"))
    assert stale_statements(plan, state.maker.snapshot(), now) == ()


@pytest.mark.parametrize(
    ("before", "now", "is_stale"),
    [
        ({"cpu": 0, "nvidia.com/gpu": 3}, {"cpu": 0, "nvidia.com/gpu": 2}, False),
        ({"memory": 0, "nvidia.com/gpu": 3}, {"memory": 0, "nvidia.com/gpu": 2}, False),
        ({"nvidia.com/gpu": 0, "cpu": 3}, {"nvidia.com/gpu": 0, "cpu": 2}, True),
        ({"cpu": 3}, {"cpu": 2, "pods": 0}, False),
    ],
    ids=["cpu", "memory", "another resource", "pods"],
)
def test_a_zero_that_was_there_before_limits_as_the_plan_knew(
    before: dict[str, int], now: dict[str, int], is_stale: bool
) -> None:
    """No plugin holds a queue to a number of pods."""
    state = World(node("n", gpu=4), queue("q", capability=before), gang("g", 1, queue="q", cpu=1, memory=1, gpu=1))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    state.put(queue("q", capability=now))
    assert (stale_statements(plan, state.maker.snapshot(), base) != ()) == is_stale


def test_a_pod_that_ended_takes_nothing_of_its_queue() -> None:
    ended = [group("ended", queue="q"), pod("ended-0", group="ended", on="n", phase="Succeeded", cpu=1)]
    state = World(node("n"), queue("q", capability={"cpu": 3}), ended, gang("g", 1, queue="q", cpu=2))
    base = state.maker.snapshot()
    plan = ev.Plan(statements=(ev.Statement("default/g", "allocate", (bind("g-0"),)),))
    state.put(queue("q", capability={"cpu": 2}))
    assert stale_statements(plan, state.maker.snapshot(), base) == ()


def test_a_group_that_is_gone_before_its_pods_frees_nothing() -> None:
    state = World(node("n"), queue("q", capability={"cpu": 2}), gang("old", 1, queue="q", cpu=1, on=["n"]), conf=CARDS)
    state.put(gang("g", 1, queue="q", cpu=1))
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.remove("PodGroup", "default/old")
    assert stale_statements(plan, state.maker.snapshot(), base) == ()
    state.put(gang("new", 1, queue="q", cpu=1, on=["n"]))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]


def test_an_orphan_that_was_not_there_counts_for_its_queue() -> None:
    state = cards_world()
    base = state.maker.snapshot()
    plan = decided(base, CARDS)
    state.put(pod("late", group="unknown", on="n", labels={"volcano.sh/queue-name": "q"}, **GPU))
    assert list(dict(stale_statements(plan, state.maker.snapshot(), base))) == [0]
