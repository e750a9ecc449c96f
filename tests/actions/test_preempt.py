"""preempt: who may ask, whom, in which order, and what comes of it.

Rules that hold for all actions that evict are in tests/pains/test_04, test_05 and test_12.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, moment, node, planned, pod, priority_class, queue
from vcd.timetravel.planning import PlanResult

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: conformance
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
"""
CONF = f'actions: "allocate, preempt"{TIERS}'
EACH = pytest.mark.parametrize("conf", [CONF, CONF.replace("preempt", "gangpreempt")], ids=["preempt", "gangpreempt"])
"""The rule holds for both actions that evict within a queue."""
CLASSES = [priority_class("high", 100), priority_class("middle", 50), priority_class("low", 10)]
VALUES = {"high": 100, "middle": 50, "low": 10}


def job(name: str, rank: str, size: int = 1, *, spec: Manifest | None = None, **options: Any) -> list[Manifest]:
    """A job of a priority class, whose pods have its priority; it can lose all but one pod."""
    options.setdefault("members", 1)
    pod_spec = {"priority": VALUES[rank], **(spec or {})}
    return list(gang(name, size, group_spec={"priorityClassName": rank}, spec=pod_spec, **options))


def preempted(*objects: Manifest | Iterable[Manifest], conf: str = CONF) -> PlanResult:
    return planned(CLASSES, *objects, conf=conf)


def evictions(*objects: Manifest | Iterable[Manifest], conf: str = CONF) -> list[str]:
    return [key.partition("/")[2] for key in sorted(preempted(*objects, conf=conf).evictions)]


def one_node(**options: Any) -> Manifest:
    return node("n1", cpu=4, **options)


# --- who asks -------------------------------------------------------------------------------------------------------


def test_a_job_of_higher_priority_waits_for_the_room_of_a_lower_one() -> None:
    plan = preempted(one_node(), job("old", "low", on=["n1"], cpu=4), job("new", "high", cpu=4))
    assert plan.evictions == ["default/old-0"]
    assert plan.pipelined == {"default/new-0": "n1"}
    assert plan.binds == {}


@EACH
@pytest.mark.parametrize("rank", ["low", "middle"])
def test_a_job_of_the_same_or_a_lower_priority_takes_nothing(rank: str, conf: str) -> None:
    assert evictions(one_node(), job("old", "middle", on=["n1"], cpu=4), job("new", rank, cpu=4), conf=conf) == []


BY_SHARE = CONF.replace("name: predicates", "name: drf\n  - name: predicates")
BY_SURPLUS = CONF.replace("name: priority", "name: priority\n    enablePreemptable: false")


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("conf", [BY_SHARE, BY_SURPLUS], ids=["drf", "gang"])
def test_whichever_plugin_names_pods_of_higher_priority_they_stay(conf: str, size: int) -> None:
    """They would come back and have what was freed: every one of them was evicted in vain, one after the other."""
    objects = (one_node(), job("old", "high", 4, on=["n1"] * 4, cpu=1), job("new", "low", size, cpu=1, created=1))
    plan = preempted(*objects, conf=conf)
    assert plan.evictions == []
    assert "whose priority is not lower" in str(plan.why["default/new"])


@pytest.mark.parametrize("conf", [BY_SHARE, BY_SURPLUS], ids=["drf", "gang"])
def test_pods_of_the_same_priority_are_evicted_as_the_plugins_say(conf: str) -> None:
    objects = (one_node(), job("old", "high", 4, on=["n1"] * 4, cpu=1), job("new", "high", cpu=1, created=1))
    assert len(evictions(*objects, conf=conf)) == 1


def test_a_job_that_has_what_it_needs_takes_nothing() -> None:
    """With gang alone in the first tier a job starves only below its minimum."""
    conf = 'actions: "allocate, preempt"\ntiers:\n- plugins:\n  - name: gang\n    enablePreemptable: false\n'
    conf += "- plugins:\n  - name: priority\n"
    room = [node("n1", cpu=4), node("n2", cpu=4)]
    new = job("new", "high", 2, members=1, on=["n2"], cpu=4)
    assert evictions(*room, job("old", "low", on=["n1"], cpu=4), new, conf=conf) == []


def test_a_group_that_was_not_admitted_takes_nothing() -> None:
    conf = f'actions: "enqueue, allocate, preempt"{TIERS}'.replace("name: gang", "name: gang\n  - name: overcommit")
    old = job("old", "low", on=["n1"], cpu=4)
    asked = {"minimum": {"cpu": 100}, "phase": "Pending"}
    assert evictions(one_node(), old, job("new", "high", cpu=4, **asked), conf=conf) == []
    assert evictions(one_node(), old, job("new", "high", cpu=4), conf=conf) == ["old-0"]


@EACH
@pytest.mark.parametrize(
    "options",
    [
        {"members": 2},  # it lacks a pod
        {"spec": {"preemptionPolicy": "Never"}},
        {"spec": {"schedulingGates": [{"name": "mine"}]}},
        {"spec": {"nodeSelector": {"disk": "ssd"}}},
        {"queue": "other"},
    ],
    ids=repr,
)
def test_a_job_takes_nothing(options: dict[str, Any], conf: str) -> None:
    objects = [one_node(), queue("other"), job("old", "low", on=["n1"], cpu=4)]
    assert evictions(*objects, job("new", "high", cpu=4), conf=conf) == ["old-0"]
    assert evictions(*objects, job("new", "high", cpu=4, **options), conf=conf) == []


@EACH
@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_not_open_takes_nothing(state: str, conf: str) -> None:
    jobs = [job("old", "low", on=["n1"], cpu=4, queue="q"), job("new", "high", cpu=4, queue="q")]
    assert evictions(one_node(), queue("q", state=state), *jobs, conf=conf) == []


# --- whom -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("narrow", "wide"), [("n1", "n2"), ("n2", "n1")])
def test_a_node_that_had_nothing_is_looked_at_again_once_others_made_room_in_the_queue(narrow: str, wide: str) -> None:
    """Its one victim makes no room in a queue that holds too much, and is enough once those of the other node go."""
    conf = CONF.replace("name: nodeorder", "name: capacity")
    held = [job(f"low-{number}", "low", on=[wide], cpu=1) for number in range(3)]
    held += [job("low-3", "low", on=[narrow], cpu=1), job("keep", "low", 2, members=2, on=[narrow] * 2, cpu=1)]
    room = [node("n1", cpu=3), node("n2", cpu=3), queue("default", capability={"cpu": "4"})]
    plan = preempted(*room, *held, job("new", "high", 2, members=2, cpu=1), conf=conf)
    assert plan.evictions == [f"default/low-{number}-0" for number in range(4)]
    assert plan.pipelined == {"default/new-0": wide, "default/new-1": narrow}


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_pod_that_says_so_is_no_victim(where: str) -> None:
    marks: dict[str, Any] = {where: {"volcano.sh/preemptable": "false"}}
    assert evictions(one_node(), job("old", "low", on=["n1"], cpu=4, **marks), job("new", "high", cpu=4)) == []


def test_the_annotation_outweighs_the_label() -> None:
    marks: dict[str, Any] = {
        "labels": {"volcano.sh/preemptable": "false"},
        "annotations": {"volcano.sh/preemptable": "true"},
    }
    old = job("old", "low", on=["n1"], cpu=4, **marks)
    assert evictions(one_node(), old, job("new", "high", cpu=4)) == ["old-0"]


def test_a_pod_that_is_bound_and_not_started_yet_may_go() -> None:
    old = job("old", "low", on=["n1"], cpu=4)
    waiting = [{**entry, "status": {"phase": "Pending"}} if entry["kind"] == "Pod" else entry for entry in old]
    assert evictions(one_node(), waiting, job("new", "high", cpu=4)) == ["old-0"]


def test_a_role_that_has_its_minimum_takes_no_room_from_one_that_has_not() -> None:
    """Tried in their order, the worker takes what the master needs, and nobody may wait."""
    marks = [{"volcano.sh/task-spec": role} for role in ("worker", "master")]
    pods = [pod(f"p-{i}", group="g", cpu=3, annotations=mark, created=i) for i, mark in enumerate(marks)]
    asks = group("g", members=1, minTaskMember={"master": 1}, priorityClassName="high")
    result = preempted(one_node(), job("low", "low", 4, members=1, on=["n1"] * 4, cpu=1, phase="Running"), asks, pods)
    assert result.pipelined == {"default/p-1": "n1"}
    assert len(result.evictions) == 3


@EACH
def test_system_pods_stay(conf: str) -> None:
    system = job("old", "low", on=["n1"], cpu=4, spec={"priorityClassName": "system-node-critical"})
    assert evictions(one_node(), system, job("new", "high", cpu=4), conf=conf) == []


def test_a_best_effort_pod_has_only_best_effort_ones_evicted() -> None:
    node_of_two = node("n1", cpu=4, pods=2)
    old = [job("cpu", "low", on=["n1"], cpu=4), job("none", "low", on=["n1"], created=1)]
    assert evictions(node_of_two, *old, job("new", "high")) == ["none-0"]


@EACH
def test_a_best_effort_pod_costs_nobody_else_anything(conf: str) -> None:
    full = node("n1", cpu=4, pods=1)
    assert evictions(full, job("old", "low", on=["n1"], cpu=4), job("new", "high"), conf=conf) == []


def test_victims_keep_their_gangs_minimum_by_the_plugin_of_another_tier() -> None:
    """gang stands in the second tier, priority decides in the first; still no gang is broken (docs/laws.md, law 7)."""
    old = job("old", "low", 4, members=4, on=["n1"] * 4, cpu=1)
    assert evictions(one_node(), old, job("new", "high", cpu=1)) == []


# --- in which order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"annotations": {"volcano.sh/task-priority": "5"}}, {"creationTimestamp": moment(60)}],
    ids=["priority", "age"],
)
def test_of_a_job_the_task_of_lowest_priority_or_the_youngest_is_evicted_first(change: Manifest) -> None:
    old = job("old", "low", 2, on=["n1", "n1"], cpu=2)
    meta = old[1]["metadata"]
    meta |= {**change, "annotations": meta["annotations"] | change.get("annotations", {})}
    assert evictions(one_node(), old, job("new", "high", cpu=2)) == ["old-0"]


def test_the_job_of_lowest_priority_goes_first() -> None:
    old = [job("a", "middle", on=["n1"], cpu=2), job("b", "low", on=["n1"], cpu=2)]
    assert evictions(one_node(), *old, job("new", "high", cpu=2)) == ["b-0"]


def test_jobs_outweigh_tasks() -> None:
    """The job of lower priority goes although its task has the higher one."""
    old = [
        job("a", "middle", on=["n1"], cpu=2, annotations={"volcano.sh/task-priority": "1"}),
        job("b", "low", on=["n1"], cpu=2, annotations={"volcano.sh/task-priority": "90"}),
    ]
    assert evictions(one_node(), *old, job("new", "high", cpu=2)) == ["b-0"]


def test_only_as_many_go_as_are_needed() -> None:
    assert evictions(one_node(), job("old", "low", 4, on=["n1"] * 4, cpu=1), job("new", "high", cpu=2)) == [
        "old-2",
        "old-3",
    ]


def test_the_highest_job_is_served_first() -> None:
    plan = preempted(
        one_node(), job("old", "low", on=["n1"], cpu=4), job("a", "middle", cpu=4), job("b", "high", cpu=4)
    )
    assert plan.pipelined == {"default/b-0": "n1"}


# --- all or nothing -------------------------------------------------------------------------------------------------


@EACH
def test_a_gang_waits_whole(conf: str) -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4)]
    old = [job("a", "low", on=["n1"], cpu=4), job("b", "low", on=["n2"], cpu=4)]
    plan = preempted(*nodes, *old, job("new", "high", 2, members=2, cpu=4), conf=conf)
    assert sorted(plan.evictions) == ["default/a-0", "default/b-0"]
    assert sorted(plan.pipelined) == ["default/new-0", "default/new-1"]
    assert sorted(plan.pipelined.values()) == ["n1", "n2"]


def test_nobody_goes_for_a_gang_that_could_not_wait_whole() -> None:
    old = job("old", "low", on=["n1"], cpu=4)
    plan = preempted(one_node(), old, job("new", "high", 2, members=2, cpu=4))
    assert (plan.evictions, plan.pipelined) == ([], {})


@EACH
def test_a_gang_uses_free_nodes_and_has_others_emptied(conf: str) -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4)]
    plan = preempted(*nodes, job("old", "low", on=["n1"], cpu=4), job("new", "high", 2, members=2, cpu=4), conf=conf)
    assert plan.evictions == ["default/old-0"]
    assert sorted(plan.pipelined.values()) == ["n1", "n2"]


@pytest.mark.parametrize("aware", ["false", "true"])
def test_room_that_an_eviction_left_is_used_before_others_go(aware: str) -> None:
    nodes = [node(name, cpu=8) for name in ("n1", "n2", "n3")]
    old = [job(f"old{name}", "low", on=[name], cpu=8) for name in ("n1", "n2", "n3")]
    conf = CONF + f"configurations:\n- name: preempt\n  arguments:\n    enableTopologyAwarePreemption: {aware}\n"
    plan = preempted(*nodes, *old, job("new", "high", 2, members=2, cpu=4), conf=conf)
    assert len(plan.evictions) == 1
    assert len(plan.pipelined) == 2


def test_a_gang_that_is_not_whole_holds_no_room() -> None:
    """The two that fit are not nominated: backfill and others may have the room."""
    plan = preempted(node("n1", cpu=4), job("new", "high", 3, members=3, cpu=2))
    assert plan.pipelined == {}


# --- within a job ---------------------------------------------------------------------------------------------------


def within(**options: Any) -> list[Manifest]:
    """A job whose running tasks have a lower priority than the one that waits."""
    manifests = job("own", "low", 3, on=["n1", "n1"], cpu=2, **options)
    manifests[3]["metadata"]["annotations"]["volcano.sh/task-priority"] = "20"
    return manifests


def test_a_task_takes_room_from_a_lower_one_of_its_job() -> None:
    plan = preempted(one_node(), within())
    assert plan.evictions == ["default/own-1"]
    assert plan.pipelined == {"default/own-2": "n1"}


def test_equal_tasks_of_a_job_take_nothing_from_each_other() -> None:
    """Where no later tier names them: gang would, above the minimum (as Volcano)."""
    conf = CONF.replace("name: gang", "name: gang\n    enablePreemptable: false")
    assert evictions(one_node(), job("own", "low", 3, on=["n1", "n1"], cpu=2), conf=conf) == []


def test_a_job_takes_nothing_from_itself_that_it_needs_whole() -> None:
    """Its minimum is three: one for one leaves two."""
    assert evictions(one_node(), within(members=3)) == []


# --- the nominated node ---------------------------------------------------------------------------------------------


def nominated(name: str, where: str, **options: Any) -> list[Manifest]:
    manifests = job(name, "high", **options)
    manifests[1]["status"]["nominatedNodeName"] = where
    return manifests


def conflicting(*, leaving: bool) -> list[Any]:
    """Nobody may be where app=old is; it is on both nodes, and leaves n1, which is nominated, or not."""
    labels = {"app": "old"}
    rule = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}
    return [
        [node("n1"), node("n2")],
        job("a", "low", on=["n1"], cpu=1, labels=labels, deleting=leaving),
        job("b", "low", on=["n2"], cpu=1, labels=labels),
        nominated("new", "n1", cpu=1, spec=apart),
    ]


def test_a_task_waits_while_lower_ones_leave_its_nominated_node() -> None:
    plan = preempted(*conflicting(leaving=True))
    assert (plan.evictions, plan.pipelined) == ([], {})


def test_a_task_whose_nominated_node_nobody_leaves_asks_again() -> None:
    plan = preempted(*conflicting(leaving=False))
    assert len(plan.evictions) == 1
    assert list(plan.pipelined) == ["default/new-0"]


def test_a_task_whose_nominated_node_is_gone_asks_again() -> None:
    new = nominated("new", "n9", cpu=4)
    assert evictions(one_node(), job("old", "low", on=["n1"], cpu=4), new) == ["old-0"]


def test_a_task_whose_nominated_node_can_never_take_it_asks_again() -> None:
    nodes = [node("n1", cpu=4, unschedulable=True), node("n2", cpu=4)]
    old = [job("a", "low", on=["n1"], cpu=4, deleting=True), job("b", "low", on=["n2"], cpu=4)]
    assert evictions(*nodes, *old, nominated("new", "n1", cpu=4)) == ["b-0"]


def test_a_gang_that_lost_one_of_its_nominated_nodes_asks_for_another() -> None:
    """new-0 has its room on n1 still, new-1 finds n2 taken; before, new-0 waited for ever and the gang with it."""
    nodes = [node("n1", cpu=4), node("n2", cpu=4), node("n3", cpu=4)]
    others = [job("top", "high", on=["n2"], cpu=4), job("old", "low", on=["n3"], cpu=4)]
    new = job("new", "high", 2, members=2, cpu=4)
    for manifest, where in zip(new[1:], ("n1", "n2"), strict=True):
        manifest["status"]["nominatedNodeName"] = where
    plan = preempted(*nodes, *others, new)
    assert plan.evictions == ["default/old-0"]
    assert plan.pipelined == {"default/new-0": "n1", "default/new-1": "n3"}


# --- predicates as they are after the evictions -----------------------------------------------------------------------


def affine(kind: str, labels: dict[str, str]) -> Manifest:
    rule = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}


@EACH
def test_a_pod_that_the_task_must_not_meet_is_evicted_though_there_is_room(conf: str) -> None:
    old = [job("far", "low", on=["n1"], cpu=1), job("near", "low", on=["n1"], cpu=1, labels={"app": "x"})]
    new = job("new", "high", cpu=1, spec=affine("podAntiAffinity", {"app": "x"}))
    assert evictions(node("n1"), *old, new, conf=conf) == ["near-0"]


def test_whom_the_task_must_not_meet_goes_beside_those_whose_room_it_needs() -> None:
    """The one in the way has no cpu, and comes first in the order of victims."""
    old = [job("room", "middle", on=["n1"], cpu=4), job("near", "low", on=["n1"], labels={"app": "x"})]
    new = job("new", "high", cpu=4, spec=affine("podAntiAffinity", {"app": "x"}))
    assert evictions(one_node(), *old, new) == ["near-0", "room-0"]


def test_the_company_that_a_task_needs_does_not_go_for_it() -> None:
    old = job("old", "low", on=["n1"], cpu=4, labels={"app": "x"})
    assert evictions(one_node(), old, job("new", "high", cpu=4, spec=affine("podAffinity", {"app": "x"}))) == []


def spread(**labels: str) -> Manifest:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return {"topologySpreadConstraints": [constraint]}


def test_a_gang_is_spread_over_the_zones_that_are_emptied_for_it() -> None:
    """Each zone is too full for a moment, then open again: no node is given up for good."""
    nodes = [node(f"n{zone}", cpu=4, labels={"zone": zone}) for zone in "ab"]
    old = [job(f"old-{zone}", "low", 4, on=[f"n{zone}"] * 4, cpu=1) for zone in "ab"]
    new = job("new", "high", 6, members=6, cpu=1, labels={"app": "new"}, spec=spread(app="new"))
    plan = preempted(*nodes, *old, new)
    assert len(plan.evictions) == 6
    assert sorted(plan.pipelined.values()) == ["na"] * 3 + ["nb"] * 3


def test_nobody_goes_where_the_spread_forbids_the_task_all_the_same() -> None:
    nodes = [node("na", cpu=4, labels={"zone": "a"}), node("nb", cpu=4, labels={"zone": "b"}, unschedulable=True)]
    top = job("top", "high", on=["na"], cpu=1, labels={"app": "new"})
    new = job("new", "high", cpu=3, labels={"app": "new"}, spec=spread(app="new"))
    blocked = {**nodes[1], "spec": {}}  # nb is there, and full of what may not go
    full = job("full", "high", on=["nb"], cpu=4)
    assert evictions(nodes[0], blocked, top, full, job("old", "low", on=["na"], cpu=3), new) == []


def test_tasks_of_one_spec_and_other_labels_are_told_apart() -> None:
    """new-0 may not meet top, which new-1 may: what new-0 found nothing on is not closed to new-1."""
    top = job("top", "high", on=["n1"], cpu=1, spec=affine("podAntiAffinity", {"part": "zero"}))
    old = job("old", "low", on=["n1"], cpu=3)
    new = job("new", "high", 2, members=1, cpu=3)
    new[1]["metadata"]["labels"]["part"] = "zero"
    plan = preempted(one_node(), top, old, new)
    assert plan.pipelined == {"default/new-1": "n1"}


# --- arguments --------------------------------------------------------------------------------------------------------


def aware(**arguments: int) -> str:
    values: dict[str, Any] = {"enableTopologyAwarePreemption": "true", "minCandidateNodesAbsolute": 10, **arguments}
    lines = "".join(f"    {key}: {value}\n" for key, value in values.items())
    return f"{CONF}configurations:\n- name: preempt\n  arguments:\n{lines}"


def chosen(*objects: Any, conf: str | None = None) -> str:
    """The node on which somebody goes, of n1 and n2 with 4 cpu each, for a task that wants all of one."""
    plan = preempted(node("n1", cpu=4), node("n2", cpu=4), *objects, job("new", "high", cpu=4), conf=conf or aware())
    return plan.pipelined["default/new-0"]


def started(manifests: list[Manifest], seconds: int) -> list[Manifest]:
    for manifest in manifests[1:]:
        manifest["status"]["startTime"] = moment(seconds)
    return manifests


def budget(allowed: int, **labels: str) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
def test_fewest_violated_budgets_come_first(first: str, second: str) -> None:
    """Before the priority of victims."""
    old = [job("a", "middle", on=[first], cpu=4), job("b", "low", on=[second], cpu=4, labels={"app": "kept"})]
    assert chosen(budget(0, app="kept"), *old) == first
    assert chosen(budget(1, app="kept"), *old) == second


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
def test_then_the_lowest_highest_priority(first: str, second: str) -> None:
    """Before the sum: four low ones rather than one in the middle and nothing."""
    old = [job("a", "middle", on=[first], cpu=4), job("b", "low", 4, on=[second] * 4, cpu=1)]
    assert chosen(*old) == second


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
def test_then_the_lowest_sum_of_priorities(first: str, second: str) -> None:
    old = [
        job("a", "middle", on=[first], cpu=2),
        job("b", "middle", on=[first], cpu=2),
        job("c", "middle", on=[second], cpu=2),
        job("d", "low", on=[second], cpu=2),
    ]
    assert chosen(*old) == second


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
def test_fewer_negative_ones_are_less_of_a_loss_than_many(first: str, second: str) -> None:
    """Priorities count from the lowest there is, so that more pods never make the sum smaller."""
    negative = {"priority": -5}
    old = [
        gang("a", 4, members=1, on=[first] * 4, cpu=1, spec=negative),
        gang("b", 2, members=1, on=[second] * 2, cpu=2, spec=negative),
    ]
    assert chosen(*old) == second


@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")])
def test_then_the_latest_start_of_the_highest_victims(first: str, second: str) -> None:
    old = [
        started(job("a", "low", on=[first], cpu=4), 10),
        started(job("b", "low", on=[second], cpu=4), 20),
    ]
    assert chosen(*old) == second


def test_what_has_not_started_is_the_youngest() -> None:
    for place, other in (("n1", "n2"), ("n2", "n1")):
        old = started(job("a", "low", on=[place], cpu=4), 10)
        assert chosen(old, job("b", "low", on=[other], cpu=4)) == other


def test_a_start_that_is_no_time_harms_nobody() -> None:
    old = job("a", "low", on=["n1"], cpu=4)
    old[1]["status"]["startTime"] = "yesterday"
    assert chosen(old, job("b", "middle", on=["n2"], cpu=4)) == "n1"


def preferring(*names: str) -> Manifest:
    """A spec that rates nodes in this order."""
    terms = [
        {
            "weight": 100 - 10 * place,
            "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]},
        }
        for place, name in enumerate(names)
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_unaware_the_best_rated_node_is_taken_whatever_its_victims(order: tuple[str, str]) -> None:
    old = [job("a", "middle", on=["n1"], cpu=4), job("b", "low", on=["n2"], cpu=4)]
    plan = preempted(
        node("n1", cpu=4), node("n2", cpu=4), *old, job("new", "high", cpu=4, spec=preferring(*order)), conf=CONF
    )
    assert plan.pipelined == {"default/new-0": order[0]}


@pytest.mark.parametrize(
    ("arguments", "compared"),
    [
        ({"minCandidateNodesAbsolute": 1, "minCandidateNodesPercentage": 0}, 1),
        ({"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 0}, 1),
        ({"minCandidateNodesAbsolute": 1, "minCandidateNodesPercentage": 50}, 2),
        ({"minCandidateNodesAbsolute": 3, "minCandidateNodesPercentage": 0}, 3),
        ({"minCandidateNodesAbsolute": 4, "maxCandidateNodesAbsolute": 2}, 2),
        ({"minCandidateNodesPercentage": 100}, 4),
        ({"minCandidateNodesPercentage": 100, "topologyAwarePreemptWorkerNum": 1}, 4),
        ({"minCandidateNodesPercentage": 100, "predicateErrorCacheEnable": "false"}, 4),
    ],
)
def test_as_many_nodes_are_compared_as_the_arguments_say(arguments: dict[str, int], compared: int) -> None:
    """The better rated a node, the worse the loss there: the last one compared is taken."""
    objects: list[Any] = []
    for number, value in enumerate([90, 80, 70, 60]):
        rank = {"group_spec": {"priorityClassName": f"p{number}"}, "spec": {"priority": value}}
        objects += [node(f"n{number}", cpu=4), priority_class(f"p{number}", value)]
        objects.append(gang(f"old{number}", 1, on=[f"n{number}"], cpu=4, **rank))
    new = job("new", "high", cpu=4, spec=preferring("n0", "n1", "n2", "n3"))
    plan = preempted(*objects, new, conf=aware(**arguments))
    assert plan.pipelined == {"default/new-0": f"n{compared - 1}"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("minCandidateNodesPercentage", -1),
        ("minCandidateNodesPercentage", 101),
        ("minCandidateNodesAbsolute", -1),
        ("maxCandidateNodesAbsolute", 0),
        ("enableTopologyAwarePreemption", "perhaps"),
        ("topologyAwarePreemptWorkerNum", "many"),
        ("predicateErrorCacheEnable", "perhaps"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(key: str, value: Any) -> None:
    with pytest.raises(Exception, match=key):
        preempted(one_node(), conf=aware(**{key: value}))


def test_a_bare_pod_of_another_scheduler_is_not_asked() -> None:
    stranger = pod("stranger", on="n1", cpu=4, spec={"schedulerName": "default-scheduler", "priority": 0})
    assert evictions(one_node(), stranger, job("new", "high", cpu=4)) == []


# --- before allocate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["preempt", "gangpreempt", "preempt, reclaim, gangpreempt, gangreclaim"])
def test_room_that_is_idle_is_bound_though_preempt_comes_first(first: str) -> None:
    plan = preempted(
        one_node(), job("new", "high", 2, cpu=2), conf=CONF.replace("allocate, preempt", f"{first}, allocate")
    )
    assert plan.binds == {"default/new-0": "n1", "default/new-1": "n1"}
    assert plan.pipelined == {}


def test_what_preempt_made_room_for_waits_for_it_though_allocate_comes_later() -> None:
    conf = CONF.replace("allocate, preempt", "preempt, allocate")
    nodes = [node("n1", cpu=4), node("n2", cpu=2)]
    old = job("old", "low", on=["n1"], cpu=4)
    plan = preempted(nodes, old, job("new", "high", 2, members=2, cpu=2), conf=conf)
    assert plan.evictions == ["default/old-0"]
    assert set(plan.pipelined) == {"default/new-0", "default/new-1"}
    assert plan.binds == {}


def test_quota_that_one_node_gives_opens_another_to_the_next_task_alike() -> None:
    """Both cards of the quota are held on ``b``; once they are free, the other task finds a card on ``a``, where only
    cpu was lacking."""
    labels = {"nvidia.com/gpu.product": "H200", "nvidia.com/gpu.memory": "81920"}
    card: dict[str, Any] = {"annotations": {"volcano.sh/card.name": "H200"}, "queue": "q"}
    quota = queue("q")
    quota["metadata"]["annotations"] = {"volcano.sh/card.quota": '{"H200": 2}'}
    low, high = (
        {"group_spec": {"priorityClassName": name}, "spec": {"priority": VALUES[name]}} for name in ("low", "high")
    )
    nodes = [node(name, cpu=1, gpu=2, memory=memory, labels=labels) for name, memory in (("a", 64), ("b", 32))]
    there = [
        gang("plain", 1, cpu=1, members=0, queue="q", on=["a"], **low),
        gang("cards", 1, cpu=1, gpu=2, members=0, on=["b"], **card, **low),
    ]
    text = """
actions: preempt
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: nodeorder
  - name: capacity-card
    arguments:
      cardUnlimitedCpuMemory: true
"""
    plan = planned(*CLASSES, quota, *nodes, *there, gang("new", 2, cpu=1, gpu=1, **card, **high), conf=text)
    assert sorted(plan.evictions) == ["default/cards-0", "default/plain-0"]
    assert plan.pipelined == {"default/new-0": "b", "default/new-1": "a"}
