"""capacity without a hierarchy: quantities of queues, the gates that follow, and victims; with test_queue_gates."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import Manifest, gang, group, node, open_session, planned, pod, priority_class, queue, session_of
from tests.plugins import test_queue_gates
from tests.plugins.opened import conf, job_of, let_go, plugin_of, queue_of, task_of, tasks_of
from tests.plugins.test_queue_gates import cpus, first, gauge, new, wants
from tests.reasons import told
from tests.sizes import examples
from tests.world import World
from vcd.model.reasons import Reason
from vcd.scheduling.decide import instances
from vcd.scheduling.eviction.victim_search import EvictionContext
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.capacity import CapacityPlugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

CONF = conf("capacity")
ALLOCATE = conf("capacity", actions="allocate")
RECLAIM = conf("gang", "capacity", actions="enqueue, allocate, backfill, reclaim")
GATE = "scheduling.volcano.sh/queue-allocation-gate"
A100, V100 = "nvidia.com/a100", "nvidia.com/v100"


def deserves(name: str, cpu: int, **spec: Any) -> Manifest:
    return queue(name, deserved={"cpu": str(cpu)}, **spec)


def guarantees(name: str, cpu: int, **spec: Any) -> Manifest:
    return queue(name, guarantee={"resource": {"cpu": str(cpu)}}, **spec)


def opened(*objects: Any, room: int = 8, configuration: str = CONF) -> Session:
    return session_of(node("n", cpu=room), *objects, conf=configuration)


def plugin(session: Session) -> CapacityPlugin:
    return plugin_of(session, CapacityPlugin)


# --- amounts --------------------------------------------------------------------------------------------------------


def test_guarantees_beyond_the_cluster_leave_nothing_to_others() -> None:
    session = opened(guarantees("q1", 12), queue("q2"))
    assert cpus(session, "real_capacity", "q2") == 0


@pytest.mark.parametrize("text", ["0", "0m"])
def test_a_capability_of_zero_cpu_means_no_limit(text: str) -> None:
    session = opened(queue("q", capability={"cpu": text, "memory": "4Gi"}))
    assert cpus(session, "real_capacity", "q") == 8


def test_a_capability_of_zero_gpus_is_a_limit() -> None:
    session = session_of(node("n", gpu=4), queue("q", capability={"nvidia.com/gpu": "0"}), conf=CONF)
    assert gauge(session, "real_capacity_scalar_resources", "q", resource="nvidia.com/gpu") == 0


def test_a_queue_deserves_no_more_than_is_in_its_reach() -> None:
    session = opened(deserves("q1", 9, capability={"cpu": "6"}), guarantees("q2", 1), deserves("q3", 9))
    assert [cpus(session, "deserved", name) for name in ("q1", "q3")] == [6, 7]


def test_a_queue_deserves_no_less_than_its_guarantee() -> None:
    assert cpus(opened(guarantees("q", 3, deserved={"cpu": "2"})), "deserved", "q") == 3


def test_the_share_is_the_largest_part_of_what_is_deserved() -> None:
    session = session_of(
        node("n", memory=8),
        queue("q", deserved={"cpu": "4", "memory": "4Gi"}),
        gang("q", 2, queue="q", on=["n"], cpu=1, memory=3),
        conf=CONF,
    )
    assert gauge(session, "share", "q") == 0.75


def test_a_queue_that_deserves_nothing_has_a_share_of_one() -> None:
    session = opened(queue("q"), queue("places", deserved={"pods": "9"}), wants("q", 5, running=2))
    assert [gauge(session, "share", name) for name in ("q", "places")] == [1, 1]


def test_a_queue_above_what_it_deserves_shows_as_overused() -> None:
    session = opened(deserves("q1", 2), deserves("q2", 2), wants("q1", 3, running=3), wants("q2", 2, running=2))
    assert [gauge(session, "overused", name) for name in ("q1", "q2")] == [1, 0]


def test_the_guarantee_is_shown() -> None:
    assert gauge(opened(guarantees("q", 3)), "guarantee_milli_cpu", "q", prefix="vcd_queue") == 3000


def test_what_has_no_limit_is_not_shown_as_capacity() -> None:
    session = opened(queue("q", capability={"memory": "4Gi"}))
    names = [entry.name for entry in plugin(session).gauges() if ("queue_name", "q") in entry.labels]
    assert "volcano_queue_capacity_memory_bytes" in names
    assert "volcano_queue_capacity_milli_cpu" not in names


# --- order ----------------------------------------------------------------------------------------------------------


def test_at_equal_shares_a_queue_that_deserves_something_comes_first() -> None:
    session = opened(queue("q1"), deserves("q2", 2), wants("q1", 3), wants("q2", 3, running=2))
    assert (gauge(session, "share", "q1"), gauge(session, "share", "q2")) == (1, 1)
    assert first(session, "q1", "q2") == "q2"


def test_the_share_follows_placements() -> None:
    session = opened(deserves("q1", 4), deserves("q2", 4), wants("q1", 2), wants("q2", 2))
    Statement(session.trial, "test", job_of(session, "q1")).allocate([task_of(session, "q1-0")], [0])
    assert (gauge(session, "share", "q1"), first(session, "q1", "q2")) == (0.25, "q2")


def test_victims_of_all_queues_are_equal() -> None:
    session = opened(queue("q1"), queue("q2"), queue("q3"))
    point = plugin(session).victim_queue_order
    assert point(queue_of(session, "q1"), queue_of(session, "q3")) == point(
        queue_of(session, "q2"), queue_of(session, "q3")
    )


# --- allocatable ----------------------------------------------------------------------------------------------------


def test_a_queue_may_take_what_it_does_not_deserve() -> None:
    assert len(planned(node("n"), deserves("q", 2), wants("q", 5), conf=ALLOCATE).binds) == 5


def test_no_task_goes_beyond_the_capability() -> None:
    result = planned(node("n"), queue("q", capability={"cpu": "2"}), wants("q", 5), conf=ALLOCATE)
    assert len(result.binds) == 2
    why = result.why["default/q"][0]
    assert why["reason"] == "queue has no room within its capability"
    assert why["detail"] == {"queue": "q", "asks cpu": "1", "allocated cpu": "2", "capability cpu": "2"}


def test_the_last_task_does_not_slip_through() -> None:
    """Volcano #1860: capability 10, used 9, a pod of 10 waits."""
    objects = [queue("q", capability={"cpu": "10"}), wants("q", 9, running=9), gang("big", 1, queue="q", cpu=10)]
    assert planned(node("n", cpu=30), *objects, conf=ALLOCATE).binds == {}


def test_no_task_takes_what_is_guaranteed_to_others() -> None:
    result = planned(node("n"), guarantees("q1", 5), queue("q2"), wants("q2", 9), conf=ALLOCATE)
    assert len(result.binds) == 3


def test_the_number_of_pods_is_never_exceeded() -> None:
    """Volcano lets pods slip; a capability is never exceeded (docs/laws.md, law 7)."""
    result = planned(node("n"), queue("q", capability={"pods": "2"}), wants("q", 5), conf=ALLOCATE)
    assert len(result.binds) == 2


def test_guaranteed_places_are_not_kept() -> None:
    kept = queue("q1", guarantee={"resource": {"pods": "109"}})
    assert len(planned(node("n"), kept, queue("q2"), wants("q2", 5), conf=ALLOCATE).binds) == 5


# --- preemptive -----------------------------------------------------------------------------------------------------


def may_reclaim(session: Session, name: str, *tasks: str) -> bool:
    return plugin(session).preemptive(queue_of(session, name), tasks_of(session, *tasks)) is None


def test_a_queue_may_reclaim_up_to_what_it_deserves() -> None:
    session = opened(deserves("q", 2), wants("q", 4, running=1))
    assert may_reclaim(session, "q", "q-1")
    assert not may_reclaim(session, "q", "q-1", "q-2")


def test_one_resource_within_what_is_deserved_is_enough() -> None:
    session = session_of(
        node("n"),
        queue("q", deserved={"cpu": "1", "memory": "9Gi"}),
        gang("q", 2, queue="q", cpu=1, memory=2, on=["n"]),
        conf=CONF,
    )
    assert may_reclaim(session, "q", "q-1")


def test_a_resource_that_no_task_asks_for_does_not_count() -> None:
    session = opened(queue("q", deserved={"memory": "4Gi"}), wants("q", 1))
    assert not may_reclaim(session, "q", "q-0")


def test_places_for_pods_do_not_count() -> None:
    session = opened(queue("q", deserved={"cpu": "0", "memory": "0", "pods": "2"}), wants("q", 1))
    assert not may_reclaim(session, "q", "q-0")


def test_no_queue_reclaims_beyond_its_capability() -> None:
    session = session_of(
        node("n"),
        queue("q", deserved={"cpu": "1", "memory": "9Gi"}, capability={"cpu": "1"}),
        gang("q", 2, queue="q", cpu=1, memory=2, on=["n"]),
        conf=CONF,
    )
    refusal = plugin(session).preemptive(queue_of(session, "q"), tasks_of(session, "q-1"))
    assert refusal is not None
    assert refusal.words == "queue has no room within its capability"


def test_the_refusal_to_reclaim_names_all_quantities() -> None:
    session = opened(deserves("q", 2), wants("q", 3, running=2))
    assert told(plugin(session).preemptive(queue_of(session, "q"), tasks_of(session, "q-2"))) == (
        "queue has what it deserves",
        {"queue": "q", "asks cpu": "1", "allocated cpu": "2", "deserved cpu": "2"},
    )


# --- enqueue --------------------------------------------------------------------------------------------------------


vote = partial(test_queue_gates.vote, "capacity")


def test_a_running_group_below_its_minimum_of_tasks_does_not_count() -> None:
    """Its driver ended: what it still misses is not waited for (Volcano)."""
    old = list(gang("old", 4, members=2, queue="q", on=["n"], cpu=1, phase="Running", minimum={"cpu": 4}))
    assert vote(*old, new(7)) is Vote.PERMIT


@pytest.mark.parametrize("opted", ["true", "false"])
def test_what_only_the_queues_own_gate_holds_is_waited_for_where_it_will_be_lifted(opted: str) -> None:
    held: dict[str, Any] = {"annotations": {GATE: opted}, "spec": {"schedulingGates": [{"name": GATE}]}}
    old = list(gang("old", 4, queue="q", cpu=1, minimum={"cpu": 4}, **held))
    assert isinstance(vote(*old, new(8)), Reason) == (opted == "true")


def test_groups_of_lower_priority_do_not_count() -> None:
    """docs/differences.md; of the same priority they do."""
    objects = [priority_class("high", 9), priority_class("low", 1)]
    old = group("old", queue="q", minimum={"cpu": 8}, members=8, priorityClassName="low")
    assert vote(*objects, old, new(8, priorityClassName="high")) is Vote.PERMIT
    assert isinstance(vote(*objects, old, new(8, priorityClassName="low")), Reason)


def test_what_was_admitted_is_shown() -> None:
    session = opened(queue("q"), new(3), group("old", queue="q", minimum={"cpu": 2}, members=2))
    plugin(session).job_enqueued(job_of(session, "new"))
    assert cpus(session, "inqueue", "q") == 5


# --- victims --------------------------------------------------------------------------------------------------------


def reclaimed(session: Session, asker: str, *names: str) -> list[str]:
    return let_go(plugin(session), "reclaimable", task_of(session, asker), tasks_of(session, *names))


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{i}" for i in range(count)]


@pytest.mark.parametrize(
    ("queues", "running", "count"),
    [
        ([deserves("q1", 4), deserves("q2", 4)], 6, 2),
        ([deserves("q1", 4), deserves("q2", 4)], 4, 0),
        # q1 deserves nothing of cpu
        ([queue("q1", deserved={"memory": "9Gi"}), deserves("q2", 4)], 3, 3),
        ([guarantees("q1", 2), deserves("q2", 4)], 4, 2),
        # a guarantee below what is deserved does not matter
        ([guarantees("q1", 2, deserved={"cpu": "3"}), deserves("q2", 4)], 4, 1),
    ],
    ids=["above", "within", "of none", "guarantee", "guarantee below deserved"],
)
def test_tasks_may_be_reclaimed_while_their_queue_has_more_than_it_deserves(
    queues: list[Manifest], running: int, count: int
) -> None:
    session = opened(*queues, wants("q1", running, running=running), wants("q2", 9))
    assert reclaimed(session, "q2-0", *names("q1", running)) == names("q1", count)


def test_the_last_victim_may_take_its_queue_below_what_it_deserves() -> None:
    session = opened(
        deserves("q1", 3), deserves("q2", 5), gang("q1", 2, queue="q1", on=["n"] * 2, cpu=4), wants("q2", 1)
    )
    assert reclaimed(session, "q2-0", "q1-0", "q1-1") == ["q1-0", "q1-1"]


def test_what_was_evicted_before_counts_no_more() -> None:
    session = opened(deserves("q1", 2), deserves("q2", 6), wants("q1", 4, running=4), wants("q2", 9))
    Statement(session.trial, "test", job_of(session, "q2")).evict(task_of(session, "q1-3"), "test")
    assert reclaimed(session, "q2-0", *names("q1", 3)) == ["q1-0"]


def test_no_task_goes_that_would_leave_less_than_the_guarantee() -> None:
    session = opened(guarantees("q1", 3), deserves("q2", 4), gang("q1", 1, queue="q1", on=["n"], cpu=4), wants("q2", 5))
    assert reclaimed(session, "q2-0", "q1-0") == []


def test_a_scalar_deserved_with_zero_is_borrowed_however_little() -> None:
    objects = [queue("q1", deserved={"cpu": "9", "nvidia.com/gpu": "0"}), queue("q2", deserved={"nvidia.com/gpu": "2"})]
    session = session_of(
        node("n", gpu=2),
        *objects,
        gang("q1", 2, queue="q1", on=["n"] * 2, cpu=1, gpu=1),
        gang("q2", 1, queue="q2", gpu=1),
        conf=CONF,
    )
    assert reclaimed(session, "q2-0", "q1-0", "q1-1") == ["q1-0", "q1-1"]


def test_a_task_that_holds_none_of_what_is_asked_for_stays() -> None:
    """Volcano #4918: the reclaimer wants CPU, the candidates hold only GPU."""
    session = session_of(
        node("n", cpu=2, gpu=2),
        *[queue("q1"), deserves("q2", 4)],
        gang("gpus", 1, queue="q1", on=["n"], gpu=1),
        gang("cpus", 1, queue="q1", on=["n"], cpu=2),
        gang("q2", 1, queue="q2", cpu=1),
        conf=CONF,
    )
    assert reclaimed(session, "q2-0", "gpus-0", "cpus-0") == ["cpus-0"]


def test_a_task_that_holds_none_of_what_the_node_lacks_stays() -> None:
    session = session_of(
        node("n", cpu=2, memory=8),
        *[queue("q1"), deserves("q2", 4)],
        gang("mem", 1, queue="q1", on=["n"], memory=1),
        gang("cpus", 1, queue="q1", on=["n"], cpu=2),
        gang("q2", 1, queue="q2", cpu=1, memory=1),
        conf=CONF,
    )
    assert reclaimed(session, "q2-0", "mem-0", "cpus-0") == ["cpus-0"]


def test_any_task_helps_where_places_for_pods_lack() -> None:
    session = session_of(
        node("n", pods=1),
        *[queue("q1"), deserves("q2", 4)],
        gang("mem", 1, queue="q1", on=["n"], memory=1),
        gang("q2", 1, queue="q2", cpu=1),
        conf=CONF,
    )
    assert reclaimed(session, "q2-0", "mem-0") == ["mem-0"]


def test_where_the_node_has_room_all_that_is_asked_for_counts() -> None:
    session = opened(queue("q1"), deserves("q2", 4), wants("q1", 2, running=2), wants("q2", 1))
    assert reclaimed(session, "q2-0", "q1-0") == ["q1-0"]


def test_a_gang_reclaims_by_the_same_rules() -> None:
    session = opened(deserves("q1", 4), deserves("q2", 4), wants("q1", 6, running=6), wants("q2", 2))
    context = EvictionContext("gangreclaim", job_of(session, "q2"), tuple(tasks_of(session, *names("q2", 2))))
    assert let_go(plugin(session), "unified_evictable", context, tasks_of(session, *names("q1", 6))) == ["q1-0", "q1-1"]


def test_whom_a_gang_preempts_is_not_for_capacity_to_say() -> None:
    session = opened(deserves("q1", 9), wants("q1", 3, running=2))
    context = EvictionContext("gangpreempt", job_of(session, "q1"), tuple(tasks_of(session, "q1-2")))
    assert let_go(plugin(session), "unified_evictable", context, tasks_of(session, "q1-0", "q1-1")) == ["q1-0", "q1-1"]


# --- worked examples ------------------------------------------------------------------------------------------------


def cards(prefix: str, a100: int, v100: int, on: str = "") -> list[Manifest]:
    """Groups of one-card pods in the queue of the prefix's first part."""
    name = prefix.partition("-")[0]
    amounts = ((a100, "a", A100), (v100, "v", V100))
    return [
        manifest
        for count, kind, resource in amounts
        for manifest in gang(
            f"{prefix}{kind}", count, members=0, queue=name, on=[on] * count if on else (), requests={resource: "1"}
        )
    ]


def test_the_designs_third_story() -> None:
    """capacity-scheduling.md: queue1 deserves 20 A100 and 50 V100 and uses all of 100 each; queue2 (80 and 50) gets its
    own back."""
    objects = [
        node("n", pods=999, **{A100: 100, V100: 100}),
        queue("q1", guarantee={"resource": {A100: "10", V100: "10"}}, deserved={A100: "20", V100: "50"}),
        queue("q2", deserved={A100: "80", V100: "50"}),
        *cards("q1", 100, 100, on="n"),
        *cards("q2-", 1, 1),
    ]
    session = session_of(*objects, conf=CONF)
    assert len(reclaimed(session, "q2-a-0", *names("q1a", 100))) == 80
    assert len(reclaimed(session, "q2-v-0", *names("q1v", 100))) == 50


def test_the_designs_fourth_story() -> None:
    """capacity-scheduling.md: queue1 uses its capability of 60 A100, of which 20 are guaranteed: 40 come back."""
    q1 = queue("q1", guarantee={"resource": {A100: "20"}}, capability={A100: "60"}, deserved={A100: "10"})
    session = session_of(
        node("n", pods=999, **{A100: 100}),
        q1,
        queue("q2", deserved={A100: "80"}),
        *cards("q1", 60, 0, on="n"),
        *cards("q2-", 1, 0),
        conf=CONF,
    )
    assert len(reclaimed(session, "q2-a-0", *names("q1a", 60))) == 40


def test_the_user_guides_example() -> None:
    """8 CPU, 32 Gi: queue1 (2 CPU, 8 Gi) runs 8 pods of 1 CPU, 4 Gi; queue2 (6 CPU, 24 Gi) gets 6 back, 2 stay."""
    deserved = {"q1": {"cpu": "2", "memory": "8Gi"}, "q2": {"cpu": "6", "memory": "24Gi"}}
    world = World(
        *[node(name, cpu=4, memory=16) for name in ("n1", "n2")],
        *[queue(name, deserved=amounts) for name, amounts in deserved.items()],
        *[
            gang(f"one{i}", 1, members=0, queue="q1", on=[f"n{i % 2 + 1}"], cpu=1, memory=4, phase="Running")
            for i in range(8)
        ],
        *[gang(f"two{i}", 1, queue="q2", cpu=1, memory=4) for i in range(8)],
        conf=RECLAIM,
    )
    world.rest()
    assert (len(world.placed("one")), len(world.placed("two")), len(world.evicted)) == (2, 6, 6)


def after_reclaim(taken: Manifest, again: int, *others: Any) -> Session:
    """q2 (deserves 5) reclaimed the 4 CPU of q1 (``taken``); a pod of ``again`` CPU took the place of what went."""
    world = World(
        node("n", cpu=8),
        *[taken, deserves("q2", 5)],
        gang("one", 1, members=0, queue="q1", on=["n"], cpu=4, phase="Running"),
        gang("two", 1, queue="q2", on=["n"], cpu=1, phase="Running"),
        gang("more", 1, queue="q2", cpu=4),
        conf=RECLAIM,
    )
    world.cycle()
    assert world.evicted == ["default/one-0"]
    world.put(pod("one-again", group="one", cpu=again, created=99), *others)
    session = open_session(world.maker.snapshot(), world.policy, instances(world.policy), world.now, 0, Memory())
    assert (gauge(session, "allocated_milli_cpu", "q1"), gauge(session, "allocated_milli_cpu", "q2")) == (0, 1000)
    return session


def test_a_queue_whose_tasks_were_taken_comes_after_those_they_were_taken_for() -> None:
    """Volcano #4947: its share has fallen to 0, yet all it could do is borrow again."""
    assert first(after_reclaim(deserves("q1", 3), 4), "q1", "q2") == "q2"


def test_a_small_job_beside_does_not_let_the_taken_one_in_again() -> None:
    small = gang("small", 1, queue="q1", cpu=1, created=99)
    assert first(after_reclaim(deserves("q1", 3), 4, small), "q1", "q2") == "q2"


def test_what_a_queue_does_not_deserve_any_of_it_borrows_again() -> None:
    assert first(after_reclaim(queue("q1", deserved={"memory": "4Gi"}), 4), "q1", "q2") == "q2"


def test_a_queue_that_goes_on_within_what_it_deserves_comes_by_its_share() -> None:
    assert first(after_reclaim(deserves("q1", 3), 3), "q1", "q2") == "q1"


def test_admission_does_not_block_what_is_guaranteed() -> None:
    """Volcano #4817: 100 CPU all borrowed by org-1; org-2 with a guarantee of 50 submits 50."""
    world = World(
        *[node(f"n{i}", cpu=10) for i in range(10)],
        *[queue("org-1"), guarantees("org-2", 50)],
        *[gang(f"one{i}", 10, members=1, queue="org-1", on=[f"n{i}"] * 10, cpu=1, phase="Running") for i in range(10)],
        gang("two", 50, queue="org-2", cpu=1, phase="Pending", minimum={"cpu": 50}),
        conf=RECLAIM,
    )
    world.rest()
    assert len(world.placed("two")) == 50
    assert len(world.evicted) == 50


# --- accounts -------------------------------------------------------------------------------------------------------


def test_accounts_follow_placements_and_their_reverse() -> None:
    session = opened(deserves("q", 4), wants("q", 4, running=1))
    statement = Statement(session.trial, "test", job_of(session, "q"))
    statement.allocate([task_of(session, "q-1")], [0])
    statement.pipeline([task_of(session, "q-2")], [0])
    statement.evict(task_of(session, "q-0"), "test")
    assert (cpus(session, "allocated", "q"), gauge(session, "share", "q")) == (2, 0.5)
    statement.discard()
    assert (cpus(session, "allocated", "q"), gauge(session, "share", "q")) == (1, 0.25)


def lifted(name: str, **options: Any) -> list[Manifest]:
    """A group of one 1-CPU pod whose queue's gate was lifted, or holds it still (``spec``)."""
    return list(gang(name, 1, queue="q", cpu=1, annotations={GATE: "true"}, **options))


def test_a_pod_whose_gate_is_lifted_holds_its_quota() -> None:
    """scheduling-gates-queue-admission.md: capability 1 CPU; pod-2 waits for a node that is not there, pod-3 must not
    take its place."""
    session = opened(
        queue("q", capability={"cpu": "1"}),
        lifted("pod-2", spec={"nodeSelector": {"zone": "none"}}),
        gang("pod-3", 1, queue="q", cpu=1),
    )
    q = queue_of(session, "q")
    assert plugin(session).allocatable(q, task_of(session, "pod-2-0"), 1) is None
    assert plugin(session).allocatable(q, task_of(session, "pod-3-0"), 1) is not None


def test_a_pod_without_the_annotation_holds_nothing() -> None:
    session = opened(
        queue("q", capability={"cpu": "1"}), gang("a", 1, queue="q", cpu=1), gang("b", 1, queue="q", cpu=1)
    )
    assert plugin(session).allocatable(queue_of(session, "q"), task_of(session, "b-0"), 1) is None


def test_a_lifted_pod_that_is_placed_counts_once() -> None:
    session = opened(queue("q", capability={"cpu": "2"}), lifted("a"), gang("b", 1, queue="q", cpu=1))
    q, b = queue_of(session, "q"), task_of(session, "b-0")
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-0")], [0])
    assert plugin(session).allocatable(q, b, 1) is None
    statement.discard()
    assert plugin(session).allocatable(q, b, 1) is None


def test_a_lifted_pod_that_is_taken_back_holds_its_quota_again() -> None:
    session = opened(queue("q", capability={"cpu": "1"}), lifted("a"), gang("b", 1, queue="q", cpu=1))
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-0")], [0])
    statement.discard()
    assert plugin(session).allocatable(queue_of(session, "q"), task_of(session, "b-0"), 1) is not None


def test_of_gated_pods_no_more_are_let_through_than_have_room() -> None:
    gates = {"schedulingGates": [{"name": GATE}]}
    session = opened(queue("q", capability={"cpu": "1"}), lifted("a", spec=gates), lifted("b", spec=gates))
    q = queue_of(session, "q")
    assert plugin(session).allocatable(q, task_of(session, "a-0"), 1) is None
    assert plugin(session).allocatable(q, task_of(session, "b-0"), 1) is not None
    assert plugin(session).allocatable(q, task_of(session, "a-0"), 1) is None


_steps = st.lists(st.tuples(st.sampled_from(["allocate", "pipeline", "evict", "undo"]), st.integers(0, 7)), max_size=25)


@settings(max_examples=examples(60), deadline=None)
@given(_steps, st.integers(0, 6))
def test_accounts_are_what_the_tasks_add_up_to(steps: list[tuple[str, int]], running: int) -> None:
    """Against a plain sum over tasks, after any placements, evictions and their reverses."""
    session = opened(deserves("q", 4), wants("q", 8, running=running), room=99)
    statement = Statement(session.trial, "test", job_of(session, "q"))
    tasks = tasks_of(session, *names("q", 8))
    gone: set[str] = set()
    for verb, number in steps:
        task = tasks[number]
        if verb == "undo":
            statement.undo(min(number, statement.save()))
            gone = {done.task.name for done in statement._operations if done.verb == "evict"}
        elif verb == "evict" and task.node >= 0 and task.name not in gone and number < running:
            statement.evict(task, "test")
            gone.add(task.name)
        elif verb in ("allocate", "pipeline") and task.node < 0:
            (statement.allocate if verb == "allocate" else statement.pipeline)([task], [0])
    expected = sum(task.node >= 0 and task.name not in gone for task in tasks)
    assert cpus(session, "allocated", "q") == expected
    assert gauge(session, "share", "q") == expected / 4
