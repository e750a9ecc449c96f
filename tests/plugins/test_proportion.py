"""proportion: deserved shares by weight, and the gates that follow from them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, node, planned, pod, queue, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, queue_of, task_of, tasks_of
from tests.reasons import told
from vcd.model.reasons import Reason
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

CONF = conf("proportion")
ALLOCATE = conf("proportion", actions="allocate")
GI = 1 << 30


def wants(name: str, cpu: int, **options: Any) -> list[Manifest]:
    """A group of 1-CPU pods in the queue of its name, the first of them running."""
    running = options.pop("running", 0)
    return list(gang(name, cpu, members=0, queue=name, on=["n"] * running, cpu=1, memory=0, **options))


def plugin(session: Session) -> ProportionPlugin:
    return plugin_of(session, ProportionPlugin)


def gauge(session: Session, series: str, name: str, **labels: str) -> float:
    wanted = {"queue_name": name, **labels}
    found = [
        entry.value
        for entry in plugin(session).gauges()
        if entry.name == f"volcano_queue_{series}" and dict(entry.labels) == wanted
    ]
    assert len(found) == 1
    return found[0]


def cpus(session: Session, series: str, name: str) -> float:
    return gauge(session, f"{series}_milli_cpu", name) / 1000


def deserved(*objects: Any, room: int = 8) -> dict[str, float]:
    session = session_of(node("n", cpu=room), *objects, conf=CONF)
    return {name: round(cpus(session, "deserved", name), 3) for name in sorted(session.queues) if name.startswith("q")}


# --- deserved -------------------------------------------------------------------------------------------------------


def test_the_cluster_is_divided_by_weight() -> None:
    assert deserved(queue("q1"), queue("q3", weight=3), wants("q1", 9), wants("q3", 9)) == {"q1": 2, "q3": 6}


def test_what_a_queue_does_not_ask_for_goes_to_the_others() -> None:
    """12 CPU, weights 1:1:2, q3 asks for 2 of its 6: its 4 go to q1 and q2 by their weights."""
    objects = [queue("q1"), queue("q2"), queue("q3", weight=2), wants("q1", 9), wants("q2", 9), wants("q3", 2)]
    assert deserved(*objects, room=12) == {"q1": 5, "q2": 5, "q3": 2}


def test_the_rounds_go_on_until_nothing_is_left_to_give() -> None:
    """10 CPU by thirds: q1 takes 1, then q2 takes 3; q3 gets all the rest."""
    objects = [queue("q1"), queue("q2"), queue("q3"), wants("q1", 1), wants("q2", 3), wants("q3", 20)]
    assert deserved(*objects, room=10) == {"q1": 1, "q2": 3, "q3": 6}


def test_a_queue_without_jobs_takes_no_part() -> None:
    assert deserved(queue("q1"), queue("q2", weight=7), wants("q1", 9)) == {"q1": 8, "q2": 0}


@pytest.mark.parametrize("weight", [-1, -5])
def test_a_queue_without_weight_takes_nothing_from_the_others(weight: int) -> None:
    objects = [queue("q1", weight=weight), queue("q2"), wants("q1", 9), wants("q2", 9)]
    assert deserved(*objects) == {"q1": 0, "q2": 8}


def test_a_queue_deserves_no_more_than_its_capability() -> None:
    objects = [queue("q1", capability={"cpu": "3"}), queue("q2"), wants("q1", 9), wants("q2", 9)]
    assert deserved(*objects) == {"q1": 3, "q2": 5}


def test_a_capability_of_zero_cpu_means_no_limit() -> None:
    """Volcano ``plugins/proportion``: cpu or memory of zero is taken as not given."""
    assert deserved(queue("q1", capability={"cpu": "0", "memory": "4Gi"}), wants("q1", 9)) == {"q1": 8}


def test_a_capability_of_zero_gpus_is_a_limit() -> None:
    session = session_of(
        node("n", gpu=4), queue("q", capability={"nvidia.com/gpu": "0"}), gang("q", 1, queue="q", gpu=1), conf=CONF
    )
    assert gauge(session, "deserved_scalar_resources", "q", resource="nvidia.com/gpu") == 0


def test_a_queue_deserves_no_less_than_its_guarantee() -> None:
    guaranteed = queue("q1", guarantee={"resource": {"cpu": "6"}})
    assert deserved(guaranteed, queue("q2"), wants("q1", 1), wants("q2", 9))["q1"] == 6


def test_what_is_guaranteed_to_others_is_not_in_reach() -> None:
    """8 - 5 guaranteed to q1, which has no job."""
    objects = [queue("q1", guarantee={"resource": {"cpu": "5"}}), queue("q2"), wants("q2", 9)]
    assert deserved(*objects)["q2"] == 3


def test_ones_own_guarantee_is_in_reach() -> None:
    objects = [queue("q1", guarantee={"resource": {"cpu": "5"}}), queue("q2"), wants("q1", 9), wants("q2", 9)]
    session = session_of(node("n", cpu=8), *objects, conf=CONF)
    assert (cpus(session, "real_capacity", "q1"), cpus(session, "real_capacity", "q2")) == (8, 3)


def test_the_capability_bounds_the_real_capacity() -> None:
    session = session_of(node("n", cpu=8), queue("q", capability={"cpu": "3"}), wants("q", 1), conf=CONF)
    assert (cpus(session, "capacity", "q"), cpus(session, "real_capacity", "q")) == (3, 3)


def test_what_runs_and_what_waits_is_the_request() -> None:
    session = session_of(node("n", cpu=8), queue("q"), wants("q", 5, running=2), conf=CONF)
    assert (cpus(session, "allocated", "q"), cpus(session, "request", "q")) == (2, 5)


def test_succeeded_and_leaving_pods_are_not_requested() -> None:
    pods = [
        pod("done", group="g", phase="Succeeded", on="n", cpu=1),
        pod("going", group="g", on="n", cpu=1, deleting=True),
    ]
    session = session_of(node("n"), queue("q"), group("g", queue="q"), *pods, conf=CONF)
    assert cpus(session, "request", "q") == 0


def test_each_resource_is_divided_by_itself() -> None:
    """Halves of what remains, until less than 0.1 milli-CPU does: Volcano stops there, too."""
    session = session_of(
        node("n", cpu=8, memory=8),
        *[queue("q1"), queue("q2")],
        gang("a", 8, members=0, queue="q1", cpu=1),
        gang("b", 8, members=0, queue="q2", memory=1),
        conf=CONF,
    )
    assert cpus(session, "deserved", "q1") == 8 - 8 / 2**17
    assert gauge(session, "deserved_memory_bytes", "q2") == pytest.approx(8 * GI, rel=1e-4)


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_queue_with_the_smaller_share_comes_first() -> None:
    """8 CPU, deserved 4 and 4: q1 has a share of 3/4, q2 of 1/4."""
    objects = [queue("q1"), queue("q2"), wants("q1", 9, running=3), wants("q2", 9, running=1)]
    session = session_of(node("n", cpu=8), *objects, conf=CONF)
    assert (gauge(session, "share", "q1"), gauge(session, "share", "q2")) == (0.75, 0.25)
    assert framework_of(session).queue_key(queue_of(session, "q2")) < framework_of(session).queue_key(
        queue_of(session, "q1")
    )


def test_the_queue_of_higher_priority_comes_first_whatever_its_share() -> None:
    objects = [queue("q1", priority=5), queue("q2"), wants("q1", 9, running=3), wants("q2", 9)]
    session = session_of(node("n", cpu=8), *objects, conf=CONF)
    assert framework_of(session).queue_key(queue_of(session, "q1")) < framework_of(session).queue_key(
        queue_of(session, "q2")
    )


def test_queue_order_off_leaves_it_to_age() -> None:
    objects = [queue("q1"), queue("q2"), wants("q1", 9, running=3), wants("q2", 9)]
    session = session_of(node("n", cpu=8), *objects, conf=CONF + "    enableQueueOrder: false\n")
    assert framework_of(session).queue_key(queue_of(session, "q1")) < framework_of(session).queue_key(
        queue_of(session, "q2")
    )


def test_the_share_is_the_largest_over_all_resources() -> None:
    session = session_of(
        node("n", cpu=8, memory=8), queue("q"), gang("q", 2, queue="q", on=["n"], cpu=1, memory=3), conf=CONF
    )
    assert gauge(session, "share", "q") == 0.5


def test_something_of_a_resource_that_is_not_deserved_is_a_share_of_one() -> None:
    session = session_of(
        node("n", cpu=8),
        queue("q", capability={"nvidia.com/gpu": "0"}),
        node("m", gpu=2),
        gang("q", 2, queue="q", on=["m"], cpu=1, gpu=1),
        conf=CONF,
    )
    assert gauge(session, "share", "q") == 1.0


# --- overused and allocatable ---------------------------------------------------------------------------------------


def test_a_queue_is_overused_when_it_has_all_it_deserves() -> None:
    session = session_of(node("n", cpu=4), queue("q"), wants("q", 4, running=4), conf=CONF)
    refusal = plugin(session).overused(queue_of(session, "q"))
    assert refusal is not None
    assert refusal.detail["deserved cpu"] == refusal.detail["allocated cpu"] == "4"


def test_a_queue_with_one_resource_left_is_not_overused() -> None:
    session = session_of(node("n", cpu=4), queue("q"), wants("q", 5, running=4), conf=CONF)
    assert plugin(session).overused(queue_of(session, "q")) is None  # a pod's place is left


def test_overused_off_lets_the_other_gate_decide() -> None:
    objects = [node("n", cpu=8), queue("q", capability={"cpu": "2", "pods": "2"}), wants("q", 3, running=2)]
    gates = [
        planned(*objects, conf=configuration).why["default/q"][0]["reason"]
        for configuration in (ALLOCATE, ALLOCATE + "    enabledOverused: false\n")
    ]
    assert gates == ["queue is overused", "queue has no room within what it deserves"]


def test_no_task_goes_beyond_what_its_queue_deserves() -> None:
    result = planned(node("n", cpu=8), queue("q", capability={"cpu": "2"}), wants("q", 5), conf=ALLOCATE)
    assert len(result.binds) == 2
    why = result.why["default/q"][0]
    assert why["detail"] == {"asks cpu": "1", "deserved cpu": "2", "allocated cpu": "2"}
    assert why["tasks"] == 3


def test_a_task_that_asks_for_another_resource_is_not_held_back() -> None:
    result = planned(
        node("n", cpu=8),
        queue("q", capability={"cpu": "1"}),
        gang("full", 1, queue="q", on=["n"], cpu=1),
        gang("mem", 1, queue="q", memory=1, created=9),
        conf=ALLOCATE,
    )
    assert result.binds == {"default/mem-0": "n"}


def test_allocatable_off_lets_the_queue_go_beyond() -> None:
    off = ALLOCATE + "    enabledAllocatable: false\n    enabledOverused: false\n"
    assert len(planned(node("n", cpu=8), queue("q", capability={"cpu": "2"}), wants("q", 5), conf=off).binds) == 5


@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown"])
def test_a_queue_that_is_not_open_takes_nothing(state: str) -> None:
    session = session_of(node("n"), queue("q", state=state), wants("q", 1), conf=CONF)
    assert told(plugin(session).allocatable(queue_of(session, "q"), task_of(session, "q-0"))) == (
        f"queue is {state}",
        {},
    )


def test_tasks_together_stay_within_what_the_queue_deserves() -> None:
    session = session_of(node("n", cpu=2), queue("q"), wants("q", 3), conf=CONF)
    three = tasks_of(session, "q-0", "q-1", "q-2")
    q = queue_of(session, "q")
    assert plugin(session).preemptive(q, three[:2]) is None
    assert plugin(session).preemptive(q, three) is not None


# --- enqueue --------------------------------------------------------------------------------------------------------


def vote(*objects: Any, room: int = 10) -> Vote | Reason:
    """What the plugin says to the group `new` of the queue q."""
    session = session_of(node("n", cpu=room), queue("q", capability={"cpu": "8"}), *objects, conf=CONF)
    return plugin(session).job_enqueueable(job_of(session, "new"))


def new(cpu: int | None, **options: Any) -> Manifest:
    minimum = {} if cpu is None else {"minimum": {"cpu": cpu}}
    return group("new", queue="q", members=99, phase="Pending", created=9, **minimum, **options)


def test_a_group_is_admitted_up_to_the_real_capacity() -> None:
    assert vote(new(8)) is Vote.PERMIT
    assert isinstance(vote(new(9)), Reason)


def test_a_group_without_minimum_is_permitted() -> None:
    assert vote(new(None)) is Vote.PERMIT


def test_what_runs_counts() -> None:
    old = gang("old", 3, members=3, queue="q", on=["n"] * 3, cpu=1, phase="Running", minimum={"cpu": 3})
    objects = list(old)
    assert vote(*objects, new(5)) is Vote.PERMIT
    assert isinstance(vote(*objects, new(6)), Reason)


def test_what_jobs_hold_above_their_minimum_does_not_count() -> None:
    """5 allocated, 3 of them elastic: 8 - 2 = 6 are in reach."""
    objects = list(gang("old", 5, members=2, queue="q", on=["n"] * 5, cpu=1, phase="Running", minimum={"cpu": 2}))
    assert vote(*objects, new(6)) is Vote.PERMIT
    assert isinstance(vote(*objects, new(7)), Reason)


def test_an_admitted_group_counts_with_what_it_still_misses() -> None:
    """minimum 4, 1 of it allocated: 1 + 3."""
    objects = list(gang("old", 4, members=4, queue="q", on=["n"], cpu=1, minimum={"cpu": 4}))
    assert vote(*objects, new(4)) is Vote.PERMIT
    assert isinstance(vote(*objects, new(5)), Reason)


def test_a_running_group_counts_with_what_it_still_misses() -> None:
    objects = list(gang("old", 4, members=1, queue="q", on=["n"], cpu=1, phase="Running", minimum={"cpu": 4}))
    assert vote(*objects, new(4)) is Vote.PERMIT
    assert isinstance(vote(*objects, new(5)), Reason)


def test_what_foreign_gates_hold_is_not_waited_for() -> None:
    gates = {"schedulingGates": [{"name": "example.com/wait"}]}
    objects = list(gang("old", 4, members=4, queue="q", cpu=1, minimum={"cpu": 4}, spec=gates))
    assert vote(*objects, new(8)) is Vote.PERMIT


def test_a_group_admitted_in_the_same_cycle_counts() -> None:
    phases = planned(
        node("n", cpu=10),
        queue("q", capability={"cpu": "8"}),
        group("a", queue="q", members=99, phase="Pending", minimum={"cpu": 5}),
        group("b", queue="q", members=99, phase="Pending", minimum={"cpu": 4}, created=1),
        group("c", queue="q", members=99, phase="Pending", minimum={"cpu": 3}, created=2),
        conf=conf("proportion", actions="enqueue"),
    ).phases
    assert [phases[f"default/{name}"] for name in "abc"] == ["Inqueue", "Pending", "Inqueue"]


def test_the_number_of_pods_is_not_compared() -> None:
    session = session_of(
        node("n", pods=1), queue("q"), group("new", queue="q", phase="Pending", minimum={"pods": 9}), conf=CONF
    )
    assert plugin(session).job_enqueueable(job_of(session, "new")) is Vote.PERMIT


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_not_open_admits_nothing(state: str) -> None:
    session = session_of(node("n"), queue("q", state=state), new(1), conf=CONF)
    assert told(plugin(session).job_enqueueable(job_of(session, "new"))) == (f"queue is {state}", {})


def test_the_refusal_names_all_quantities() -> None:
    objects = list(gang("old", 3, members=3, queue="q", on=["n"] * 3, cpu=1, phase="Running", minimum={"cpu": 3}))
    refusal = vote(*objects, new(6))
    assert told(refusal) == (
        "queue resource quota insufficient",
        {"asks cpu": "6", "would hold cpu": "9", "capability cpu": "8"},
    )


# --- victims --------------------------------------------------------------------------------------------------------


def reclaimed(*objects: Any, names: tuple[str, ...]) -> list[str]:
    session = session_of(node("n", cpu=8), *objects, conf=CONF)
    return let_go(plugin(session), "reclaimable", task_of(session, "q2-0"), tasks_of(session, *names))


def test_tasks_above_what_their_queue_deserves_may_be_reclaimed() -> None:
    """q1 deserves 4 and has 6: after two it has no more than it deserves."""
    objects = [queue("q1"), queue("q2"), wants("q1", 6, running=6), wants("q2", 9)]
    assert reclaimed(*objects, names=("q1-0", "q1-1", "q1-2", "q1-3")) == ["q1-0", "q1-1"]


def test_nothing_is_reclaimed_from_a_queue_within_what_it_deserves() -> None:
    objects = [queue("q1"), queue("q2"), wants("q1", 6, running=4), wants("q2", 9)]
    assert reclaimed(*objects, names=("q1-0", "q1-1")) == []


# --- accounts -------------------------------------------------------------------------------------------------------


def test_accounts_follow_placements_and_their_reverse() -> None:
    session = session_of(node("n", cpu=8), queue("q"), wants("q", 4, running=1), conf=CONF)
    statement = Statement(session.trial, "test", job_of(session, "q"))
    statement.allocate(task_of(session, "q-1"), 0)
    statement.pipeline(task_of(session, "q-2"), 0)
    statement.evict(task_of(session, "q-0"), "test")
    assert (cpus(session, "allocated", "q"), gauge(session, "share", "q")) == (2, 0.5)
    statement.discard()
    assert (cpus(session, "allocated", "q"), gauge(session, "share", "q")) == (1, 0.25)


def test_gauges_are_zero_for_a_queue_without_jobs() -> None:
    session = session_of(node("n"), queue("q"), conf=CONF)
    assert [cpus(session, series, "q") for series in ("allocated", "request", "inqueue", "deserved")] == [0] * 4
