"""reclaim: which queues ask, which give, and what comes of it.

Rules that hold for all actions that evict are in tests/pains/test_04, test_05 and test_12.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import Manifest, gang, group, moment, node, planned, pod, queue
from tests.reasons import because
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.timetravel.planning import PlanResult

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: conformance
  - name: proportion
  - name: predicates
  - name: nodeorder
  - name: gang
"""
CONF = f'actions: "allocate, reclaim"{TIERS}'
LONE = CONF.replace("  - name: gang", "- plugins:\n  - name: gang")
"""With gang in a later tier a job of one pod may go: gang names none of it, and protects no more than the minimum."""
CAPACITY = CONF.replace("proportion", "capacity")
GANGS = CONF.replace("reclaim", "gangreclaim")
BOTH = pytest.mark.parametrize("conf", [CONF, CAPACITY], ids=["proportion", "capacity"])
EACH = pytest.mark.parametrize("conf", [CONF, GANGS], ids=["reclaim", "gangreclaim"])
"""The rule holds for both actions that evict from other queues."""
ALL = pytest.mark.parametrize("conf", [CONF, CAPACITY, GANGS], ids=["proportion", "capacity", "gangreclaim"])


def job(name: str, owner: str, size: int = 1, **options: Any) -> list[Manifest]:
    """A job of a queue that can lose all but one pod."""
    options.setdefault("members", 1)
    return list(gang(name, size, queue=owner, **options))


def two_queues(**old: Any) -> list[Manifest]:
    """Both deserve half of eight cpu."""
    half = {"deserved": {"cpu": "4", "memory": "16Gi"}}
    return [queue("old", **{**half, **old}), queue("new", **half)]


def reclaimed(*objects: Manifest | Iterable[Manifest], conf: str = CONF) -> PlanResult:
    return planned(*objects, conf=conf)


def evictions(*objects: Manifest | Iterable[Manifest], conf: str = CONF) -> list[str]:
    return [key.partition("/")[2] for key in sorted(reclaimed(*objects, conf=conf).evictions)]


def full(**options: Any) -> list[Manifest]:
    """The queue old fills a node of eight cpu."""
    return [node("n1"), *job("a", "old", 8, on=["n1"] * 8, cpu=1, **options)]


# --- who asks and who gives -------------------------------------------------------------------------------------------


@BOTH
def test_a_queue_below_its_share_takes_from_one_above(conf: str) -> None:
    plan = reclaimed(*two_queues(), *full(), job("b", "new", cpu=2), conf=conf)
    assert sorted(plan.evictions) == ["default/a-6", "default/a-7"]
    assert plan.pipelined == {"default/b-0": "n1"}


@BOTH
def test_a_role_that_has_its_minimum_takes_no_room_from_one_that_has_not(conf: str) -> None:
    """Tried in their order, the worker takes what the queue deserves, and the master, without which nobody starts,
    has nothing."""
    marks = [{"volcano.sh/task-spec": role} for role in ("worker", "master")]
    pods = [pod(f"p-{i}", group="g", cpu=3, annotations=mark, created=i) for i, mark in enumerate(marks)]
    asks = group("g", members=1, minTaskMember={"master": 1}, queue="new")
    plan = reclaimed(*two_queues(), *full(), asks, pods, conf=conf)
    assert (len(plan.evictions), plan.pipelined) == (3, {"default/p-1": "n1"})


@ALL
@pytest.mark.parametrize(
    ("owner", "options"),
    [
        ("old", {}),
        ("new", {"spec": {"preemptionPolicy": "Never"}}),
        ("new", {"spec": {"schedulingGates": [{"name": "x"}]}}),
        ("new", {"spec": {"nodeSelector": {"disk": "ssd"}}}),
    ],
    ids=repr,
)
def test_a_job_takes_nothing(owner: str, options: dict[str, Any], conf: str) -> None:
    assert evictions(*two_queues(), *full(), job("b", owner, cpu=1, **options), conf=conf) == []


@ALL
@pytest.mark.parametrize(("reclaimable", "count"), [(True, 1), (False, 0)])
def test_a_queue_that_is_not_reclaimable_gives_nothing(conf: str, reclaimable: bool, count: int) -> None:
    objects = [*two_queues(reclaimable=reclaimable), *full(), *job("b", "new", cpu=1)]
    assert len(evictions(*objects, conf=conf)) == count


@BOTH
def test_a_queue_gives_down_to_its_share_only(conf: str) -> None:
    """Four of eight cpu are its own: a task of five finds no room, one of four does."""
    assert evictions(*two_queues(), *full(), job("b", "new", cpu=5), conf=conf) == []
    assert len(evictions(*two_queues(), *full(), job("b", "new", cpu=4), conf=conf)) == 4


@BOTH
def test_a_queue_within_its_share_gives_nothing(conf: str) -> None:
    """The other node is empty, but the one that waits wants this one."""
    old = job("a", "old", 4, on=["n1"] * 4, cpu=1)
    new = job("b", "new", cpu=1, spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    assert evictions(*two_queues(), node("n1", cpu=4), node("n2", cpu=4), old, new, conf=conf) == []


@BOTH
def test_a_queue_that_has_its_share_takes_nothing(conf: str) -> None:
    running = [*job("a", "old", 4, on=["n1"] * 4, cpu=1), *job("c", "new", 4, on=["n1"] * 4, cpu=1)]
    queues = two_queues(deserved={"cpu": "1"})
    assert evictions(*queues, node("n1"), running, job("b", "new", cpu=1), conf=conf) == []


@BOTH
def test_a_queue_takes_no_more_than_its_share(conf: str) -> None:
    """Of six waiting jobs of one cpu four are served: each looks at the queue as it is then."""
    waiting = [job(f"b{i}", "new", cpu=1, created=i) for i in range(6)]
    plan = reclaimed(*two_queues(), *full(), *waiting, conf=conf)
    assert len(plan.evictions) == 4
    assert sorted(plan.pipelined) == [f"default/b{i}-0" for i in range(4)]


@EACH
@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_not_open_takes_nothing(state: str, conf: str) -> None:
    queues = [two_queues()[0], queue("new", state=state, deserved={"cpu": "4"})]
    assert evictions(*queues, *full(), job("b", "new", cpu=1), conf=conf) == []


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_queue_that_is_not_open_gives_what_is_not_its_share(state: str) -> None:
    closed = {**two_queues()[0], "status": {"state": state}}
    assert len(evictions(closed, two_queues()[1], *full(), job("b", "new", cpu=1))) == 1


@EACH
@pytest.mark.parametrize("point", ["overused", "preemptive"])
def test_a_queue_that_a_plugin_refuses_takes_nothing(monkeypatch: pytest.MonkeyPatch, point: str, conf: str) -> None:
    refusals = {"new": because("full")}
    objects = [*two_queues(), *full(), *job("b", "new", cpu=1)]
    monkeypatch.setattr(ProportionPlugin, point, lambda self, queue, *tasks: None)
    assert len(evictions(*objects, conf=conf)) == 1
    monkeypatch.setattr(ProportionPlugin, point, lambda self, queue, *tasks: refusals.get(queue.name))
    assert evictions(*objects, conf=conf) == []


def test_a_task_that_its_queue_may_not_take_room_for_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ProportionPlugin, "preemptive", lambda self, queue, tasks: because() if tasks[0].name == "b-0" else None
    )
    assert reclaimed(*two_queues(), *full(), job("b", "new", 2, cpu=1)).pipelined == {"default/b-1": "n1"}


def test_a_group_that_was_not_admitted_takes_nothing() -> None:
    new = job("b", "new", cpu=1, phase="Pending", minimum={"cpu": 1000})
    conf = CONF.replace("allocate, reclaim", "enqueue, allocate, reclaim")
    assert evictions(*two_queues(), *full(), new, conf=conf) == []


def test_the_queue_that_is_served_first_asks_first() -> None:
    """Both may take; there is something for one only."""
    queues = [queue(name, deserved={"cpu": "4"}) for name in ("p", "q")]
    queues.append(queue("old"))
    objects = [node("n1", cpu=8), *job("a", "old", 1, on=["n1"], cpu=8)]
    objects += [*job("used", "p", 1, on=["n2"], cpu=2), node("n2", cpu=2)]
    objects += [*job("bp", "p", cpu=3), *job("bq", "q", cpu=3, created=9)]
    plan = reclaimed(*queues, *objects, conf=LONE)
    assert plan.evictions == ["default/a-0"]
    assert "default/bq-0" in plan.pipelined


# --- which tasks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_pod_that_says_so_is_not_taken(where: str) -> None:
    marks: dict[str, Any] = {where: {"volcano.sh/preemptable": "false"}}
    assert evictions(*two_queues(), *full(**marks), job("b", "new", cpu=1)) == []


@BOTH
@pytest.mark.parametrize("size", [1, 4])
def test_bound_tasks_that_do_not_run_are_taken_like_running_ones(conf: str, size: int) -> None:
    bound = [{**entry, "status": {"phase": "Pending"}} if entry["kind"] == "Pod" else entry for entry in full()]
    wanted = [*two_queues(), *job("b", "new", size, members=size, cpu=1)]
    assert evictions(*wanted, bound, conf=conf) == evictions(*wanted, full(), conf=conf)
    assert len(evictions(*wanted, bound, conf=conf)) == size


@pytest.mark.parametrize("gone", [{"phase": "Succeeded"}, {"phase": "Failed"}])
def test_tasks_that_have_ended_are_not_taken(gone: Manifest) -> None:
    old = full(requests={"cpu": "0.5"})
    ended = [{**entry, "status": gone} if entry["kind"] == "Pod" else entry for entry in old]
    assert evictions(*two_queues(), ended, job("b", "new", cpu=9)) == []


@EACH
def test_system_pods_are_not_taken(conf: str) -> None:
    critical = full(spec={"priorityClassName": "system-cluster-critical"})
    assert evictions(*two_queues(), critical, job("b", "new", cpu=1), conf=conf) == []


def test_no_gang_is_broken() -> None:
    assert evictions(*two_queues(), *full(), job("b", "new", cpu=1)) != []
    assert evictions(*two_queues(), *full(members=8), job("b", "new", cpu=1)) == []


def test_a_job_of_one_pod_may_go() -> None:
    assert evictions(
        *two_queues(), node("n1"), job("a", "old", on=["n1"], cpu=8), job("b", "new", cpu=1), conf=LONE
    ) == ["a-0"]


def test_the_youngest_task_goes_first() -> None:
    old = full()
    old[4]["metadata"]["creationTimestamp"] = moment(60)
    name = old[4]["metadata"]["name"]
    assert evictions(*two_queues(), old, job("b", "new", cpu=1)) == [name]


def test_the_queue_that_is_served_last_gives_first() -> None:
    """Of two queues above their share the one that holds more."""
    queues = [queue("few", deserved={"cpu": "1"}), queue("many", deserved={"cpu": "1"})]
    queues.append(queue("new", deserved={"cpu": "4"}))
    running = [*job("f", "few", 3, on=["n1"] * 3, cpu=1), *job("m", "many", 5, on=["n1"] * 5, cpu=1)]
    assert evictions(*queues, node("n1"), running, job("b", "new", cpu=1), conf=CAPACITY) == ["m-4"]


def test_a_gang_uses_free_nodes_and_takes_others_back() -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4)]
    old = job("a", "old", on=["n1"], cpu=4)
    queues = [queue("old", deserved={"cpu": "1"}), queue("new", deserved={"cpu": "8"})]
    plan = reclaimed(
        *queues, *nodes, old, job("b", "new", 2, members=2, cpu=3), conf=LONE.replace("proportion", "capacity")
    )
    assert plan.evictions == ["default/a-0"]
    assert sorted(plan.pipelined.values()) == ["n1", "n2"]


def test_nobody_goes_for_a_gang_that_could_not_wait_whole() -> None:
    """Two of three would have room."""
    plan = reclaimed(*two_queues(), *full(), job("b", "new", 3, members=3, cpu=2))
    assert (plan.evictions, plan.pipelined) == ([], {})


@EACH
def test_a_gang_waits_whole(conf: str) -> None:
    plan = reclaimed(*two_queues(), *full(), job("b", "new", 2, members=2, cpu=2), conf=conf)
    assert len(plan.evictions) == 4
    assert sorted(plan.pipelined) == ["default/b-0", "default/b-1"]


# --- predicates as they are after the evictions -----------------------------------------------------------------------


def apart(**labels: str) -> Manifest:
    rule = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}


def test_whom_the_task_must_not_meet_goes_with_the_others() -> None:
    near = job("near", "old", on=["n1"], cpu=1, labels={"app": "x"}, created=60)
    old = job("a", "old", 7, on=["n1"] * 7, cpu=1)
    new = job("b", "new", cpu=1, spec=apart(app="x"))
    assert evictions(*two_queues(), node("n1"), near, old, new, conf=LONE) == ["near-0"]


def test_members_of_a_gang_that_keep_apart_get_different_nodes() -> None:
    nodes = [node("n1"), node("n2")]
    old = [*job("a", "old", 8, on=["n1"] * 8, cpu=1), *job("c", "old", 8, on=["n2"] * 8, cpu=1)]
    new = job("b", "new", 2, members=2, cpu=1, labels={"app": "b"}, spec=apart(app="b"))
    plan = reclaimed(*two_queues(), *nodes, old, new)
    assert sorted(plan.pipelined.values()) == ["n1", "n2"]
    assert len(plan.evictions) == 2


def test_two_queues_of_the_same_share_leave_each_other_alone() -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4)]
    running = [*job("a", "old", 4, on=["n1"] * 4, cpu=1), *job("b", "new", 4, on=["n2"] * 4, cpu=1)]
    waiting = [*job("c", "old", cpu=1), *job("d", "new", cpu=1)]
    assert evictions(*two_queues(), *nodes, running, waiting) == []


SPARE = "configurations:\n- name: gangreclaim\n  arguments:\n    allowWholeBundle: false\n"
"""No job is evicted as a whole."""


@pytest.mark.parametrize("conf", [CONF, GANGS + SPARE], ids=["reclaim", "gangreclaim"])
def test_a_queues_jobs_are_finished_before_the_next_queue_has_its_turn(conf: str) -> None:
    """Two pods may be evicted. Both queues have two jobs that wait for one pod: the first in order is served whole."""
    queues = [queue("old"), queue("p"), queue("q")]
    old = job("a", "old", 6, on=["n1"] * 6, cpu=1, members=4)
    waiting = [job(f"{name}{i}", name, cpu=1, created=i) for i in range(2) for name in ("p", "q")]
    plan = reclaimed(*queues, node("n1", cpu=6), old, *waiting, conf=conf)
    assert sorted(plan.pipelined) == ["default/p0-0", "default/p1-0"]


def two_nodes() -> list[Manifest]:
    """The queue old holds all of one node and half of the other."""
    return [
        node("n1", cpu=4),
        node("n2", cpu=2),
        *job("a", "old", 4, on=["n1"] * 4, cpu=1),
        *job("c", "old", 1, on=["n2"], cpu=1),
    ]


@pytest.mark.parametrize("actions", ["allocate, reclaim", "reclaim", "reclaim, backfill"])
@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_room_that_is_free_is_used_before_anybody_goes(actions: str, plugin: str) -> None:
    """Also by the first task of all that waits: the seeded order of nodes does not send others away from the room that
    the second one needs."""
    conf = CONF.replace("allocate, reclaim", actions).replace("proportion", plugin)
    small, large = job("b", "new", 2, cpu=1), job("b", "new", 2, cpu=2)
    both = [*small[:-1], large[-1]]
    both[0] = {**both[0], "spec": {**both[0]["spec"], "minMember": 2}}
    half = {"deserved": {"cpu": "3", "memory": "16Gi"}}
    plan = reclaimed(queue("old", **half), queue("new", **half), *two_nodes(), *both, conf=conf)
    assert plan.pipelined == {"default/b-0": "n2", "default/b-1": "n1"}
    assert sorted(plan.evictions) == ["default/a-2", "default/a-3"]


@pytest.mark.parametrize("free", [1, 2])
def test_nobody_goes_where_one_task_has_room(free: int) -> None:
    """With reclaim alone, too: a task waits on the node that is free, and another queue keeps its pods."""
    conf = CONF.replace("allocate, reclaim", "reclaim")
    held = [*two_queues(), *full(), node("n2", cpu=free)]
    plan = reclaimed(*held, *job("b", "new", cpu=1), conf=conf)
    assert plan.evictions == []
    assert plan.pipelined == {"default/b-0": "n2"}
