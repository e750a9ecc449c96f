"""The smallest change that would have let a job in: cases computed by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import CONF, scheduler
from tests.timetravel.questions import smallest_change
from vcd.eventlog import LogReader
from vcd.model.events import Plan, encode_plan
from vcd.model.objects import altered
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.state.immunity import Evicted
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.history import History
from vcd.timetravel.planning import state_of
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.counterfactual import Change, Counterfactual
from vcd.timetravel.why.snapshotchanges import with_queue, with_resources, without_jobs

CAPACITY = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: capacity
  - name: predicates
"""
PREEMPTING = """\
actions: "allocate, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: predicates
"""
PLAIN = PREEMPTING.replace(", preempt", "")
CARDS = CAPACITY.replace("capacity", "capacity-card")
H200 = "NVIDIA-H200"


async def log_of(path: Path, conf: str, *objects: Manifest | list[Manifest], cycles: int = 1) -> Path:
    """The log of sessions over a cluster that nobody changes."""
    async with scheduler(path / "events.log", conf) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), *objects)
        for _ in range(cycles):
            await made.cycle()
    return path / "events.log"


def changed(found: Counterfactual) -> Change:
    assert found.change is not None
    return found.change


def running(name: str, size: int, node: str, *, value: str = "", **options: object) -> list[Manifest]:
    """A job that runs on one node."""
    spec = {"priorityClassName": value} if value else {}
    return list(dsl.gang(name, size, on=[node] * size, phase="Running", group_spec=spec, **options))  # type: ignore[arg-type]


# --- quotas -----------------------------------------------------------------------------------------------------------


async def short_queue(path: Path) -> Path:
    """team-a may have 40 cpu, holds 30, and train asks for 4 x 3: 2 too many, on nodes with 10 cpu left on each."""
    return await log_of(
        path,
        CAPACITY,
        [dsl.node("n1", cpu=25), dsl.node("n2", cpu=25)],
        dsl.queue("team-a", capability={"cpu": "40"}),
        running("old", 3, "n1", queue="team-a", cpu=5),
        running("older", 3, "n2", queue="team-a", cpu=5),
        list(dsl.gang("train", 4, queue="team-a", cpu=3, created=1)),
    )


async def test_a_quota_that_is_short_by_two_is_raised_by_two(tmp_path: Path) -> None:
    found = smallest_change(await short_queue(tmp_path), "train")
    assert changed(found) == Change("quota", "team-a", "capability", {"cpu": "40"}, {"cpu": "42"})
    assert found.sentence() == "queue team-a's capability of cpu 40 -> 42: all 4 pods are bound, to n1, n2"


async def test_lines_tell_the_change_and_what_was_tried(tmp_path: Path) -> None:
    _, *lines = smallest_change(await short_queue(tmp_path), "train").lines()
    assert lines == [
        "smallest change: queue team-a's capability of cpu 40 -> 42: all 4 pods are bound, to n1, n2",
        "tried: quotas of queue team-a up to what all jobs ask for (3 decisions)",
    ]


async def test_one_less_than_the_answer_does_not_work(tmp_path: Path) -> None:
    path = await short_queue(tmp_path)
    with LogReader(path) as reader:
        history = History(reader)
        record, session = history.rerun(1)
        queue = session.queues["team-a"].record.queue
        binds = {}
        for cpu in ("41", "42"):
            raised = with_queue(session.snapshot, altered(queue, spec={"capability": {"cpu": cpu}}))
            plan = decide(raised, history.policy(record), record.now, record.seed)
            binds[cpu] = len(list(plan.operations("bind")))
    assert binds == {"41": 0, "42": 4}


async def test_of_two_resources_that_lack_both_are_raised(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        CAPACITY,
        dsl.node("n1", cpu=64, memory=64),
        dsl.queue("team-a", capability={"cpu": "4", "memory": "4Gi"}),
        list(dsl.gang("train", 1, queue="team-a", cpu=5, memory="5Gi")),
    )
    assert changed(smallest_change(path, "train")).after == {"cpu": "5", "memory": "5Gi"}


async def test_the_parents_quota_is_raised_where_that_is_what_lacks(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        CAPACITY.replace("name: capacity", "name: capacity\n    enableHierarchy: true"),
        dsl.node("n1", cpu=64),
        dsl.queue("org", capability={"cpu": "6"}, deserved={"cpu": "6"}),
        dsl.queue("team-a", parent="org", capability={"cpu": "6"}),
        dsl.queue("team-b", parent="org"),
        running("old", 1, "n1", queue="team-b", cpu=4),
        list(dsl.gang("train", 1, queue="team-a", cpu=3)),
    )
    found = smallest_change(path, "train")
    assert changed(found) == Change("quota", "org", "capability", {"cpu": "6"}, {"cpu": "7"})


async def test_what_is_guaranteed_to_others_is_lowered(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        CAPACITY,
        dsl.node("n1", cpu=10),
        dsl.queue("team-a"),
        dsl.queue("team-b", guarantee={"resource": {"cpu": "7"}}, deserved={"cpu": "7"}),
        list(dsl.gang("train", 1, queue="team-a", cpu=5, minimum={"cpu": 5}, phase="Pending")),
    )
    found = smallest_change(path, "train")
    assert changed(found) == Change("quota", "team-b", "guarantee", {"cpu": "7"}, {"cpu": "5"})


async def test_a_group_without_pods_is_let_in_when_it_is_admitted(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        CAPACITY,
        dsl.node("n1", cpu=16),
        dsl.queue("team-a", capability={"cpu": "6"}),
        dsl.group("train", members=2, queue="team-a", phase="Pending", minimum={"cpu": 8}),
    )
    found = smallest_change(path, "train")
    assert found.sentence() == "queue team-a's capability of cpu 6 -> 8: its group is admitted; it has no pods yet"


async def test_a_weight_is_a_quota_with_proportion(tmp_path: Path) -> None:
    """Of 12 cpu, both queues deserve 6 by weight; 8 are deserved from 2:1 on."""
    path = await log_of(
        tmp_path,
        CONF.replace("enqueue, ", ""),
        dsl.node("n1", cpu=12),
        dsl.queue("team-a"),
        dsl.queue("team-b"),
        list(dsl.gang("train", 2, queue="team-a", cpu=4)),
        list(dsl.gang("other", 12, queue="team-b", cpu=1, members=1)),
    )
    found = smallest_change(path, "train")
    assert changed(found) == Change("quota", "team-a", "guarantee", {"cpu": "0"}, {"cpu": "8"})


# --- cards ------------------------------------------------------------------------------------------------------------


def card_queue(quota: dict[str, int]) -> Manifest:
    queue = dsl.queue("team-a")
    queue["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps(quota)}
    return queue


async def short_of_cards(path: Path) -> Path:
    labels = {"nvidia.com/gpu.product": H200, "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": "8"}
    card = {"volcano.sh/card.name": H200}
    return await log_of(
        path,
        CARDS,
        dsl.node("n1", cpu=64, gpu=8, labels=labels),
        card_queue({H200: 3, "NVIDIA-A100": 1}),
        running("old", 1, "n1", queue="team-a", gpu=2, annotations=card),
        list(dsl.gang("train", 2, queue="team-a", gpu=1, annotations=card)),
    )


async def test_a_card_quota_is_raised_card_by_card(tmp_path: Path) -> None:
    found = smallest_change(await short_of_cards(tmp_path), "train")
    assert changed(found) == Change("quota", "team-a", "card quota", {H200: "3"}, {H200: "4"})
    assert found.sentence() == "queue team-a's card quota of NVIDIA-H200 3 -> 4: all 2 pods are bound, to n1"


@pytest.mark.parametrize("resource", ["cpu", "memory"])
async def test_a_capability_of_zero_is_a_limit_where_cards_are_counted(tmp_path: Path, resource: str) -> None:
    queue = dsl.queue("team-a", capability={resource: "0"})
    asks = list(dsl.gang("train", 1, queue="team-a", **{resource: 1}))
    found = smallest_change(await log_of(tmp_path, CARDS, [dsl.node("n1")], queue, asks), "train")
    amount = {"cpu": "1", "memory": "1Gi"}[resource]
    assert changed(found) == Change("quota", "team-a", "capability", {resource: "0"}, {resource: amount})


# --- rooms ------------------------------------------------------------------------------------------------------------


async def test_a_node_that_is_short_by_one_gpu_gets_one_more(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        PLAIN,
        [dsl.node("n1", gpu=8), dsl.node("n2", gpu=8), dsl.node("n3", gpu=0)],
        running("old", 1, "n1", gpu=5),
        running("older", 1, "n2", gpu=3),
        list(dsl.gang("train", 1, gpu=6)),
    )
    found = smallest_change(path, "train")
    assert changed(found) == Change("room", "n2", "room", {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "9"})
    assert found.sentence() == "node n2's room of nvidia.com/gpu 8 -> 9: the pod is bound, to n2"


async def test_a_node_may_grow_to_what_one_pod_asks_for(tmp_path: Path) -> None:
    """Six more than the largest node of the cluster has."""
    path = await log_of(tmp_path, PLAIN, dsl.node("n1", cpu=32, gpu=4), list(dsl.gang("train", 1, gpu=10, cpu=1)))
    found = smallest_change(path, "train", kinds=("room",))
    assert changed(found) == Change("room", "n1", "room", {"nvidia.com/gpu": "4"}, {"nvidia.com/gpu": "10"})
    assert found.tried[0].of == "capacity of 1 node, each with as much more as the largest node has or a pod asks for"


async def test_of_several_nodes_the_one_that_needs_least(tmp_path: Path) -> None:
    """A gang of 3 x 4 cpu: n1 (7 left) takes one, n2 (6 left) takes one; a third needs 1 more on n1, 2 more on n2."""
    path = await log_of(
        tmp_path,
        PLAIN,
        [dsl.node("n0", cpu=5), dsl.node("n1", cpu=7), dsl.node("n2", cpu=6)],
        running("old", 1, "n0", cpu=4),
        list(dsl.gang("train", 3, cpu=4)),
    )
    found = smallest_change(path, "train", kinds=("room",))
    assert changed(found) == Change("room", "n1", "room", {"cpu": "7"}, {"cpu": "8"})
    assert found.effect is not None
    assert sorted(found.effect.bound.values()) == ["n1", "n1", "n2"]


# --- priorities -------------------------------------------------------------------------------------------------------


async def full_node(path: Path, *classes: Manifest, conf: str = PREEMPTING) -> Path:
    """n1 has 15 cpu, all of them held by old (priority 50), of whose 5 pods 4 may go; urgent (10) asks for 12."""
    return await log_of(
        path,
        conf,
        dsl.node("n1", cpu=15),
        [dsl.priority_class("low", 10), dsl.priority_class("mid", 50), *classes],
        running("old", 5, "n1", value="mid", cpu=3, members=1),
        list(dsl.gang("urgent", 1, cpu=12, created=1, group_spec={"priorityClassName": "low"})),
    )


async def test_of_no_kinds_none_is_tried(tmp_path: Path) -> None:
    assert smallest_change(await full_node(tmp_path), "urgent", kinds=()).tried == []


async def test_a_priority_that_is_too_low_is_raised_above_who_gives_way(tmp_path: Path) -> None:
    found = smallest_change(await full_node(tmp_path), "urgent", kinds=("priority",))
    assert changed(found) == Change("priority", "default/urgent", "priority", {"": "10"}, {"": "51"})
    assert list(found.lines())[1:] == [
        "smallest change: job default/urgent's priority 10 -> 51:"
        " the pod is waiting for capacity that is being freed on n1",
        "  besides, 4 pods evicted only then: default/old-1, default/old-2, default/old-3, default/old-4",
        "tried: priorities up to 51 (2 decisions)",
    ]


async def test_the_lowest_class_that_gives_the_priority_is_named(tmp_path: Path) -> None:
    classes = (dsl.priority_class("high", 1000), dsl.priority_class("higher", 2000))
    found = smallest_change(await full_node(tmp_path, *classes), "urgent", kinds=("priority",))
    assert changed(found).text() == "job default/urgent's priority 10 -> 51 (PriorityClass high has 1000)"


async def test_a_priority_that_comes_first_in_order_needs_nobody_to_go(tmp_path: Path) -> None:
    """Room for one of two jobs: first is served first by its age, and goes without where train comes before it."""
    path = await log_of(
        tmp_path,
        PLAIN,
        dsl.node("n1", cpu=4),
        list(dsl.gang("first", 1, cpu=4)),
        list(dsl.gang("train", 1, cpu=4, created=1)),
    )
    found = smallest_change(path, "train", kinds=("priority",))
    assert changed(found) == Change("priority", "default/train", "priority", {"": "0"}, {"": "1"})
    assert found.effect is not None
    assert (found.effect.bound, found.effect.others_not_bound) == ({"default/train-0": "n1"}, ["default/first-0"])


async def test_no_priority_helps_where_nobody_may_be_evicted(tmp_path: Path) -> None:
    assert smallest_change(await full_node(tmp_path, conf=PLAIN), "urgent", kinds=("priority",)).change is None


# --- running jobs -----------------------------------------------------------------------------------------------------


async def in_the_way(path: Path) -> Path:
    """Of four jobs with a node each, the lowest priority is on a node too small; then come the fewest pods, then the
    youngest."""
    return await log_of(
        path,
        PLAIN,
        [dsl.node("n0", cpu=2), *(dsl.node(f"n{i}", cpu=8) for i in range(1, 6))],
        [dsl.priority_class("low", 10), dsl.priority_class("mid", 50)],
        running("small", 1, "n0", cpu=2),
        running("pair", 2, "n1", value="low", cpu=4, created=9),
        running("older", 1, "n2", value="low", cpu=8, created=1),
        running("younger", 1, "n3", value="low", cpu=8, created=2),
        running("important", 1, "n4", value="mid", cpu=8, created=8),
        running("more", 1, "n5", value="mid", cpu=8, created=8),
        list(dsl.gang("train", 1, cpu=8, created=10)),
    )


async def test_the_running_job_in_the_way_is_the_lowest_smallest_youngest_that_helps(tmp_path: Path) -> None:
    found = smallest_change(await in_the_way(tmp_path), "train", kinds=("job",))
    assert found.sentence() == "running job default/younger gone: the pod is bound, to n3"


async def test_the_order_of_kinds_is_that_of_their_cost(tmp_path: Path) -> None:
    path = await full_node(tmp_path)
    assert changed(smallest_change(path, "urgent")).text() == "job default/urgent's priority 10 -> 51"
    assert changed(smallest_change(path, "urgent", kinds=("room", "job"))).text() == "node n1's room of cpu 15 -> 27"
    assert changed(smallest_change(path, "urgent", kinds=("job",))).text() == "running job default/old gone"


async def test_a_competitor_that_all_room_would_let_in_hides_no_answer(tmp_path: Path) -> None:
    """Were both jobs gone, huge would take the cluster; small alone leaves room for train only."""
    path = await log_of(
        tmp_path,
        PLAIN,
        [dsl.node("n1", cpu=8), dsl.node("n2", cpu=8)],
        dsl.priority_class("high", 100),
        running("small", 1, "n1", cpu=8),
        running("large", 1, "n2", cpu=8),
        list(dsl.gang("huge", 2, cpu=8, group_spec={"priorityClassName": "high"})),
        list(dsl.gang("train", 1, cpu=8, created=1)),
    )
    assert smallest_change(path, "train", kinds=("job",)).sentence() == (
        "running job default/large gone: the pod is bound, to n2"
    )


# --- nothing ----------------------------------------------------------------------------------------------------------


async def test_nothing_helps_a_gang_that_is_larger_than_the_cluster(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        PREEMPTING,
        [dsl.node("n1", cpu=8), dsl.node("n2", cpu=8)],
        running("old", 1, "n1", cpu=2),
        list(dsl.gang("train", 8, cpu=4)),
    )
    found = smallest_change(path, "train", kinds=("quota", "priority", "room", "job"))
    assert found.change is None and found.effect is None
    assert found.sentence() == (
        "no change of one queue's quota, its priority, one node's capacity or one running job alone lets it start"
    )
    assert [one.what for one in found.tried] == ["quota", "quota", "priority", "room", "job"]
    assert found.decisions == sum(one.decisions for one in found.tried)


async def test_the_search_ends_after_so_many_decisions(tmp_path: Path) -> None:
    found = smallest_change(await full_node(tmp_path), "urgent", most_decisions=5)
    assert (found.change, found.decisions) == (None, 5)
    assert found.notes == ["the search ended after 5 decisions; later changes were not tried"]


async def test_a_session_that_was_decided_otherwise_says_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "events.log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8))
        await made.show(dsl.gang("train", 1, cpu=9))
        await made.cycle(forge=lambda plan: Plan())
    assert smallest_change(tmp_path / "events.log", "train", session=1).notes == [
        "this version decides the session differently; vcd replay shows the difference"
    ]


async def test_a_change_that_would_make_the_scheduler_forget_evictions_says_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "events.log", PREEMPTING) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8), dsl.priority_class("high", 9))
        await made.show(running("old", 2, "n1", cpu=4, members=1))
        await made.show(dsl.gang("first", 1, cpu=4, created=1, group_spec={"priorityClassName": "high"}))
        await made.carry_out(await made.cycle())
        await made.carry_out(await made.cycle())
        await made.show(dsl.gang("train", 1, cpu=2, created=2))
        await made.cycle()
    found = smallest_change(tmp_path / "events.log", "train")
    assert changed(found).text() == "node n1's room of cpu 8 -> 10"
    (note,) = found.notes
    assert note.startswith("earlier evictions are remembered as they were; in the cluster, a changed queue or node")
    assert smallest_change(tmp_path / "events.log", "train", kinds=("job",)).notes == []


# --- which session ----------------------------------------------------------------------------------------------------


async def test_the_last_session_in_which_it_waited(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "events.log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8))
        await made.show(running("old", 1, "n1", cpu=6), dsl.gang("train", 1, cpu=4, created=1))
        await made.cycle()
        await made.show(dsl.node("n1", cpu=9))
        await made.cycle()
        await made.finish("default/old-0")
        await made.carry_out(await made.cycle())
    path = tmp_path / "events.log"
    found = smallest_change(path, "train")
    assert (found.session, changed(found).text()) == (2, "node n1's room of cpu 9 -> 10")
    assert changed(smallest_change(path, "train", session=1)).text() == "node n1's room of cpu 8 -> 10"
    with pytest.raises(NotFound, match="session 3: job default/train waits for nothing there"):
        smallest_change(path, "train", session=3)
    with pytest.raises(NotFound, match="no job default/tram is in it"):
        smallest_change(path, "tram")
    with pytest.raises(NotFound, match="job default/old waits in none of its 3 sessions"):
        smallest_change(path, "old")


# --- changed snapshots ------------------------------------------------------------------------------------------------


OBJECTS = dsl.flat(
    [
        dsl.queue("root"),
        dsl.queue("default"),
        dsl.queue("team-a", capability={"cpu": "6"}),
        dsl.node("n1", cpu=8),
        dsl.node("n2", cpu=8),
        dsl.gang("old", 2, on=["n1", "n1"], phase="Running", cpu=3),
        dsl.gang("train", 2, queue="team-a", cpu=4, created=1),
        dsl.gang("late", 1, cpu=2, created=2),
    ]
)


def snapshot_of(objects: list[Manifest]) -> Snapshot:
    return SnapshotMaker(state_of(objects)).snapshot()


def decided(snapshot: Snapshot) -> bytes:
    return encode_plan(decide(snapshot, read_policy(CAPACITY), dsl.NOW_NS, 7))


def replaced(manifest: Manifest) -> list[Manifest]:
    name, kind = manifest["metadata"]["name"], manifest["kind"]
    return [one for one in OBJECTS if (one["kind"], one["metadata"]["name"]) != (kind, name)] + [manifest]


def test_a_changed_queue_is_as_if_it_had_been_so() -> None:
    snapshot = snapshot_of(OBJECTS)
    raised = altered(snapshot.queues["team-a"].queue, spec={"capability": {"cpu": "8"}})
    wanted = decided(snapshot_of(replaced(dsl.queue("team-a", capability={"cpu": "8"}))))
    assert decided(with_queue(snapshot, raised)) == wanted != decided(snapshot)


def test_a_nodes_new_room_is_as_if_it_had_been_so() -> None:
    snapshot = snapshot_of(OBJECTS)
    wanted = decided(snapshot_of(replaced(dsl.node("n2", cpu=9))))
    assert decided(with_resources(snapshot, "n2", {"cpu": 1000})) == wanted
    assert (
        with_resources(snapshot, "n2", {"cpu": 1000}).facts.allocatable.sum() == snapshot.facts.allocatable.sum() + 1000
    )


def test_a_job_that_is_gone_is_as_if_it_had_never_been() -> None:
    snapshot = snapshot_of(OBJECTS)
    left = [one for one in OBJECTS if not one["metadata"]["name"].startswith("old")]
    assert decided(without_jobs(snapshot, ["default/old"])) == decided(snapshot_of(left)) != decided(snapshot)


def test_what_evictions_took_is_remembered_under_a_change() -> None:
    evicted = {"default/old": Evicted({"default/new": ("gone",)}, ("gone",))}
    snapshot = dataclasses.replace(snapshot_of(OBJECTS), evicted=evicted)
    assert with_resources(snapshot, "n2", {"cpu": 1000}).evicted == evicted
    assert with_queue(snapshot, snapshot.queues["team-a"].queue).evicted == evicted


# --- the smallest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fields", "text"), [({}, "label n1 tier=a"), ({"unschedulable": True}, "uncordon n1")])
async def test_no_node_is_changed_that_does_not_help(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    """The larger node has a taint, too."""
    labels, selector = ({"tier": "a"}, {}) if fields else ({}, {"nodeSelector": {"tier": "a"}})
    taint = [{"key": "team", "value": "x", "effect": "NoSchedule"}]
    nodes = [
        dsl.node("n0", cpu=16, labels=labels, taints=taint, **fields),
        dsl.node("n1", cpu=8, labels=labels, **fields),
    ]
    path = await log_of(tmp_path, PLAIN, nodes, list(dsl.gang("job", 1, cpu=4, spec=selector)))
    change = smallest_change(path, "job").change
    assert change is not None and change.text() == text


async def test_of_nodes_the_one_that_lacks_one_resource_is_taken(tmp_path: Path) -> None:
    """The first one lacks less, but of two resources."""
    nodes = [dsl.node("n0", cpu=7, memory=7), dsl.node("n1", cpu=8, memory=4)]
    holder = [list(dsl.gang("held", 1, cpu=1, memory=1, on=["n0"], phase="Running"))]
    job = list(dsl.gang("job", 1, cpu=7, memory=7))
    path = await log_of(tmp_path, PLAIN, nodes, *holder, job)
    change = smallest_change(path, "job", kinds=["room"]).change
    assert change is not None and (change.subject, list(change.after)) == ("n1", ["memory"])
