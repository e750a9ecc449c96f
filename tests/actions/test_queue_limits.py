"""Evictions for a job whose queue is full although nodes have idle resources: quotas of cards, capability, deserved."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.actions.test_preempt import CLASSES, VALUES
from tests.dsl import Manifest, gang, node, queue
from tests.plugins.opened import conf
from tests.world import World
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.actions import _gang_eviction
from vcd.scheduling.eviction.victim_search import placed_tasks
from vcd.scheduling.plugins.drf import DrfPlugin
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.views import Task

A = "NVIDIA-H200"
GPU = "nvidia.com/gpu"
NAMED = {"volcano.sh/card.name": A}
PLUGINS = ("capacity-card", "capacity", "proportion")
ACTIONS = ("preempt", "gangpreempt")
FULL = ReasonCode("full", Cause.QUEUE_CAPABILITY, "the queue has a job")


def job(name: str, rank: str, size: int, **options: Any) -> list[Manifest]:
    """A job of queue q whose pods use a card each."""
    spec = {"priority": VALUES[rank], "priorityClassName": rank}
    shared = {"queue": "q", "annotations": NAMED, "spec": spec, "group_spec": {"priorityClassName": rank}}
    minimum = {"gpu": options.pop("minimum", options.get("members", size))}
    return list(gang(name, size, minimum=minimum, **{"gpu": 1, "cpu": 1, **shared, **options}))


def world(
    plugin: str,
    action: str,
    *jobs: list[Manifest],
    quota: int = 4,
    nodes: int = 1,
    more: tuple[str, ...] = (),
    terminates: bool = False,
) -> World:
    """Nodes of 16 cards, and queue q with a quota."""
    labels = {f"{GPU}.product": A, f"{GPU}.memory": "81920"}
    shelves = [node(f"n{i}", labels=labels, **{"cpu": 64, "memory": 64, GPU: 16}) for i in range(nodes)]
    limited = queue(
        "q", capability={"cpu": 64, "memory": "64Gi", **({} if plugin == "capacity-card" else {GPU: quota})}
    )
    limited["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps({A: quota})}
    tiers = "".join(f", {{name: {name}}}" for name in (*more, plugin))
    text = conf("priority", "conformance", actions=f"enqueue, allocate, {action}")
    text += f"- plugins: [{{name: gang}}, {{name: predicates}}{tiers}]\n"
    kind = _Terminating if terminates else World
    return kind(CLASSES, shelves, limited, *jobs, conf=text)


class _Terminating(World):
    """Evicted pods terminate, and stay on their nodes."""

    def leave(self, key: str) -> None:
        pod = self.state.pod(key)
        assert pod is not None
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.happen(ev.ObjectPut("Pod", key, "", encode_payload(msgspec.structs.replace(pod, metadata=meta))))


@pytest.mark.parametrize("wanted", [1, 2, 4])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_job_gets_what_lower_ones_hold_of_a_full_queue(plugin: str, action: str, wanted: int) -> None:
    low = [job(f"low-{i}", "low", 1, on=["n0"], phase="Running") for i in range(4)]
    cluster = world(plugin, action, *low, job("new", "high", wanted, phase="Pending", created=9))
    cluster.rest()
    assert len(cluster.placed("new")) == len(cluster.evicted) == wanted


@pytest.mark.parametrize("wanted", [1, 2, 3])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_more_of_a_job_go_than_its_queue_lacks(plugin: str, action: str, wanted: int) -> None:
    """The job can spare five of six pods."""
    low = job("low", "low", 6, members=1, minimum=1, on=["n0"] * 6, phase="Running")
    cluster = world(plugin, action, low, job("new", "high", wanted, created=9), quota=7)
    cluster.rest()
    assert len(cluster.placed("new")) == wanted
    assert len(cluster.evicted) == wanted - 1


@pytest.mark.parametrize("plugin", PLUGINS)
def test_jobs_that_go_as_a_whole_go_as_a_whole_for_a_queue_limit(plugin: str) -> None:
    low = [job(f"low-{i}", "low", 2, on=["n0"] * 2, phase="Running", created=i) for i in range(3)]
    cluster = world(plugin, "gangpreempt", *low, job("new", "high", 3, created=9), quota=6)
    cluster.rest()
    assert len(cluster.placed("new")) == 3
    assert sorted(cluster.evicted) == [f"default/low-{i}-{j}" for i in (1, 2) for j in (0, 1)]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_more_pods_are_evicted_while_the_victims_terminate(plugin: str, action: str) -> None:
    low = [job(f"low-{i}", "low", 1, on=["n0"], phase="Running") for i in range(4)]
    cluster = world(plugin, action, *low, job("new", "high", 2, phase="Pending", created=9), terminates=True)
    for _ in range(4):
        cluster.cycle()
    assert len(cluster.evicted) == 2
    cluster.remove("Pod", *cluster.evicted)
    cluster.rest()
    assert len(cluster.placed("new")) == 2


@pytest.mark.parametrize("action", [*ACTIONS, "reclaim", "gangreclaim"])
def test_a_pod_that_waits_for_quota_being_freed_evicts_no_pod_elsewhere(action: str) -> None:
    """n0 is full and rated higher; n1 has idle cards."""
    low = job("low", "low", 16, members=1, minimum=1, on=["n0"] * 16, phase="Running")
    gone = job("gone", "low", 1, on=["n1"], phase="Running", **{"deleting": True})
    cluster = world("capacity-card", action, low, gone, job("new", "high", 1), quota=17, nodes=2, more=("binpack",))
    plan = cluster.decide()
    assert [op.verb for statement in plan.statements for op in statement.operations] == ["pipeline"]
    assert cluster.evicted == []


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_gang_is_not_tried_after_each_of_its_victims(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To try it before its queue can take all of it makes the session quadratic."""
    low = [job(f"low-{i}", "low", 1, on=["n0"], phase="Running") for i in range(12)]
    cluster = world(plugin, "gangpreempt", *low, job("new", "high", 12, created=9), quota=12, nodes=2)
    tried: list[tuple[Any, ...]] = []
    place_all = _gang_eviction._place_all

    def counted(*asked: Any) -> bool:
        tried.append(asked)
        return place_all(*asked)

    monkeypatch.setattr(_gang_eviction, "_place_all", counted)
    cluster.rest()
    assert len(cluster.evicted) == len(cluster.placed("new")) == 12
    assert len(tried) <= 3


def test_a_limit_that_counts_no_resources_is_noticed_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third-party plugin lets a queue have one job at a time."""
    low = [job(f"low-{i}", "low", 1, on=["n0"], phase="Running") for i in range(3)]
    cluster = world("drf", "gangpreempt", *low, job("new", "high", 9, created=9))

    def allocatable(self: DrfPlugin, queue: Queue, task: Task, count: int) -> Reason | None:
        others = [other for other in placed_tasks(self._session).all_on(0) if other.job is not task.job]
        return FULL() if others else None

    monkeypatch.setattr(DrfPlugin, "allocatable", allocatable, raising=False)
    cluster.rest()
    assert len(cluster.evicted) == 3
    assert len(cluster.placed("new")) == 9
