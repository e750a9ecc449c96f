"""gangpreempt: bundles of jobs of lower priority in the same queue, for whole gangs.

Rules that hold for preempt, too, are in test_preempt.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.actions import test_preempt
from tests.actions.test_preempt import TIERS, job
from tests.actions.test_preempt import one_node as small
from tests.dsl import Manifest, gang, node
from vcd.scheduling.actions import _gang_eviction

KEEPS = {"volcano.sh/preemptable": "false"}

CONF = f'actions: "allocate, gangpreempt"{TIERS}'


def with_arguments(**arguments: Any) -> str:
    lines = "".join(f"    {key}: {value}\n" for key, value in arguments.items())
    return f"{CONF}configurations:\n- name: gangpreempt\n  arguments:\n{lines}"


preempted = partial(test_preempt.preempted, conf=CONF)
evictions = partial(test_preempt.evictions, conf=CONF)


# --- who asks -------------------------------------------------------------------------------------------------


def test_nobody_goes_where_not_all_would_have_room() -> None:
    plan = preempted(small(), job("old", "low", on=["n1"], cpu=4), job("new", "high", 3, members=1, cpu=2))
    assert (plan.evictions, plan.pipelined) == ([], {})


def test_a_node_that_is_over_takes_no_room_from_the_others() -> None:
    """Its cpu shrank below what runs there: that is no debt of the rest."""
    nodes = [node("n1", cpu=4), node("n2", cpu=1)]
    over = job("over", "high", on=["n2"], cpu=40)
    assert evictions(*nodes, over, job("old", "low", on=["n1"], cpu=4), job("new", "high", cpu=4)) == ["old-0"]


def test_room_that_another_jobs_victims_left_is_used_first() -> None:
    nodes = [node("n1", cpu=8), node("n2", cpu=8)]
    old = [job("a", "low", on=["n1"], cpu=8), job("b", "low", on=["n2"], cpu=8)]
    plan = preempted(*nodes, *old, job("new", "high", cpu=4), job("newer", "high", cpu=4, created=9))
    assert len(plan.evictions) == 1
    assert len(plan.pipelined) == 2


# --- bundles ----------------------------------------------------------------------------------------------------


def test_what_a_job_can_spare_goes_before_any_job_as_a_whole() -> None:
    """Even where the job that can spare comes later in the order of victims."""
    old = [job("whole", "low", 2, members=2, on=["n1"] * 2, cpu=1), job("safe", "middle", 2, on=["n1"] * 2, cpu=1)]
    assert evictions(small(), *old, job("new", "high", cpu=1)) == ["safe-0"]


def test_a_job_goes_as_a_whole_where_nothing_is_to_spare() -> None:
    old = job("old", "low", 4, members=4, on=["n1"] * 4, cpu=1)
    assert evictions(small(), old, job("new", "high", cpu=1)) == [f"old-{i}" for i in range(4)]


def test_not_as_a_whole_where_that_is_not_allowed() -> None:
    old = job("old", "low", 4, members=4, on=["n1"] * 4, cpu=1)
    conf = with_arguments(allowWholeBundle="false")
    assert evictions(small(), old, job("new", "high", cpu=1), conf=conf) == []
    spare = job("old", "low", 4, members=3, on=["n1"] * 4, cpu=1)
    assert evictions(small(), spare, job("new", "high", cpu=1), conf=conf) == ["old-0"]


def test_the_rest_goes_after_what_was_spare() -> None:
    old = job("old", "low", 4, members=3, on=["n1"] * 4, cpu=1)
    assert len(evictions(small(), old, job("new", "high", cpu=2))) == 4


def test_what_a_whole_job_could_spare_goes_with_it() -> None:
    """The four on n2 help nobody, but would be all that is left of a gang of seven."""
    nodes = [node("n1", cpu=4), node("n2", cpu=4)]
    old = job("old", "low", 8, members=7, on=["n1"] * 4 + ["n2"] * 4, cpu=1)
    assert len(evictions(*nodes, old, job("new", "high", cpu=4))) == 8


def test_a_job_that_helps_nobody_is_given_back_whole() -> None:
    """The gang on n2 comes first in the order of victims; the room that the new one can use is on n1."""
    nodes = [node("n1", cpu=4, labels={"disk": "ssd"}), node("n2", cpu=4)]
    old = [
        job("away", "low", 4, members=4, on=["n2"] * 4, cpu=1),
        job("here", "middle", 4, members=4, on=["n1"] * 4, cpu=1),
    ]
    new = job("new", "high", cpu=2, spec={"nodeSelector": {"disk": "ssd"}})
    assert evictions(*nodes, *old, new) == [f"here-{i}" for i in range(4)]


def test_the_job_that_comes_last_goes_first() -> None:
    old = [job("a", "middle", 2, members=2, on=["n1"] * 2, cpu=1), job("b", "low", 2, members=2, on=["n1"] * 2, cpu=1)]
    assert evictions(small(), *old, job("new", "high", cpu=2)) == ["b-0", "b-1"]


def test_the_lowest_task_is_spared_last() -> None:
    old = job("old", "low", 4, members=3, on=["n1"] * 4, cpu=1)
    old[3]["metadata"]["annotations"]["volcano.sh/task-priority"] = "1"
    assert evictions(small(), old, job("new", "high", cpu=1)) == ["old-2"]


def roles(minima: dict[str, int], *, members: int) -> list[Manifest]:
    """Two tasks of role m and two of role w."""
    spec = {"minTaskMember": minima, "priorityClassName": "low"}
    manifests = list(gang("old", 4, members=members, on=["n1"] * 4, cpu=1, group_spec=spec, spec={"priority": 10}))
    for manifest, role in zip(manifests[1:], "mmww", strict=True):
        manifest["metadata"]["annotations"]["volcano.sh/task-spec"] = role
    return manifests


@pytest.mark.parametrize(("worker_minimum", "victim"), [(1, "old-2"), (2, "old-0")])
def test_roles_keep_their_minima_if_the_minimum_of_the_job_is_at_least_their_sum(
    worker_minimum: int, victim: str
) -> None:
    old = roles({"m": 2, "w": worker_minimum}, members=3)
    assert evictions(small(), old, job("new", "high", cpu=1)) == [victim]


def test_a_broken_gang_may_lose_any_task() -> None:
    old = job("old", "low", 4, members=5, on=["n1"] * 4, cpu=1)
    assert len(evictions(small(), old, job("new", "high", cpu=1))) == 1


def test_a_gang_that_is_about_to_be_whole_is_not_broken() -> None:
    """Its second task waits for room that is being freed: the first one does not go before that."""
    nodes = [node("n1", cpu=4, labels={"disk": "ssd"}), node("n2", cpu=4)]
    half = job("half", "middle", 2, members=2, on=["n1"], cpu=4)
    leaving = job("leaving", "low", on=["n2"], cpu=4, deleting=True)
    new = job("new", "high", cpu=4, spec={"nodeSelector": {"disk": "ssd"}})
    plan = preempted(*nodes, half, leaving, new)
    assert (plan.evictions, plan.pipelined) == ([], {"default/half-1": "n2"})
    assert evictions(nodes[0], half, new) == ["half-0"]


# --- who stays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_group_that_says_so_stays(where: str) -> None:
    old = job("old", "low", 4, on=["n1"] * 4, cpu=1)
    old[0]["metadata"][where] = {"volcano.sh/preemptable": "false"}
    assert evictions(small(), old, job("new", "high", cpu=1)) == []


@pytest.mark.parametrize(
    ("members", "change", "cpu"),
    [
        (4, {"metadata": {"annotations": {"volcano.sh/preemptable": "false"}}}, 1),
        (3, {"spec": {"priorityClassName": "system-node-critical"}}, 2),  # one of the pods that the job could spare
    ],
    ids=["annotation", "system pod"],
)
def test_a_job_with_a_protected_pod_is_not_evicted_as_a_whole(members: int, change: Manifest, cpu: int) -> None:
    old = job("old", "low", 4, members=members, on=["n1"] * 4, cpu=1)
    old[1]["metadata"]["annotations"] |= change.get("metadata", {}).get("annotations", {})
    old[1]["spec"] |= change.get("spec", {})
    assert evictions(small(), old, job("new", "high", cpu=cpu)) == []


# --- arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 8, 100])
def test_domains_are_accepted(value: int) -> None:
    conf = with_arguments(maxDomains=value)
    assert evictions(small(), job("old", "low", on=["n1"], cpu=4), job("new", "high", cpu=4), conf=conf) == ["old-0"]


@pytest.mark.parametrize(("key", "value"), [("maxDomains", "many"), ("allowWholeBundle", "perhaps")])
def test_a_wrong_argument_is_an_error_that_names_it(key: str, value: Any) -> None:
    with pytest.raises(Exception, match=key):
        preempted(small(), conf=with_arguments(**{key: value}))


def test_bundles_after_which_some_task_has_no_node_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of jobs on nodes that are never empty each gang that waited took many seconds, every session."""
    tried = []
    place_all = _gang_eviction._place_all
    monkeypatch.setattr(_gang_eviction, "_place_all", lambda *given: tried.append(given) or place_all(*given))
    nodes = [node(f"n{i}", cpu=4) for i in range(5)]
    kept = [job(f"kept{i}", "low", on=[f"n{i}"], cpu=1, annotations=KEEPS) for i in range(5)]
    old = [job(f"old{i}-{j}", "low", on=[f"n{i}"], cpu=1) for i in range(5) for j in range(3)]
    assert evictions(*nodes, *kept, *old, job("new", "high", 2, members=2, cpu=4)) == []
    assert tried == []
    assert len(evictions(*nodes, *old, job("new", "high", 2, members=2, cpu=4))) == 6
    assert len(tried) < 7
