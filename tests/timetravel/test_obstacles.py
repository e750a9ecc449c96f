"""Who is ahead of a job, and who holds what it needs: cases computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.timetravel.histories import CONF, scheduler
from tests.timetravel.questions import obstacles, verdict
from tests.timetravel.test_counterfactual import CAPACITY, H200, PLAIN, log_of, running, short_of_cards, short_queue
from vcd.timetravel.history import opened
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.job_waits import waits_of
from vcd.timetravel.why.obstacles import Ahead, Holder, Limit, NearNode, Obstacles
from vcd.timetravel.why.obstacles import obstacles as obstacles_of
from vcd.timetravel.why.verdict import verdict_on

GPU = "nvidia.com/gpu"


async def gpus_held(path: Path) -> Path:
    """Of n1, n2, n3 with 8 GPUs each 5, 6 and 8 are free; n4 has 8 free, and a taint."""
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    return await log_of(
        path,
        PLAIN,
        [
            dsl.node("n1", gpu=8),
            dsl.node("n2", gpu=8),
            dsl.node("n3", cpu=1, gpu=8),
            dsl.node("n4", gpu=8, taints=[taint]),
        ],
        running("x", 3, "n1", gpu=1),
        running("y", 1, "n2", gpu=1),
        running("z", 1, "n2", gpu=1),
        list(dsl.gang("train", 1, cpu=4, gpu=8)),
    )


async def test_the_nearest_nodes_and_who_holds_them(tmp_path: Path) -> None:
    found = obstacles(await gpus_held(tmp_path), "train")
    assert found.nodes == [
        NearNode(
            "n2",
            0,
            {GPU: "6"},
            {GPU: "8"},
            {GPU: "2"},
            [Holder("default/y", "default", 0, 1, {GPU: "1"}), Holder("default/z", "default", 0, 1, {GPU: "1"})],
        ),
        NearNode("n1", 0, {GPU: "5"}, {GPU: "8"}, {GPU: "3"}, [Holder("default/x", "default", 0, 3, {GPU: "3"})]),
        NearNode("n3", 0, {"cpu": "1"}, {"cpu": "1"}, {"cpu": "3"}, []),
    ]


async def test_a_node_that_is_full_of_pods(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path, PLAIN, dsl.node("n1", pods=1), running("x", 1, "n1", cpu=1), list(dsl.gang("train", 1, cpu=1))
    )
    found = obstacles(path, "train")
    assert found.nodes == [
        NearNode(
            "n1", 0, {"pods": "0"}, {"pods": "1"}, {"pods": "1"}, [Holder("default/x", "default", 0, 1, {"pods": "1"})]
        )
    ]
    assert verdict(path, "train").text.endswith(
        "the cluster is full: 0 of 1 pods are free, and it needs 1; default/x holds most"
    )


async def test_a_gang_for_whose_last_pod_there_is_no_room(tmp_path: Path) -> None:
    """n1 takes one of 3 x 4 cpu with 3 left, n2 takes one with 2 left."""
    path = await log_of(
        tmp_path, PLAIN, [dsl.node("n1", cpu=7), dsl.node("n2", cpu=6)], list(dsl.gang("train", 3, cpu=4))
    )
    found = obstacles(path, "train")
    assert (found.fits, found.wants) == (2, 3)
    assert [(node.name, node.fits, node.lacks) for node in found.nodes] == [
        ("n1", 1, {"cpu": "1"}),
        ("n2", 1, {"cpu": "2"}),
    ]


async def test_a_quota_and_who_holds_most_of_it(tmp_path: Path) -> None:
    found = obstacles(await short_queue(tmp_path), "train")
    holders = [Holder(f"default/{name}", "team-a", 0, 3, {"cpu": "15"}) for name in ("old", "older")]
    assert found.limits == [
        Limit("queue", "capacity", "team-a", "cpu", "capability", "3", "39", "40", "9", holders),
    ]


async def test_quota_that_is_held_for_a_pod_whose_gate_was_lifted_is_taken(tmp_path: Path) -> None:
    """A pod too large for any node asked for its quota first, and keeps two of the three cpu of the queue."""
    lifted = {"annotations": {"scheduling.volcano.sh/queue-allocation-gate": "true"}}
    objects = [*[dsl.node(f"n{i}", cpu=1) for i in range(4)], dsl.queue("q", capability={"cpu": "3"})]
    first, train = dsl.gang("first", 1, queue="q", cpu=2, **lifted), dsl.gang("train", 2, queue="q", cpu=1, created=5)
    found = obstacles(await log_of(tmp_path, CAPACITY, objects, list(first), list(train)), "train")
    assert found.limits == [Limit("queue", "capacity", "q", "cpu", "capability", "1", "3", "3", "1", [])]


async def test_a_quota_of_cards(tmp_path: Path) -> None:
    found = obstacles(await short_of_cards(tmp_path), "train")
    assert found.limits == [
        Limit(
            "queue",
            "capacity-card",
            "team-a",
            H200,
            "card quota",
            "1",
            "3",
            "3",
            "1",
            [Holder("default/old", "team-a", 0, 1, {H200: "2"})],
        )
    ]


async def test_a_namespaces_quota_is_no_limit_of_the_cluster(tmp_path: Path) -> None:
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "r", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "1"}},
        "status": {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "0"}},
    }
    group = dsl.group("train", members=1, phase="Pending", minResources={"requests.cpu": "2"})
    objects = [dsl.node("n1", cpu=8), quota, group, dsl.pod("train-0", group="train", cpu=2)]
    found = obstacles(await log_of(tmp_path, CAPACITY.replace("capacity", "resourcequota"), objects), "train")
    assert found.limits == []


async def test_who_was_placed_before_it(tmp_path: Path) -> None:
    """high and first take 7 of 8 cpu; other, which is served later, takes the last one."""
    path = await log_of(
        tmp_path,
        PLAIN,
        dsl.node("n1", cpu=8),
        dsl.priority_class("high", 100),
        list(dsl.gang("first", 1, cpu=3, created=1)),
        list(dsl.gang("high", 2, cpu=2, created=9, group_spec={"priorityClassName": "high"})),
        list(dsl.gang("train", 1, cpu=2, created=2)),
        list(dsl.gang("other", 1, cpu=1, created=3)),
        list(dsl.gang("vain", 3, cpu=3, created=0)),
    )
    found = obstacles(path, "train")
    assert found.ahead == [
        Ahead("default/high", "default", 100, "placed", 2, {"cpu": "4"}),
        Ahead("default/first", "default", 0, "placed", 1, {"cpu": "3"}),
    ]


async def test_who_was_admitted_before_it(tmp_path: Path) -> None:
    """With overcommit 1.2, 8 cpu admit 9.6: first reserves 6, small 1, and train asks for 4."""
    path = await log_of(
        tmp_path,
        CONF,
        dsl.node("n1", cpu=8),
        dsl.group("first", members=2, phase="Pending", minimum={"cpu": 6}),
        dsl.group("train", members=2, phase="Pending", minimum={"cpu": 4}, created=1),
        dsl.group("small", members=1, phase="Pending", minimum={"cpu": 1}, created=2),
    )
    found = obstacles(path, "train")
    assert found.limits == [Limit("enqueue", "overcommit", "", "cpu", "limit", "4", "6", "9600m", "", [])]
    assert found.ahead == [Ahead("default/first", "default", 0, "admitted", 0, {"cpu": "6"})]


async def test_jobs_of_other_queues_are_not_ahead_in_a_quota(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path,
        CAPACITY,
        dsl.node("n1", cpu=64),
        dsl.queue("team-a", capability={"cpu": "4"}),
        dsl.queue("team-b"),
        list(dsl.gang("stranger", 1, queue="team-b", cpu=5)),
        list(dsl.gang("first", 1, queue="team-a", cpu=3)),
        list(dsl.gang("train", 1, queue="team-a", cpu=2, created=1)),
    )
    found = obstacles(path, "train")
    assert [one.job for one in found.ahead] == ["default/first"]
    assert found.limits[0].held_by == [Holder("default/first", "team-a", 0, 1, {"cpu": "3"})]


async def test_a_pod_that_waits_beside_its_running_job(tmp_path: Path) -> None:
    path = await log_of(
        tmp_path, PLAIN, dsl.node("n1", cpu=8), list(dsl.gang("train", 3, members=1, cpu=3, on=["n1"], phase="Running"))
    )
    found = obstacles(path, "train")
    assert (found.wants, [node.lacks for node in found.nodes]) == (1, [{"cpu": "1"}])


async def test_a_job_whose_queue_is_not_there_has_its_reason_alone(tmp_path: Path) -> None:
    found: Obstacles = obstacles(
        await log_of(tmp_path, PLAIN, dsl.node("n1", cpu=8), list(dsl.gang("train", 1, cpu=1, queue="nowhere"))),
        "train",
    )
    assert (found.limits, found.nodes, found.ahead) == ([], [], [])


async def test_a_log_without_sessions(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "events.log", PLAIN) as made:
        await made.show(dsl.queue("default"), dsl.gang("train", 1, cpu=1))
    with pytest.raises(NotFound, match="job default/train waits nowhere: it has no sessions"):
        obstacles(tmp_path / "events.log", "train")


async def test_what_a_queue_deserves(tmp_path: Path) -> None:
    """Of 12 cpu, team-a and team-b deserve 6 each by weight; train would hold 8."""
    path = await log_of(
        tmp_path,
        CONF.replace("enqueue, ", ""),
        dsl.node("n1", cpu=12),
        dsl.queue("team-a"),
        dsl.queue("team-b"),
        list(dsl.gang("train", 2, queue="team-a", cpu=4)),
        list(dsl.gang("other", 12, queue="team-b", cpu=1, members=1)),
    )
    found = obstacles(path, "train")
    assert found.limits == [Limit("queue", "proportion", "team-a", "cpu", "deserved", "4", "4", "6", "4", [])]
    assert found.nodes == []


async def test_what_the_verdict_decided_again_is_not_decided_once_more(tmp_path: Path) -> None:
    decided = []
    with opened(await gpus_held(tmp_path)) as history:
        rerun = history.rerun

        def counting(*asked: Any, **how: Any) -> Any:
            decided.append(rerun(*asked, **how))
            return decided[-1]

        history.rerun = counting  # type: ignore[method-assign]
        verdict_on(history, "default/train", waits_of(history, "default/train"))
        told = obstacles_of(history, "train")
    assert told.nodes
    assert len(decided) > 1
    assert len({id(session) for _, session in decided}) == 1
