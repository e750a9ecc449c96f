"""Volcano's own controllers and webhooks, and vcd in vc-scheduler's place."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import test_eviction
from tests.e2e.cluster import GROUPS, QUEUES, Obj, node, until
from tests.e2e.test_eviction import JOBS, job, pods
from tests.real.api import Refused
from tests.real.cluster import VolcanoCluster
from tests.real.controlplane import ControlPlane
from vcd.embedded.kubelet import EXIT_CODE, RUN_SECONDS

pytestmark = [pytest.mark.real, pytest.mark.volcano]

TESTS: list[Callable[..., Awaitable[None]]] = [
    test_eviction.test_a_job_of_high_priority_preempts_a_lower_one,
    test_eviction.test_a_queue_takes_back_what_it_deserves_from_one_that_borrowed,
]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__.removeprefix("test_"))
async def test_it_holds_with_volcanos_controllers(
    test: Callable[..., Awaitable[None]], volcano: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect.getmodule(test), "Cluster", VolcanoCluster)
    await test(tmp_path)


def running(cluster: VolcanoCluster, name: str) -> int:
    """How many pods of a job run."""
    return len(pods(cluster, name, "Running"))


def phase(cluster: VolcanoCluster, name: str) -> str:
    """Of the job, as its controller tells it."""
    found: str = cluster.store.get(JOBS, "default", name).get("status", {}).get("state", {}).get("phase", "")
    return found


def group_of(cluster: VolcanoCluster, name: str) -> Obj:
    """The status of the PodGroup that the controller made for a job; empty before."""
    found = [each for each in cluster.store.list(GROUPS, "default") if each["metadata"]["name"].startswith(f"{name}-")]
    return found[0].get("status", {}) if found else {}


def told(cluster: VolcanoCluster, name: str) -> list[str]:
    """What Events say of a job's group."""
    events = [each for each in cluster.store.list("events", "default") if each["involvedObject"]["kind"] == "PodGroup"]
    return [each["message"] for each in events if each["involvedObject"]["name"].startswith(f"{name}-")]


def add_queue(cluster: VolcanoCluster, name: str, **spec: Any) -> None:
    cluster.store.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1, **spec}})


async def until_open(cluster: VolcanoCluster, name: str) -> None:
    await until(lambda: name in cluster.open_queues(), what=f"queue {name} is open")


def ending(job: Obj, code: int, **spec: Any) -> Obj:
    """A job whose pods end at once, all with the same exit code."""
    job["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": {RUN_SECONDS: "0", EXIT_CODE: str(code)}}
    job["spec"] |= spec
    return job


async def test_a_gang_runs_whole_or_not_at_all(volcano: ControlPlane, tmp_path: Path) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 3)
        await cluster.started("a")
        cluster.store.create(JOBS, job("gang", 4, minimum=4))
        cluster.store.create(JOBS, job("small", 2, minimum=2))
        await until(lambda: running(cluster, "small") == 2, what="the small one runs")
        await until(lambda: told(cluster, "gang"), what="it is told why it waits")
        assert (running(cluster, "gang"), phase(cluster, "gang")) == (0, "Pending")
        assert group_of(cluster, "gang")["phase"] == "Pending"
        cluster.store.create("nodes", node("late", 4))
        await until(lambda: phase(cluster, "gang") == "Running", what="the gang runs")
        await until(lambda: group_of(cluster, "gang").get("phase") == "Running", what="so says its group")
        assert {bind.key for bind in cluster.binds} >= {f"default/gang-t-{number}" for number in range(4)}


async def test_what_goes_beyond_the_minimum_runs_as_far_as_there_is_room(volcano: ControlPlane, tmp_path: Path) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        await cluster.started("a")
        elastic = job("elastic", 6, minimum=3)
        elastic["spec"]["tasks"][0]["minAvailable"] = 3
        cluster.store.create(JOBS, elastic)
        await until(lambda: running(cluster, "elastic") == 4, what="four of six run")
        await until(lambda: phase(cluster, "elastic") == "Running", what="the job runs")


async def test_a_queue_takes_no_more_than_its_capability(volcano: ControlPlane, tmp_path: Path) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(2, 8)
        await cluster.started("a")
        add_queue(cluster, "narrow", capability={"cpu": "3"})
        await until_open(cluster, "narrow")
        cluster.store.create(JOBS, job("fits", 2, minimum=2, queue="narrow"))
        await until(lambda: running(cluster, "fits") == 2, what="it runs")
        cluster.store.create(JOBS, job("waits", 2, minimum=2, queue="narrow"))
        cluster.store.create(JOBS, job("elsewhere", 2, minimum=2))
        await until(lambda: running(cluster, "elsewhere") == 2, what="another queue's runs")
        await until(lambda: told(cluster, "waits"), what="it is told why it waits")
        assert pods(cluster, "waits", "Pending") == []  # the controller makes none before its group is admitted
        cluster.store.delete(JOBS, "default", "fits")
        await until(lambda: running(cluster, "waits") == 2, what="it runs once there is room")
        allocated = cluster.store.get(QUEUES, None, "narrow")["status"]["allocated"]
        assert allocated["cpu"] == "2"


async def test_a_job_that_fails_is_restarted_as_often_as_it_says(volcano: ControlPlane, tmp_path: Path) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        await cluster.started("a")
        policies = [{"event": "PodFailed", "action": "RestartJob"}]
        wanted = ending(job("fails", 1, minimum=2), 3, policies=policies, maxRetry=2)
        # it runs on: a job all of whose pods have failed the controller may end before it hears that one has
        wanted["spec"]["tasks"].append({**job("fails", 1)["spec"]["tasks"][0], "name": "u"})
        cluster.store.create(JOBS, wanted)
        await until(lambda: phase(cluster, "fails") == "Failed", what="it fails for good")
        assert cluster.store.get(JOBS, "default", "fails")["status"]["retryCount"] == 2
        assert len([bind for bind in cluster.binds if bind.key == "default/fails-t-0"]) >= 2


async def test_a_job_that_ends_leaves_its_room_to_the_next(volcano: ControlPlane, tmp_path: Path) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 2)
        await cluster.started("a")
        for name in ("one", "two"):
            cluster.store.create(JOBS, ending(job(name, 2, minimum=2), 0))
        for name in ("one", "two"):
            await until(lambda name=name: phase(cluster, name) == "Completed", what=f"{name} is complete")


async def test_a_queue_that_is_closed_takes_nothing_until_it_is_open_again(
    volcano: ControlPlane, tmp_path: Path
) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        await cluster.started("a")
        add_queue(cluster, "night")
        await until_open(cluster, "night")
        cluster.store.create(JOBS, job("runs", 1, queue="night"))
        await until(lambda: running(cluster, "runs") == 1, what="it runs")
        cluster.store.create(JOBS, job("too-large", 1, queue="night", cpu=4))
        await until(lambda: group_of(cluster, "too-large"), what="its group is there")
        command(cluster, "CloseQueue", "night")
        await until(lambda: state(cluster, "night") == "Closing", what="it closes while something runs")
        with pytest.raises(Refused, match="night"):
            cluster.store.create(JOBS, job("late", 1, queue="night"))
        cluster.store.delete(JOBS, "default", "runs")
        cluster.store.create(JOBS, job("elsewhere", 3, minimum=3))
        await until(lambda: running(cluster, "elsewhere") == 3, what="another queue's runs")
        cluster.store.delete(JOBS, "default", "elsewhere")
        await until(lambda: not pods(cluster, "elsewhere", "Running"), what="it is gone")
        assert running(cluster, "too-large") == 0
        command(cluster, "OpenQueue", "night")
        await until(lambda: running(cluster, "too-large") == 1, what="it runs once its queue is open")


def state(cluster: VolcanoCluster, queue: str) -> str:
    found: str = cluster.store.get(QUEUES, None, queue)["status"]["state"]
    return found


def command(cluster: VolcanoCluster, action: str, queue: str) -> None:
    """What ``vcctl queue operate`` makes: a Command about the queue, which the controller carries out and deletes."""
    target = cluster.store.get(QUEUES, None, queue)
    owner = {
        "apiVersion": target["apiVersion"], "kind": "Queue", "name": queue, "uid": target["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    metadata = {"generateName": f"{queue}-", "namespace": "default", "ownerReferences": [owner]}
    cluster.store.create("commands.bus.volcano.sh", {"metadata": metadata, "action": action, "target": owner})


async def test_pods_of_a_deployment_get_a_group_and_run(volcano: ControlPlane, tmp_path: Path) -> None:
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        await cluster.started("a")
        labels = {"app": "web"}
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        template = {"metadata": {"labels": labels}, "spec": {"schedulerName": "volcano", "containers": [container]}}
        spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
        cluster.store.create("deployments.apps", {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        await until(lambda: running(cluster, "web") == 3, what="all of it runs")
        (group,) = cluster.store.list(GROUPS, "default")
        assert group["spec"]["minMember"] == 1
        await until(lambda: cluster.store.list(GROUPS, "default")[0]["status"].get("phase") == "Running")
