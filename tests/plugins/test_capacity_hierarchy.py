"""capacity with ``enableHierarchy``: a tree of queues, gates all the way up, and reclaim across its branches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import Manifest, gang, group, moment, node, planned, quantities, queue, session_of
from tests.plugins.opened import job_of, let_go, plugin_of, queue_of, task_of, tasks_of
from tests.plugins.test_capacity import cpus, first, gauge, may_reclaim, names, reclaimed, wants
from tests.reasons import told
from tests.sizes import examples
from tests.world import World
from vcd.model.reasons import Reason
from vcd.scheduling.eviction.victim_search import EvictionContext
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.capacity import CapacityPlugin
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

A100 = "nvidia.com/a100"


def tree(level: int = 0, actions: str = "allocate") -> str:
    """A configuration; gang only says who starves."""
    return f"""
actions: "{actions}"
tiers:
- plugins:
  - name: priority
    enableJobStarving: false
  - name: gang
    enableReclaimable: false
  - name: predicates
  - name: capacity
    enableHierarchy: true
    arguments:
      ancestorReclaimLevel: {level}
"""


def amounts(value: int | dict[str, Any]) -> dict[str, str]:
    return quantities({"cpu": value} if isinstance(value, int) else value)


def q(
    name: str,
    parent: str = "root",
    *,
    deserved: int | dict[str, Any] | None = None,
    capability: int | dict[str, Any] | None = None,
    guarantee: int | dict[str, Any] | None = None,
    **spec: Any,
) -> Manifest:
    """A queue below another; plain numbers are cpus."""
    if deserved is not None:
        spec["deserved"] = amounts(deserved)
    if capability is not None:
        spec["capability"] = amounts(capability)
    if guarantee is not None:
        spec["guarantee"] = {"resource": amounts(guarantee)}
    return queue(name, parent=parent, **spec)


ROOT = queue("root")


def opened(*objects: Any, room: int = 16, level: int = 0) -> Session:
    return session_of(node("n", cpu=room), ROOT, *objects, conf=tree(level))


def plugin(session: Session) -> CapacityPlugin:
    return plugin_of(session, CapacityPlugin)


# --- amounts from the root down -------------------------------------------------------------------------------------


def test_what_a_queue_has_counts_for_all_its_ancestors() -> None:
    session = opened(
        q("dept"), q("team", "dept"), q("other"), wants("team", 3, running=2), wants("other", 1, running=1)
    )
    assert [cpus(session, "allocated", name) for name in ("team", "dept", "root", "other")] == [2, 2, 3, 1]
    assert [cpus(session, "request", name) for name in ("team", "dept", "root", "other")] == [3, 3, 4, 1]


def test_a_queue_without_parent_is_below_the_root() -> None:
    session = opened(queue("q"), wants("q", 1, running=1))
    assert cpus(session, "allocated", "root") == 1


def test_a_capability_that_is_not_given_is_the_parents() -> None:
    session = opened(q("dept", capability=6), q("team", "dept"), q("small", "dept", capability=2))
    assert [cpus(session, "real_capacity", name) for name in ("team", "small")] == [6, 2]


def test_a_scalar_capability_that_is_not_given_is_the_parents() -> None:
    session = session_of(
        node("n", gpu=8),
        ROOT,
        q("dept", capability={"gpu": 6}),
        q("team", "dept", capability=2),
        gang("asks", 1, queue="team", gpu=1),
        conf=tree(),
    )
    assert gauge(session, "real_capacity_scalar_resources", "team", resource="nvidia.com/gpu") == 6000


def test_siblings_guarantees_are_kept_of_the_parents_capability() -> None:
    session = opened(
        q("dept", capability=10, guarantee=6), q("a", "dept", guarantee=4), q("b", "dept", guarantee=2), q("c", "dept")
    )
    assert [cpus(session, "real_capacity", name) for name in "abc"] == [8, 6, 4]


def test_guarantees_below_the_root_are_kept_of_the_cluster() -> None:
    session = opened(q("a", guarantee=6), q("b"), room=10)
    assert cpus(session, "real_capacity", "b") == 4


def test_without_guarantees_the_cluster_is_no_limit() -> None:
    """Groups larger than the cluster may be admitted, so that it can grow for them (Volcano)."""
    session = opened(q("a"), group("big", queue="a", phase="Pending", minimum={"cpu": 50}))
    assert plugin(session).job_enqueueable(job_of(session, "big")) is Vote.PERMIT


def test_the_roots_capability_is_a_limit() -> None:
    session = session_of(node("n"), q("root", "", capability=4), q("a"), q("b", guarantee=1), conf=tree())
    assert [cpus(session, "real_capacity", name) for name in "ab"] == [3, 4]


def test_the_root_deserves_what_its_children_deserve() -> None:
    session = opened(q("a", deserved=2), q("b", guarantee=3))
    assert cpus(session, "deserved", "root") == 5


def test_without_a_root_queues_form_trees_of_their_own() -> None:
    session = session_of(node("n"), q("dept", capability=2), q("team", "dept"), wants("team", 3), conf=tree())
    assert plugin(session).barred == {}
    assert cpus(session, "real_capacity", "team") == 2


# --- gates all the way up -------------------------------------------------------------------------------------------


def test_no_task_goes_beyond_a_parents_capability() -> None:
    result = planned(
        node("n", cpu=16),
        *[ROOT, q("dept", capability=4), q("a", "dept", capability=3), q("b", "dept")],
        *[wants("a", 9), wants("b", 9)],
        conf=tree(),
    )
    placed = [key.partition("/")[2][0] for key in result.binds]
    assert (len(placed), placed.count("a") <= 3) == (4, True)
    reasons = {why["reason"] for waiting in result.why.values() for why in waiting}
    assert "parent queue dept has no room within its capability" in reasons


def test_a_grandparents_pods_are_never_exceeded() -> None:
    result = planned(
        node("n"), ROOT, q("org", capability={"pods": 2}), q("dept", "org"), q("a", "dept"), wants("a", 5), conf=tree()
    )
    assert len(result.binds) == 2


def test_only_leaves_take_work() -> None:
    session = opened(q("dept"), q("b", "dept"), q("a", "dept"), wants("dept", 2, running=1))
    refusal = ("queue dept is not a leaf: submit to a queue below it", {"child queues": "a, b"})
    dept, task = queue_of(session, "dept"), task_of(session, "dept-1")
    point = plugin(session)
    assert told(point.allocatable(dept, task, 1)) == told(point.preemptive(dept, [task])) == refusal
    assert told(point.job_enqueueable(job_of(session, "dept"))) == refusal
    assert cpus(session, "allocated", "root") == 1


def test_a_group_in_a_queue_that_is_no_leaf_stops_nobody_else() -> None:
    """Volcano stops scheduling altogether."""
    objects = [ROOT, q("dept"), q("team", "dept"), wants("dept", 1), wants("team", 1)]
    assert planned(node("n"), *objects, conf=tree()).binds == {"default/team-0": "n"}


def test_a_group_is_admitted_within_all_ancestors() -> None:
    """hierarchical tables: 2 CPU in the parent, two groups of 2: the second waits."""
    phases = planned(
        node("n"),
        *[ROOT, q("dept", capability=2), q("a", "dept"), q("b", "dept")],
        group("one", queue="a", phase="Pending", minimum={"cpu": 2}, members=9),
        group("two", queue="b", phase="Pending", minimum={"cpu": 2}, members=9, created=1),
        conf=tree(actions="enqueue"),
    ).phases
    assert phases == {"default/one": "Inqueue", "default/two": "Pending"}


def test_the_refusal_names_the_parent() -> None:
    session = opened(
        q("dept", capability=2), q("a", "dept"), group("g", queue="a", phase="Pending", minimum={"cpu": 3})
    )
    assert told(plugin(session).job_enqueueable(job_of(session, "g"))) == (
        "queue resource quota insufficient",
        {"queue": "a", "asks cpu": "3", "would hold cpu": "3", "capability cpu": "2"},
    )
    session = opened(
        *[q("dept", capability=3), q("a", "dept"), q("b", "dept"), wants("b", 2, running=2, minimum={"cpu": 2})],
        group("g", queue="a", phase="Pending", minimum={"cpu": 2}),
    )
    refusal = plugin(session).job_enqueueable(job_of(session, "g"))
    assert told(refusal) == (
        "queue resource quota insufficient in parent queue dept",
        {"queue": "dept", "asks cpu": "2", "would hold cpu": "4", "capability cpu": "3"},
    )


@pytest.mark.parametrize(("cpu", "admitted"), [(5, True), (6, False)])
def test_what_a_queue_deserves_is_admitted_though_others_borrowed_it(cpu: int, admitted: bool) -> None:
    """Volcano #4817 in a tree: a took all 10 of dept, of which b deserves 5."""
    session = opened(
        *[q("dept", capability=10, deserved=10), q("a", "dept", deserved=5), q("b", "dept", deserved=5)],
        wants("a", 10, running=10, minimum={"cpu": 10}),
        group("g", queue="b", phase="Pending", minimum={"cpu": cpu}),
    )
    assert (plugin(session).job_enqueueable(job_of(session, "g")) is Vote.PERMIT) is admitted


def test_what_was_admitted_counts_against_what_comes_back() -> None:
    session = opened(
        *[q("dept", capability=10, deserved=10), q("a", "dept", deserved=5), q("b", "dept", deserved=5)],
        wants("a", 10, running=10, minimum={"cpu": 10}),
        *[group(name, queue="b", phase="Pending", minimum={"cpu": 3}) for name in ("g", "h")],
    )
    point = plugin(session)
    assert point.job_enqueueable(job_of(session, "g")) is Vote.PERMIT
    point.job_enqueued(job_of(session, "g"))
    assert isinstance(point.job_enqueueable(job_of(session, "h")), Reason)


@pytest.mark.parametrize(("level", "admitted"), [(0, False), (1, True)])
def test_what_a_parent_deserves_comes_back_in_reach_of_the_level(level: int, admitted: bool) -> None:
    session = opened(
        *[q("org", capability=8, deserved=8), q("dept", "org", deserved=4), q("other", "org", deserved=4)],
        *[q("a", "dept"), wants("other", 8, running=8, minimum={"cpu": 8})],
        group("g", queue="a", phase="Pending", minimum={"cpu": 4}),
        level=level,
    )
    assert (plugin(session).job_enqueueable(job_of(session, "g")) is Vote.PERMIT) is admitted


def test_what_could_never_be_held_together_does_not_come_back() -> None:
    """a deserves more than its parent may have: with what it runs, 4 more would be 7 of 4."""
    session = opened(
        *[q("org", capability=4, deserved=9), q("a", "org", deserved=8), q("b", "org", deserved=1)],
        *[wants("a", 3, running=3), wants("b", 1, running=1, minimum={"cpu": 1})],
        group("g", queue="a", phase="Pending", minimum={"cpu": 4}),
    )
    refusal = plugin(session).job_enqueueable(job_of(session, "g"))
    assert isinstance(refusal, Reason)
    assert refusal.words == "queue resource quota insufficient in parent queue org"


def test_what_is_guaranteed_in_a_tree_is_admitted_and_reclaimed() -> None:
    """Volcano #4817: 100 CPU all borrowed by org-1; org-2 with a guarantee of 50 submits 50."""
    world = World(
        *[node(f"n{i}", cpu=10) for i in range(10)],
        *[ROOT, q("all", capability=100, guarantee=50), q("org-1", "all"), q("org-2", "all", guarantee=50)],
        *[gang(f"one{i}", 10, members=0, queue="org-1", on=[f"n{i}"] * 10, cpu=1, phase="Running") for i in range(10)],
        gang("two", 50, queue="org-2", cpu=1, phase="Pending", minimum={"cpu": 50}),
        conf=tree(actions="enqueue, allocate, backfill, reclaim"),
    )
    world.rest()
    assert (len(world.placed("two")), len(world.evicted)) == (50, 50)


# --- what is wrong with queues --------------------------------------------------------------------------------------


def problems(*queues: Manifest) -> list[Problem]:
    return list(plugin(opened(*queues)).problems())


def test_a_queue_that_takes_nothing_is_told_of() -> None:
    text = "spec.parent names queue nowhere, which does not exist: create it or name another parent"
    assert problems(q("a", "nowhere"), q("c")) == [Problem("Queue", "a", f"the queue takes nothing: {text}")]


def test_a_queue_that_contradicts_itself_is_told_of_and_goes_on() -> None:
    queues = [q("dept", capability=4, deserved=6), q("a", "dept")]
    assert [(problem.key, problem.message.split(":")[0]) for problem in problems(*queues)] == [
        ("dept", "spec.deserved cpu 6 is more than the 4 of spec.capability, which holds")
    ]
    assert plugin(opened(*queues, wants("a", 1))).barred == {}


def barred(*queues: Manifest) -> dict[str, str]:
    return plugin(opened(*queues)).barred


def test_a_missing_parent() -> None:
    text = "spec.parent names queue nowhere, which does not exist: create it or name another parent"
    assert barred(q("a", "nowhere"), q("b", "a"), q("c")) == {"a": text, "b": f"parent queue a: {text}"}


def test_a_parent_that_was_set_aside_is_not_called_missing() -> None:
    (text,) = barred(q("a", "dept"), q("dept", capability=-1)).values()
    assert text.startswith("spec.parent names queue dept, which cannot be used (Queue dept: spec.capability: ")


def test_a_circle() -> None:
    found = barred(q("a", "b"), q("b", "a"), q("c", "b"), q("d", "d"), q("e"))
    words = "spec.parent leads in a circle ({}): give one of these another parent"
    assert found == {
        "a": words.format("a > b > a"),
        "b": words.format("b > a > b"),
        "c": "parent queue b: " + words.format("b > a > b"),
        "d": words.format("d > d"),
    }


def test_more_capability_than_the_parent() -> None:
    found = barred(q("dept", capability=4), q("a", "dept", capability=6), q("b", "dept", capability=4))
    assert found == {
        "a": "spec.capability cpu 6 is more than the 4 of parent queue dept: lower it or raise the parent's"
    }


def test_capabilities_together_may_exceed_the_parents() -> None:
    assert barred(q("dept", capability=4), q("a", "dept", capability=4), q("b", "dept", capability=4)) == {}


def test_children_that_deserve_more_than_their_parent() -> None:
    text = "spec.deserved cpu is 4, that of its child queues together 5: raise it or lower the children's"
    found = barred(q("dept", deserved=4), q("a", "dept", deserved=3), q("b", "dept", deserved=2), q("c", deserved=9))
    assert found == {"dept": text, "a": f"parent queue dept: {text}", "b": f"parent queue dept: {text}"}


def test_children_that_are_guaranteed_more_than_their_parent() -> None:
    found = barred(
        q("dept", guarantee=1, deserved=9), q("a", "dept", guarantee={"memory": 2}, deserved=1), q("c", guarantee=9)
    )
    assert found["dept"] == (
        "spec.deserved memory is 0, that of its child queues together 2Gi: raise it or lower the children's"
    )
    found = barred(q("dept", guarantee=1, deserved=9), q("a", "dept", guarantee=2, deserved=1))
    assert found["dept"] == (
        "spec.guarantee.resource cpu is 1, that of its child queues together 2: raise it or lower the children's"
    )


def test_the_root_has_no_sums_to_keep() -> None:
    assert barred(q("a", deserved=99, guarantee=50), q("b", deserved=99, guarantee=50)) == {}


def test_an_invalid_subtree_rejects_itself_only() -> None:
    objects = [ROOT, q("bad", "nowhere"), q("below", "bad"), q("good"), *wants("below", 1), *wants("good", 1)]
    assert planned(node("n"), *objects, conf=tree()).binds == {"default/good-0": "n"}
    session = opened(*objects[1:])
    below = queue_of(session, "below")
    refusal = ("queue below is misconfigured", {"problem": plugin(session).barred["below"]})
    point, task = plugin(session), task_of(session, "below-0")
    assert told(point.allocatable(below, task, 1)) == told(point.preemptive(below, [task])) == refusal
    assert told(point.job_enqueueable(job_of(session, "below"))) == refusal


@pytest.mark.parametrize("parent", ["nowhere", "b"])
def test_what_an_invalid_subtree_runs_counts_for_the_root(parent: str) -> None:
    session = opened(q("a", parent), q("b", "a"), wants("b", 2, running=2))
    assert cpus(session, "allocated", "root") == 2


def test_flat_queues_mind_no_parents() -> None:
    flat = tree().replace("enableHierarchy: true", "enableHierarchy: false")
    objects = [q("a", "nowhere"), q("dept"), q("b", "dept"), wants("a", 1), wants("dept", 1)]
    assert len(planned(node("n"), *objects, conf=flat).binds) == 2


# --- order ----------------------------------------------------------------------------------------------------------

DEPARTMENTS = [
    *[q("d1", deserved=8), q("a", "d1", deserved=2), q("b", "d1", deserved=6)],
    *[q("d2", deserved=8), q("c", "d2", deserved=8), q("e", "d2")],
]


def test_queues_are_compared_where_their_branches_part() -> None:
    """a has the smaller share than c, but d1 the larger one than d2."""
    session = opened(*DEPARTMENTS, wants("a", 0), wants("b", 5, running=5), wants("c", 4, running=4))
    assert gauge(session, "share", "d1") > gauge(session, "share", "d2")
    assert gauge(session, "share", "a") < gauge(session, "share", "c")
    assert first(session, "a", "c") == "c"


@pytest.mark.parametrize("older", ["a", "c"])
def test_where_the_branches_part_at_equal_shares_the_older_queue_comes_first(older: str) -> None:
    """d1 and d2 have the same share; what a and c have below them does not matter, nor do their names."""
    queues = [q("d1", deserved=8), q("a", "d1", deserved=2), q("b", "d1", deserved=6), *DEPARTMENTS[3:]]
    for each in queues:
        each["metadata"] = {"name": each["metadata"]["name"], "creationTimestamp": moment(10)}
        if each["metadata"]["name"] == older:
            each["metadata"]["creationTimestamp"] = moment(0)
    running = [wants("a", 2, running=2), wants("b", 2, running=2), wants("c", 4, running=4), wants("e", 0)]
    session = opened(*queues, *running)
    assert gauge(session, "share", "d1") == gauge(session, "share", "d2")
    assert gauge(session, "share", "a") > gauge(session, "share", "c")
    assert first(session, "a", "c") == older
    assert first(session, "a", "b") == "b"


def test_at_equal_shares_and_age_the_name_decides() -> None:
    session = opened(*DEPARTMENTS, wants("a", 2, running=2), wants("b", 2, running=2), wants("c", 4, running=4))
    assert first(session, "a", "c") == "a"
    assert first(session, "b", "c") == "b"


def test_siblings_are_compared_by_themselves() -> None:
    session = opened(*DEPARTMENTS, wants("a", 1, running=1), wants("b", 2, running=2))
    assert first(session, "a", "b") == "b"


def test_leaves_come_before_other_queues() -> None:
    session = opened(*DEPARTMENTS, wants("c", 7, running=7))
    assert first(session, "d1", "c") == "c"


def test_other_queues_are_compared_by_themselves() -> None:
    session = opened(*DEPARTMENTS, wants("a", 3, running=3))
    assert first(session, "d1", "d2") == "d2"


def test_priority_comes_before_everything() -> None:
    session = opened(*DEPARTMENTS, q("urgent", "d1", priority=1), wants("urgent", 9, running=9))
    assert first(session, "urgent", "c") == "urgent"
    session = opened(q("d1", priority=1), q("a", "d1"), q("c"))
    assert first(session, "d1", "c") == "d1"


def test_parents_shares_stay_as_the_session_found_them() -> None:
    """A queue's key must not change while its siblings take; its own share is the present one."""
    session = opened(*DEPARTMENTS, wants("b", 3), wants("c", 1, running=1))
    statement = Statement(session.trial, "test", job_of(session, "b"))
    for task in tasks_of(session, *names("b", 3)):
        statement.allocate([task], [0])
    assert gauge(session, "share", "d1") == 3 / 8
    assert first(session, "a", "c") == "a"
    assert first(session, "a", "b") == "a"


def test_victims_come_from_the_nearest_queue() -> None:
    """The design's fourth story: B under the same parent as A goes before C."""
    session = opened(q("org"), q("dept", "org"), q("a", "dept"), q("b", "dept"), q("d", "org"), q("c"))
    order = sorted(
        "bcd", key=lambda name: plugin(session).victim_queue_order(queue_of(session, name), queue_of(session, "a"))
    )
    assert order == ["b", "d", "c"]


def test_the_nearest_queues_task_goes() -> None:
    """q32 wants 2 of q3, all of which q31 has; q4 has 4, too: q31 gives."""
    result = planned(
        node("n1", cpu=8, memory=8),
        *[ROOT, q("q3", capability=4, deserved=4), q("q31", "q3", deserved=2), q("q32", "q3", deserved=2)],
        q("q4", capability=4, deserved=2),
        gang("pg4", 1, queue="q4", on=["n1"], cpu=4, phase="Running"),
        gang("pg5", 2, members=1, queue="q31", on=["n1"] * 2, cpu=2, phase="Running"),
        gang("pg6", 1, queue="q32", cpu=2),
        conf=tree(actions="reclaim"),
    )
    assert result.evictions == ["default/pg5-1"]


# --- reclaim across branches ----------------------------------------------------------------------------------------


def test_only_room_below_a_full_ancestor_helps() -> None:
    """dept is full: what a stranger gives would not let its queue have more."""
    session = opened(
        *[q("dept", capability=4, deserved=4), q("a", "dept", deserved=2), q("b", "dept", deserved=2), q("c")],
        *[wants("a", 2), wants("b", 4, running=4), wants("c", 4, running=4)],
    )
    assert reclaimed(session, "a-0", "c-0", "b-0", "c-1", "b-1") == ["b-0", "b-1"]


def test_a_full_ancestor_above_lets_any_queue_below_it_give() -> None:
    session = opened(
        *[q("org", capability=6), q("dept", "org"), q("a", "dept"), q("b", "dept"), q("c", "org"), q("d")],
        *[wants("a", 1), wants("b", 3, running=3), wants("c", 3, running=3), wants("d", 3, running=3)],
    )
    assert reclaimed(session, "a-0", "b-0", "c-0", "d-0") == ["b-0", "c-0"]


def test_a_parents_guarantee_is_kept_against_strangers() -> None:
    objects = [
        *[q("dept", guarantee=3), q("a", "dept"), q("b", "dept", deserved=1), q("c", deserved=9)],
        *[wants("a", 4, running=4), wants("b", 1), wants("c", 1)],
    ]
    session = opened(*objects)
    assert reclaimed(session, "c-0", *names("a", 4)) == ["a-0"]
    assert reclaimed(session, "b-0", *names("a", 4)) == names("a", 4)


def test_what_a_parent_is_guaranteed_comes_back_to_any_queue_below_it() -> None:
    """Volcano #4817: the leaf itself is entitled to nothing."""
    objects = [q("dept", guarantee=4), q("a", "dept"), q("other"), wants("other", 16, running=16), wants("a", 4)]
    session = opened(*objects, group("more", queue="a", phase="Pending", minimum={"cpu": 4}))
    assert may_reclaim(session, "a", "a-0")
    assert plugin(session).job_enqueueable(job_of(session, "more")) is Vote.PERMIT
    assert reclaimed(session, "a-0", *names("other", 3)) == names("other", 3)


def test_what_a_parent_is_guaranteed_and_has_does_not_come_back() -> None:
    objects = [
        *[q("dept", guarantee=4), q("a", "dept"), q("b", "dept"), q("other")],
        *[wants("b", 4, running=4), wants("other", 12, running=12), wants("a", 1)],
    ]
    assert not may_reclaim(opened(*objects), "a", "a-0")


def test_of_a_parents_guarantee_siblings_take_nothing_from_each_other() -> None:
    """Neither is entitled to more than the other: else they would take it in turns."""
    objects = [
        *[q("dept", guarantee=6), q("a", "dept"), q("b", "dept"), q("other")],
        *[wants("b", 5, running=5), wants("other", 11, running=11), wants("a", 1)],
    ]
    session = opened(*objects)
    assert may_reclaim(session, "a", "a-0")
    assert reclaimed(session, "a-0", *names("b", 2), "other-0") == ["other-0"]


def test_the_level_below_zero_counts_as_zero() -> None:
    session = opened(q("dept"), q("a", "dept"), level=-3)
    assert plugin(session)._level == 0


def test_the_level_means_nothing_without_a_hierarchy() -> None:
    session = session_of(
        node("n"),
        *[q("dept"), q("a", "dept"), q("b", "dept"), wants("a", 2, running=2), wants("b", 1)],
        conf=tree(9).replace("enableHierarchy: true", "enableHierarchy: false"),
    )
    assert reclaimed(session, "b-0", "a-0") == ["a-0"]


def test_a_queue_under_a_parent_within_its_share_is_not_reclaimed_from() -> None:
    """Volcano #5107: a has more than it deserves, its parent not; only at level 1 that protects it."""
    objects = [
        *[q("d1", deserved=6), q("a", "d1", deserved=2), q("d2", deserved=6), q("b", "d2", deserved=6)],
        *[wants("a", 6, running=6), wants("b", 1)],
    ]
    assert reclaimed(opened(*objects), "b-0", *names("a", 6)) == names("a", 4)
    assert reclaimed(opened(*objects, level=1), "b-0", *names("a", 6)) == []


def test_a_sibling_reclaims_whatever_the_parent_has() -> None:
    objects = [
        *[q("d1", deserved=6), q("a", "d1", deserved=2), q("b", "d1", deserved=4)],
        *[wants("a", 5, running=5), wants("b", 1)],
    ]
    assert reclaimed(opened(*objects, level=1), "b-0", *names("a", 5)) == names("a", 3)


def test_what_one_call_takes_counts_for_the_parent_too() -> None:
    """d1 has 6 and deserves 5: it gives one, whichever of its queues it is from."""
    objects = [
        *[q("d1", deserved=5), q("a", "d1", deserved=1), q("c", "d1", deserved=1), q("b", deserved=9)],
        *[wants("a", 3, running=3), wants("c", 3, running=3), wants("b", 1)],
    ]
    assert reclaimed(opened(*objects, level=1), "b-0", "a-0", "c-0", "a-1") == ["a-0"]


def test_a_gang_minds_the_level_too() -> None:
    session = opened(
        *[q("d1", deserved=6), q("a", "d1", deserved=2), q("b", deserved=6)],
        *[wants("a", 6, running=6), wants("b", 2)],
        level=1,
    )
    context = EvictionContext("gangreclaim", job_of(session, "b"), tuple(tasks_of(session, *names("b", 2))))
    assert let_go(plugin(session), "unified_evictable", context, tasks_of(session, *names("a", 6))) == []


def test_a_queue_may_reclaim_for_what_its_parent_deserves() -> None:
    objects = [q("dept", deserved=4), q("a", "dept"), q("b", "dept", deserved=1), wants("a", 1)]
    assert not may_reclaim(opened(*objects), "a", "a-0")
    assert may_reclaim(opened(*objects, level=1), "a", "a-0")


def test_the_root_is_no_parent_to_reclaim_for() -> None:
    assert not may_reclaim(opened(q("a"), q("b", deserved=9), wants("a", 1), level=5), "a", "a-0")


PROJECTS = [
    *[q("p1", deserved={A100: 1}, capability={A100: 2}), q("p1-own", "p1", deserved={A100: 1}, capability={A100: 1})],
    *[q("p1-spare", "p1"), q("p2", deserved={A100: 3}, capability={A100: 4})],
    *[q("p2-own", "p2", deserved={A100: 3}, capability={A100: 3}), q("p2-spare", "p2")],
]
GRANDPARENTS = [
    *[q("grand-a", deserved=2, capability=4), q("parent-a", "grand-a", deserved=2, capability=2)],
    *[q("queue-a", "parent-a", deserved=2, capability=2), q("grand-b", deserved=3, capability=4)],
    *[q("parent-b", "grand-b", deserved=1, capability=2), q("queue-b", "parent-b", deserved=1, capability=2)],
]


def holds(name: str, where: str, on: str = "n1", **asks: Any) -> list[Manifest]:
    return list(gang(name, 1, queue=where, on=[on], phase="Running", requests=quantities(asks)))


def waits(name: str, where: str, **asks: Any) -> list[Manifest]:
    return list(gang(name, 1, queue=where, created=99, requests=quantities(asks)))


CASES: dict[str, tuple[int, list[Any], list[str]]] = {
    "1: what the parent deserves": (
        1,
        [
            *[q("q1", deserved={A100: 1}), q("q11", "q1"), q("q2")],
            *[holds("p1", "q2", **{A100: 4}), waits("p2", "q11", **{A100: 1})],
        ],
        ["p1"],
    ),
    "2: child and parent above what they deserve": (
        1,
        [
            *PROJECTS,
            *[holds(f"p{i}", "p2-spare", **{A100: 1}) for i in range(1, 5)],
            waits("p5", "p1-spare", **{A100: 1}),
        ],
        ["any of p"],
    ),
    "3: a sibling's task first": (
        1,
        [
            *PROJECTS,
            *[holds(f"p{i}", "p2-spare", **{A100: 1}) for i in range(1, 4)],
            *[holds("other", "p1-spare", **{A100: 1}), waits("p6", "p2-own", **{A100: 1})],
        ],
        ["any of p"],
    ),
    "4: the victim's queue within what it deserves": (
        1,
        [
            *[q("parent1", deserved={A100: 1}), q("child1", "parent1", deserved={A100: 1}), q("sibling", "parent1")],
            *[q("parent2", deserved={A100: 1}), q("child2", "parent2", deserved={A100: 1})],
            *[holds("p1", "child1", **{A100: 1}), waits("p2", "child2", **{A100: 1})],
        ],
        [],
    ),
    "5: level 0 looks at leaves": (
        0,
        [*GRANDPARENTS, holds("victim", "queue-b", cpu=2), waits("new", "queue-a", cpu=2)],
        ["victim"],
    ),
    "6: level 1, the parent has more than it deserves": (
        1,
        [*GRANDPARENTS, holds("victim", "queue-b", cpu=2), waits("new", "queue-a", cpu=2)],
        ["victim"],
    ),
    "7: level 2, the grandparent has not": (
        2,
        [*GRANDPARENTS, holds("victim", "queue-b", cpu=2), waits("new", "queue-a", cpu=2)],
        [],
    ),
    "8: siblings that deserve nothing": (
        1,
        [
            *[q("parent", deserved=4, capability=4), q("queue-a", "parent"), q("queue-b", "parent")],
            *[holds("victim", "queue-b", cpu=2), waits("new", "queue-a", cpu=2)],
        ],
        [],
    ),
    "9: cousins that deserve nothing": (
        2,
        [
            *[q("grand", deserved=2, capability=2), q("parent-a", "grand"), q("queue-a", "parent-a")],
            *[q("parent-b", "grand"), q("queue-b", "parent-b")],
            *[holds("victim", "queue-b", cpu=2), waits("new", "queue-a", cpu=2)],
        ],
        [],
    ),
    "10: unequal depth, nothing deserved": (
        2,
        [
            *[
                q("grand", deserved=1, capability=2),
                q("deep", "grand", deserved=1, capability=2),
                q("queue-deep", "deep"),
            ],
            *[q("shallow", "grand"), holds("victim", "queue-deep", cpu=2), waits("new", "shallow", cpu=2)],
        ],
        [],
    ),
    "11: unequal depth, the grandparent within what it deserves": (
        2,
        [
            *[q("shallow", deserved={A100: 1}), q("queue-shallow", "shallow", deserved={A100: 1})],
            *[q("grand", deserved={A100: 2}), q("deep", "grand", deserved={A100: 1})],
            *[q("queue-deep", "deep", deserved={A100: 1})],
            *[holds("victim", "queue-deep", **{A100: 2}), waits("new", "queue-shallow", **{A100: 1})],
        ],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_designs_case(name: str) -> None:
    """hierarchical-queue-on-capacity-plugin.md, cases 1 to 11, on a node that is full."""
    level, objects, expected = CASES[name]
    held = sum(int(amounts_of(manifest).get(A100, 0)) for manifest in _running(objects))
    cpu = sum(int(amounts_of(manifest).get("cpu", 0)) for manifest in _running(objects))
    result = planned(
        node("n1", cpu=cpu or 8, **{A100: held}), ROOT, *objects, conf=tree(level, "enqueue, reclaim, allocate")
    )
    evicted = [key.partition("/")[2].rpartition("-")[0] for key in result.evictions]
    if expected == ["any of p"]:
        assert len(evicted) == 1
        assert evicted[0].startswith("p")
    else:
        assert evicted == expected
    assert bool(result.pipelined) == bool(expected)


def _running(objects: list[Any]) -> list[Manifest]:
    flat = [entry for given in objects for entry in (given if isinstance(given, list) else [given])]
    return [entry for entry in flat if entry["kind"] == "Pod" and entry["status"]["phase"] == "Running"]


def amounts_of(manifest: Manifest) -> dict[str, str]:
    requests: dict[str, str] = manifest["spec"]["containers"][0]["resources"]["requests"]
    return requests


# --- accounts -------------------------------------------------------------------------------------------------------


def test_accounts_of_all_ancestors_follow_placements_and_their_reverse() -> None:
    session = opened(q("dept"), q("a", "dept"), wants("a", 2, running=1))
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-1")], [0])
    assert [cpus(session, "allocated", name) for name in ("a", "dept", "root")] == [2, 2, 2]
    statement.discard()
    assert [cpus(session, "allocated", name) for name in ("a", "dept", "root")] == [1, 1, 1]


def test_what_was_admitted_counts_for_all_ancestors() -> None:
    session = opened(q("dept"), q("a", "dept"), group("g", queue="a", phase="Pending", minimum={"cpu": 2}))
    plugin(session).job_enqueued(job_of(session, "g"))
    assert [cpus(session, "inqueue", name) for name in ("a", "dept", "root")] == [2, 2, 2]


_parents = st.lists(st.sampled_from(["root", "q0", "q1", "q2", "q3", "nowhere"]), min_size=4, max_size=4)
_limits = st.lists(st.sampled_from([None, 1, 3, 6]), min_size=4, max_size=4)
_tasks = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12)


@settings(max_examples=examples(80), deadline=None)
@given(_parents, _limits, _tasks)
def test_no_queue_nor_ancestor_is_ever_over(
    parents: list[str], limits: list[int | None], tasks: list[tuple[int, bool]]
) -> None:
    """On any tree, however broken: what is placed stays within every capability on the way up, and accounts are what
    a walk over the tasks adds up to."""
    queues = [
        q(f"q{i}", parent, capability=limit) for i, (parent, limit) in enumerate(zip(parents, limits, strict=True))
    ]
    objects = [ROOT, *queues, *[wants(f"g{i}", 1, queue=f"q{index}") for i, (index, _) in enumerate(tasks)]]
    result = planned(node("n", cpu=32), *objects, conf=tree())
    held = dict.fromkeys([*(f"q{i}" for i in range(4)), "root"], 0)
    for key in result.binds:
        number = int(key.partition("/g")[2].partition("-")[0])
        for name in _way_up(f"q{tasks[number][0]}", parents):
            held[name] += 1
    for i, limit in enumerate(limits):
        assert limit is None or held[f"q{i}"] <= limit
    session = session_of(
        node("n", cpu=32),
        ROOT,
        *queues,
        *[wants(f"g{i}", 1, queue=f"q{k}", running=1) for i, (k, _) in enumerate(tasks)],
        conf=tree(),
    )
    assert cpus(session, "allocated", "root") == len(tasks)


def _way_up(name: str, parents: list[str]) -> list[str]:
    """A queue and its ancestors, by plain steps; nothing is placed below a broken one."""
    way = [name]
    while way[-1] != "root":
        way.append(parents[int(way[-1][1:])])
        assert way[-1] != "nowhere"
        assert len(way) < 9
    return way
