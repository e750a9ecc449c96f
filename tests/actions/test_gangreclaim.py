"""gangreclaim: bundles of other queues, for whole gangs of queues below their share.

Rules that hold for reclaim, too, are in test_reclaim.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.actions import test_reclaim
from tests.actions.test_reclaim import full, job, two_queues
from tests.dsl import node, pod, queue

CONF = test_reclaim.GANGS


reclaimed = partial(test_reclaim.reclaimed, conf=CONF)
evictions = partial(test_reclaim.evictions, conf=CONF)


def test_nobody_goes_where_not_all_would_have_room() -> None:
    plan = reclaimed(*two_queues(), *full(), job("b", "new", 2, members=1, cpu=8))
    assert (plan.evictions, plan.pipelined) == ([], {})


def test_a_queue_takes_no_more_than_its_share_with_all_tasks() -> None:
    """Four of eight cpu are its own: five tasks get nothing, four all."""
    assert evictions(*two_queues(), *full(), job("b", "new", 5, members=1, cpu=1)) == []
    assert len(evictions(*two_queues(), *full(), job("b", "new", 4, members=1, cpu=1))) == 4


@pytest.mark.parametrize("members", [1, 8])
def test_bound_tasks_that_do_not_run_go_like_running_ones(members: int) -> None:
    """Eight of eight are the minimum: the job goes as a whole."""
    old = full(members=members)
    old[-1]["status"] = {"phase": "Pending"}
    wanted = [*two_queues(), *job("b", "new", cpu=1)]
    assert evictions(*wanted, old) == evictions(*wanted, full(members=members))
    bound = [{**entry, "status": {"phase": "Pending"}} if entry["kind"] == "Pod" else entry for entry in old]
    assert len(evictions(*wanted, bound)) == members


def test_what_a_job_can_spare_goes_before_any_job_as_a_whole() -> None:
    old = [*job("a", "old", 4, members=4, on=["n1"] * 4, cpu=1), *job("s", "old", 4, members=3, on=["n1"] * 4, cpu=1)]
    assert evictions(*two_queues(), node("n1"), old, job("b", "new", cpu=1)) == ["s-0"]


def test_a_job_goes_as_a_whole_where_nothing_is_to_spare() -> None:
    assert len(evictions(*two_queues(), *full(members=8), job("b", "new", cpu=1))) == 8


def test_no_job_is_evicted_as_a_whole_if_that_is_not_allowed() -> None:
    conf = CONF + test_reclaim.SPARE
    assert evictions(*two_queues(), *full(members=8), job("b", "new", cpu=1), conf=conf) == []
    assert len(evictions(*two_queues(), *full(members=7), job("b", "new", cpu=1), conf=conf)) == 1


def test_the_queue_that_is_served_last_gives_first() -> None:
    queues = [queue("few"), queue("many"), queue("new")]
    old = [*job("f", "few", 3, members=3, on=["n1"] * 3, cpu=1), *job("m", "many", 5, members=5, on=["n1"] * 5, cpu=1)]
    assert evictions(*queues, node("n1"), old, job("b", "new", cpu=1)) == [f"m-{i}" for i in range(5)]


def test_of_one_queue_the_job_goes_that_loses_least_for_what_it_gives() -> None:
    """Both give the two cpu; the big one would lose six more on another node."""
    nodes = [node("n1", cpu=4), node("n2", cpu=6)]
    big = job("big", "old", 8, members=8, on=["n1"] * 2 + ["n2"] * 6, cpu=1)
    small = job("small", "old", 2, members=2, on=["n1"] * 2, cpu=1)
    assert evictions(*two_queues(), *nodes, big, small, job("b", "new", cpu=2)) == ["small-0", "small-1"]


def test_a_job_that_helps_nobody_is_given_back_whole() -> None:
    nodes = [node("n1", cpu=4, labels={"disk": "ssd"}), node("n2", cpu=4)]
    old = [
        *job("away", "old", 4, members=4, on=["n2"] * 4, cpu=1),
        *job("here", "old", 4, members=4, on=["n1"] * 4, cpu=1),
    ]
    new = job("b", "new", cpu=2, spec={"nodeSelector": {"disk": "ssd"}})
    assert evictions(*two_queues(), *nodes, old, new) == [f"here-{i}" for i in range(4)]


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_group_that_says_so_stays(where: str) -> None:
    old = full()
    old[1]["metadata"][where] = {"volcano.sh/preemptable": "false"}
    assert evictions(*two_queues(), old, job("b", "new", cpu=1)) == []


CAPACITY = CONF.replace("proportion", "capacity")
TREE = CAPACITY.replace("name: capacity", "name: capacity\n    enableHierarchy: true")


@pytest.mark.parametrize("rest", [{}, {"memory": 1}], ids=["nothing", "only memory"])
def test_a_job_goes_as_a_whole_though_one_of_its_pods_holds_nothing_of_what_is_asked_for(rest: dict[str, int]) -> None:
    old = [*job("a", "old", 2, members=2, on=["n1"], cpu=8)[:-1], pod("a-1", group="a", on="n1", **rest)]
    queues = two_queues(deserved={"cpu": "4"})
    assert evictions(*queues, node("n1"), old, job("b", "new", cpu=4), conf=CAPACITY) == ["a-0", "a-1"]


def test_pods_that_hold_nothing_make_place_where_a_node_takes_no_more_pods() -> None:
    old = job("a", "old", 3, on=["n1"] * 3)
    assert evictions(*two_queues(), node("n1", pods=3), old, job("b", "new", cpu=1), conf=CAPACITY) == ["a-0"]


@pytest.mark.parametrize("ahead", ["gated", "placed"])
def test_a_full_parent_is_judged_by_what_the_gang_asks_for_now(ahead: str) -> None:
    """Four of the parent's six cpu are asked for; two more wait at a gate, or got their place in this session."""
    queues = [queue("root"), queue("old"), queue("p", capability={"cpu": "6"}, deserved={"cpu": "6"})]
    queues.append(queue("new", parent="p", deserved={"cpu": "6"}))
    new = job("b", "new", 3, cpu=2)
    nodes = [node("n1", cpu=8)]
    if ahead == "gated":
        new[-1]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    else:
        nodes.append(node("n2", cpu=2))
    conf = TREE.replace("name: gang", "name: gang\n    enableJobStarving: false")
    plan = reclaimed(*queues, *nodes, job("a", "old", 8, on=["n1"] * 8, cpu=1), new, conf=conf)
    assert len(plan.evictions) == 4
    assert len(plan.pipelined) == 2
